"use strict";

// What differs between two texts, line by line. Lines are numbers, of which equal ones are equal lines.

/**
 * The steps from one text to the other, in order: `{kind: "same" | "gone" | "new", line}`.
 *
 * Patience diff (Bram Cohen): lines that each text has once are matched in the longest order that both have, and what
 * lies between them is compared in the same way. IR has many such lines, for values have names.
 */
function lineDiff(before, after) {
  const steps = [];
  compareParts(before, 0, before.length, after, 0, after.length, steps);
  return steps;
}

function compareParts(a, a0, a1, b, b0, b1, steps) {
  while (a0 < a1 && b0 < b1 && a[a0] === b[b0]) {
    steps.push({ kind: "same", line: a[a0] });
    a0 += 1;
    b0 += 1;
  }
  let tail = 0;
  while (a0 < a1 - tail && b0 < b1 - tail && a[a1 - tail - 1] === b[b1 - tail - 1]) tail += 1;
  const anchors = longestRun(uniqueMatches(a, a0, a1 - tail, b, b0, b1 - tail));
  if (anchors.length) {
    for (const [x, y] of anchors) {
      compareParts(a, a0, x, b, b0, y, steps);
      steps.push({ kind: "same", line: a[x] });
      [a0, b0] = [x + 1, y + 1];
    }
    compareParts(a, a0, a1 - tail, b, b0, b1 - tail, steps);
  } else {
    for (let x = a0; x < a1 - tail; x += 1) steps.push({ kind: "gone", line: a[x] });
    for (let y = b0; y < b1 - tail; y += 1) steps.push({ kind: "new", line: b[y] });
  }
  for (let x = a1 - tail; x < a1; x += 1) steps.push({ kind: "same", line: a[x] });
}

/** Positions in both parts of the lines that each of them has once, in the order of the first. */
function uniqueMatches(a, a0, a1, b, b0, b1) {
  const once = (lines, start, end) => {
    const at = new Map();
    for (let index = start; index < end; index += 1) at.set(lines[index], at.has(lines[index]) ? -1 : index);
    return at;
  };
  const inB = once(b, b0, b1);
  return [...once(a, a0, a1)]
    .filter(([line, index]) => index >= 0 && (inB.get(line) ?? -1) >= 0)
    .map(([line, index]) => [index, inB.get(line)]);
}

/** The longest part of matches whose second positions rise, by patience sorting. */
function longestRun(matches) {
  const piles = [];
  const before = new Array(matches.length).fill(-1);
  matches.forEach(([, position], index) => {
    let low = 0;
    let high = piles.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (matches[piles[middle]][1] < position) low = middle + 1;
      else high = middle;
    }
    if (low > 0) before[index] = piles[low - 1];
    piles[low] = index;
  });
  const run = [];
  for (let index = piles.at(-1) ?? -1; index >= 0; index = before[index]) run.push(matches[index]);
  return run.reverse();
}
