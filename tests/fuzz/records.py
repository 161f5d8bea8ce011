"""Damages single entries of the kernel records of final programs, compiles what is left, and runs it.

    python -m tests.fuzz.records --target cpu --seed 0 --count 5000

Legal outcomes: `refused`, an AicfError of one line that names the entry, or one that it contradicts, with the legal
values; `right`, the results of the program, in another order of summation perhaps; for cuda, where nothing can run,
`built`. The damage follows from the seed: a program, an instruction, an entry of its record, and one of twenty values.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from io import StringIO
from typing import Any

import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    f64,
    i64,
)
from xdsl.ir import Attribute
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

import aicf
from aicf.dialects.emit_types import KernelAttr
from aicf.errors import AicfError
from aicf.frontends.builder import Graph
from aicf.frontends.text import parse_module
from aicf.passes.support.programs import programs
from tests.fuzz.guards import Guarded
from tests.fuzz.isolation import Limits, Verdict, isolated, report
from tests.gpu import programs as families
from tests.gpu.programs import Program, random_arrays

REFUSED, RIGHT, BUILT = "refused", "right", "built"
GOOD = (REFUSED, RIGHT, BUILT)
MOST = 600
"""Characters of an error."""

NUMBERS = (-60, -1, 0, 1, 2, 3, 5, 7, 8, 16, 64, 66, 1024, 1 << 20, 1 << 31, 1 << 62)
VALUES: tuple[Attribute, ...] = (
    *(IntegerAttr(number, i64) for number in NUMBERS),
    StringAttr("nothing"),
    BoolAttr.from_bool(True),
    FloatAttr(0.5, f64),
    ArrayAttr([]),
)
"""What an entry becomes; where it is a list of numbers or records, the first or all of them."""

_TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float64": 1e-9}


def _network(name: str, dtype: str) -> Graph:
    return getattr(families, name)(dtype)


def _products(dtype: str, m: int, n: int, k: int) -> Graph:
    return families.dense(dtype, m, n, k)


SOURCES: Mapping[str, Callable[[], Graph]] = {
    **{
        f"{name} {dtype}": partial(_network, name, dtype)
        for dtype in ("f32", "bf16")
        for name in (
            *("summed_operations", "broadcasting", "row_reductions", "concats", "norms", "column_reductions"),
            *("running_sums", "pooling", "padded_pooling", "moves", "convolutions", "losses"),
        )
    },
    **{
        f"{name} f32": partial(_network, name, "f32")
        for name in ("recurrent", "detection", "indexing", "clipping")
    },
    "integers": partial(_network, "integer_reductions", "i32"),
    "product": partial(_products, "f32", 37, 48, 96),
    "halves": partial(_products, "f16", 64, 64, 64),
    "row": partial(_products, "f32", 1, 80, 64),
    "normed": partial(families.normed_dense, "f32", 24, 48, 32),
    "gated": partial(families.gated, "f32", 12, 32, 48),
    "projections": partial(families.projections, "f32", 16, 32, 32),
    "attention": partial(families.attention, "f32", 33, 33, 32, 32),
    "encoder": partial(families.encoder, "f32", 2, 16, 2, 32),
}


@dataclass(frozen=True)
class Sample:
    """A final program, with what it is given and what it gives.

    Args:
        text: The final program.
        inputs, weights: By name.
        expected: Results of the undamaged program by name; empty where it cannot run.
    """

    text: str
    inputs: Mapping[str, Any]
    weights: Mapping[str, Any]
    expected: Mapping[str, Any]


@cache
def sample(name: str, target: str, threads: int) -> Sample:
    """The sample of that name, compiled once."""
    module = SOURCES[name]().module()
    program = Program(module, random_arrays(module, name))
    exe = aicf.compile(module, program.weights, target, threads=threads)
    expected = exe.run(program.inputs) if target.startswith("cpu") else {}
    return Sample(
        exe.ir("emit"), program.inputs, program.weights, {k: np.array(v) for k, v in expected.items()}
    )


# Damage


Path = tuple[str | int, ...]


def paths(value: Attribute) -> Iterator[Path]:
    """All entries of a record, those of records in it as well."""
    match value:
        case DictionaryAttr():
            for key, entry in value.data.items():
                yield from ((key, *rest) for rest in paths(entry))
        case ArrayAttr() if len(value.data):
            yield from ((0, *rest) for rest in paths(value.data[0]))
        case _:
            yield ()


def replaced(value: Attribute, path: Path, damage: Attribute) -> Attribute:
    """`value` with another entry at `path`."""
    if not path:
        return damage
    at, *rest = path
    if isinstance(value, DictionaryAttr):
        entries = dict(value.data)
        entries[str(at)] = replaced(entries[str(at)], tuple(rest), damage)
        return DictionaryAttr(entries)
    assert isinstance(value, ArrayAttr)
    first, *others = value.data
    return ArrayAttr([replaced(first, tuple(rest), damage), *others])


def damaged(text: str, seed: int) -> tuple[str, str]:
    """A program with one damaged entry, and its path in words."""
    choice = random.Random(seed)
    module = parse_module(text)
    instructions = [op for program in programs(module) for op in program.instructions]
    op = choice.choice(instructions)
    assert op.kernel is not None
    record = op.kernel.record
    path = choice.choice(list(paths(record)))
    value = choice.choice(VALUES)
    edited = replaced(record, path, value)
    assert isinstance(edited, DictionaryAttr)
    op.properties["kernel"] = KernelAttr(op.kernel.kernel.data, edited)
    where = ".".join(map(str, path))
    return program_text(module), f"{op.instruction.data} ({op.kernel.kernel.data}): {where} = {value}"


def program_text(module: ModuleOp) -> str:
    """The text of a module."""
    out = StringIO()
    Printer(out).print_op(module)
    return out.getvalue()


# Trials


def trial(samples: Sequence[tuple[str, str, int]], seed: int) -> Verdict:
    """One damaged entry of one of `samples`: name, target, threads."""
    chosen = sample(*random.Random(seed).choice(samples))
    try:
        text, what = damaged(chosen.text, seed)
    except VerifyException as error:
        return Verdict(REFUSED, str(error))
    try:
        exe = aicf.compile(text, chosen.weights)
        if not chosen.expected:
            return Verdict(BUILT, what)
        outputs = {name: Guarded(array.shape, array.dtype) for name, array in chosen.expected.items()}
        exe.run(chosen.inputs, out={name: guarded.array for name, guarded in outputs.items()})
    except AicfError as error:
        return _refusal(error, what)
    if not all(guarded.is_intact() for guarded in outputs.values()):
        return Verdict("canary overwritten", what)
    for name, guarded in outputs.items():
        if not _alike(guarded.array, chosen.expected[name]):
            return Verdict("wrong", f"{what}: {name}")
    return Verdict(RIGHT, what)


def _refusal(error: AicfError, what: str) -> Verdict:
    message = str(error)
    if "\n" in message or len(message) > MOST:
        return Verdict("error of several lines", f"{what}: {message}")
    says = (
        "legal: ",
        "means nothing here",
        "it lacks ",
        "version",
        "has no kernel",
        "run lower-to-emit again",
    )
    return Verdict(REFUSED if any(each in message for each in says) else "unexplained", f"{what}: {message}")


def _alike(found: Any, wanted: Any) -> bool:
    if wanted.dtype.kind in "iub":
        return bool(np.array_equal(found, wanted))
    tolerance = _TOLERANCE.get(str(wanted.dtype), 1e-4)
    left, right = found.astype(np.float64), wanted.astype(np.float64)
    scale = np.nanmax(np.abs(right[np.isfinite(right)]), initial=1.0)
    return bool(np.allclose(left, right, rtol=tolerance, atol=tolerance * scale, equal_nan=True))


def samples_of(target: str, names: Sequence[str] = tuple(SOURCES)) -> list[tuple[str, str, int]]:
    """The samples for a target: on cpu each for one and for two threads."""
    counts = (1, 2) if target.startswith("cpu") else (1,)
    return [(name, target, threads) for name in names for threads in counts]


def main() -> int:
    """The tool."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument(
        "--names", nargs="*", choices=list(SOURCES), default=list(SOURCES), help="programs to damage"
    )
    options = parser.parse_args()
    chosen = samples_of(options.target, options.names)
    for each in chosen:
        sample(*each)
    aicf.shutdown()
    seeds = range(options.seed, options.seed + options.count)
    return report(isolated(partial(trial, chosen), seeds, Limits()), GOOD)


if __name__ == "__main__":
    raise SystemExit(main())
