// For every code what must bring it up, and what comes near and must not.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { DOCTOR_CODES, type DoctorCode, type ExamineOptions, examine } from "../../../src/topology/index.ts";
import { b, type Doc, doc, operator, p, q, x } from "./build.ts";

/** [what, document, `severity object`, options] */
type Hit = readonly [string, Doc | string, string, ExamineOptions?];
type Miss = readonly [string, Doc | string, ExamineOptions?];

const dlx = [x("dlx", "fanout"), q("dlq"), b("dlx -> dlq")];
const work = (args: Doc, properties: Doc = {}): Doc[] => [
  x("in"),
  q("work", args, properties),
  b("in -> work", "k"),
];
const quorum = { type: "quorum" };
const v3: ExamineOptions = { brokerVersion: "3.13.7" };
const v4: ExamineOptions = { brokerVersion: "4.1.0" };
const partial: ExamineOptions = { partial: true };

const RULES: Record<DoctorCode, { hit: readonly Hit[]; miss: readonly Miss[] }> = {
  "dlx-not-declared": {
    hit: [
      ["a name with a typo", doc(dlx, work({ dlx: "dxl" })), "error work"],
      ["in a partial file", doc(dlx, work({ dlx: "dxl" })), "warning work", partial],
      ["by policy", doc(work({}), p("set", "^work$", { "dead-letter-exchange": "gone" })), "error work"],
      ["in another vhost", doc(work({ dlx: "far" }), x("far", "topic", { vhost: "b" })), "error work"],
      [
        "a policy whose queues are not in the file",
        doc(dlx, work({ dlx: "dlx" }), p("later", "^absent", { "dead-letter-exchange": "gone" })),
        "warning later",
      ],
    ],
    miss: [
      ["built-in exchanges", doc(work({ dlx: "amq.topic" }), q("dlq"), b("amq.topic -> dlq", "#"))],
      [
        "an internal exchange",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout", { internal: true }), q("dlq"), b("dlx -> dlq")),
      ],
      ["the default exchange", doc(work({ dlx: "", dlrk: "dlq" }), q("dlq"))],
    ],
  },
  "dlx-without-bindings": {
    hit: [
      ["a DLX nothing is bound to", doc(work({ dlx: "dlx" }), x("dlx", "direct")), "error work"],
      ["a built-in one", doc(work({ dlx: "amq.fanout" })), "error work"],
      [
        "whose alternate has none either",
        doc(
          work({ dlx: "dlx" }),
          x("dlx", "direct", { arguments: { "alternate-exchange": "ae" } }),
          x("ae", "fanout"),
        ),
        "error work",
      ],
    ],
    miss: [
      [
        "whose alternate exchange takes them",
        doc(
          work({ dlx: "dlx" }),
          x("dlx", "direct", { arguments: { "alternate-exchange": "ae" } }),
          x("ae", "fanout"),
          q("dlq"),
          b("ae -> dlq"),
        ),
      ],
      [
        "bound to an exchange",
        doc(
          work({ dlx: "dlx" }),
          x("dlx", "fanout"),
          dlx.slice(1),
          x("two", "fanout"),
          b("dlx => two"),
          b("two -> dlq"),
        ),
      ],
    ],
  },
  "dlx-unroutable": {
    hit: [
      [
        "a direct DLX and the original key",
        doc(work({ dlx: "d" }), x("d", "direct"), q("dlq"), b("d -> dlq", "work")),
        "error work",
      ],
      [
        "a DLRK nothing binds",
        doc(work({ dlx: "d", dlrk: "no" }), x("d", "topic"), q("dlq"), b("d -> dlq", "yes")),
        "error work",
      ],
      [
        "a * in a DLRK is a plain word",
        doc(work({ dlx: "d", dlrk: "a.*" }), x("d", "direct"), q("dlq"), b("d -> dlq", "a.b")),
        "error work",
      ],
      [
        "an empty key against *",
        doc(work({ dlx: "d", dlrk: "" }), x("d"), q("dlq"), b("d -> dlq", "*")),
        "error work",
      ],
      [
        "fed by a fanout",
        doc(
          x("in", "fanout"),
          q("work", { dlx: "d" }),
          b("in -> work"),
          x("d", "direct"),
          q("dlq"),
          b("d -> dlq", "work"),
        ),
        "error work",
      ],
      [
        "sent by name",
        doc(q("work", { dlx: "d" }), x("d", "direct"), q("dlq"), b("d -> dlq", "other")),
        "error work",
      ],
    ],
    miss: [
      [
        "the alternate exchange takes it",
        doc(
          work({ dlx: "d" }),
          x("d", "direct", { arguments: { "alternate-exchange": "ae" } }),
          x("ae", "fanout"),
          q("dlq"),
          q("rest"),
          b("d -> dlq", "z"),
          b("ae -> rest"),
        ),
      ],
      ["headers cannot be known", doc(work({ dlx: "d" }), x("d", "headers"), q("dlq"), b("d -> dlq"))],
      [
        "a plugin's type cannot be known",
        doc(work({ dlx: "d" }), x("d", "x-delayed-message"), q("dlq"), b("d -> dlq", "z")),
      ],
      [
        "a pattern within a pattern",
        doc(
          x("in"),
          q("work", { dlx: "d" }),
          b("in -> work", "parcel.*.eu"),
          x("d"),
          q("dlq"),
          b("d -> dlq", "parcel.#"),
        ),
      ],
    ],
  },
  "dlx-partly-unroutable": {
    hit: [
      [
        "one of two keys",
        doc(work({ dlx: "d" }), b("in -> work", "k2"), x("d", "direct"), q("dlq"), b("d -> dlq", "k")),
        "warning work",
      ],
      [
        "a wide pattern behind a narrow one",
        doc(x("in"), q("work", { dlx: "d" }), b("in -> work", "o.#"), x("d"), q("dlq"), b("d -> dlq", "o.*")),
        "warning work",
      ],
      [
        "the key changes when a waiting queue returns by name",
        doc(
          work({ dlx: "d" }),
          x("d", "direct"),
          q("hold", { ttl: 10, dlx: "", dlrk: "work" }),
          b("d -> hold", "k"),
        ),
        "warning work",
      ],
    ],
    miss: [
      [
        "several bindings that cover it together",
        doc(
          x("in"),
          q("work", { dlx: "d" }),
          b("in -> work", "o.#"),
          x("d"),
          q("dlq"),
          b("d -> dlq", "o"),
          b("d -> dlq", "o.*.#"),
        ),
      ],
      [
        "a DLRK",
        doc(
          x("in"),
          q("work", { dlx: "d", dlrk: "dead" }),
          b("in -> work", "o.#"),
          x("d"),
          q("dlq"),
          b("d -> dlq", "dead"),
        ),
      ],
    ],
  },
  "dlx-default-exchange-no-such-queue": {
    hit: [
      ["a DLRK that names no queue", doc(work({ dlx: "", dlrk: "work.dead" }), q("work.dlq")), "error work"],
      ["in a partial file", doc(work({ dlx: "", dlrk: "work.dead" })), "warning work", partial],
    ],
    miss: [["a DLRK that names one", doc(work({ dlx: "", dlrk: "dlq" }), q("dlq"))]],
  },
  "dlx-default-exchange-without-key": {
    hit: [
      ["no DLRK", doc(work({ dlx: "" }), q("dlq")), "error work"],
      ["by policy", doc(work({}), p("set", "work", { "dead-letter-exchange": "" })), "error work"],
    ],
    miss: [
      [
        "a DLRK by policy",
        doc(work({ dlx: "" }), q("dlq"), p("set", "^work$", { "dead-letter-routing-key": "dlq" })),
      ],
    ],
  },
  "dead-letter-to-self": {
    hit: [
      ["its own exchange", doc(work({ dlx: "in" })), "error work"],
      ["its own name", doc(work({ dlx: "", dlrk: "work" })), "error work"],
      [
        "a catch-all policy that takes in the DLQ",
        doc(work({}), dlx, p("all", ".*", { "dead-letter-exchange": "dlx" })),
        "error dlq",
      ],
      [
        "its own # on a shared exchange",
        doc(x("in"), q("work", { dlx: "in", dlrk: "dead" }), b("in -> work", "#")),
        "error work",
      ],
      ["over a second exchange", doc(work({ dlx: "d" }), x("d", "fanout"), b("d => in")), "error work"],
    ],
    miss: [
      [
        "a shared exchange and another key",
        doc(work({ dlx: "in", dlrk: "dead" }), q("dlq"), b("in -> dlq", "dead")),
      ],
      [
        "a round through a waiting queue",
        doc(work({ dlx: "", dlrk: "work.wait" }), q("work.wait", { ttl: 10, dlx: "", dlrk: "work" })),
      ],
    ],
  },
  "ttl-cycle-dropped": {
    hit: [
      [
        "both sides have a TTL",
        doc(work({ dlx: "", dlrk: "w", ttl: 10 }), q("w", { ttl: 10, dlx: "", dlrk: "work" })),
        "error work",
      ],
      [
        "three in a ring, one TTL by policy",
        doc(
          work({ dlx: "", dlrk: "a", ttl: 9 }),
          q("a", { dlx: "", dlrk: "c" }),
          q("c", { dlx: "", dlrk: "work", ttl: 9 }),
          p("t", "^a$", { "message-ttl": 5 }),
        ),
        "error work",
      ],
      [
        "a delivery limit that leads into the loop",
        doc(work({ ...quorum, limit: 3, dlx: "", dlrk: "w" }), q("w", { ttl: 10, dlx: "", dlrk: "work" })),
        "warning work",
      ],
      [
        "max-length that leads into the loop",
        doc(work({ max: 3, dlx: "", dlrk: "w" }), q("w", { ttl: 10, dlx: "", dlrk: "work" })),
        "warning work",
      ],
    ],
    miss: [
      [
        "the work queue has no TTL",
        doc(work({ dlx: "", dlrk: "w" }), q("w", { ttl: 10, dlx: "", dlrk: "work" })),
      ],
      ["a loop of one queue", doc(work({ dlx: "", dlrk: "work", ttl: 5 }))],
      [
        "reject-publish does not kill",
        doc(
          work({ max: 3, overflow: "reject-publish", dlx: "", dlrk: "w" }),
          q("w", { ttl: 10, dlx: "", dlrk: "work" }),
        ),
      ],
    ],
  },
  "retry-loop-without-broker-limit": {
    hit: [
      [
        "reject, wait, back",
        doc(work({ dlx: "", dlrk: "w" }), q("w", { ttl: 10, dlx: "", dlrk: "work" })),
        "info work",
      ],
    ],
    miss: [
      ["itself at once", doc(work({ dlx: "in" }))],
      [
        "a waiting queue that leads to a parking queue",
        doc(work({ dlx: "", dlrk: "w" }), q("w", { ttl: 10, dlx: "", dlrk: "parking" }), q("parking")),
      ],
    ],
  },
  "dlq-drops-letters": {
    hit: [
      [
        "a TTL",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("dlq", { ttl: 1000 }), b("dlx -> dlq")),
        "error dlq",
      ],
      [
        "a length",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("box", { max: 5 }), b("dlx -> box")),
        "error box",
      ],
      ["a TTL by policy", doc(work({ dlx: "dlx" }), dlx, p("ttl", "", { "message-ttl": 1000 })), "error dlq"],
      [
        "a TTL by operator policy",
        doc(work({ dlx: "dlx" }), dlx, operator("cap", "^dlq$", { "message-ttl": 1000 })),
        "error dlq",
      ],
      [
        "a length in bytes",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("dlq", { "x-max-length-bytes": 5 }), b("dlx -> dlq")),
        "error dlq",
      ],
    ],
    miss: [
      [
        "reject-publish",
        doc(
          work({ dlx: "dlx" }),
          x("dlx", "fanout"),
          q("dlq", { max: 5, overflow: "reject-publish" }),
          b("dlx -> dlq"),
        ),
      ],
      ["a waiting queue", doc(work({ dlx: "", dlrk: "w" }), q("w", { ttl: 10, dlx: "", dlrk: "work" }))],
      ["a work queue with a length", doc(work({ max: 10 }))],
    ],
  },
  "dlq-deletes-itself": {
    hit: [
      [
        "x-expires",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("dlq", { expires: 60_000 }), b("dlx -> dlq")),
        "error dlq",
      ],
      [
        "auto-delete",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("dlq", {}, { auto_delete: true }), b("dlx -> dlq")),
        "error dlq",
      ],
      [
        "expires by a catch-all policy",
        doc(work({ dlx: "dlx" }), dlx, p("all", ".*", { expires: 60_000 })),
        "error dlq",
      ],
    ],
    miss: [
      ["a work queue with x-expires", doc(work({ dlx: "dlx", expires: 60_000 }), dlx)],
      ["a plain DLQ", doc(work({ dlx: "dlx" }), dlx)],
    ],
  },
  "dlq-delivery-limit": {
    hit: [
      [
        "an explicit limit",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("dlq", { ...quorum, limit: 5 }), b("dlx -> dlq")),
        "error dlq",
        v4,
      ],
      [
        "the default of 4.x",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("dlq", quorum), b("dlx -> dlq")),
        "warning dlq",
        v4,
      ],
      [
        "the version is unknown",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("dlq", quorum), b("dlx -> dlq")),
        "warning dlq",
      ],
      [
        "an explicit limit on 3.x",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("dlq", { ...quorum, limit: 5 }), b("dlx -> dlq")),
        "error dlq",
        v3,
      ],
    ],
    miss: [
      [
        "-1 on 4.x",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("dlq", { ...quorum, limit: -1 }), b("dlx -> dlq")),
        v4,
      ],
      [
        "no limit on 3.x",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("dlq", quorum), b("dlx -> dlq")),
        v3,
      ],
      ["a classic DLQ", doc(work({ dlx: "dlx" }), dlx), v4],
    ],
  },
  "dlq-not-durable": {
    hit: [
      [
        "durable work, transient DLQ",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("dlq", {}, { durable: false }), b("dlx -> dlq")),
        "error dlq",
      ],
    ],
    miss: [
      [
        "both transient",
        doc(
          work({ dlx: "dlx" }, { durable: false }),
          x("dlx", "fanout"),
          q("dlq", {}, { durable: false }),
          b("dlx -> dlq"),
        ),
      ],
    ],
  },
  "dlx-not-durable": {
    hit: [
      [
        "durable work, transient DLX",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout", { durable: false }), q("dlq"), b("dlx -> dlq")),
        "error dlx",
      ],
      [
        "a transient exchange further on",
        doc(
          work({ dlx: "dlx" }),
          x("dlx", "fanout"),
          x("two", "fanout", { durable: false }),
          b("dlx => two"),
          q("dlq"),
          b("two -> dlq"),
        ),
        "error two",
      ],
    ],
    miss: [
      [
        "a transient work queue",
        doc(
          work({ dlx: "dlx" }, { durable: false }),
          x("dlx", "fanout", { durable: false }),
          q("dlq"),
          b("dlx -> dlq"),
        ),
      ],
      [
        "a transient exchange that is no DLX",
        doc(work({ dlx: "dlx" }), dlx, x("other", "fanout", { durable: false })),
      ],
    ],
  },
  "dlx-auto-delete": {
    hit: [
      [
        "an auto-delete DLX",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout", { auto_delete: true }), q("dlq"), b("dlx -> dlq")),
        "warning dlx",
      ],
    ],
    miss: [
      [
        "an auto-delete exchange that is no DLX",
        doc(work({ dlx: "dlx" }), dlx, x("other", "fanout", { auto_delete: true })),
      ],
    ],
  },
  "dlq-never-fed": {
    hit: [
      [
        "its work queue has no DLX",
        doc(work({}), x("dlx", "direct"), q("work.dlq"), b("dlx -> work.dlq", "work")),
        "warning work.dlq",
      ],
      [
        "the DLX is unroutable",
        doc(work({ dlx: "d" }), x("d", "direct"), q("graves"), b("d -> graves", "no")),
        "warning graves",
      ],
      ["an application may fill it", doc(work({ dlx: "dlx" }), dlx, q("work.parking")), "info work.parking"],
      ["in a partial file", doc(work({}), q("work.dlq")), "info work.dlq", partial],
      ["only DLX and DLQ are in the file", doc(dlx), "info dlq"],
    ],
    miss: [
      ["fed by headers, perhaps", doc(work({ dlx: "d" }), x("d", "headers"), q("dlq"), b("d -> dlq"))],
      [
        "fed on one side of a tie",
        doc(
          work({}),
          dlx,
          p("a", "^work$", { "dead-letter-exchange": "dlx" }),
          p("c", "^work$", { "message-ttl": 5 }),
        ),
      ],
      ["a sibling of a shared exchange", doc(work({ dlx: "in" }), q("billing"), b("in -> billing", "bill"))],
      [
        "a work queue called after an event",
        doc(x("in"), q("payment.failed"), b("in -> payment.failed", "payment.failed")),
      ],
    ],
  },
  "expiry-without-dlx": {
    hit: [
      ["a TTL", doc(work({ ttl: 5 })), "warning work"],
      ["by operator policy", doc(work({}), operator("cap", "work", { "message-ttl": 5 })), "warning work"],
      [
        "on one side of a tie",
        doc(
          work({}),
          dlx,
          p("a", "^work$", { "dead-letter-exchange": "dlx" }),
          p("c", "^work$", { "message-ttl": 5 }),
        ),
        "warning work",
      ],
    ],
    miss: [
      ["a DLX by policy", doc(work({ ttl: 5 }), dlx, p("a", "^work$", { "dead-letter-exchange": "dlx" }))],
      ["a TTL of a wrong type", doc(work({ ttl: "5" }))],
      ["a DLQ", doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("dlq", { ttl: 5 }), b("dlx -> dlq"))],
    ],
  },
  "overflow-without-dlx": {
    hit: [
      ["drop-head by default", doc(work({ max: 5 })), "warning work"],
      ["in bytes", doc(work({ "x-max-length-bytes": 5 })), "warning work"],
      [
        "a quorum queue reads reject-publish-dlx as drop-head",
        doc(work({ ...quorum, max: 5, overflow: "reject-publish-dlx" })),
        "warning work",
      ],
    ],
    miss: [
      ["reject-publish", doc(work({ max: 5, overflow: "reject-publish" }))],
      ["reject-publish by policy", doc(work({ max: 5 }), p("a", "work", { overflow: "reject-publish" }))],
      ["a stream's retention", doc(work({ type: "stream", "x-max-length-bytes": 5 }))],
    ],
  },
  "delivery-limit-without-dlx": {
    hit: [
      ["no DLX", doc(work({ ...quorum, limit: 5 })), "error work"],
      ["by policy", doc(work(quorum), p("a", "work", { "delivery-limit": 5 })), "error work"],
      ["a DLX that leads nowhere", doc(work({ ...quorum, limit: 5, dlx: "gone" })), "error work"],
    ],
    miss: [
      ["a DLX", doc(work({ ...quorum, limit: 5, dlx: "dlx" }), dlx)],
      ["by policy on a classic queue", doc(work({}), p("a", "work", { "delivery-limit": 5 }))],
      ["-1 on 4.x", doc(work({ ...quorum, limit: -1 })), v4],
    ],
  },
  "quorum-delivery-limit-not-set": {
    hit: [
      ["4.x without DLX", doc(work(quorum)), "error work", v4],
      ["4.x with a DLX that leads nowhere", doc(work({ ...quorum, dlx: "gone" })), "error work", v4],
      ["4.x with DLX", doc(work({ ...quorum, dlx: "dlx" }), dlx), "info work", v4],
      ["3.x", doc(work({ ...quorum, dlx: "dlx" }), dlx), "warning work", v3],
      ["unknown", doc(work({ ...quorum, dlx: "dlx" }), dlx), "warning work"],
      [
        "by the vhost's default type",
        { ...doc(work({})), vhosts: [{ name: "/", metadata: { default_queue_type: "quorum" } }] },
        "warning work",
      ],
      ["a limit that is a string", doc(work({ ...quorum, limit: "5", dlx: "dlx" }), dlx), "warning work"],
    ],
    miss: [
      [
        "a limit by policy",
        doc(work({ ...quorum, dlx: "dlx" }), dlx, p("a", "work", { "delivery-limit": 5 })),
      ],
      ["a classic queue", doc(work({ dlx: "dlx" }), dlx), v4],
      [
        "an auto-delete queue under a quorum default",
        { ...doc(work({}, { auto_delete: true })), vhosts: [{ name: "/", default_queue_type: "quorum" }] },
      ],
      [
        "a waiting queue",
        doc(work({ dlx: "", dlrk: "w" }), q("w", { ...quorum, ttl: 10, dlx: "", dlrk: "work" })),
        v4,
      ],
    ],
  },
  "delivery-limit-minus-one-before-4": {
    hit: [
      ["on 3.x", doc(work({ ...quorum, limit: -1, dlx: "dlx" }), dlx), "error work", v3],
      ["unknown", doc(work({ ...quorum, limit: -1, dlx: "dlx" }), dlx), "error work"],
      [
        "on a DLQ",
        doc(work({ dlx: "dlx" }), x("dlx", "fanout"), q("dlq", { ...quorum, limit: -1 }), b("dlx -> dlq")),
        "error dlq",
      ],
      [
        "the file's own version",
        { ...doc(work({ ...quorum, limit: -1 })), rabbit_version: "3.12" },
        "error work",
      ],
    ],
    miss: [
      ["on 4.x", doc(work({ ...quorum, limit: -1, dlx: "dlx" }), dlx), v4],
      ["the file's own version", { ...doc(work({ ...quorum, limit: -1 })), rabbit_version: "4.0" }],
    ],
  },
  "reject-without-dlx": {
    hit: [
      ["no DLX", doc(work({})), "info work"],
      ["a misspelt one", doc(work({ "x-dead-letter-exchnage": "dlx" }), dlx), "info work"],
    ],
    miss: [
      ["a DLX that does not exist", doc(work({ dlx: "gone" }))],
      ["a DLQ", doc(work({ dlx: "dlx" }), dlx)],
      ["a stream", doc(work({ type: "stream" }))],
      [
        "a policy that cannot be evaluated may set it",
        doc(work({}), p("a", "^w(?>or)k$", { "dead-letter-exchange": "dlx" })),
      ],
    ],
  },
  "classic-no-delivery-limit": {
    hit: [["a classic work queue", doc(work({ dlx: "dlx" }), dlx), "info work"]],
    miss: [
      ["quorum", doc(work({ ...quorum, dlx: "dlx" }), dlx)],
      ["only a DLQ", doc(dlx)],
    ],
  },
  "at-least-once-not-active": {
    hit: [
      [
        "overflow left at drop-head",
        doc(work({ ...quorum, dlx: "dlx", strategy: "at-least-once" }), dlx),
        "error work",
      ],
      [
        "no DLX",
        doc(work({ ...quorum, strategy: "at-least-once", overflow: "reject-publish" })),
        "error work",
      ],
      [
        "by policy on a classic queue",
        doc(
          work({ dlx: "dlx" }),
          dlx,
          p("a", "^work$", { "dead-letter-strategy": "at-least-once", overflow: "reject-publish" }),
        ),
        "error work",
      ],
    ],
    miss: [
      [
        "all in place, from two layers",
        doc(
          work({ ...quorum, dlx: "dlx", strategy: "at-least-once" }),
          dlx,
          p("a", "^work$", { overflow: "reject-publish" }),
        ),
      ],
      ["at-most-once", doc(work({ ...quorum, dlx: "dlx", strategy: "at-most-once" }), dlx)],
    ],
  },
  "at-least-once-blocked": {
    hit: [
      [
        "a DLX that is missing",
        doc(work({ ...quorum, dlx: "gone", strategy: "at-least-once", overflow: "reject-publish" })),
        "error work",
      ],
      [
        "a key nothing binds",
        doc(
          work({ ...quorum, dlx: "d", strategy: "at-least-once", overflow: "reject-publish" }),
          x("d", "direct"),
          q("dlq"),
          b("d -> dlq", "z"),
        ),
        "error work",
      ],
    ],
    miss: [
      [
        "a route",
        doc(work({ ...quorum, dlx: "dlx", strategy: "at-least-once", overflow: "reject-publish" }), dlx),
      ],
      ["not in force, so lost instead", doc(work({ ...quorum, dlx: "gone", strategy: "at-least-once" }))],
    ],
  },
  "at-least-once-chain-weak": {
    hit: [
      [
        "a waiting queue that is at-most-once",
        doc(
          work({ ...quorum, dlx: "", dlrk: "w", strategy: "at-least-once", overflow: "reject-publish" }),
          q("w", { ttl: 5, dlx: "", dlrk: "work" }),
        ),
        "info w",
      ],
    ],
    miss: [
      [
        "straight into a DLQ",
        doc(work({ ...quorum, dlx: "dlx", strategy: "at-least-once", overflow: "reject-publish" }), dlx),
      ],
      [
        "both at-least-once",
        doc(
          work({ ...quorum, dlx: "", dlrk: "w", strategy: "at-least-once", overflow: "reject-publish" }),
          q("w", {
            ...quorum,
            ttl: 5,
            dlx: "",
            dlrk: "work",
            strategy: "at-least-once",
            overflow: "reject-publish",
          }),
        ),
      ],
    ],
  },
  "policy-priority-tie": {
    hit: [
      [
        "one has the DLX",
        doc(
          work({}),
          dlx,
          p("a", "^work$", { "dead-letter-exchange": "dlx" }),
          p("c", "w", { "message-ttl": 5 }),
        ),
        "error work",
      ],
      [
        "they differ in other keys only",
        doc(work({}), p("a", "^work$", { "max-length": 5 }), p("c", "w", { "max-length": 6 })),
        "info work",
      ],
      [
        "the argument decides the DLX",
        doc(
          work({ dlx: "dlx" }),
          dlx,
          p("a", "^work$", { "dead-letter-exchange": "one" }),
          p("c", "^work$", { "dead-letter-exchange": "two" }),
        ),
        "info work",
      ],
    ],
    miss: [
      [
        "other priorities",
        doc(
          work({}),
          dlx,
          p("a", "^work$", { "dead-letter-exchange": "dlx" }, { priority: 1 }),
          p("c", "w", { "message-ttl": 5 }),
        ),
      ],
      [
        "policy and operator policy",
        doc(
          work({}),
          dlx,
          p("a", "^work$", { "dead-letter-exchange": "dlx" }),
          operator("cap", "work", { "message-ttl": 5 }),
        ),
      ],
      [
        "one is for exchanges",
        doc(
          work({}),
          dlx,
          p("a", "^work$", { "dead-letter-exchange": "dlx" }),
          p("c", "work", { "alternate-exchange": "dlx" }, { "apply-to": "exchanges" }),
        ),
      ],
    ],
  },
  "policy-hides-dlx": {
    hit: [
      [
        "the winner has none",
        doc(
          work({}),
          dlx,
          p("low", "^work$", { "dead-letter-exchange": "dlx" }),
          p("high", "work", { "max-length": 5 }, { priority: 9 }),
        ),
        "error work",
      ],
    ],
    miss: [
      [
        "the winner has one",
        doc(
          work({}),
          dlx,
          p("low", "^work$", { "dead-letter-exchange": "other" }),
          p("high", "^work$", { "dead-letter-exchange": "dlx" }, { priority: 9 }),
        ),
      ],
      [
        "the argument has one",
        doc(
          work({ dlx: "dlx" }),
          dlx,
          p("low", "^work$", { "dead-letter-exchange": "dlx" }),
          p("high", "work", { "max-length": 5 }, { priority: 9 }),
        ),
      ],
      [
        "a DLQ is taken out on purpose",
        doc(
          work({}),
          dlx,
          p("low", ".*", { "dead-letter-exchange": "dlx" }),
          p("high", "^dlq$", { "queue-mode": "lazy" }, { priority: 9 }),
        ),
      ],
    ],
  },
  "policy-never-applies": {
    hit: [
      [
        "it loses everywhere",
        doc(
          work({}),
          dlx,
          p("low", "^work$", { "dead-letter-exchange": "dlx" }),
          p("high", "w", { "max-length": 5 }, { priority: 9 }),
        ),
        "warning low",
      ],
      [
        "mirroring that loses",
        doc(work({}), p("ha", "", { "ha-mode": "all" }), p("ttl", "", { "message-ttl": 5 }, { priority: 9 })),
        "info ha",
      ],
    ],
    miss: [
      [
        "it wins somewhere",
        doc(
          work({}),
          q("work2"),
          dlx,
          p("low", "^work", { "dead-letter-exchange": "dlx" }),
          p("high", "^work$", { "max-length": 5 }, { priority: 9 }),
        ),
      ],
      [
        "the winner says the same",
        doc(
          work({}),
          dlx,
          p("low", "^work$", { "dead-letter-exchange": "dlx" }),
          p("high", "^work$", { "dead-letter-exchange": "dlx", "max-length": 5 }, { priority: 9 }),
        ),
      ],
    ],
  },
  "policy-matches-nothing": {
    hit: [
      ["offline", doc(work({}), p("a", "^absent", { "message-ttl": 5 })), "info a"],
      ["live", doc(work({}), p("a", "^absent", { "message-ttl": 5 })), "warning a", { live: true }],
      [
        "it is for another queue type",
        doc(work({}), p("a", "work", { "delivery-limit": 5 }, { "apply-to": "quorum_queues" })),
        "info a",
      ],
    ],
    miss: [
      [
        "a built-in exchange",
        doc(work({}), p("a", "^amq\\.", { "alternate-exchange": "in" }, { "apply-to": "exchanges" })),
      ],
      ["an empty pattern", doc(work({}), p("a", "", { "message-ttl": 5 }))],
      ["a partial file", doc(work({}), p("a", "^absent", { "message-ttl": 5 })), partial],
      ["unanchored", doc(work({}), p("a", "or", { "message-ttl": 5 }))],
    ],
  },
  "policy-argument-conflict": {
    hit: [
      ["a TTL", doc(work({ ttl: 5, dlx: "dlx" }), dlx, p("a", "work", { "message-ttl": 9 })), "info work"],
      [
        "a DLX",
        doc(work({ dlx: "dlx" }), dlx, p("a", "^work$", { "dead-letter-exchange": "other" })),
        "info work",
      ],
    ],
    miss: [
      ["the same value", doc(work({ ttl: 5, dlx: "dlx" }), dlx, p("a", "^work$", { "message-ttl": 5 }))],
      [
        "a policy that loses",
        doc(
          work({ ttl: 5, dlx: "dlx" }),
          dlx,
          p("a", "^work$", { "message-ttl": 9 }),
          p("c", "^work$", { "queue-mode": "lazy" }, { priority: 3 }),
        ),
      ],
    ],
  },
  "policy-pattern-invalid": {
    hit: [
      ["nothing to repeat", doc(work({}), p("a", "*", { "message-ttl": 5 })), "error a"],
      ["an open bracket", doc(work({}), p("a", "^(work", { "message-ttl": 5 })), "error a"],
      ["PCRE only", doc(work({}), p("a", "(?i)^WORK$", { "message-ttl": 5 })), "info a"],
      ["possessive", doc(work({}), p("a", "^wo++rk", { "message-ttl": 5 })), "info a"],
    ],
    miss: [
      ["an ordinary one", doc(work({}), p("a", "^(?!amq\\.)w[a-z]+k(\\.v\\d+)?$", { "message-ttl": 5 }))],
      ["an escaped plus", doc(work({}), p("a", "^c\\++", { "message-ttl": 5 }))],
    ],
  },
  "policy-wrong-apply-to": {
    hit: [
      [
        "exchanges",
        doc(work({}), p("a", "work", { "dead-letter-exchange": "dlx" }, { "apply-to": "exchanges" })),
        "error a",
      ],
      [
        "an operator policy may not hold them",
        doc(work({}), operator("op", "work", { "dead-letter-exchange": "dlx" })),
        "error op",
      ],
      [
        "no such scope",
        doc(work({}), p("a", "work", { "message-ttl": 5 }, { "apply-to": "queue" })),
        "error a",
      ],
      [
        "a scope of newer versions",
        doc(work({}), p("a", "work", { "message-ttl": 5 }, { "apply-to": "classic_queues" })),
        "error a",
        { brokerVersion: "3.10.8" },
      ],
    ],
    miss: [
      ["all", doc(work({}), dlx, p("a", "^work$", { "dead-letter-exchange": "dlx" }, { "apply-to": "all" }))],
      [
        "an alternate exchange",
        doc(work({}), p("a", "^in$", { "alternate-exchange": "in" }, { "apply-to": "exchanges" })),
      ],
      [
        "the scope on 4.x",
        doc(work({}), p("a", "work", { "message-ttl": 5 }, { "apply-to": "classic_queues" })),
        v4,
      ],
    ],
  },
  "dlrk-without-dlx": {
    hit: [
      ["as an argument", doc(work({ dlrk: "k" })), "error work"],
      ["as a policy", doc(work({}), p("a", "^work$", { "dead-letter-routing-key": "k" })), "warning work"],
    ],
    miss: [
      [
        "the DLX comes from a policy",
        doc(work({ dlrk: "k" }), dlx, p("a", "^work$", { "dead-letter-exchange": "dlx" })),
      ],
    ],
  },
  "dlx-dlrk-from-two-places": {
    hit: [
      [
        "DLRK by policy",
        doc(work({ dlx: "dlx" }), dlx, p("a", "^work$", { "dead-letter-routing-key": "k" })),
        "warning work",
      ],
      [
        "DLX by policy",
        doc(work({ dlrk: "k" }), dlx, p("a", "^work$", { "dead-letter-exchange": "dlx" })),
        "warning work",
      ],
    ],
    miss: [
      [
        "both by argument, and a policy besides",
        doc(work({ dlx: "dlx", dlrk: "k" }), dlx, p("a", "^work$", { "dead-letter-routing-key": "k2" })),
      ],
      [
        "both by policy",
        doc(
          work({}),
          dlx,
          p("a", "^work$", { "dead-letter-exchange": "dlx", "dead-letter-routing-key": "k" }),
        ),
      ],
    ],
  },
  "argument-wrong-type": {
    hit: [
      ["a string", doc(work({ ttl: "5" })), "error work"],
      [
        "a float",
        `{"queues":[{"name":"work","vhost":"/","durable":true,"auto_delete":false,"arguments":{"x-message-ttl":5.0}}]}`,
        "error work",
      ],
      ["a negative number", doc(work({ max: -1 })), "error work"],
      ["a limit as a string", doc(work({ ...quorum, limit: "5", dlx: "dlx" }), dlx), "error work"],
      ["over ten years", doc(work({ ttl: 315_360_000_001 })), "error work"],
      ["a DLX that is no string", doc(work({ dlx: 5 })), "error work"],
      ["an unknown overflow", doc(work({ overflow: "drop-tail" })), "error work"],
      ["x-expires 0", doc(work({ expires: 0 })), "error work"],
      ["in a policy", doc(work({}), p("a", "work", { "message-ttl": "5" })), "error a"],
    ],
    miss: [
      ["0", doc(work({ ttl: 0, max: 0, dlx: "dlx" }), dlx)],
      ["above 2^32", doc(work({ ttl: 4_294_967_297 }))],
      ["-1 as a delivery limit", doc(work({ ...quorum, limit: -1 }))],
    ],
  },
  "argument-unknown": {
    hit: [
      ["misspelt", doc(work({ "x-dead-letter-exchnage": "dlx" })), "warning work"],
      ["invented", doc(work({ "x-max-retries": 3 })), "warning work"],
      ["without its x-", doc(work({ "dead-letter-exchange": "dlx" })), "warning work"],
      [
        "a comment inside a policy",
        doc(work({}), p("a", "work", { "message-ttl": 5, _comment: "no" })),
        "warning a",
      ],
      ["an x- key in a policy", doc(work({}), p("a", "work", { "x-message-ttl": 5 })), "warning a"],
    ],
    miss: [
      [
        "every known one",
        doc(
          work({
            ...quorum,
            "x-single-active-consumer": true,
            "x-quorum-initial-group-size": 3,
            "x-queue-leader-locator": "balanced",
          }),
        ),
      ],
      ["a comment", doc(work({ _comment: "orders", "//": "x", description: "y" }))],
      [
        "mirroring in a policy",
        doc(work({}), p("ha", "", { "ha-mode": "all", "ha-sync-mode": "automatic" })),
      ],
    ],
  },
  "argument-not-for-this-queue-type": {
    hit: [
      ["a limit on classic", doc(work({ limit: 5, dlx: "dlx" }), dlx), "error work"],
      ["a strategy on classic", doc(work({ strategy: "at-least-once", dlx: "dlx" }), dlx), "error work"],
      ["a DLX on a stream", doc(work({ type: "stream", dlx: "dlx" }), dlx), "error work"],
      ["a transient quorum queue", doc(work(quorum, { durable: false })), "error work"],
      ["a priority on quorum", doc(work({ ...quorum, "x-max-priority": 5 })), "error work"],
    ],
    miss: [
      ["a limit on quorum", doc(work({ ...quorum, limit: 5, dlx: "dlx" }), dlx)],
      ["a limit by policy on classic", doc(work({}), p("a", "work", { "delivery-limit": 5 }))],
      [
        "quorum by the vhost's default",
        {
          ...doc(work({ limit: 5, dlx: "dlx" }), dlx),
          vhosts: [{ name: "/", default_queue_type: "quorum" }],
        },
      ],
    ],
  },
  "binding-to-missing-object": {
    hit: [
      ["to a queue", doc(work({}), b("in -> gone")), "error gone"],
      ["from an exchange", doc(work({}), b("gone -> work")), "error gone"],
      ["to an exchange", doc(work({}), b("in => gone")), "error gone"],
      ["in a partial file", doc(work({}), b("in -> gone")), "warning gone", partial],
      ["it is in another vhost", doc(work({}), b("in -> far"), q("far", {}, { vhost: "b" })), "error far"],
    ],
    miss: [
      ["a built-in source", doc(work({}), b("amq.direct -> work", "z"))],
      ["the default exchange's own", doc(work({}), b(" -> work", "work"))],
    ],
  },
  "vhost-not-declared": {
    hit: [
      ["another one is declared", doc(work({}), q("lost", {}, { vhost: "elsewhere" })), "error elsewhere"],
    ],
    miss: [
      ["none is declared", { ...doc(q("lost", {}, { vhost: "elsewhere" })), vhosts: [] }],
      ["/ is always there", { ...doc(work({})), vhosts: [{ name: "other" }] }],
      ["objects without a vhost", { vhosts: [{ name: "a" }, { name: "b" }], queues: [{ name: "work" }] }],
    ],
  },
  "retry-return-fans-out": {
    hit: [
      [
        "the key reaches a sibling",
        doc(
          work({ dlx: "retry" }),
          q("other", { dlx: "retry" }),
          b("in -> other", "k"),
          x("retry", "fanout"),
          q("hold", { ttl: 5, dlx: "in" }),
          b("retry -> hold"),
        ),
        "warning hold",
      ],
    ],
    miss: [
      [
        "by name",
        doc(
          work({ dlx: "retry" }),
          q("other"),
          b("in -> other", "k"),
          x("retry", "fanout"),
          q("hold", { ttl: 5, dlx: "", dlrk: "work" }),
          b("retry -> hold"),
        ),
      ],
      [
        "only its own key",
        doc(
          work({ dlx: "retry" }),
          q("other"),
          b("in -> other", "z"),
          x("retry", "fanout"),
          q("hold", { ttl: 5, dlx: "in" }),
          b("retry -> hold"),
        ),
      ],
      [
        "a delay queue that applications fill",
        doc(work({}), q("other"), b("in -> other", "k"), q("delay", { ttl: 5, dlx: "in", dlrk: "k" })),
      ],
    ],
  },
  "wait-queue-without-ttl": {
    hit: [
      [
        "a delay queue",
        doc(work({ dlx: "", dlrk: "dlq" }), q("dlq"), q("work.delay", { dlx: "in", dlrk: "k" })),
        "info work.delay",
      ],
      [
        "by its place alone",
        doc(work({ dlx: "", dlrk: "dlq" }), q("dlq"), q("stage", { dlx: "", dlrk: "work" })),
        "info stage",
      ],
    ],
    miss: [
      ["it has a TTL", doc(work({}), q("work.delay", { ttl: 5, dlx: "in", dlrk: "k" }))],
      [
        "a TTL by policy",
        doc(work({}), q("work.delay", { dlx: "in", dlrk: "k" }), p("t", "delay", { "message-ttl": 5 })),
      ],
      ["a work queue with a DLQ", doc(q("work", { dlx: "", dlrk: "dlq" }), q("dlq"))],
      [
        "a work queue whose letters wait",
        doc(q("work", { dlx: "", dlrk: "hold" }), q("hold", { ttl: 5, dlx: "", dlrk: "work" })),
      ],
    ],
  },
  "definitions-unreadable": {
    hit: [
      ["comment lines", '# made by hand\n{"queues":[]}', "error definitions"],
      ["an unexpanded template", `{"queues":[{"name":$${"{"}var.q["x"]}}]}`, "error definitions"],
      [
        "an unexpanded template inside a string",
        `{"queues":[{"name":"$${"{"}var.q["x"]}"}]}`,
        "error definitions",
      ],
      ["an array", "[]", "error definitions"],
      ["nothing", "", "error definitions"],
      ["queues that are no list", '{"queues":{}}', "error definitions"],
    ],
    miss: [
      [
        "a byte order mark and trailing commas",
        '\ufeff{"queues":[{"name":"q","durable":true,"auto_delete":false,},],}',
      ],
      ["an empty object", "{}"],
      ["comment keys", '{"_comment":"x","//":"y","queues":[]}'],
    ],
  },
};

