"use strict";

// The IR after each pass, and what the pass changed.

const LINE_HEIGHT = 20;
const AROUND = 3;

function passesPanel(view) {
  const stages = wholeStages(view.compiled.stages);
  const changed = el("input", { type: "checkbox", id: "changed", checked: true });
  const whole = el("input", { type: "checkbox", id: "whole" });
  const text = new StageText(view.compiled.stages.lines);
  let shown = [];
  const list = new VirtualList({
    label: "Passes",
    rowHeight: ROW_HEIGHT,
    row: (index) => passRow(shown[index]),
    style: (row, index) => row.classList.toggle("is-selected", index === list.current),
    choose: (index) => {
      list.restyle();
      text.show(stages, shown[index].at, whole.checked);
    },
  });
  function fill() {
    const at = shown[list.current]?.at ?? 0;
    shown = stages.filter((stage) => !changed.checked || stage.isChanged);
    list.fill(shown.length);
    list.move(Math.max(0, shown.findLastIndex((stage) => stage.at <= at)));
  }
  changed.addEventListener("change", fill);
  whole.addEventListener("change", () => list.move(list.current));
  fill();
  const { missing } = view.compiled.stages;
  return el("div.passes", {},
    el("div.toolbar", {}, el("label", {}, changed, " only passes that changed something"), el("label", {}, whole, " whole text"),
      missing ? el("span.warning", {}, `Not every stage is here: ${missing}`) : null),
    el("div.panes", {}, el("section.pane", {}, el("h2", {}, "Passes ", el("span.muted", {}, counted(stages.length, "stage"))), list.node),
      el("section.pane", {}, text.title, text.list.node)));
}

/** Every stage with its lines: a pass that changed nothing has those of the stage before. */
function wholeStages({ stages }) {
  let lines = [];
  return stages.map(({ made_by, lines: own }, at) => {
    if (own.length) lines = unrolled(own);
    return { at, madeBy: made_by, lines, isChanged: own.length > 0 };
  });
}

/** The numbers of runs, of which the first number and the length stand one after the other. */
function unrolled(runs) {
  const numbers = [];
  for (let at = 0; at < runs.length; at += 2) {
    for (let step = 0; step < runs[at + 1]; step += 1) numbers.push(runs[at] + step);
  }
  return numbers;
}

function passRow({ at, madeBy, lines, isChanged }) {
  return el(isChanged ? "div.row.pass" : "div.row.pass.is-same", {}, el("span.index", {}, String(at)), el("span.name", {}, madeBy),
    el("span.number", {}, isChanged ? counted(lines.length, "line") : "same"));
}

/** The text of a stage, or what its pass changed with some lines around. */
class StageText {
  constructor(lines) {
    this.lines = lines;
    this.steps = [];
    this.title = el("h2");
    this.list = new VirtualList({
      label: "IR",
      rowHeight: LINE_HEIGHT,
      row: (index) => this.row(this.steps[index]),
    });
    this.list.node.classList.add("code");
  }

  show(stages, at, isWhole) {
    const { madeBy, lines } = stages[at];
    const before = at ? stages[at - 1].lines : lines;
    const steps = lineDiff(before, lines);
    const count = (kind) => steps.filter((step) => step.kind === kind).length;
    this.steps = isWhole || at === 0 ? steps : collapse(steps);
    this.title.replaceChildren(at ? `After ${madeBy} ` : "As it was given", ...(at ? [el("span.added", {}, `+${count("new")}`), " ", el("span.removed", {}, `−${count("gone")}`)] : []));
    this.list.node.scrollTop = 0;
    this.list.fill(this.steps.length);
  }

  row(step) {
    if (step.kind === "skip") return el("div.row.line.is-skip", {}, `⋯ ${counted(step.count, "equal line")}`);
    const sign = { same: " ", new: "+", gone: "−" }[step.kind];
    return el(`div.row.line.is-${step.kind}`, {}, el("span.sign", {}, sign), el("code", {}, ...tokens(this.lines[step.line])));
  }
}

/** Steps without most of the lines that are the same. */
function collapse(steps) {
  const near = new Uint8Array(steps.length);
  steps.forEach(({ kind }, at) => {
    if (kind !== "same") near.fill(1, Math.max(0, at - AROUND), at + AROUND + 1);
  });
  const kept = [];
  for (let at = 0; at < steps.length; at += 1) {
    if (near[at]) kept.push(steps[at]);
    else if (kept.at(-1)?.kind === "skip") kept.at(-1).count += 1;
    else kept.push({ kind: "skip", count: 1 });
  }
  return kept;
}

const TOKEN = /(?<string>"(?:[^"\\]|\\.)*")|(?<value>%[\w.$#-]+)|(?<symbol>@[\w.$=-]+)|(?<type>![\w.]+|\b(?:tensor|memref)<[^>]*>)|(?<op>(?<=^\s*|= )[a-z_]+\.[\w.]+)/g;
const MOST_LETTERS = 2000;

/** A line of IR with its parts in colours; the rest of a very long one is left out. */
function tokens(line) {
  const text = line.length > MOST_LETTERS ? `${line.slice(0, MOST_LETTERS)} … ${line.length - MOST_LETTERS} more letters` : line;
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    const [kind] = Object.entries(match.groups).find(([, found]) => found !== undefined);
    parts.push(text.slice(end, match.index), el(`span.is-${kind}`, {}, match[0]));
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}
