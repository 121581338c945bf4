// Ends a test run with `N passed, N failed[, N skipped]`, a line that any reader of CI output understands,
// and names every skipped test with the reason it gave, then every failed one: the end of an output is what is kept.
// DLO_NO_SKIP=1, set in CI, turns a skip into a failure, except one by design: a conformance test of what an engine
// declares it cannot ("not supported: ...").
export default class PlainReporter {
  onTestRunEnd(modules, unhandledErrors) {
    let passed = 0;
    let failed = unhandledErrors.length;
    const skipped = [];
    const failures = unhandledErrors.map((error) => `an unhandled error: ${firstLines(error)}`);
    for (const module of modules) {
      if (module.errors().length > 0) {
        failed += 1;
        failures.push(`${module.moduleId}: ${firstLines(module.errors()[0])}`);
      }
      for (const test of module.children.allTests()) {
        const { state, errors = [] } = test.result();
        if (state === "passed") passed += 1;
        else if (state === "failed") {
          failed += 1;
          failures.push(`${test.module.project.name}: ${test.fullName}: ${firstLines(errors[0])}`);
        } else skipped.push(`${test.fullName}${test.result().note ? ` (${test.result().note})` : ""}`);
      }
    }
    for (const name of skipped) console.log(`skipped: ${name}`);
    for (const line of failures) console.log(`failed: ${line}`);
    const missing = skipped.filter((name) => !/\(not supported: [^()]*\)$/.test(name)).length;
    if (missing > 0 && process.env.DLO_NO_SKIP === "1") {
      console.log(`${missing} skipped tests count as failures here (DLO_NO_SKIP=1)`);
      failed += missing;
      skipped.length -= missing;
      process.exitCode = 1;
    }
    console.log(
      `${passed} passed, ${failed} failed${skipped.length > 0 ? `, ${skipped.length} skipped` : ""}`,
    );
  }
}

/** What went wrong and where in the test, short. */
function firstLines(error) {
  const at = error?.stacks?.[0];
  const where = at ? ` (${at.file}:${at.line})` : "";
  return `${String(error?.message ?? error)
    .split("\n")
    .slice(0, 3)
    .join(" ")
    .slice(0, 500)}${where}`;
}
