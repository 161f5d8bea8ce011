"use strict";

// Everything about one instruction or one op of the model, beside the lists.

function detailsOf(view, item) {
  if (item?.instruction !== undefined && view.byName.has(item.instruction)) {
    return instructionDetails(view, view.byName.get(item.instruction));
  }
  if (item?.op !== undefined && view.opById.has(item.op)) return opDetails(view, view.opById.get(item.op));
  return [
    el("p.empty", {}, "Choose an op or an instruction to see what was decided about it, and why."),
    el("dl.facts", {}, ...[["↑ ↓ Home End", "move in a list"], ["/", "filter"], ["← →", "change the part, on its tab"]]
      .flatMap(([key, does]) => [el("dt", {}, el("kbd", {}, key)), el("dd.muted", {}, does)])),
  ];
}

function instructionDetails(view, each) {
  const choice = view.kernelChoice(each.name);
  return [
    el("header", {}, el("h2.name", {}, each.name),
      el("p.muted", {}, kindLabel(each.kind), ` by `, el("code", {}, each.kernel), ` · #${each.index + 1} · stream ${each.stream}`)),
    timeBars(each),
    block("Why", decisionLines(each.decisions)),
    block("Kernels not taken", rejectedTable(choice)),
    block("Not fused with", neighbourList(each)),
    block("Stands for", chips(each.src.map((id) => ({ op: id, text: id })))),
    each.members.length > 1 ? fold(`Its group: ${counted(each.members.length, "op")} after lowering`, el("p.mono", {}, each.members.join(", "))) : null,
    block("Memory", el("dl.operands", {}, ...operandLines("reads", each.reads), ...operandLines("writes", each.writes))),
    block("Waits for", each.after.length
      ? chips(each.after.map(([name, early]) => ({ instruction: name, text: early ? `${name} (starts before its end)` : name }))) : null),
    fold("Kernel record", recordText(each.record)),
  ];
}

function opDetails(view, op) {
  const became = view.byOp.get(op.id) ?? [];
  const decisions = view.decisionsAbout(op.id);
  const readers = view.ops.filter((other) => other.reads.includes(op.id));
  return [
    el("header", {}, el("h2.name", {}, op.id),
      el("p.muted", {}, [op.kind, op.type].filter(Boolean).join(" · "), op.location ? el("span.mono", {}, ` · ${op.location}`) : null)),
    block("Became", became.length
      ? chips(became.map((each) => ({ instruction: each.name, text: `${each.name} · ${each.kernel}`, kind: each.kind })))
      : el("p.muted", {}, "No instruction of this program: a pass removed it, or it is a view.")),
    block("Reads", op.reads.length || op.inputs.length
      ? chips([...op.reads.map((id) => ({ op: id, text: id })), ...op.inputs.map((name) => ({ text: name }))]) : null),
    block("Read by", readers.length ? chips(readers.map((other) => ({ op: other.id, text: other.id }))) : null),
    block("Decisions", decisions.length ? el("div", {}, ...decisions.map(decisionCard)) : null),
  ];
}

/** Predicted, measured and least time, as bars of one scale. */
function timeBars(each) {
  const { bound } = each;
  const least = bound ? Math.max(bound.arithmetic_us, bound.memory_us) : null;
  const limit = bound && (bound.arithmetic_us > bound.memory_us ? "arithmetic" : "memory");
  const bars = [
    [each.measured ? "Tuned" : "Predicted", each.expected_us],
    ["Measured", each.measured_us],
    ["Roofline", least],
  ].filter(([, us]) => us !== null);
  const most = Math.max(...bars.map(([, us]) => us), 1e-9);
  return el("div", {},
    el("div.bars", {}, ...bars.flatMap(([term, us]) => [el("span", {}, term),
      meter(us, most, term === "Roofline" ? "var(--muted)" : kindColour(each.kind)), el("span.number", {}, timeText(us))])),
    facts([
      bound ? ["Of the roofline", bound.share === null ? "–" : `${shareText(bound.share)}, bound by ${limit}`] : null,
      bound ? ["Operations", countText(bound.operations)] : null,
      ["Moved", `${bytesText(each.bytes)} (${each.bytes.toLocaleString("en-US")} bytes)`],
    ]));
}

function block(title, content) {
  return content ? el("section", {}, el("h3", {}, title), content) : null;
}

function fold(title, content) {
  return el("details", {}, el("summary", {}, title), content);
}

function decisionLines(decisions) {
  if (!decisions.length) return null;
  return el("ul.why", {}, ...decisions.map(([choice, because]) =>
    el("li", {}, el("strong", {}, choice), el("span.muted", {}, ` ${because}`))));
}

function rejectedTable(choice) {
  const rejected = Object.entries(choice?.rejected ?? {});
  return rejected.length ? table("Kernels that were not taken", ["Kernel", "Because"],
    rejected.map(([name, why]) => [el("code", {}, name), reasonText(why)])) : null;
}

function neighbourList(each) {
  if (!each.neighbours.length) return null;
  const items = each.neighbours.map(({ producer, consumer, because }) => {
    const reads = producer !== each.name;
    const other = reads ? producer : consumer;
    return el("li", {}, el("div", {}, el("span.muted", {}, reads ? "it reads " : "read by "), chip({ instruction: other, text: other })),
      ...because.map((line) => el("div.because", {}, line)));
  });
  return el("ul.neighbours", {}, ...items, el("li.muted", {}, "Of any two ops: ", el("code", {}, "aicf explain FILE --why-not A B")));
}

function operandLines(term, operands) {
  return operands.flatMap((text) => [el("dt", {}, term), el("dd", {}, text)]);
}

function recordText(record) {
  const onOneLine = (list, inside) => `[${inside.replace(/\s+/g, " ")}]`;
  return el("pre", {}, JSON.stringify(record, null, 2).replace(/\[\s+([^[\]{}]*?)\s+\]/g, onOneLine));
}

function reasonText(why) {
  return typeof why === "string" ? why : JSON.stringify(why);
}

function decisionCard({ made_by, subjects, choice, because, rejected, cost }) {
  const figures = Object.entries(cost).map(([name, value]) => `${name} ${value}`).join(", ");
  return el("article.decision", {},
    el("div", {}, el("code", {}, made_by), el("span.muted", {}, ` of ${subjects[0]}`)),
    el("div", {}, el("strong", {}, choice), ` because ${because}`),
    figures ? el("div.muted", {}, figures) : null,
    Object.keys(rejected).length ? el("ul.rejected", {}, ...Object.entries(rejected).map(([name, why]) =>
      el("li", {}, el("span.muted", {}, "not "), el("span.mono.clip", { title: name }, name), `: ${reasonText(why)}`))) : null);
}

function chips(items) {
  return el("div.chips", {}, ...items.map(chip));
}

/** A name that leads to its op or instruction; only a text if it is neither. */
function chip({ op, instruction, text, kind }) {
  if (op === undefined && instruction === undefined) return el("span.chip.is-plain", {}, text);
  const item = op === undefined ? { instruction } : { op };
  return el("button.chip", {
    type: "button",
    style: kind ? { "--kind": kindColour(kind) } : {},
    on: {
      click: () => selection.select(item),
      mouseenter: () => selection.hover(item),
      mouseleave: () => selection.hover(null),
    },
  }, text);
}
