// The package's `./office` entry: serving an office and asking one. Everything else of this room is its own.
export { type OfficeApp, type OfficeHost, type Outgoing, officeApp, type WorkersOf } from "./app.ts";
export { type Fetch, OfficeClient, type Said } from "./client.ts";
export { type OfficeBroker, officeHost, type ServedOffice, type ServeOptions, serveOffice } from "./serve.ts";
export { findOwner, socketFetch } from "./socket.ts";
export type {
  WireBody,
  WireLetter,
  WireMessage,
  WireQueue,
  WireSent,
  WireStatus,
  WorkerInfo,
} from "./wire.ts";
