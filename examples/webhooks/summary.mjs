// What became of the messages: read from the data, never counted in memory, so that it is the same after any number
// of interruptions, and the same on every run for the same input.

const LISTED = 12;

export async function summarize(letters, receiver, sent) {
  const dead = { state: "dead" };
  const groups = await letters.groups(dead);
  const byReason = {};
  for (const reason of ["permanent", "exhausted", "poison"]) {
    byReason[reason] = await letters.count({ ...dead, reason });
  }
  const deadIds = new Set();
  for (let after; ; ) {
    const page = await letters.page(dead, 500, after);
    for (const letter of page) deadIds.add(letter.id);
    if (page.length < 500) break;
    after = page.at(-1).letterId;
  }
  return {
    sent,
    handled: receiver.accepted.size,
    retried: [...receiver.accepted].filter((id) => receiver.refused.has(id)).length,
    dead: deadIds.size,
    missing: sent - new Set([...receiver.accepted, ...deadIds]).size,
    byReason,
    groups: groups
      .map(({ title, count, reasons }) => ({ count, title, reasons: [...reasons].sort() }))
      .sort((a, b) => b.count - a.count || (a.title < b.title ? -1 : 1)),
  };
}

/** The summary as text. */
export function report({ sent, handled, retried, dead, missing, byReason, groups }) {
  const reasons = Object.entries(byReason).filter(([, count]) => count > 0);
  const lines = [
    "Summary",
    `  sent      ${String(sent).padStart(4)}`,
    `  handled   ${String(handled).padStart(4)}   (${retried} of them after a retry)`,
    `  dead      ${String(dead).padStart(4)}   ${reasons.map(([reason, count]) => `${reason} ${count}`).join(", ")}`,
    `  missing   ${String(missing).padStart(4)}`,
  ];
  if (groups.length > 0) lines.push("", `The ${dead} dead letters have ${groups.length} causes:`);
  for (const { count, title, reasons: why } of groups.slice(0, LISTED)) {
    lines.push(`  ${String(count).padStart(4)}  ${title} (${why.join(", ")})`);
  }
  if (groups.length > LISTED) lines.push(`  ... and ${groups.length - LISTED} more (npx dlo groups)`);
  return lines.join("\n");
}
