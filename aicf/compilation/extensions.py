"""Extension points: where in the pipeline `aicf.compile(..., passes=)` runs passes of the caller, and their checks.

The points are the stable part of the pipeline: passes come and go between them. Which point is where is written in the
pipelines themselves (`passes/pipelines`), which ask for what runs there.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.universe import XDSL_UNIVERSE, Universe

from aicf.errors import AicfError, PolicyError, quoted
from aicf.frontends.text import verify_module
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.pipelines.text import parse_pipeline, suggest
from aicf.passes.verify.verify_capture_safe import VerifyCaptureSafePass
from aicf.passes.verify.verify_emit import VerifyEmitPass
from aicf.passes.verify.verify_logical import VerifyLogicalPass
from aicf.passes.verify.verify_order import VerifyOrderPass
from aicf.support.arguments import text_from
from aicf.universe import AICF_UNIVERSE


@dataclass(frozen=True)
class Point:
    """One extension point.

    Args:
        ir: What the program is there.
        checks: What runs after each pass of the caller: ops without an id get one, and the rules of the stage hold.
    """

    ir: str
    checks: tuple[ModulePass, ...]


_LOGICAL = (AssignIdsPass(), VerifyLogicalPass())

POINTS: Mapping[str, Point] = {
    "model": Point(
        "the model as given, with ids: sizes may be names, ONNX models are graphs of nodes", _LOGICAL
    ),
    "static": Point(
        "logical ops whose sizes are numbers, composites such as `logical.linear` among them", _LOGICAL
    ),
    "lowered": Point("primitive logical ops; nothing is decided yet", _LOGICAL),
    "grouped": Point(
        "groups, each of which becomes one instruction; no kernel is chosen yet",
        (AssignIdsPass(), VerifyLogicalPass(groups=True)),
    ),
    "emit": Point(
        "instructions with their kernels; they have no order and no memory yet", (VerifyEmitPass(),)
    ),
    "final": Point("the program that runs", (VerifyEmitPass(), VerifyOrderPass(), VerifyCaptureSafePass())),
}
"""The points in the order of the pipeline."""


@dataclass(frozen=True)
class Extension:
    """A pass of the caller and the point where it runs; `at` makes them."""

    point: str
    module_pass: ModulePass

    @property
    def text(self) -> str:
        """How it is recorded, `lowered=my-pass{limit=4}`."""
        return f"{self.point}={self.module_pass.spec()}"


_MOST_NESTED = 8
"""Lists within lists of `passes=`."""

Passes: TypeAlias = "Sequence[Extension | Sequence[Extension]]"
"""A list of what `at` gives."""


def at(point: str, *passes: ModulePass | str) -> tuple[Extension, ...]:
    """Passes that run at an extension point, for `passes=` of `aicf.compile`.

    Args:
        point: One of `model`, `static`, `lowered`, `grouped`, `emit`, `final`.
        passes: xDSL's `ModulePass` objects, or text, `"my-pass{limit=4},other"`: names of passes of AICF, of xDSL and
            of installed packages (entry point group `xdsl.universe`). They run in this order.

    Raises:
        PolicyError: there is no such point or pass, or an option of a pass cannot be written as text.
    """
    if text_from(point, PolicyError, "passes: the extension point") not in POINTS:
        raise PolicyError(f"passes: there is no extension point {point!r}; {suggest(point, POINTS)}")
    found = [Extension(point, each) for given in passes for each in _objects(given)]
    for extension in found:
        _check_text(extension)
    return tuple(found)


def _objects(given: object) -> tuple[ModulePass, ...]:
    if isinstance(given, str):
        return parse_pipeline(given, _known_passes())
    if isinstance(given, ModulePass):
        return (given,)
    shown = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
    raise PolicyError(
        f"passes: {shown} is no pass; give an object of an xDSL ModulePass, or its name as text"
    )


def _check_text(extension: Extension) -> None:
    """Passes are recorded as text, so a pass must have a name, and text must say its options."""
    module_pass = extension.module_pass
    pass_class = type(module_pass)
    try:
        (read,) = parse_pipeline(str(module_pass.spec()), {module_pass.name: lambda: pass_class})
        is_same = read.spec() == module_pass.spec()
    except Exception:
        is_same = False
    if not is_same:
        raise PolicyError(
            f"passes: text cannot say what {pass_class.__name__} is; a pass is a dataclass with a name, its options "
            "numbers, booleans, strings without quotation marks, or tuples of these"
        )


def _known_passes() -> dict[str, Callable[[], type[ModulePass]]]:
    return {**XDSL_UNIVERSE.all_passes, **Universe.get_multiverse().all_passes, **AICF_UNIVERSE.all_passes}


def flattened(passes: Passes) -> tuple[Extension, ...]:
    """What was given as `passes=`, one by one.

    Raises:
        PolicyError: something in it is no extension.
    """
    return tuple(_flat(passes, _MOST_NESTED))


def _flat(entry: object, deep: int) -> Iterator[Extension]:
    """The extensions in lists within lists, at most `deep` of them."""
    if isinstance(entry, Extension):
        yield entry
    elif isinstance(entry, list | tuple) and deep:
        for each in cast("Sequence[object]", entry):
            yield from _flat(each, deep - 1)
    else:
        given = cast(object, entry)
        raise PolicyError(
            f"passes: {type(given).__name__} {quoted(given)} names no extension point; write "
            f"passes=[aicf.at(point, pass)] with one of {', '.join(POINTS)}"
        )


def from_texts(texts: Sequence[str]) -> tuple[Extension, ...]:
    """The passes that were recorded as text. Raises PolicyError if one is not installed here."""
    return tuple(each for text in texts for each in at(*text.split("=", 1)))


def source_stamp(passes: Sequence[Extension]) -> list[str]:
    """Hashes of the files that define the passes: what a cache tells their versions apart by.

    Raises:
        PolicyError: a pass is in no file.
    """
    return [_file_hash(type(extension.module_pass)) for extension in passes]


def _file_hash(pass_class: type[ModulePass]) -> str:
    try:
        path = inspect.getsourcefile(pass_class)
        content = Path(path or "").read_bytes()
    except (OSError, TypeError):
        raise PolicyError(
            f"passes: {pass_class.__name__} is defined in no file, so a cache cannot tell its versions apart; put it "
            "into a module, or leave cache_dir= out"
        ) from None
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True)
class _CheckPass(ModulePass):
    """What runs after a pass of the caller: the module verifies, and keeps the rules of the stage."""

    name = "check-extension"

    point: str = ""
    after: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        try:
            verify_module(op)
            for check in POINTS[self.point].checks:
                check.apply(ctx, op)
        except AicfError as error:
            message = f"after pass '{self.after}' at extension point '{self.point}': {error.message}"
            raise type(error)(message, location=error.location) from error


class Extensions:
    """What a pipeline asks for the passes at its points.

    Args:
        given: All of them, in the order in which they run.
    """

    def __init__(self, given: Sequence[Extension]) -> None:
        self._given = given
        self._reached: list[str] = []

    def at(self, point: str) -> tuple[ModulePass, ...]:
        """The passes at a point, each with the check that follows it."""
        self._reached.append(point)
        return tuple(
            each
            for extension in self._given
            if extension.point == point
            for each in (extension.module_pass, _CheckPass(point, extension.module_pass.name))
        )

    def check_reached(self) -> None:
        """Raises PolicyError for a pass at a point that the program does not come by."""
        for extension in self._given:
            if extension.point not in self._reached:
                listed = ", ".join(self._reached)
                raise PolicyError(
                    f"passes: {extension.text}: this program is past extension point '{extension.point}'; it comes by "
                    f"{listed}"
                )
