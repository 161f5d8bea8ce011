"use strict";

// Graphs beside a list, as version control shows branches: a row is a node, and a lane a value until its last reader.
// Placing the nodes takes one pass over them, so that thousands need no layout that iterates.

const LANE_WIDTH = 12;
const MOST_LANES = 8;

/**
 * Gives each node of a graph in topological order a lane.
 * @param {number[][]} reads For each node the rows of the nodes that it reads.
 * @returns {{lane: number[], last: number[], width: number}} The lane of each node, and the row of its last reader (its
 *   own row if nobody reads it); lanes past the last one share it.
 */
function assignLanes(reads) {
  const last = reads.map((_, row) => row);
  reads.forEach((sources, row) => sources.forEach((source) => (last[source] = Math.max(last[source], row))));
  const lane = [];
  const busyUntil = [];
  reads.forEach((sources, row) => {
    const ending = sources.filter((source) => last[source] === row).map((source) => lane[source]);
    const free = busyUntil.findIndex((until) => until <= row);
    const own = ending.length ? Math.min(...ending) : free >= 0 ? free : busyUntil.length;
    lane.push(own);
    for (const each of ending) busyUntil[each] = row;
    busyUntil[own] = last[row];
  });
  const width = Math.min(MOST_LANES, busyUntil.length || 1);
  return { lane: lane.map((each) => Math.min(each, MOST_LANES - 1)), last, width };
}

/** A canvas beside the rows of a list, which draws what belongs to the rows in sight. */
class Gutter {
  /**
   * @param {VirtualList} list The list it belongs to; its rows leave `width` pixels free on the left.
   * @param {number} lanes How many lanes it shows.
   */
  constructor(list, lanes) {
    this.list = list;
    this.width = lanes * LANE_WIDTH + 8;
    this.canvas = el("canvas.gutter", { aria: { hidden: "true" } });
    list.space.append(this.canvas);
    list.node.style.setProperty("--gutter", `${this.width}px`);
  }

  /** Clears the canvas, puts it beside rows `first` to `end`, and calls `paintOn` with its context. */
  draw(first, end, paintOn) {
    const { rowHeight } = this.list;
    const height = Math.max(1, (end - first) * rowHeight);
    const ratio = devicePixelRatio || 1;
    this.canvas.width = this.width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.setProperty("width", `${this.width}px`);
    this.canvas.style.setProperty("height", `${height}px`);
    this.canvas.style.setProperty("transform", `translateY(${first * rowHeight}px)`);
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.translate(0, -first * rowHeight);
    context.lineWidth = 1.5;
    context.lineCap = "round";
    paintOn(context);
  }

  /** The middle of a node. */
  point(lane, row) {
    return [4 + lane * LANE_WIDTH + LANE_WIDTH / 2, (row + 0.5) * this.list.rowHeight];
  }

  /** A line down the lane of a source, which bends into the lane of its reader in the last row. */
  edge(context, [x, y], [toX, toY]) {
    const bend = Math.max(y, toY - this.list.rowHeight);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x, bend);
    context.bezierCurveTo(x, (bend + toY) / 2, toX, (bend + toY) / 2, toX, toY);
    context.stroke();
  }

  dot(context, [x, y], colour, isStrong) {
    context.beginPath();
    context.arc(x, y, isStrong ? 5 : 3.5, 0, 2 * Math.PI);
    context.fillStyle = colour;
    context.fill();
  }
}
