export { type ManagementAccounts, type ManagementOptions, managementApp } from "./app.ts";
