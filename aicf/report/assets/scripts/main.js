"use strict";

// The frame: what is shown of which program, in which part, in which colours.

const PARTS = [
  { id: "compare", title: "Compare", isThere: () => REPORT.comparison !== null, draw: () => comparePanel(frame.twins()) },
  { id: "overview", title: "Overview", draw: () => overviewPanel(frame.view) },
  { id: "program", title: "Program", draw: () => programPanel(frame.view) },
  { id: "memory", title: "Memory", draw: () => memoryPanel(frame.view) },
  { id: "saves", title: "Saves", isThere: () => frame.view.compiled.saves !== null, draw: () => savesPanel(frame.view) },
  { id: "passes", title: "Passes", draw: () => passesPanel(frame.view) },
  { id: "decisions", title: "Decisions", draw: () => ledgerPanel(frame.view) },
];

/** What is shown: the program of one of the compiled files, and the part. */
const frame = {
  compiled: 0,
  program: 0,
  part: location.hash.slice(1),
  views: new Map(),

  get view() {
    return this.viewOf(this.compiled, this.program);
  },

  viewOf(compiled, program) {
    const key = `${compiled} ${program}`;
    if (!this.views.has(key)) {
      const whole = REPORT.compiled[compiled];
      this.views.set(key, new ProgramView(whole, whole.programs[program]));
    }
    return this.views.get(key);
  },

  /** The program that is shown, of both files: the one of the same name, else the first. */
  twins() {
    const { name } = this.view.program;
    return REPORT.compiled.map(({ programs }, at) => this.viewOf(at, Math.max(0, programs.findIndex((each) => each.name === name))));
  },

  /** Changes what is shown; the focus stays where it is, on the element of the same id. */
  show(change) {
    const focused = document.activeElement?.id;
    Object.assign(this, change);
    painted.clear();
    if ("compiled" in change) this.program = 0;
    if (!("part" in change)) Object.assign(selection, { hovered: null, selected: null });
    const parts = PARTS.filter((part) => part.isThere?.() ?? true);
    if (!parts.some((part) => part.id === this.part)) this.part = parts[0].id;
    history.replaceState(null, "", `#${this.part}`);
    drawHead();
    drawTabs(parts);
    drawPart(parts.find((part) => part.id === this.part));
    if (focused) document.getElementById(focused)?.focus();
  },
};

function drawHead() {
  const { compiled } = frame.view;
  const files = REPORT.compiled.length > 1 && frame.part !== "compare" ? el("div.switch", { role: "group", aria: { label: "File" } },
    ...REPORT.compiled.map((each, at) => el("button", {
      type: "button", id: `file-${at}`, title: each.path, aria: { pressed: at === frame.compiled }, on: { click: () => frame.show({ compiled: at }) },
    }, "AB"[at]))) : null;
  const programs = compiled.programs.length > 1 ? el("select", {
    id: "programs", aria: { label: "Program" }, on: { change: (event) => frame.show({ program: Number(event.target.value) }) },
  }, ...compiled.programs.map((each, at) => el("option", { value: at, selected: at === frame.program }, `@${each.name}`))) : null;
  const isTwo = frame.part === "compare";
  const title = isTwo ? REPORT.compiled.map((each) => each.name).filter((name, at, all) => all.indexOf(name) === at).join(" and ") : compiled.name;
  const about = isTwo ? REPORT.compiled.map((each, at) => `${"AB"[at]} ${each.path}`).join(" · ")
    : `${compiled.backend}:${compiled.arch}${compiled.threads > 1 ? ` · ${compiled.threads} threads` : ""} · ${compiled.path}`;
  document.getElementById("head").replaceChildren(
    el("div.title", {}, el("h1", {}, title), el("p.muted.clip", { title: about }, about)), ...[files, programs].filter((node) => node), themeButton());
}

function drawTabs(parts) {
  const buttons = parts.map((part) => el("button", {
    type: "button",
    role: "tab",
    id: `tab-${part.id}`,
    tabIndex: part.id === frame.part ? 0 : -1,
    aria: { selected: part.id === frame.part, controls: "panel" },
    on: { click: () => showTab(part.id), keydown: (event) => moveTab(event, parts) },
  }, part.title));
  document.getElementById("tabs").replaceChildren(...buttons);
}

function moveTab(event, parts) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const at = parts.findIndex((part) => part.id === frame.part);
  showTab(parts[(at + step + parts.length) % parts.length].id);
}

function showTab(part) {
  frame.show({ part });
  document.getElementById(`tab-${part}`).focus();
}

function drawPart(part) {
  selection.listeners.clear();
  const panel = el("div.panel", { id: "panel", role: "tabpanel", tabIndex: -1, aria: { labelledby: `tab-${part.id}` } });
  document.getElementById("panels").replaceChildren(panel);
  panel.append(part.draw());
}

/** Shows an op or an instruction where it stands in the program. */
function openItem({ op, instruction }) {
  frame.show({ part: "program" });
  selection.select(op === undefined ? { instruction } : { op });
}

/** Light, dark, or as the system says: the button goes through them. */
function themeButton() {
  const themes = { "": "auto", light: "light", dark: "dark" };
  const root = document.documentElement;
  const name = () => `Theme: ${themes[root.dataset.theme ?? ""]}`;
  const button = el("button", { type: "button", id: "theme" }, name());
  button.addEventListener("click", () => {
    const names = Object.keys(themes);
    const next = names[(names.indexOf(root.dataset.theme ?? "") + 1) % names.length];
    root.dataset.theme = next;
    frame.show({ part: frame.part });
  });
  return button;
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.matches("input, select, textarea");
  const search = document.querySelector("input[type=search]");
  if (event.key === "/" && !isTyping && search) {
    event.preventDefault();
    search.focus();
  }
});
addEventListener("hashchange", () => {
  if (location.hash.slice(1) !== frame.part) frame.show({ part: location.hash.slice(1) });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => frame.show({ part: frame.part }));
frame.show({ part: frame.part });
