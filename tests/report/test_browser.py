"""Reports in a browser: every part is drawn, pointer, keyboard and screen reader work, and thousands of rows stay few
elements."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import aicf
from aicf.report import Report, gather_report, html_page
from aicf.report.contents import ModelOp
from tests.report.browser import Browser, browser, missing
from tests.report.conftest import Files, times_of
from tests.test_compiler import MLP, mlp_weights

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        missing() is not None, reason=f"{missing()}: apt-get install chromium chromium-driver"
    ),
]

MANY = 5000
HOSTILE = "</script><script>hacked = 1</script><img src=x onerror='hacked = 1'>"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(files: Files, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages: of the classifier with measured times, of the training step, of two programs, of emit IR, of many
    instructions, and of a model with hostile names."""
    folder = tmp_path_factory.mktemp("pages")
    times = folder / "times.json"
    times.write_text(times_of(files.mlp, 2.0), "utf-8")
    mlp = gather_report(files.mlp, measured=[times])
    reports = {
        "mlp": mlp,
        "step": gather_report(files.step, passes=False),
        "diff": gather_report(files.mlp, files.unfused, passes=False),
        "bare": gather_report(emit_ir(folder / "bare.mlir")),
        "many": with_many(mlp),
        "hostile": with_hostile_names(mlp),
    }
    pages: dict[str, Path] = {}
    for name, report in reports.items():
        pages[name] = folder / f"{name}.html"
        pages[name].write_text(html_page(report), "utf-8")
    return pages


def emit_ir(path: Path) -> Path:
    """A file of final emit IR, for a target without peaks: what there is least to show of."""
    exe = aicf.compile(MLP, mlp_weights(), "reference", dims="N=1")
    path.write_text(exe.ir("emit"), "utf-8")
    return path


def with_many(report: Report) -> Report:
    """A report with `MANY` instructions, each of an op of its own that reads one before it."""
    (compiled,) = report.compiled
    program, draw = compiled.programs[0], random.Random(1)
    first = program.instructions[0]
    names = [f"op{number}" for number in range(MANY)]
    instructions = tuple(
        replace(
            first,
            row=replace(first.row, name=name, src=(name,)),
            after=((names[number - 1], False),) if number else (),
            stream=number % 4,
        )
        for number, name in enumerate(names)
    )
    model = tuple(
        ModelOp(name, "add", "f32[2]", (names[draw.randrange(number)],) if number else (), (), None)
        for number, name in enumerate(names)
    )
    arena = tuple(
        replace(
            program.arena[0], offset=64 * (number % 50), size=64, touches=(number, min(MANY - 1, number + 30))
        )
        for number in range(MANY)
    )
    many = replace(program, instructions=instructions, neighbours=(), arena=arena, arena_bytes=3200)
    return replace(report, compiled=(replace(compiled, programs=(many,), model=model),))


def with_hostile_names(report: Report) -> Report:
    """The report with markup in place of the names of instructions, ops, weights and the model."""
    (compiled,) = report.compiled
    program = compiled.programs[0]
    first = program.instructions[0]
    row = replace(first.row, name=HOSTILE, kernel=HOSTILE, src=(HOSTILE,), decisions=((HOSTILE, HOSTILE),))
    named = replace(first, row=row, reads=(HOSTILE,), after=())
    ops = (ModelOp(HOSTILE, HOSTILE, HOSTILE, (), (HOSTILE,), HOSTILE),)
    decisions = tuple(
        replace(each, subjects=(HOSTILE,), because=HOSTILE, rejected={HOSTILE: HOSTILE})
        for each in compiled.decisions
    )
    stages = replace(compiled.stages, lines=(HOSTILE,) * len(compiled.stages.lines))
    programs = (replace(program, instructions=(named,), neighbours=(), arena=(), notes=(HOSTILE,)),)
    changed = replace(
        compiled, name=HOSTILE, path=HOSTILE, programs=programs, model=ops, decisions=decisions, stages=stages
    )
    return replace(report, compiled=(changed,))


