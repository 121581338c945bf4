import { describe, expect, it } from "vitest";
import { explore, type Setting } from "./explore.ts";
import { plainScene, storeScene } from "./worlds.ts";

let total = 0;
const check = <S>(name: string, setting: Setting<S>) =>
  it(name, () => {
    const found = explore(setting);
    total += found.states;
    console.log(`${found.states} states (${total} so far): ${name}`);
    expect({ broken: found.broken, way: found.way }).toEqual({ broken: null, way: [] });
    expect(found.states).toBeGreaterThan(20);
  });

describe("every state of two consumers on the contract's fakes", () => {
  check("one message of any fate, two kills, three attempts", {
    scene: plainScene(),
    messages: { a: "any" },
    consumers: 2,
    maxAttempts: 3,
    kills: 2,
  });
  check("one pill and two others, one kill", {
    scene: plainScene(),
    messages: { pill: "pill", a: "ok", b: "any" },
    consumers: 2,
    maxAttempts: 2,
    kills: 1,
  });
  check("three messages of every fixed fate, two kills", {
    scene: plainScene(),
    messages: { a: "ok", b: "permanent", c: "failing" },
    consumers: 2,
    maxAttempts: 2,
    kills: 2,
  });
  check("a message sent twice", {
    scene: plainScene(),
    messages: { a: "any", b: "ok" },
    doubled: ["a"],
    consumers: 1,
    maxAttempts: 2,
    kills: 1,
  });
  check("a replay by the process that consumes, with kills anywhere", {
    scene: plainScene(),
    messages: { a: "permanent", b: "any" },
    consumers: 1,
    maxAttempts: 2,
    kills: 1,
    replays: 2,
    unbroken: true,
    // A fake knows no lives: a letter sent back before its source was acked may be handled beside it.
    without: ["is started too often", "runs after its dead letter", "is handled and still among the dead"],
  });
});

for (const apart of [false, true]) {
  const where = apart ? "a queue and a store that share no transaction" : "a store with one transaction";
  const scene = () => storeScene({ apart });
  describe(`every state of two consumers on ${where}`, () => {
    check(`${where}: one message of any fate, a kill and a takeover`, {
      scene: scene(),
      messages: { a: "any" },
      consumers: 2,
      maxAttempts: 3,
      kills: 1,
      takeovers: 1,
      // Without a transaction nothing fences the put of a consumer that was taken over.
      without: apart ? ["runs after its dead letter", "is handled and still among the dead"] : [],
    });
    check(`${where}: one pill and two others, one kill`, {
      scene: scene(),
      messages: { pill: "pill", a: "ok", b: "any" },
      consumers: 2,
      maxAttempts: 2,
      kills: 1,
    });
    check(`${where}: three messages, two kills`, {
      scene: scene(),
      messages: { a: "ok", b: "permanent", c: "failing" },
      consumers: 2,
      maxAttempts: 2,
      kills: 1,
    });
    check(`${where}: a replayer that can die, two replays, two consumers`, {
      scene: scene(),
      messages: { a: "any" },
      consumers: 2,
      maxAttempts: 1,
      kills: 2,
      replays: 2,
    });
    check(`${where}: two replayers at the same time`, {
      scene: scene(),
      messages: { a: "permanent", b: "permanent" },
      consumers: 1,
      maxAttempts: 1,
      kills: 1,
      replays: 2,
      replayers: 2,
    });
  });
}
