"use strict";

// Making elements. Text only ever becomes text: nothing in a report is read as markup.

/**
 * A new element.
 * @param {string} tag Its tag, with classes: `div.row.is-wide`.
 * @param {Object} props Properties by name; `on` holds listeners, `aria` and `data` attributes, `style` custom properties
 *   and styles, all by name.
 * @param {...(Node|string|null)} children Nodes, and texts; null leaves one out.
 */
function el(tag, props = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const node = document.createElement(name);
  if (classes.length) node.className = classes.join(" ");
  decorate(node, props);
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** The same for elements of SVG, whose properties are all attributes. */
function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function decorate(node, { on = {}, aria = {}, data = {}, style = {}, ...props }) {
  for (const [name, listener] of Object.entries(on)) node.addEventListener(name, listener);
  for (const [name, value] of Object.entries(aria)) node.setAttribute(`aria-${name}`, value);
  for (const [name, value] of Object.entries(data)) node.dataset[name] = value;
  for (const [name, value] of Object.entries(style)) node.style.setProperty(name, value);
  for (const [name, value] of Object.entries(props)) {
    if (name === "role" || name === "for") node.setAttribute(name, value);
    else node[name] = value;
  }
}

/** A section with a heading; `hint` explains it in a line. */
function section(title, hint, ...children) {
  return el("section.card", {}, el("h2", {}, title), hint ? el("p.hint", {}, hint) : null, ...children);
}

/** A table of texts and nodes; columns named with a leading `#` hold numbers. */
function table(caption, columns, rows) {
  const numeric = columns.map((column) => column.startsWith("#"));
  const heads = columns.map((column, at) =>
    el(numeric[at] ? "th.number" : "th", { scope: "col" }, column.replace(/^#/, "")));
  const body = rows.map((row) =>
    el("tr", {}, ...row.map((cell, at) => el(numeric[at] ? "td.number" : "td", {}, cell))));
  return el("div.scroll", {}, el("table", {}, el("caption.unseen", {}, caption),
    el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...body)));
}

/** Facts as pairs of a term and what it is. */
function facts(pairs) {
  return el("dl.facts", {}, ...pairs.filter((pair) => pair !== null)
    .flatMap(([term, what]) => [el("dt", {}, term), el("dd", {}, what)]));
}

/** Says something to screen readers. */
function say(text) {
  document.getElementById("said").textContent = text;
}

/** Shows what an element of a drawing is, beside the pointer; without a text it goes away. */
function tip(event, text) {
  const node = document.getElementById("tip");
  node.hidden = !text;
  if (!text) return;
  node.textContent = text;
  const left = Math.min(event.clientX + 14, innerWidth - node.offsetWidth - 8);
  const top = Math.min(event.clientY + 16, innerHeight - node.offsetHeight - 8);
  node.style.setProperty("left", `${left}px`);
  node.style.setProperty("top", `${top}px`);
}