PARTS = {
    "mlp": ["overview", "program", "memory", "passes", "decisions"],
    "step": ["overview", "program", "memory", "saves", "passes", "decisions"],
    "diff": ["compare", "overview", "program", "memory", "passes", "decisions"],
    "bare": ["overview", "program", "memory", "passes", "decisions"],
    "hostile": ["overview", "program", "memory", "passes", "decisions"],
}


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_drawn_without_an_error(name: str, chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages[name])
    tabs = chromium.run("[...document.querySelectorAll('[role=tab]')].map((tab) => tab.id)")
    assert tabs == [f"tab-{part}" for part in PARTS[name]]
    for part in PARTS[name]:
        chromium.find(f"#tab-{part}").click()
        assert chromium.count("[role=tabpanel]") == 1
        assert len(chromium.text("[role=tabpanel]")) > 50, part
    assert chromium.errors() == []
    assert chromium.run("performance.getEntriesByType('resource').length") == 0


def test_names_are_text_wherever_they_stand(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["hostile"])
    for part in PARTS["hostile"]:
        chromium.find(f"#tab-{part}").click()
        if chromium.count("[role=option]"):
            chromium.find("[role=option]").click()
        assert HOSTILE in chromium.text("body")
    assert chromium.run("typeof hacked") == "undefined"
    assert chromium.count("img") == 0


def test_ops_and_instructions_are_linked(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["mlp"])
    chromium.find("#tab-program").click()
    chromium.hover(chromium.row("relu1"))
    assert linked(chromium) == ["relu1", "fc1@N=1"]
    chromium.hover(chromium.row("fc2@N=1"))
    assert linked(chromium) == ["fc2", "relu2", "fc2@N=1"]
    chromium.hover(chromium.find("#search"))
    assert linked(chromium) == []


def linked(chromium: Browser) -> list[str]:
    """The names of the rows that are marked, from left to right."""
    return chromium.run("[...document.querySelectorAll('.is-linked .name')].map((name) => name.textContent)")


def test_details_say_what_was_decided(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["mlp"])
    chromium.find("#tab-program").click()
    chromium.row("fc1@N=1").click()
    details = chromium.text(".details")
    for part in (
        "gemm_epilogue by cpu.gemm_avx2 · #1 · stream 0",
        "Measured\n2.00 µs",
        "Of the roofline",
        "one kernel for 3 ops",
        "cpu.gemm_portable",  # a kernel that was not taken
        "read by fc2@N=1",
        "only elementwise ops of the product's shape can be its epilogue",
        "f32[1, 64] in input 'x'",
    ):
        assert part in details, part
    chromium.row("relu1").click()
    assert "mlp.mlir:12:3" in chromium.text(".details")


def test_keys_move_through_parts_and_lists(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["mlp"])
    chromium.press("TAB", "TAB", "TAB")
    assert chromium.focused == "tab-overview"
    chromium.press("ARROW_RIGHT")
    assert chromium.focused == "tab-program"
    chromium.press("/", "relu", "TAB", "TAB")
    assert chromium.focused == "Ops of the model"
    chromium.press("ARROW_DOWN", "ARROW_DOWN")
    assert chromium.text(".details .name") == "relu2"
    active = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))"
    assert chromium.run(f"{active}.getAttribute('aria-selected')") == "true"
    assert chromium.run(f"{active}.getAttribute('aria-setsize')") == "2"
    assert chromium.text("#said") == "relu2: details shown"


def test_everything_that_takes_the_focus_has_a_name(chromium: Browser, pages: dict[str, Path]) -> None:
    """As the browser tells a screen reader."""
    chromium.open(pages["step"])
    for part in PARTS["step"]:
        chromium.find(f"#tab-{part}").click()
        tree = chromium.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        roles: set[str] = set()
        for node in tree:
            takes_focus = any(
                p["name"] == "focusable" and p["value"]["value"] for p in node.get("properties", ())
            )
            role = node.get("role", {}).get("value")
            if takes_focus and role not in ("RootWebArea", "tabpanel"):
                roles.add(role)
                assert node["name"]["value"], (part, node)
        assert "tab" in roles


