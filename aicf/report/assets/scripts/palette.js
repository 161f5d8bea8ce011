"use strict";

// A colour for each kind of instruction, the same in every view of the report.

const HUES = 8;

/** The number of a kind's colour: kinds that take the most time have colours of their own, the rest share the last. */
const colourOfKind = (() => {
  const us = new Map();
  for (const compiled of REPORT.compiled) {
    for (const program of compiled.programs) {
      for (const { row, measured_us } of program.instructions) {
        us.set(row.kind, (us.get(row.kind) ?? 0) + (measured_us ?? row.expected_us ?? 0));
      }
    }
  }
  const kinds = [...us.keys()].sort((a, b) => us.get(b) - us.get(a) || (a < b ? -1 : 1));
  const numbers = new Map(kinds.map((kind, at) => [kind, Math.min(at, HUES - 1)]));
  return (kind) => numbers.get(kind) ?? HUES - 1;
})();

/** The colour of a kind, as CSS takes it. */
function kindColour(kind) {
  return `var(--hue-${colourOfKind(kind)})`;
}

const painted = new Map();

/** A colour as canvases take it: the value of a variable. Kept, since to ask for it makes the browser style the page. */
function paint(name) {
  if (!painted.has(name)) painted.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return painted.get(name);
}

/** A small square in the colour of a kind, and its name. */
function kindLabel(kind) {
  return el("span.kind", { style: { "--kind": kindColour(kind) } }, kind);
}
