module.exports = (message) => {
  if (message.body === "throw") throw new Error("from CommonJS");
};
