"use strict";

// The first page: figures, where the time goes, what was decided about the whole, and how it was made.

function overviewPanel(view) {
  const { program, compiled } = view;
  return el("div.overview", {},
    tiles(view),
    ...program.notes.map((note) => el("p.note", {}, note)),
    program.no_times ? el("p.note", {}, `No times by instruction: ${program.no_times}`) : null,
    section("Where the time goes", "Every instruction in launch order, as wide as its time. Choose one to see why it is as it is.",
      timeStrip(view), kindTable(view)),
    el("div.columns", {}, potential(view), notFused(compiled)),
    precisionSection(compiled),
    making(compiled));
}

function tiles(view) {
  const { program, compiled, instructions } = view;
  const isMeasured = instructions.some((each) => each.measured_us !== null);
  const bound = program.lower_bound_bytes;
  const moved = instructions.reduce((sum, each) => sum + each.bytes, 0);
  const { summary } = compiled;
  const all = [
    ["Instructions", instructions.length.toLocaleString("en-US"),
      compiled.model ? `for ${counted(compiled.model.length, "op")} of the model` : ""],
    [isMeasured ? "Measured" : "Predicted", timeText(view.totalUs),
      program.replay_us === null ? "sum of all instructions" : `whole replay ${timeText(program.replay_us)}`],
    ["Moved", bytesText(moved), "operands and results"],
    ["Arena", bytesText(program.arena_bytes),
      bound === null ? "" : bound === program.arena_bytes ? "the lower bound" : `lower bound ${bytesText(bound)}`],
    ["Weights", bytesText(summary.weight_bytes),
      summary.prepared ? `${bytesText(summary.prepared_bytes)} packed ahead` : ""],
    summary.state_bytes ? ["State", bytesText(summary.state_bytes), "kept from run to run"] : null,
  ];
  return el("dl.tiles", {}, ...all.filter((each) => each).map(([term, what, more]) =>
    el("div.tile", {}, el("dt", {}, term), el("dd", {}, what), el("dd.more", {}, more))));
}

function timeStrip(view) {
  const strip = svg("svg", { class: "strip", viewBox: "0 0 1000 44", preserveAspectRatio: "none", "aria-hidden": "true" });
  let left = 0;
  for (const each of view.instructions) {
    const width = view.totalUs ? (1000 * (each.us ?? 0)) / view.totalUs : 0;
    const bar = svg("rect", { x: left, width: Math.max(0, width - (width > 3 ? 1 : 0)), y: 0, height: 44, class: "mark" });
    markOf(each, bar);
    strip.append(bar);
    left += width;
  }
  return pickable(view, strip);
}

/** Makes an element of a drawing the mark of an instruction. */
function markOf(each, node) {
  node.style.setProperty("fill", kindColour(each.kind));
  node.dataset.instruction = each.name;
}

/** Lets the pointer find the marks in a drawing: it says what they are, and a click leads to the instruction. */
function pickable(view, drawing) {
  const under = (event) => view.byName.get(event.target.dataset.instruction);
  drawing.addEventListener("mousemove", (event) => tip(event, under(event) ? instructionInLines(under(event)) : ""));
  drawing.addEventListener("mouseleave", (event) => tip(event, ""));
  drawing.addEventListener("click", (event) => {
    const each = under(event);
    tip(event, "");
    if (each) openItem({ instruction: each.name });
  });
  return drawing;
}

function instructionInLines(each) {
  const share = each.bound?.share == null ? "" : `, ${shareText(each.bound.share)} of the roofline`;
  return `${each.name}\n${each.kind} by ${each.kernel}\n${timeText(each.us)}${share}`;
}

function kindTable(view) {
  const kinds = new Map();
  for (const each of view.instructions) {
    const key = `${each.kind} ${each.kernel}`;
    const row = kinds.get(key) ?? { kind: each.kind, kernel: each.kernel, count: 0, us: 0, bytes: 0 };
    kinds.set(key, { ...row, count: row.count + 1, us: row.us + (each.us ?? 0), bytes: row.bytes + each.bytes });
  }
  const rows = [...kinds.values()].sort((a, b) => b.us - a.us || b.count - a.count);
  return table("Time by kind of instruction and kernel", ["Kind", "Kernel", "#Count", "#Time", "#Share", "", "#Moved"],
    rows.map((row) => [kindLabel(row.kind), el("code", {}, row.kernel), String(row.count), timeText(row.us),
      shareText(view.totalUs ? row.us / view.totalUs : null), meter(row.us, view.totalUs, kindColour(row.kind)), bytesText(row.bytes)]));
}

