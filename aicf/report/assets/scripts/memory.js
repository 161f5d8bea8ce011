"use strict";

// The arena over time: which bytes are taken by which value while which instructions run.

const MARGIN = { left: 76, right: 12, top: 14, bottom: 34 };

function memoryPanel(view) {
  const { program } = view;
  if (!program.arena.length) {
    return el("div.single", {}, section("Arena", "", el("p", {}, "This program keeps nothing in its arena between two instructions.")));
  }
  const buffers = [...program.arena].sort((a, b) => b.size - a.size || a.offset - b.offset);
  const map = new ArenaMap(view, buffers);
  const list = new VirtualList({
    label: "Buffers of the arena, the largest first",
    rowHeight: ROW_HEIGHT,
    row: (index) => bufferRow(view, buffers[index]),
    style: (row, index) => row.classList.toggle("is-linked", buffers[index] === map.marked),
    choose: (index) => {
      map.mark(buffers[index]);
      list.restyle();
    },
    point: (index) => {
      map.mark(index === null ? buffers[list.current] : buffers[index]);
      list.restyle();
    },
  });
  map.onChoose = (buffer) => list.move(buffers.indexOf(buffer));
  list.fill(buffers.length);
  const bound = program.lower_bound_bytes;
  const compared = bound === null ? "" : bound === program.arena_bytes
    ? " No placement takes less." : ` The lower bound of any placement is ${bytesText(bound)}.`;
  return el("div.memory", {},
    section("Arena over time", `${bytesText(program.arena_bytes)} for ${counted(buffers.length, "buffer")}. A column is an instruction, a box a buffer from the first to the last instruction that touches it.${compared}`, map.node),
    el("section.card.pane", {}, el("h2", {}, "Buffers ", el("span.muted", {}, "the largest first")), list.node));
}

function bufferRow(view, buffer) {
  const first = view.instructions[buffer.touches[0]];
  const last = view.instructions[buffer.touches.at(-1)];
  return el("div.row.buffer", { style: { "--kind": kindColour(first.kind) } },
    el("span.swatch"), el("span.number", {}, bytesText(buffer.size)), el("span.number", {}, `at ${buffer.offset.toLocaleString("en-US")}`),
    el("span.type", {}, buffer.type), el("span.name", { title: `${first.name} to ${last.name}` }, first === last ? first.name : `${first.name} → ${last.name}`));
}

/** The drawing: a canvas, since a program may have thousands of buffers. */
class ArenaMap {
  constructor(view, buffers) {
    Object.assign(this, { view, buffers, marked: undefined });
    this.canvas = el("canvas.arena", {
      role: "img",
      aria: { label: "Arena over time; the list of buffers has the same data." },
      on: {
        mousemove: (event) => this.point(event),
        mouseleave: (event) => tip(event, ""),
        click: (event) => {
          const buffer = this.under(event);
          if (buffer) this.onChoose(buffer);
        },
      },
    });
    this.node = el("div.canvas", {}, this.canvas);
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  mark(buffer) {
    this.marked = buffer;
    this.draw();
  }

  /** Left, top, width and height of a buffer on the canvas. */
  box(buffer) {
    const { width, height } = this.size;
    const step = (width - MARGIN.left - MARGIN.right) / this.view.instructions.length;
    const scale = (height - MARGIN.top - MARGIN.bottom) / this.view.program.arena_bytes;
    const left = MARGIN.left + buffer.touches[0] * step;
    const tall = Math.max(1, buffer.size * scale);
    return [left, height - MARGIN.bottom - buffer.offset * scale - tall, (buffer.touches.at(-1) - buffer.touches[0] + 1) * step, tall];
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.node;
    if (!width || !height) return;
    this.size = { width, height };
    const ratio = devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    this.drawAxes(context);
    for (const buffer of this.buffers) this.drawBuffer(context, buffer);
  }

  drawBuffer(context, buffer) {
    const [left, top, width, height] = this.box(buffer);
    const kind = this.view.instructions[buffer.touches[0]].kind;
    context.fillStyle = paint(`--hue-${colourOfKind(kind)}`);
    context.globalAlpha = this.marked && buffer !== this.marked ? 0.25 : 0.85;
    context.fillRect(left, top, Math.max(1, width - 1), Math.max(1, height - 1));
    context.globalAlpha = 1;
    if (buffer === this.marked) {
      context.strokeStyle = paint("--text");
      context.lineWidth = 1.5;
      context.strokeRect(left, top, width - 1, height - 1);
    }
    this.drawLabel(context, buffer.type, left, top, width, height);
  }

  drawLabel(context, text, left, top, width, height) {
    context.font = "11px ui-monospace, monospace";
    if (height < 16 || context.measureText(text).width > width - 10) return;
    context.fillStyle = paint("--on-hue");
    context.textAlign = "left";
    context.fillText(text, left + 5, top + Math.min(height / 2 + 4, 15));
  }

  drawAxes(context) {
    const { width, height } = this.size;
    const bottom = height - MARGIN.bottom;
    const bytes = this.view.program.arena_bytes;
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = paint("--muted");
    context.strokeStyle = paint("--grid");
    context.textAlign = "right";
    for (let part = 0; part <= 4; part += 1) {
      const y = bottom - ((bottom - MARGIN.top) * part) / 4;
      context.beginPath();
      context.moveTo(MARGIN.left, y);
      context.lineTo(width - MARGIN.right, y);
      context.stroke();
      context.fillText(bytesText(Math.round((bytes * part) / 4)), MARGIN.left - 8, y + 4);
    }
    const count = this.view.instructions.length;
    const step = Math.max(1, Math.ceil(count / 12));
    context.textAlign = "center";
    for (let at = 0; at < count; at += step) {
      const x = MARGIN.left + ((at + 0.5) / count) * (width - MARGIN.left - MARGIN.right);
      context.fillText(String(at + 1), x, bottom + 16);
    }
    context.fillText("instruction", (MARGIN.left + width) / 2, height - 4);
  }

  under(event) {
    const { offsetX: x, offsetY: y } = event;
    return this.buffers.findLast((buffer) => {
      const [left, top, width, height] = this.box(buffer);
      return x >= left && x < left + width && y >= top && y < top + height;
    });
  }

  point(event) {
    const buffer = this.under(event);
    const { instructions } = this.view;
    tip(event, buffer
      ? `${buffer.type}, ${bytesText(buffer.size)} at ${buffer.offset.toLocaleString("en-US")}\nfrom ${instructions[buffer.touches[0]].name}\nto ${instructions[buffer.touches.at(-1)].name}`
      : "");
  }
}
