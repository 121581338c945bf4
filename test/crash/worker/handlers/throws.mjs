throw new TypeError("cannot be loaded");
export default () => {};
