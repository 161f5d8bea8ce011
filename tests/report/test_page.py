"""The page of a report: what stands in it, that nothing in it can become markup, and the commands that write it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.comparison.diff import compare
from aicf.compilation.saved_program import read_saved_program
from aicf.report import gather_report, html_page
from aicf.support.dataclass_json import to_json_value
from aicf.tools.aicf_cli import main
from tests.report.conftest import Files

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\u2028'\""
"""A name that would become markup in a page that is careless."""


class Elements(HTMLParser):
    """The elements of a page: their tags, attributes and, of scripts and styles, texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self.is_inside = True

    def handle_endtag(self, tag: str) -> None:
        self.is_inside = False

    def handle_data(self, data: str) -> None:
        if self.found and self.is_inside:
            tag, attrs, text = self.found[-1]
            self.found[-1] = tag, attrs, text + data

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attrs, text) for name, attrs, text in self.found if name == tag]


@pytest.fixture(scope="module")
def page(files: Files) -> str:
    return html_page(gather_report(files.mlp, files.step, passes=False))


def test_the_data_is_the_report(page: str, files: Files) -> None:
    (data,) = [text for attrs, text in Elements(page).of("script") if attrs.get("id") == "data"]
    report = gather_report(files.mlp, files.step, passes=False)
    assert json.loads(data) == json.loads(json.dumps(to_json_value(report)))


def test_the_page_loads_nothing(page: str) -> None:
    elements = Elements(page)
    assert not [attrs for _, attrs, _ in elements.found if {"src", "href", "srcset", "style"} & attrs.keys()]
    assert "url(" not in "".join(text for _, text in elements.of("style"))
    scripts = page.split("</script>", 1)[1]
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import|eval)\s*\(|(inner|outer)HTML", scripts)


def test_only_what_the_page_holds_may_run(page: str) -> None:
    elements = Elements(page)
    (policy,) = [
        str(attrs["content"])
        for attrs, _ in elements.of("meta")
        if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    scripts = [text for attrs, text in elements.of("script") if attrs.get("type") is None]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"].split() == [sha256(text) for text in scripts]
    assert [rules["style-src"]] == [sha256(text) for _, text in elements.of("style")]


def sha256(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_names_cannot_become_markup(files: Files) -> None:
    report = gather_report(files.mlp, passes=False)
    (compiled,) = report.compiled
    assert compiled.model is not None
    ops = tuple(replace(op, id=HOSTILE, inputs=(HOSTILE,)) for op in compiled.model)
    plain = html_page(report)
    page = html_page(replace(report, compiled=(replace(compiled, name=HOSTILE, path=HOSTILE, model=ops),)))
    assert [tag for tag, *_ in Elements(page).found] == [tag for tag, *_ in Elements(plain).found]
    assert "<img" not in page and "alert(1)<" not in page
    (data,) = [text for attrs, text in Elements(page).of("script") if attrs.get("id") == "data"]
    assert json.loads(data)["compiled"][0]["model"][0]["id"] == HOSTILE


def test_a_model_with_hostile_names_has_a_report(tmp_path: Path) -> None:
    graph = aicf.Graph("m")
    x, w = graph.input("x", (2, 3)), graph.param("<b>w</b></script>", (4, 3))
    graph.output(graph.linear(x, w, name="<script>fc"), "</title>y")
    weights = {"<b>w</b></script>": np.random.default_rng(0).standard_normal((4, 3), dtype=np.float32)}
    aicf.compile(graph, weights, "reference", name="</title><script>m").save(tmp_path / "m.aicf")
    out = tmp_path / "m.html"
    assert main(["view", str(tmp_path / "m.aicf"), "-o", str(out)]) == 0
    page = out.read_text("utf-8")
    (title,) = Elements(page).of("title")
    assert title[1].strip() == "</title><script>m - AICF report"
    assert "<script>fc" not in page and "<b>w" not in page


def test_the_same_report_has_the_same_bytes(files: Files, tmp_path: Path) -> None:
    pages: list[bytes] = []
    for name in ("one.html", "two.html"):
        assert main(["view", str(files.mlp), "-o", str(tmp_path / name)]) == 0
        pages.append((tmp_path / name).read_bytes())
    assert pages[0] == pages[1]


def test_diff_writes_both_side_by_side(
    files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "diff.html"
    assert main(["diff", str(files.mlp), str(files.unfused), "--html", str(out)]) == 1
    assert "fusion lost of fc1" in capsys.readouterr().out
    (data,) = [text for attrs, text in Elements(out.read_text("utf-8")).of("script") if "id" in attrs]
    report = json.loads(data)
    assert [each["path"] for each in report["compiled"]] == [str(files.mlp), str(files.unfused)]
    expected = compare(read_saved_program(files.mlp), read_saved_program(files.unfused))
    assert report["comparison"] == json.loads(json.dumps(expected.to_json_value()))


@pytest.mark.parametrize("command", ["view", "diff"])
def test_a_damaged_artifact_is_one_line(
    command: str, files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged, out = tmp_path / "damaged.aicf", tmp_path / "out.html"
    data = bytearray(files.mlp.read_bytes())
    data[len(data) // 2] ^= 0xFF
    damaged.write_bytes(data)
    option = {"view": "-o", "diff": "--html"}[command]
    status = main([command, str(files.mlp), str(damaged), option, str(out)])
    error = capsys.readouterr().err
    assert status == {"view": 1, "diff": 2}[command]
    assert (
        error.startswith(f"{damaged}: error: the artifact was damaged or edited") and error.count("\n") == 1
    )
    assert not out.exists()


def test_a_report_does_not_take_the_place_of_its_artifact(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["view", str(files.mlp), "-o", str(files.mlp)]) == 1
    assert "the report would take the place of what it is made of" in capsys.readouterr().err
    aicf.load(files.mlp)


def test_without_the_template_engine_it_says_how_to_get_it(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main(["view", str(files.mlp), "--no-passes", "-o", str(tmp_path / "out.html")]) == 1
    error = capsys.readouterr().err
    assert "a report needs jinja2" in error and "[view]" in error and error.count("\n") == 1
