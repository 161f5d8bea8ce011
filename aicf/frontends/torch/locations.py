"""The source of a node of a traced graph: the path of its module, and the user's line of Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, StringAttr

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
_ROOT = re.compile(r"^L\['[^']*'\]\.?|^self\.?")
_ITEM = re.compile(r"(?:\._modules)?\['?(\w+)'?\]")
_OWN = re.compile(r"[/\\](torch|torchvision|aicf[/\\]pytorch)[/\\]")
"""Files of PyTorch and of what calls it here, whose lines are not the user's."""


def module_path(meta: Mapping[str, Any]) -> str:
    """The path of the module that a node was traced in, as `named_modules` has it; "" for the model itself.

    A node of a backward graph has that of the node whose gradient it computes.
    """
    stack = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack")
    if not stack:
        return ""
    entries = cast("list[tuple[str, Any]]", list(stack.values()))
    path = _ITEM.sub(r".\1", _ROOT.sub("", entries[-1][0]))
    return path.strip(".")


def line_of(meta: Mapping[str, Any]) -> FileLineColLoc | None:
    """The innermost line of a node's stack trace that is not PyTorch's; the path is relative if possible."""
    trace = meta.get("stack_trace")
    if not trace:
        return None
    frames = [(found["file"], int(found["line"])) for found in _FRAME.finditer(trace)]
    own = [frame for frame in frames if not _OWN.search(frame[0])] or frames
    if not own:
        return None
    file, line = own[-1]
    path = Path(file)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return FileLineColLoc(StringAttr(str(path)), IntAttr(line), IntAttr(1))


def text_of(location: FileLineColLoc | None) -> str | None:
    """A location as `file:line`."""
    return None if location is None else f"{location.filename.data}:{location.line.data}"
