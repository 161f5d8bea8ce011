"""The reference pages: current, and saying what the code says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from xdsl.dialects.builtin import I64, ArrayAttr, IntegerAttr, StringAttr
from xdsl.irdl import AnyAttr, EqAttrConstraint, irdl_to_attr_constraint
from xdsl.passes import ModulePass

import aicf
from aicf.tools import docgen
from aicf.universe import AICF_UNIVERSE


def test_pages_are_current(capsys: pytest.CaptureFixture[str]):
    assert docgen.main(["--check"]) == 0, capsys.readouterr().err


def test_a_stale_page_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    page = tmp_path / "architecture.md"
    page.write_text(docgen.with_picture(docgen.ARCHITECTURE.read_text("utf-8"), "+---+\n"), "utf-8")
    monkeypatch.setattr(docgen, "PAGES", tmp_path)
    monkeypatch.setattr(docgen, "ROOT", tmp_path)
    monkeypatch.setattr(docgen, "ARCHITECTURE", page)
    monkeypatch.setattr(docgen, "STUB", tmp_path / "derived.pyi")
    monkeypatch.setattr(docgen, "SCHEMA", tmp_path / "shipped.schema.json")
    assert docgen.main(["--check"]) == 1
    said = capsys.readouterr().err
    for name in ("passes.md", "architecture.md", "derived.pyi", "shipped.schema.json"):
        assert f"{name}: error: differs from the code; run `make docs`" in said
    assert docgen.main([]) == 0
    assert docgen.main(["--check"]) == 0


def test_a_page_without_room_for_the_picture_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    page = tmp_path / "architecture.md"
    page.write_text("# Architecture\n", "utf-8")
    monkeypatch.setattr(docgen, "ARCHITECTURE", page)
    assert docgen.main([]) == 1
    assert "docgen: error: no place for the picture" in capsys.readouterr().err
    assert page.read_text("utf-8") == "# Architecture\n"


@pytest.mark.parametrize("name", AICF_UNIVERSE.all_dialects)
def test_every_operation_and_attribute_has_a_section(name: str):
    page = docgen.dialect_page(name)
    dialect = AICF_UNIVERSE.all_dialects[name]()
    for operation in dialect.operations:
        assert f"### `{operation.name}`\n" in page
    for attribute in dialect.attributes:
        assert f"{attribute.name}`\n" in page


def test_every_pass_has_a_section():
    page = docgen.passes_page()
    assert all(f"## `{name}`\n" in page for name in AICF_UNIVERSE.all_passes)
    paths = re.findall(r"^In \[`(.*)`\]", page, re.MULTILINE)
    assert len(paths) == len(AICF_UNIVERSE.all_passes)
    assert all((docgen.ROOT / path).is_file() for path in paths)


def test_every_public_name_has_a_section():
    page = docgen.api_page()
    assert all(f"### `aicf.{name}`\n" in page for name in aicf.__all__)
    assert "#### `aicf.CompiledModel.explain`\n" in page and "##### `aicf.optimizers.AdamW" not in page
    assert "native: Literal['use', 'rebuild'] = 'use'" in page and " at 0x" not in page


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (AnyAttr(), "any attribute"),
        (EqAttrConstraint(StringAttr("x")), '`"x"`'),
        (irdl_to_attr_constraint(ArrayAttr[StringAttr]), "array of string"),
        (irdl_to_attr_constraint(IntegerAttr[I64]), "i64"),
        (irdl_to_attr_constraint(StringAttr | IntegerAttr), "string or integer"),
    ],
)
def test_constraints_in_words(constraint, text: str):
    assert docgen.constraint_text(constraint) == text


def test_option_notes_come_from_the_source():
    @dataclass(frozen=True)
    class SomePass(ModulePass):
        name = "some"

        tile_size: int = 4
        """Elements a tile, see :class:`Tile`."""
        other: bool = False

    assert docgen.field_docstrings(SomePass) == {"tile-size": "Elements a tile, see `Tile`."}
