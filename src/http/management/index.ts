export type { AccountPermissions, ManagementAccounts } from "./accounts.ts";
export { type ManagementOptions, managementApp } from "./app.ts";