def test_the_theme_changes_and_keeps_the_focus(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["mlp"])
    colours: set[str] = set()
    for theme in ("light", "dark"):
        chromium.find("#theme").click()
        assert chromium.text("#theme") == f"Theme: {theme}"
        assert chromium.focused == "theme"
        colours.add(chromium.run("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


def test_thousands_of_instructions_are_few_elements(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["many"])
    for part in ("program", "memory"):
        chromium.find(f"#tab-{part}").click()
        assert chromium.count("*") < 2000
        chromium.find("[role=listbox]").click()
        chromium.press("END")
        last = "document.querySelector('[role=option][aria-selected=true]').getAttribute('aria-posinset')"
        assert chromium.run(last) == str(MANY)
        assert chromium.count("*") < 2000
    chromium.find("#tab-program").click()
    chromium.find("#search").send_keys(f"op{MANY - 1}")
    assert chromium.count(".pane [role=option]") == 2
    assert chromium.errors() == []


def test_two_programs_stand_side_by_side(chromium: Browser, pages: dict[str, Path]) -> None:
    chromium.open(pages["diff"])
    assert "fusion lost" in chromium.text(".differences")
    chromium.settle()
    first, second = chromium.driver.find_elements("css selector", ".twins .pane")
    chromium.hover(first.find_element("css selector", "[role=option]"))
    chromium.settle()
    names = [row.text for row in second.find_elements("css selector", ".is-linked .name")]
    assert names == ["fc1@N=1", "fc1.bias@N=1"]
    chromium.find("#tab-overview").click()
    chromium.find("#file-1").click()
    assert chromium.text("h1") == "mlp" and "unfused.aicf" in chromium.text("#head p")


def test_a_text_is_rebuilt_from_its_differences(chromium: Browser, pages: dict[str, Path]) -> None:
    """Of random texts with lines that repeat: what is not new is the first, what is not gone the second."""
    chromium.open(pages["mlp"])
    draw = random.Random(2)
    for _ in range(20):
        before = [draw.randrange(30) for _ in range(draw.randrange(40))]
        after = edited(before, draw)
        steps = chromium.run("lineDiff(arguments[0], arguments[1])", before, after)
        assert [step["line"] for step in steps if step["kind"] != "new"] == before
        assert [step["line"] for step in steps if step["kind"] != "gone"] == after
        if len({*before}) == len(before) and before == after:
            assert all(step["kind"] == "same" for step in steps)


def edited(lines: Sequence[int], draw: random.Random) -> list[int]:
    """Lines with some left out, and others put between."""
    kept = [line for line in lines if draw.random() < 0.8]
    for _ in range(draw.randrange(5)):
        kept.insert(draw.randrange(len(kept) + 1), draw.randrange(40))
    return kept


def test_values_that_are_alive_together_have_lanes_of_their_own(
    chromium: Browser, pages: dict[str, Path]
) -> None:
    chromium.open(pages["mlp"])
    draw = random.Random(3)
    for _ in range(20):
        count = draw.randrange(1, 14)
        reads = [sorted(draw.sample(range(row), draw.randrange(min(row, 2) + 1))) for row in range(count)]
        graph = chromium.run("assignLanes(arguments[0])", reads)
        last = [max([row, *(r for r in range(count) if row in reads[r])]) for row in range(count)]
        assert graph["last"] == last
        if graph["width"] < 8:  # more share the last one
            for row in range(count):
                for later in range(row + 1, last[row]):
                    assert graph["lane"][later] != graph["lane"][row], (reads, row, later)


def test_rows_follow_the_place_of_a_list(chromium: Browser, pages: dict[str, Path]) -> None:
    """By steps that leave some rows in sight, and by jumps that leave none, in both directions."""
    chromium.open(pages["many"])
    chromium.find("#tab-program").click()
    draw, top = random.Random(4), 0
    for _ in range(20):
        top = max(0, min(30 * MANY - 1000, top + draw.choice((1, -1)) * draw.choice((7, 200, 3000, 90_000))))
        chromium.run("document.querySelector('[role=listbox]').scrollTop = arguments[0]", top)
        shown = chromium.run(
            "[...document.querySelector('[role=listbox]').querySelectorAll('[role=option]')]"
            ".map((row) => [Number(row.dataset.index), row.getBoundingClientRect().top])"
        )
        first = chromium.run("document.querySelector('[role=listbox]').getBoundingClientRect().top")
        assert [index for index, _ in shown] == list(range(shown[0][0], shown[0][0] + len(shown)))
        for index, at in shown:
            assert at - first == pytest.approx(30 * index - top + 1, abs=1.5)
        assert shown[0][1] <= first or top == 0
