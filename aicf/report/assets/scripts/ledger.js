"use strict";

// Every decision in the order it was made.

function ledgerPanel(view) {
  const { decisions } = view.compiled;
  const passes = [...new Set(decisions.map((each) => each.made_by))];
  const search = el("input", { type: "search", placeholder: "Filter by op, choice or reason", aria: { label: "Filter decisions" } });
  const by = el("select", { aria: { label: "Pass" } }, el("option", { value: "" }, "all passes"), ...passes.map((name) => el("option", { value: name }, name)));
  const details = el("aside.details", { tabIndex: 0, aria: { label: "Decision" } });
  let shown = decisions;
  const list = new VirtualList({
    label: "Decisions in the order they were made",
    rowHeight: ROW_HEIGHT,
    row: (index) => decisionRow(shown[index]),
    style: (row, index) => row.classList.toggle("is-selected", index === list.current),
    choose: (index) => {
      list.restyle();
      details.replaceChildren(decisionCard(shown[index]), subjectsOf(view, shown[index]));
    },
  });
  const apply = () => {
    const text = search.value.trim().toLowerCase();
    shown = decisions.filter((each) => (!by.value || each.made_by === by.value)
      && [each.choice, each.because, ...each.subjects].some((part) => part.toLowerCase().includes(text)));
    list.fill(shown.length);
    details.replaceChildren(el("p.empty", {}, "No decision has this text."));
    list.move(0);
  };
  search.addEventListener("input", apply);
  by.addEventListener("change", apply);
  apply();
  return el("div.ledger", {}, el("div.toolbar", {}, search, by),
    el("div.panes", {}, el("section.pane", {}, el("h2", {}, "Decisions ", el("span.muted", {}, String(decisions.length))), list.node), details));
}

function decisionRow({ made_by, subjects, choice, because, rejected }) {
  const count = Object.keys(rejected).length;
  return el("div.row.entry", {}, el("code", {}, made_by), el("span.name", { title: subjects[0] }, subjects[0]), el("strong", { title: choice }, choice),
    el("span.muted", { title: because }, because), el("span.number", {}, count ? `${count} rejected` : ""));
}

function subjectsOf(view, { subjects }) {
  const items = subjects.map((id) => view.byName.has(id) ? { instruction: id, text: id } : view.opById.has(id) ? { op: id, text: id } : { text: id });
  const leading = items.map((item) => item.op === undefined && item.instruction === undefined ? chip(item)
    : el("button.chip", { type: "button", on: { click: () => openItem(item) } }, item.text));
  return block("About", el("div.chips", {}, ...leading));
}
