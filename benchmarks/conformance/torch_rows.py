"""The rows of the op map by family, for the page. It does without PyTorch."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass

from aicf.frontends.torch.ops import ROWS


@dataclass(frozen=True)
class Family:
    """The rows of one file.

    Args:
        name: Of the file, in words.
        about: What the file says that it has, in one paragraph.
        rows: Their overloads, in order.
    """

    name: str
    about: str
    rows: tuple[str, ...]


def families() -> list[Family]:
    """Every row once, under the file that enters it."""
    found: dict[str, list[str]] = {}
    for overload, lower in ROWS.items():
        found.setdefault(lower.__module__, []).append(overload)
    return [_family(module, rows) for module, rows in sorted(found.items())]


def _family(module: str, rows: list[str]) -> Family:
    name = module.rpartition(".")[2].replace("_", " ")
    text = inspect.getdoc(sys.modules[module]) or ""
    about = " ".join(text.partition("\n\n")[0].split()).replace("``", "`")
    return Family(name[0].upper() + name[1:], about, tuple(sorted(rows)))