/** A bar that is as long as a part of a whole; a tick in it marks another part. */
function meter(part, whole, colour, tick = null) {
  const share = (of) => (whole ? Math.min(1, of / whole) : 0);
  const isTicked = tick !== null;
  return el(isTicked ? "span.meter.has-tick" : "span.meter", {
    aria: { hidden: "true" }, style: { "--share": share(part), "--colour": colour, "--tick": isTicked ? share(tick) : 0 },
  });
}

/** Instructions by their time and by how much of the roofline they reach: far right and low is where time could go. */
function potential(view) {
  const shown = view.instructions.filter((each) => each.us > 0 && each.bound?.share != null);
  const hint = "How near each instruction comes to what the target could do at best, by its time. Far right and low is where time is left.";
  if (!shown.length) return section("Share of the roofline", "The backend says no peaks of this target, or no times are known.");
  const [width, height, left, top, right, bottom] = [520, 260, 44, 12, 14, 34];
  const low = Math.floor(Math.log10(Math.min(...shown.map((each) => each.us))));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...shown.map((each) => each.us)))));
  const most = Math.max(1, ...shown.map((each) => each.bound.share));
  const x = (us) => left + ((Math.log10(us) - low) / (high - low)) * (width - left - right);
  const y = (share) => height - bottom - (share / most) * (height - top - bottom);
  const plot = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${hint} The list of instructions has the figures.` });
  for (let power = low; power <= high; power += 1) {
    plot.append(svg("line", { class: "grid", x1: x(10 ** power), x2: x(10 ** power), y1: top, y2: height - bottom }));
    plot.append(svg("text", { class: "tick", x: x(10 ** power), y: height - bottom + 16, "text-anchor": "middle" }, powerText(power)));
  }
  for (const share of [0, 0.25, 0.5, 0.75, 1].concat(most > 1.2 ? [most] : [])) {
    plot.append(svg("line", { class: share === 1 ? "roof" : "grid", x1: left, x2: width - right, y1: y(share), y2: y(share) }));
    plot.append(svg("text", { class: "tick", x: left - 8, y: y(share) + 4, "text-anchor": "end" }, shareText(share)));
  }
  for (const each of shown) {
    const dot = svg("circle", { class: "mark", cx: x(each.us), cy: y(each.bound.share), r: 5 });
    markOf(each, dot);
    plot.append(dot);
  }
  return section("Share of the roofline", hint, pickable(view, plot));
}

function powerText(power) {
  return power >= 3 ? `${10 ** (power - 3)} ms` : `${power >= 0 ? 10 ** power : (10 ** power).toFixed(-power)} µs`;
}

function notFused(compiled) {
  const reasons = compiled.summary.not_fused;
  if (!reasons.length) return section("Not fused", "No pass has refused to fuse an op.");
  const items = reasons.map(({ because, ops }) => el("li", {}, el("span.count", {}, String(ops.length)),
    el("div", {}, el("div", {}, because), el("div.muted.clip", { title: ops.join("\n") }, ops.join(", ")))));
  return section("Not fused", "Why ops stayed in instructions of their own, the reasons of most ops first.", el("ul.reasons", {}, ...items));
}

function precisionSection(compiled) {
  const { precision } = compiled;
  if (!precision) return null;
  const errors = Object.entries(precision.errors).map(([name, error]) => `${name} ${(error * 100).toFixed(3)} %`);
  const rows = [
    ...Object.entries(precision.lowered).map(([choice, ids]) => [choice, String(ids.length), ids.join(", ")]),
    ...Object.entries(precision.others).map(([because, ids]) => [`stays f32: ${because}`, String(ids.length), ids.join(", ")]),
  ];
  return section("Precision", [precision.model, errors.length ? `relative error: ${errors.join(", ")}` : ""].filter(Boolean).join("; "),
    table("Element types by op", ["Became", "#Ops", "Which"], rows));
}

function making(compiled) {
  const versions = Object.entries(compiled.toolchain).map(([name, version]) => `${name} ${version}`).join(", ");
  const options = Object.entries(compiled.options).map(([name, value]) => `${name} = ${value}`).join("\n");
  return section("How it was made", "", facts([
    ["File", el("code", {}, compiled.path)],
    ["Target", el("code", {}, `${compiled.backend}:${compiled.arch}`)],
    ["Threads", String(compiled.threads)],
    compiled.measured ? ["Measured in", el("code", {}, compiled.measured)] : null,
    options ? ["Options", el("pre", {}, options)] : null,
    versions ? ["Versions", versions] : null,
  ]));
}
