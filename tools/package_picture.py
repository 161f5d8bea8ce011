"""A picture of the packages as text: a box for each layer, and in it the packages with their folders.

Made from the source alone: the folders, the first sentence of each package's docstring, and the imports at the top of
modules. `docgen` writes it into `docs/architecture.md`.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

WIDTH = 120
"""Columns of the picture, its frame included."""
_NAMES = 20
"""Columns of the names of packages."""
_TEXT = WIDTH - 4 - _NAMES
"""Columns of what is said of them."""


def package_picture(root: Path) -> str:
    """The packages in a box for each layer, the highest first.

    Args:
        root: Folder of the package, which holds a folder or a link for each subpackage.

    Raises ValueError if a package has no docstring, or packages import each other in a circle.
    """
    level = layers(package_imports(root))
    frame = f"+{'-' * (WIDTH - 2)}+"
    lines = [frame]
    for layer in sorted(set(level.values()), reverse=True):
        for package in sorted(name for name, at in level.items() if at == layer):
            lines += [f"| {line:{WIDTH - 4}} |" for line in _package_lines(root / package)]
        lines.append(frame)
    return "\n".join(lines) + "\n"


def layers(imports: Mapping[str, set[str]]) -> dict[str, int]:
    """The layer of each package: 0 if it imports none of the others, else one above the highest that it imports."""
    level: dict[str, int] = {}
    for package in TopologicalSorter(imports).static_order():
        level[package] = 1 + max((level[other] for other in imports[package]), default=-1)
    return level


def package_imports(root: Path) -> dict[str, set[str]]:
    """Subpackage to the other subpackages that its modules import when they are loaded."""
    names = {folder.name for folder in _subpackages(root)}
    pattern = re.compile(rf"{re.escape(root.name)}\.(\w+)")
    return {
        name: {
            found[1]
            for module in (root / name).rglob("*.py")
            for imported in _imported(module)
            if (found := pattern.match(imported)) is not None and found[1] in names - {name}
        }
        for name in names
    }


def _imported(path: Path) -> Iterator[str]:
    """The modules that a module imports at its top; `from package import module` gives `package.module`."""
    for node in ast.parse(path.read_text("utf-8"), str(path)).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _package_lines(package: Path) -> Iterator[str]:
    yield from _entry(f"{package.name}/", summary(package), "")
    for inner in _subpackages(package):
        within = _names_within(inner)
        both = f"{summary(inner)}. Folders: {within}"
        if within and len(both) <= _TEXT:
            yield from _entry(f"{inner.name}/", both, "  ")
            continue
        yield from _entry(f"{inner.name}/", summary(inner), "  ")
        if within:
            yield from _entry("", f"Folders: {within}", "  ")


def _entry(name: str, text: str, indent: str) -> Iterator[str]:
    for line in textwrap.wrap(text, _TEXT, break_on_hyphens=False):
        yield f"{indent + name:{_NAMES}}{line}"
        name = ""


def _names_within(folder: Path) -> str:
    """The folders of a folder, each with those within it in parentheses: `compiler (ptx), runtime`."""
    parts: list[str] = []
    for inner in _subpackages(folder):
        within = _names_within(inner)
        parts.append(f"{inner.name} ({within})" if within else inner.name)
    return ", ".join(parts)


def _subpackages(folder: Path) -> list[Path]:
    return sorted(inner for inner in folder.iterdir() if (inner / "__init__.py").is_file())


def summary(package: Path) -> str:
    """The first sentence of a package's docstring. Raises ValueError if it has none."""
    path = package / "__init__.py"
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"), str(path)))
    if not docstring:
        raise ValueError(
            f"{path}: no docstring; say in one sentence what the modules of the folder have in common"
        )
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.])\s", paragraph, maxsplit=1)[0]
    return sentence.rstrip(".:").replace("``", "`")
