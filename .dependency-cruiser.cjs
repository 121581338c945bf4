// Who may import whom: the table of docs/explanation/architecture.md, enforced by test/tidy/layers.test.ts.

/** room: the rooms it may import, and the packages and builtins it may use. */
const ROOMS = {
  core: { rooms: [], packages: "", node: false },
  broker: { rooms: ["core"], packages: "", node: false },
  topology: { rooms: ["core"], packages: "", node: false },
  ports: { rooms: ["core"], packages: "", node: false },
  office: { rooms: ["core", "ports"], packages: "uuidv7|lossless-json", node: true },
  testing: { rooms: ["core", "ports"], packages: "", node: true },
  loop: { rooms: [], packages: "", node: true },
  worker: { rooms: ["core", "ports", "loop"], packages: "", node: true },
  consumer: { rooms: ["core", "ports", "worker"], packages: "@standard-schema/spec", node: true },
  "engines/memory": { rooms: ["core", "broker", "ports"], packages: "", node: true },
  "engines/embedded": {
    rooms: ["core", "broker", "ports"],
    packages: "@photostructure/sqlite|parse-duration|uuidv7",
    node: true,
  },
  "engines/rabbitmq": {
    rooms: ["core", "broker", "ports"],
    packages: "amqplib|uuidv7|@photostructure/sqlite",
    node: true,
  },
  amqp: { rooms: ["core", "broker", "ports", "loop"], packages: "", node: true },
  http: {
    rooms: ["core", "broker", "ports", "office", "topology"],
    packages: "hono|@hono/node-server",
    node: true,
  },
  // startBroker: the AMQP server and the management API over an embedded broker, for `dlo dev` and test suites.
  dev: {
    rooms: ["core", "broker", "ports", "amqp", "engines/embedded", "engines/rabbitmq", "http", "topology"],
    packages: "@hono/node-server",
    node: true,
  },
  cli: { rooms: ["*"], packages: "", node: true, anyPackage: true },
};

const path = (room) => `^src/${room}/`;

const forbidden = Object.entries(ROOMS).flatMap(([room, allowed]) => {
  const rules = [];
  if (!allowed.rooms.includes("*")) {
    const reachable = [room, ...allowed.rooms].map((name) => `${name}/`).join("|");
    rules.push({
      name: `${room}-rooms`,
      comment: `${room} may import only: ${allowed.rooms.join(", ") || "nothing"}`,
      severity: "error",
      from: { path: path(room) },
      to: { path: "^src/", pathNot: `^src/(${reachable})` },
    });
    rules.push({
      name: `${room}-packages`,
      comment: `${room} may use only these packages: ${allowed.packages || "none"}`,
      severity: "error",
      from: { path: path(room) },
      to: {
        dependencyTypes: [
          "npm",
          "npm-dev",
          "npm-peer",
          "npm-optional",
          "npm-no-pkg",
          "npm-unknown",
          "unknown",
        ],
        ...(allowed.packages ? { pathNot: `(^|/)(${allowed.packages})(/|$)` } : {}),
      },
    });
  }
  if (!allowed.node) {
    rules.push({
      name: `${room}-no-builtins`,
      comment: `${room} is pure: no Node builtin`,
      severity: "error",
      from: { path: path(room) },
      to: { dependencyTypes: ["core"] },
    });
  }
  return rules;
});

module.exports = {
  forbidden: [
    ...forbidden,
    {
      name: "no-cycles",
      severity: "error",
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ["type-only"] } },
    },
    {
      name: "enter-by-index",
      comment: "a room is entered by its index.ts",
      severity: "error",
      from: { path: "^src/(engines/[^/]+|[^/]+)/" },
      to: { path: "^src/(engines/[^/]+|[^/]+)/", pathNot: ["^src/$1/", "/index\\.ts$"] },
    },
    {
      name: "sockets-in-server-only",
      severity: "error",
      from: { path: "^src/amqp/", pathNot: "^src/amqp/(server|index)\\.ts$" },
      to: { path: "^(node:)?(net|tls)$" },
    },
    {
      name: "src-never-imports-outside",
      severity: "error",
      from: { path: "^src/" },
      to: { path: "^(test|bench|examples|docs|tools)/" },
    },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    tsConfig: { fileName: "tsconfig.json" },
    tsPreCompilationDeps: true,
    enhancedResolveOptions: {
      exportsFields: ["exports"],
      conditionNames: ["import", "node", "default", "types"],
    },
  },
};
