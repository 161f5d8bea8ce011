"use strict";

// Numbers as people read them.

/** Bytes with a binary unit: `1.6 MiB`. */
function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) {
    bytes /= 1024;
    at += 1;
  }
  return `${at ? figure(bytes) : bytes} ${units[at]}`;
}

/** Microseconds, as milliseconds from a thousand on; unknown is a dash. */
function timeText(us) {
  if (us === null || us === undefined) return "–";
  if (us < 0.001) return "<1 ns";
  return us >= 1000 ? `${figure(us / 1000)} ms` : `${figure(us)} µs`;
}

/** A part of a whole in percent. */
function shareText(share) {
  if (share === null || share === undefined) return "–";
  if (share > 0 && share < 0.001) return "<0.1 %";
  return `${share > 0 && share < 0.1 ? (share * 100).toFixed(1) : Math.round(share * 100)} %`;
}

/** A count with its noun. */
function counted(count, noun) {
  return `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
}

/** A count of operations: `16.8 M`. */
function countText(count) {
  const units = ["", " k", " M", " G", " T"];
  let at = 0;
  while (count >= 1000 && at < units.length - 1) {
    count /= 1000;
    at += 1;
  }
  return `${at ? figure(count) : count}${units[at]}`;
}

/** Three significant figures, without an exponent. */
function figure(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || value === 0 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3);
}
