"use strict";

// The model beside its instructions: what is pointed at in one list is marked in the other.

const ROW_HEIGHT = 30;

/** A list of the instructions of a program: streams and edges, name, kind, kernel, time and share of the roofline. */
class InstructionList {
  constructor(view, label) {
    this.view = view;
    this.shown = view.instructions;
    this.isWhole = true;
    this.marks = linked(view, null);
    this.most = Math.max(1e-9, ...view.instructions.map((each) => Math.max(each.us ?? 0, each.expected_us ?? 0)));
    this.list = new VirtualList({
      label,
      rowHeight: ROW_HEIGHT,
      row: (index) => this.row(this.shown[index]),
      style: (row, index) => this.style(row, this.shown[index]),
      name: (index) => instructionInWords(this.shown[index]),
      choose: (index) => selection.select({ instruction: this.shown[index].name }),
      point: (index) => selection.hover(index === null ? null : { instruction: this.shown[index].name }),
      drawn: (first, end) => this.drawStreams(first, end),
    });
    this.streams = Math.max(...view.instructions.map((each) => each.stream), 0) + 1;
    this.gutter = new Gutter(this.list, Math.min(MOST_LANES, this.streams));
    this.list.fill(this.shown.length);
  }

  /** Shows the instructions that pass a test, in launch order or the longest first. */
  filter(test, longestFirst) {
    this.shown = this.view.instructions.filter(test);
    if (longestFirst) this.shown.sort((a, b) => (b.us ?? 0) - (a.us ?? 0) || a.index - b.index);
    this.isWhole = this.shown.length === this.view.instructions.length && !longestFirst;
    this.list.fill(this.shown.length);
  }

  row(each) {
    return el("div.row.instruction", { style: { "--kind": kindColour(each.kind) } },
      el("span.index", {}, String(each.index + 1)),
      el("span.name", { title: each.name }, each.name),
      kindLabel(each.kind),
      el("code.kernel", { title: each.kernel }, each.kernel),
      meter(each.us ?? 0, this.most, kindColour(each.kind), each.measured_us === null ? null : each.expected_us),
      el("span.number", {}, timeText(each.us)),
      el("span.number.share", {}, shareText(each.bound?.share)),
      el("span.number.bytes", {}, bytesText(each.bytes)));
  }

  style(row, each) {
    row.classList.toggle("is-linked", this.marks.instructions.has(each.name));
    row.classList.toggle("is-selected", this.isSelected(each));
  }

  isSelected(each) {
    return selection.selected?.instruction === each.name;
  }

  mark(marks) {
    this.marks = marks;
    this.list.restyle();
  }

  /** Puts an instruction in sight; the first of several. */
  reveal(names) {
    this.list.show(this.shown.findIndex((each) => names.has(each.name)));
  }

  drawStreams(first, end) {
    const rows = this.shown;
    this.gutter?.draw(first, end, (context) => {
      const muted = paint("--line");
      const place = (each) => this.gutter.point(Math.min(each.stream, MOST_LANES - 1), each.index);
      if (this.isWhole) {
        for (const each of rows) {
          for (const [name, early] of each.after) {
            const source = this.view.byName.get(name);
            if (each.index < first || source.index >= end) continue;
            context.strokeStyle = each.stream === source.stream ? muted : paint("--accent");
            context.setLineDash(early ? [3, 3] : []);
            this.gutter.edge(context, place(source), place(each));
          }
        }
        context.setLineDash([]);
      }
      for (let row = first; row < end; row += 1) {
        const [x] = place(rows[row]);
        const isStrong = this.isSelected(rows[row]) || this.marks.instructions.has(rows[row].name);
        this.gutter.dot(context, [x, (row + 0.5) * ROW_HEIGHT], paint(`--hue-${colourOfKind(rows[row].kind)}`), isStrong);
      }
    });
  }
}

function instructionInWords(each) {
  const share = each.bound?.share == null ? "" : `, ${shareText(each.bound.share)} of the roofline`;
  return `${each.name}, ${each.kind} by ${each.kernel}, ${timeText(each.us)}${share}, ${bytesText(each.bytes)}, stream ${each.stream}`;
}

/** The heads of the columns of a list of instructions. */
function instructionHeads({ gutter }) {
  return el("div.heads.instruction", { aria: { hidden: "true" }, style: { "--gutter": `${gutter.width}px` } }, el("span.index", {}, "#"), el("span.name", {}, "Instruction"),
    el("span", {}, "Kind"), el("span.kernel", {}, "Kernel"), el("span", {}, ""), el("span.number", {}, "Time"),
    el("span.number.share", { title: "Share of the roofline" }, "Roofline"), el("span.number.bytes", {}, "Moved"));
}

