"use strict";

// Two compiled programs side by side: figures, decisions that differ, and both lists of instructions.

const FIGURE_NAMES = {
  instructions: "Instructions",
  bytes_moved: "Bytes moved",
  arena_bytes: "Arena bytes",
  streams: "Streams",
  edges: "Edges",
  predicted_us: "Predicted µs",
};

function comparePanel(views) {
  const { comparison } = REPORT;
  if (comparison.equal) {
    return el("div.single", {}, section("Compare", "", el("p", {}, "Both programs make the same decisions.")));
  }
  const figures = Object.entries(comparison.figures);
  const same = figures.filter(([, [a, b]]) => Object.keys(FIGURE_NAMES).every((key) => a[key] === b[key])).map(([name]) => `@${name}`);
  return el("div.single", {},
    el("div.difference", {},
      el("div", {}, ...figures.filter(([name]) => !same.includes(`@${name}`)).map(([name, pair]) => figuresOf(name, pair)),
        same.length ? el("p.note", {}, `The same figures: ${same.join(", ")}`) : null),
      differences(comparison.differences)),
    sideBySide(views));
}

function figuresOf(program, [before, after]) {
  const rows = Object.entries(FIGURE_NAMES).map(([key, name]) => {
    const [a, b] = [before[key], after[key]];
    const change = a === b ? "same" : a ? `${b > a ? "+" : "−"}${shareText(Math.abs(b - a) / a)}` : "new";
    return [name, a.toLocaleString("en-US"), b.toLocaleString("en-US"), el(a === b ? "span.muted" : b < a ? "span.less" : "span.more", {}, change)];
  });
  return section(`@${program}`, "", table(`Figures of ${program}`, ["", "#A", "#B", "#Change"], rows));
}

function differences(all) {
  const kinds = [...new Set(all.map((each) => each.kind))];
  const body = el("ul.differences");
  const show = (kind) => {
    body.replaceChildren(...all.filter((each) => !kind || each.kind === kind).map(differenceItem));
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.value === kind));
  };
  const buttons = ["", ...kinds].map((kind) => el("button.chip", { type: "button", value: kind, on: { click: () => show(kind) } },
    `${kind || "all"} ${all.filter((each) => !kind || each.kind === kind).length}`));
  show("");
  return section("Decisions that differ", "Instructions are matched by the ops that they compute.", el("div.chips", {}, ...buttons), body);
}

function differenceItem({ kind, program, subject, before, after, entries }) {
  const records = Object.entries(entries).map(([name, [a, b]]) =>
    el("div.entry", {}, el("code", {}, name), el("span.was", {}, reasonText(a ?? "none")), " → ", el("span.now", {}, reasonText(b ?? "none"))));
  const isSame = before === after;
  return el("li", {},
    el("div.subject", {}, el("span.tag", {}, kind), el("strong.mono", {}, subject), program ? el("span.muted", {}, ` in @${program}`) : null),
    isSame ? el("div.sides", {}, el("code", {}, before))
      : el("div.sides", {}, side("A", before), side("B", after)),
    ...records);
}

/** One side of a difference: its instructions, one a line. */
function side(letter, text) {
  return el("div.side", {}, el("span.letter", {}, letter), el("div", {}, ...(text ? text.split(" | ") : ["none"]).map((line) => el("div", {}, line))));
}

/** Both lists of instructions; what stands for the ops that are pointed at is marked in both. */
function sideBySide(views) {
  const lists = views.map((view, at) => new InstructionList(view, `Instructions of ${"AB"[at]}`));
  const follow = (change) => {
    const item = selection.hovered ?? selection.selected;
    lists.forEach((list, at) => {
      const from = views.find((view) => view.byName.has(item?.instruction)) ?? views[at];
      const { ops } = linked(from, item);
      const instructions = new Set([...ops].flatMap((id) => (views[at].byOp.get(id) ?? []).map((each) => each.name)));
      if (views[at].byName.has(item?.instruction)) instructions.add(item.instruction);
      list.mark({ ops, instructions });
      if (change === "select" && instructions.size && !instructions.has(list.shown[list.list.current]?.name)) list.reveal(instructions);
    });
  };
  selection.listeners.add(follow);
  follow("hover");
  const panes = lists.map((list, at) => el("section.pane", {},
    el("h3", {}, `${"AB"[at]} `, el("code", {}, views[at].compiled.path)), instructionHeads(list), list.list.node));
  const node = section("Instructions side by side", "Point at an instruction to see what computes the same ops in the other program.", el("div.twins", {}, ...panes));
  node.close = () => selection.listeners.delete(follow);
  return node;
}