const found = (input: Doc | string, options: ExamineOptions | undefined, code: string): string[] =>
  examine(input, options)
    .findings.filter((finding) => finding.code === code)
    .flatMap((finding) =>
      (finding.objects ?? [finding.object]).map((object) => `${finding.severity} ${object}`),
    );

describe.each(DOCTOR_CODES)("%s", (code) => {
  for (const [what, input, expected, options] of RULES[code].hit) {
    it(`is reported for: ${what}`, () => {
      expect(found(input, options, code)).toContain(expected);
    });
  }
  for (const [what, input, options] of RULES[code].miss) {
    it(`is not reported for: ${what}`, () => {
      expect(found(input, options, code)).toEqual([]);
    });
  }
});

describe("the codes", () => {
  it("are 43, each with something that must and something that must not bring it up", () => {
    expect(DOCTOR_CODES.length).toBe(43);
    for (const code of DOCTOR_CODES) {
      expect(RULES[code].hit.length, code).toBeGreaterThan(0);
      expect(RULES[code].miss.length, code).toBeGreaterThan(0);
    }
  });
  it("and their severities are those of the list", () => {
    const list = JSON.parse(
      readFileSync(join(import.meta.dirname, "../../data/doctor/codes.json"), "utf8"),
    ) as { code: string }[];
    expect(list.map((entry) => entry.code).sort()).toEqual([...DOCTOR_CODES].sort());
  });
});
