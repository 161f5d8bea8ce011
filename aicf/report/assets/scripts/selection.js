"use strict";

// What the reader points at and what they chose: all views follow it.

/**
 * The hovered and the selected item, each `{op: id}` or `{instruction: name}` of the program that is shown, or null.
 * Listeners are called with the kind of change, `hover` or `select`.
 */
const selection = {
  hovered: null,
  selected: null,
  listeners: new Set(),

  hover(item) {
    if (same(item, this.hovered)) return;
    this.hovered = item;
    this.tell("hover");
  },

  select(item) {
    this.selected = item;
    this.hovered = null;
    this.tell("select");
  },

  tell(change) {
    for (const listener of [...this.listeners]) listener(change);
  },
};

function same(a, b) {
  return a?.op === b?.op && a?.instruction === b?.instruction;
}

/** The ops and instructions that an item is linked with: itself, and what it stands for or became. */
function linked(view, item) {
  if (!item) return { ops: new Set(), instructions: new Set() };
  if (item.op !== undefined) {
    const instructions = view.byOp.get(item.op) ?? [];
    return { ops: new Set([item.op]), instructions: new Set(instructions.map((each) => each.name)) };
  }
  return { ops: new Set(view.byName.get(item.instruction)?.src), instructions: new Set([item.instruction]) };
}
