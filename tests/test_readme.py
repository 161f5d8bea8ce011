"""The README's example and session run as they stand, and the pages under docs/ name files and passes that exist."""

from __future__ import annotations

import re
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp, StringAttr
from xdsl.passes import ModulePass

from aicf.frontends.text import make_context, parse_module, verify_module
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.passes.support.programs import programs
from aicf.passes.support.works_on import PROGRAMS
from aicf.tools.aicf_opt import main as aicf_opt
from aicf.universe import AICF_UNIVERSE
from tests.test_compiler import ROOT

README = (ROOT / "README.md").read_text("utf-8")
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
    *(f"docs/tutorial/{page.name}" for page in (ROOT / "docs" / "tutorial").glob("*.md")),
    *(
        str(page.relative_to(ROOT))
        for folder in ("aicf", "passes")
        for page in (ROOT / folder).rglob("README.md")
    ),
)
FOLDERS = (
    "aicf/",
    "dialects/",
    "passes/",
    "tools/",
    "tests/",
    "lit_tests/",
    "examples/",
    "benchmarks/",
    "docs/",
)
INVENTED = ("passes/FOLDER/some_pass.py", "lit_tests/passes/some_pass.mlir", "examples/digits/build")
"""Names in instructions, and what the demo makes."""
PASS_IMPORTS = {
    imported.__name__: imported
    for imported in (dataclass, Context, DictionaryAttr, ModuleOp, ModulePass, programs)
} | {"PROGRAMS": PROGRAMS}
"""What the file of a pass begins with."""


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    assert "instruction fc@N=32, gemm_epilogue by cpu.gemm" in capsys.readouterr().out
    assert len(example.strip().splitlines()) <= 16


def test_the_session_is_what_aicf_opt_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    ((command, output),) = re.findall(r"```console\n\$ aicf-opt ([^\n]*)\n(.*?)```", README, re.DOTALL)
    monkeypatch.chdir(ROOT)
    assert aicf_opt(shlex.split(command)) == 0
    assert capsys.readouterr().out.strip() == output.strip()


def test_the_example_pass_does_what_it_says():
    page = (ROOT / "docs" / "adding-a-pass.md").read_text("utf-8")
    (example,) = re.findall(r"\n( +@dataclass.*?)\n\n   Options", page, re.DOTALL)
    names: dict[str, Any] = dict(PASS_IMPORTS)
    exec(compile(textwrap.dedent(example), "adding-a-pass.md", "exec"), names)
    module = parse_module((ROOT / "examples" / "softmax.mlir").read_text("utf-8"))
    AicfInferencePass("cpu:x86-64-v3").apply(make_context(), module)
    (program,) = programs(module)
    for instruction in program.instructions:
        instruction.properties["hints"] = DictionaryAttr({"note": StringAttr("measured twice")})
    assert "measured twice" in str(program)
    names["DropHintsPass"]().apply(make_context(), module)
    verify_module(module)
    assert "measured twice" not in str(program)


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_files_that_exist(page: str):
    text = (ROOT / page).read_text("utf-8")
    named = re.findall(r"[`(\s]((?:{})[\w./-]*\w)".format("|".join(FOLDERS)), text)
    links = re.findall(r"\]\((?!http)([^)#]+)\)", text)
    missing = {name for name in named if not (ROOT / name).exists() and not name.startswith(INVENTED)}
    missing |= {link for link in links if not (ROOT / page).parent.joinpath(link).exists()}
    assert not missing


def test_the_architecture_is_a_page_to_read_in_one_sitting():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    before, picture, after = re.split(r"```text\n|```\n<!-- end", text)
    assert len(picture.splitlines()) < 90
    assert len((before + after).splitlines()) <= 250


def test_the_architecture_lists_every_pass_of_the_pipeline():
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)*)`", text))
    passes = {name for name in AICF_UNIVERSE.all_passes if not name.startswith(("aicf-", "test-", "print-"))}
    assert passes - named == set()


NAMED = re.compile(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`")
MODULES = sorted(
    path
    for folder in ("aicf", "dialects", "passes", "tools")
    for path in (ROOT / folder).rglob("*.py")
    if not any(parent.is_symlink() for parent in path.parents)
)


@pytest.mark.parametrize("folder", ["aicf", "dialects", "passes", "tools"])
def test_docstrings_name_files_that_exist(folder: str):
    """A file that a module names in backticks is there, under the path that it gives."""
    known = [f"/{path.relative_to(ROOT)}" for path in MODULES]
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        if path.is_relative_to(ROOT / folder)
        for name in NAMED.findall(path.read_text("utf-8"))
        if not any(each.endswith(f"/{name}") for each in known)
    ]
    assert not wrong, wrong