/** The ops of the model as a graph: an op is a row, a value a lane until its last reader. */
class ModelList {
  constructor(view) {
    this.view = view;
    this.shown = view.ops;
    this.marks = linked(view, null);
    const rowOf = new Map(view.ops.map((op, row) => [op.id, row]));
    const rows = view.ops.map((op, row) => op.reads.map((id) => rowOf.get(id)).filter((at) => at !== undefined && at < row));
    this.reads = rows;
    this.graph = assignLanes(rows);
    this.list = new VirtualList({
      label: "Ops of the model",
      rowHeight: ROW_HEIGHT,
      row: (index) => this.row(this.shown[index]),
      style: (row, index) => this.style(row, this.shown[index]),
      choose: (index) => selection.select({ op: this.shown[index].id }),
      point: (index) => selection.hover(index === null ? null : { op: this.shown[index].id }),
      drawn: (first, end) => this.drawGraph(first, end),
    });
    this.gutter = new Gutter(this.list, this.graph.width);
    this.list.fill(this.shown.length);
  }

  filter(test) {
    this.shown = this.view.ops.filter(test);
    this.list.fill(this.shown.length);
  }

  row(op) {
    const became = this.view.byOp.get(op.id)?.[0];
    return el("div.row.op", { style: became ? { "--kind": kindColour(became.kind) } : {} },
      el("span.opkind", {}, op.kind), el("span.name", { title: op.id }, op.id), el("span.type", {}, op.type),
      became ? el("span.group", { title: `Instruction ${became.name}` }, `#${became.index + 1}`) : el("span.group.is-none", { title: "No instruction" }, "–"));
  }

  mark(marks) {
    this.marks = marks;
    this.list.restyle();
  }

  style(row, op) {
    row.classList.toggle("is-linked", this.marks.ops.has(op.id));
    row.classList.toggle("is-selected", selection.selected?.op === op.id);
  }

  reveal(ids) {
    this.list.show(this.shown.findIndex((op) => ids.has(op.id)));
  }

  drawGraph(first, end) {
    const { lane, last } = this.graph;
    const isWhole = this.shown.length === this.view.ops.length;
    this.gutter?.draw(first, end, (context) => {
      if (isWhole) {
        context.strokeStyle = paint("--line");
        this.reads.forEach((sources, row) => {
          if (row < first) return;
          for (const source of sources) {
            if (source < end) this.gutter.edge(context, this.gutter.point(lane[source], source), this.gutter.point(lane[row], row));
          }
        });
      }
      for (let row = first; row < end; row += 1) {
        const op = this.shown[row];
        const became = this.view.byOp.get(op.id)?.[0];
        const colour = became ? paint(`--hue-${colourOfKind(became.kind)}`) : paint("--line");
        const [x] = this.gutter.point(isWhole ? lane[row] : 0, row);
        this.gutter.dot(context, [x, (row + 0.5) * ROW_HEIGHT], colour, this.marks.ops.has(op.id));
      }
    });
  }
}

function programPanel(view) {
  const model = new ModelList(view);
  const instructions = new InstructionList(view, "Instructions in launch order");
  const details = el("aside.details", { tabIndex: 0, aria: { label: "Details" } });
  const search = el("input", { type: "search", id: "search", placeholder: "Filter by name, kind or kernel   /", aria: { label: "Filter ops and instructions" } });
  const order = el("input", { type: "checkbox", id: "longest" });
  const apply = () => {
    const text = search.value.trim().toLowerCase();
    const has = (...texts) => texts.some((each) => each.toLowerCase().includes(text));
    model.filter((op) => has(op.id, op.kind));
    instructions.filter((each) => has(each.name, each.kind, each.kernel, ...each.src), order.checked);
    follow("select");
  };
  search.addEventListener("input", apply);
  order.addEventListener("change", apply);

  function follow(change) {
    const marks = linked(view, selection.hovered ?? selection.selected);
    model.mark(marks);
    instructions.mark(marks);
    if (change !== "select") return;
    details.replaceChildren(...detailsOf(view, selection.selected).filter((part) => part !== null));
    details.scrollTop = 0;
    if (selection.selected) {
      model.reveal(marks.ops);
      instructions.reveal(marks.instructions);
      say(`${selection.selected.op ?? selection.selected.instruction}: details shown`);
    }
  }
  selection.listeners.add(follow);
  follow("select");
  const panel = el("div.program", {},
    el("div.toolbar", {}, search, el("label", {}, order, " longest first"),
      view.compiled.model ? null : el("span.muted", {}, "Compiled from emit IR: the ops are those that instructions name.")),
    el("div.panes", {},
      el("section.pane", {}, el("h2", {}, "Model ", el("span.muted", {}, counted(view.ops.length, "op"))), model.list.node),
      el("section.pane", {}, el("h2", {}, "Instructions ", el("span.muted", {}, streamsText(view, instructions))), instructionHeads(instructions), instructions.list.node),
      details));
  panel.close = () => selection.listeners.delete(follow);
  return panel;
}

function streamsText(view, { streams }) {
  const edges = view.instructions.reduce((sum, each) => sum + each.after.length, 0);
  return `${counted(view.instructions.length, "instruction")} on ${counted(streams, "stream")}, ${counted(edges, "edge")}`;
}
