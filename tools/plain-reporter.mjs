// Ends a test run with `N passed, N failed[, N skipped]`, a line that any reader of CI output understands,
// and names every skipped test with the reason it gave (DLO_NO_SKIP=1, set in CI, turns a skip into a failure).
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
    if (skipped.length > 0 && process.env.DLO_NO_SKIP === "1") {
      console.log(`${skipped.length} skipped tests count as failures here (DLO_NO_SKIP=1)`);
      failed += skipped.length;
      skipped.length = 0;
      process.exitCode = 1;
    }
    console.log(
      `${passed} passed, ${failed} failed${skipped.length > 0 ? `, ${skipped.length} skipped` : ""}`,
    );
  }
}
