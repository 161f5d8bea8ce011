"use strict";

// A list of which only the rows in sight are elements, so that it takes thousands. Keys move in it as in a list box.

const SPARE_ROWS = 6;

class VirtualList {
  /**
   * @param {Object} options
   * @param {string} options.label What the list holds, for screen readers.
   * @param {number} options.rowHeight Pixels.
   * @param {(index: number) => Element} options.row Makes a row.
   * @param {(row: Element, index: number) => void} [options.style] Marks a row as the state of the report is now.
   * @param {(index: number) => string} [options.name] What a screen reader says of a row; by default its text.
   * @param {(index: number) => void} [options.choose] Called when the reader moves to a row or clicks it.
   * @param {(index: number|null) => void} [options.point] Called when the pointer is over a row, or over none.
   * @param {(first: number, end: number) => void} [options.drawn] Called after rows `first` to `end` were drawn.
   */
  constructor({ label, rowHeight, row, style, name, choose, point, drawn }) {
    Object.assign(this, { rowHeight, row, style, name, choose, point, drawn });
    this.count = 0;
    this.sight = [0, 0];
    this.current = -1;
    this.id = `list${(VirtualList.made = (VirtualList.made ?? 0) + 1)}`;
    this.rows = el("div.rows");
    this.space = el("div.space", {}, this.rows);
    this.node = el("div.list", {
      role: "listbox",
      tabIndex: 0,
      aria: { label },
      on: {
        scroll: () => this.draw(true),
        keydown: (event) => this.key(event),
        click: (event) => this.at(event, (index) => this.move(index)),
        mousemove: (event) => this.at(event, (index) => this.point?.(index)),
        mouseleave: () => this.point?.(null),
      },
    }, this.space);
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  /** Shows `count` rows, none of them current. */
  fill(count) {
    this.count = count;
    this.current = -1;
    this.node.removeAttribute("aria-activedescendant");
    this.space.style.setProperty("height", `${count * this.rowHeight}px`);
    this.draw();
  }

  /** Draws the rows in sight anew; if only the place has changed, just those that were not there. */
  draw(isMoved = false) {
    const height = this.node.clientHeight;
    if (!height) return;
    const first = Math.max(0, Math.floor(this.node.scrollTop / this.rowHeight) - SPARE_ROWS);
    const end = Math.min(this.count, Math.ceil((this.node.scrollTop + height) / this.rowHeight) + SPARE_ROWS);
    this.rows.style.setProperty("transform", `translateY(${first * this.rowHeight}px)`);
    const [from, to] = this.sight;
    if (isMoved && first < to && from < end) this.slide(first, end);
    else this.rows.replaceChildren(...this.range(first, end));
    if (this.current >= 0) this.node.setAttribute("aria-activedescendant", `${this.id}-${this.current}`);
    this.sight = [first, end];
    this.drawn?.(first, end);
  }

  /** Takes rows away that are out of sight now, and adds those that have come into it. */
  slide(first, end) {
    let [from, to] = this.sight;
    for (; from < first; from += 1) this.rows.firstChild.remove();
    for (; to > end; to -= 1) this.rows.lastChild.remove();
    this.rows.prepend(...this.range(first, from));
    this.rows.append(...this.range(to, end));
  }

  /** New rows `first` to `end`. */
  range(first, end) {
    return Array.from({ length: Math.max(0, end - first) }, (_, at) => this.made(first + at));
  }

  /** Marks the rows in sight anew. They stay the same elements, so that a click that has begun ends on its row. */
  restyle() {
    for (const row of this.rows.children) this.style?.(row, Number(row.dataset.index));
    this.drawn?.(...this.sight);
  }

  made(index) {
    const node = this.row(index);
    decorate(node, {
      id: `${this.id}-${index}`,
      role: "option",
      aria: { selected: index === this.current, setsize: this.count, posinset: index + 1 },
      data: { index },
      style: { height: `${this.rowHeight}px` },
    });
    if (this.name) node.setAttribute("aria-label", this.name(index));
    this.style?.(node, index);
    return node;
  }

  /** Makes a row the current one, in sight, without telling anybody; -1 for none. */
  show(index) {
    this.current = index;
    if (index < 0) this.node.removeAttribute("aria-activedescendant");
    const top = index * this.rowHeight;
    const { scrollTop, clientHeight } = this.node;
    const isInSight = top >= scrollTop && top + this.rowHeight <= scrollTop + clientHeight;
    if (index >= 0 && !isInSight) this.node.scrollTop = top - (clientHeight - this.rowHeight) / 2;
    this.draw();
  }

  move(index) {
    if (!this.count) return;
    this.show(Math.max(0, Math.min(this.count - 1, index)));
    this.choose?.(this.current);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.rowHeight) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.count, End: this.count };
    if (!(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.move(this.current < 0 && steps[event.key] === 1 ? 0 : this.current + steps[event.key]);
  }

  /** Calls `act` with the row under the pointer. */
  at(event, act) {
    const row = event.target.closest("[data-index]");
    if (row) act(Number(row.dataset.index));
  }
}
