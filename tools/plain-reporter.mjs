// Ends a test run with `N passed, N failed[, N skipped]`, a line that any reader of CI output understands,
// and names every skipped test with the reason it gave. DLO_NO_SKIP=1, set in CI, turns a skip into a failure,
// except one by design: a conformance test of what an engine declares it cannot ("not supported: ...").
export default class PlainReporter {
  onTestRunEnd(modules, unhandledErrors) {
    let passed = 0;
    let failed = unhandledErrors.length;
    const skipped = [];
    for (const module of modules) {
      if (module.errors().length > 0) failed += 1;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === "passed") passed += 1;
        else if (state === "failed") failed += 1;
        else skipped.push(`${test.fullName}${test.result().note ? ` (${test.result().note})` : ""}`);
      }
    }
    for (const name of skipped) console.log(`skipped: ${name}`);
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
