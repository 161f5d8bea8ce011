"use strict";

// What the backward part of a training step reads of the forward part: kept, in memory that is there, or computed again.

const SAVE_WORDS = { keep: "kept", alias: "in memory that is there anyway", recompute: "computed again" };

function savesPanel(view) {
  const { saves, decisions } = view.compiled;
  const own = decisions.filter((each) => each.made_by === "eliminate-saves" && each.choice in SAVE_WORDS);
  const [count, bytes] = saves.kept;
  const rows = own.sort((a, b) => (b.cost.bytes ?? 0) - (a.cost.bytes ?? 0)).map((each) => [
    el("span.mono", {}, each.subjects[0]), SAVE_WORDS[each.choice],
    each.cost.bytes === undefined ? "–" : bytesText(each.cost.bytes), timeText(each.cost.recompute_us), each.because,
    Object.entries(each.rejected).map(([name, why]) => `not ${name}: ${reasonText(why)}`).join("; "),
  ]);
  return el("div.single", {}, section("Values saved for the backward part",
    `${counted(count, "value")} kept (${bytesText(bytes)}), ${saves.aliases} in memory that is there anyway, ${Object.keys(saves.again).length} computed again.`,
    table("Saved values", ["Value", "It is", "#Bytes", "#To compute again", "Because", "Rejected"], rows)));
}
