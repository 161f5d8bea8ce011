"""The picture of the packages: layers by imports, folders by docstrings, drawn for a tree made for the test."""

from __future__ import annotations

from graphlib import CycleError
from pathlib import Path

import pytest

from aicf.tools.package_picture import WIDTH, layers, package_imports, package_picture, summary


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


@pytest.fixture
def house(tmp_path: Path) -> Path:
    root = tmp_path / "house"
    write(root / "roof" / "__init__.py", '"""Keeps the rain out. Not the wind."""')
    write(root / "roof" / "tiles.py", "import house.walls.bricks\nimport os\n")
    write(root / "roof" / "attic" / "__init__.py", '"""Old things.\n\nAnd more of them.\n"""')
    write(root / "roof" / "attic" / "chest" / "__init__.py", '"""A chest."""')
    write(root / "roof" / "attic" / "chest" / "box" / "__init__.py", '"""A box."""')
    write(root / "walls" / "__init__.py", '"""Carry\nthe ``roof``."""\nfrom house import cellar\n')
    write(root / "walls" / "bricks.py", "def lay():\n    from house import roof\n")
    write(root / "cellar" / "__init__.py", '"""Carries all."""')
    write(root / "notes" / "readme.txt", "no package")
    return root


def test_a_box_for_each_layer_the_highest_first(house: Path) -> None:
    frame = "+" + "-" * (WIDTH - 2) + "+"
    rows = [
        frame,
        "roof/               Keeps the rain out",
        "  attic/            Old things. Folders: chest (box)",
        frame,
        "walls/              Carry the `roof`",
        frame,
        "cellar/             Carries all",
        frame,
    ]
    lines = [row if row == frame else f"| {row}".ljust(WIDTH - 2) + " |" for row in rows]
    assert package_picture(house).splitlines() == lines


def test_imports_inside_functions_do_not_count(house: Path) -> None:
    assert package_imports(house) == {"roof": {"walls"}, "walls": {"cellar"}, "cellar": set()}


def test_a_layer_is_above_the_highest_that_it_imports() -> None:
    imports = {"a": set[str](), "b": {"a"}, "c": {"b", "a"}, "d": {"a"}, "e": {"d", "c"}}
    assert layers(imports) == {"a": 0, "b": 1, "d": 1, "c": 2, "e": 3}


def test_packages_in_a_circle_are_an_error() -> None:
    with pytest.raises(CycleError):
        layers({"a": {"b"}, "b": {"a"}})


def test_a_package_that_says_nothing_is_an_error(house: Path) -> None:
    write(house / "walls" / "__init__.py", "")
    with pytest.raises(ValueError, match=r"walls/__init__.py: no docstring; say in one sentence"):
        package_picture(house)


def test_folders_stand_in_a_line_of_their_own_where_they_do_not_fit(house: Path) -> None:
    write(house / "roof" / "attic" / "__init__.py", f'"""{"Old things " * 8}."""')
    lines = [line.strip("| ") for line in package_picture(house).splitlines()]
    at = lines.index("Folders: chest (box)")
    assert lines[at - 1] == "attic/            " + "Old things " * 7 + "Old things"


def test_long_summaries_are_wrapped(house: Path) -> None:
    words = " ".join(f"word{number}" for number in range(40))
    write(house / "cellar" / "__init__.py", f'"""{words}."""')
    lines = package_picture(house).splitlines()
    assert {len(line) for line in lines} == {WIDTH}
    shown = [line for line in lines if "word" in line]
    assert len(shown) > 1 and " ".join(" ".join(line.strip("| ") for line in shown).split()[1:]) == words
    assert summary(house / "cellar") == words
