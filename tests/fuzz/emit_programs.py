"""Damages final emit programs anywhere, compiles what is left, and runs it.

    python -m tests.fuzz.emit_programs --seed 0 --count 20000 [--target cuda:sm_90a] [--names attention encoder]

One to three damages: numbers, operands, edges, instructions, entries of records, types, symbols, words, raw text.
Legal outcomes: `refused`, an AicfError of one line; `ran`, twice with the same bits, and wrote nothing but its outputs
and its memory (what it computes may be something else than before); `built`, where it cannot run here or is too large
to be run. Everything else is a failure: another exception, an abort, 25 seconds of silence, a write outside, a weight
that changed, results that depend on what lay in memory.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr, SymbolRefAttr
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

import aicf
from aicf.backends.common.record import integer
from aicf.compilation.compiled import CompiledModel
from aicf.dialects.emit import PHASES, ResolvedOp
from aicf.dialects.emit_types import BufferType, EdgeAttr, KernelAttr
from aicf.errors import AicfError
from aicf.frontends.text import parse_module
from aicf.passes.support.programs import programs
from aicf.runtime.on_host import exec as host_exec
from aicf.runtime.on_host import store as host_store
from aicf.runtime.tensors import Array, numpy_dtype
from tests.fuzz import records
from tests.fuzz.damage import ODD_INTS, damaged_text
from tests.fuzz.guards import Guarded
from tests.fuzz.isolation import Limits, Verdict, isolated, report
from tests.fuzz.records import MOST, SOURCES, Sample, program_text, sample, samples_of

REFUSED, RAN, BUILT = "refused", "ran", "built"
GOOD = (REFUSED, RAN, BUILT)

_LARGEST = 64 << 20
"""Bytes of a buffer that is made to run a damaged program."""


# Damages of the module


Damage = Callable[[ModuleOp, random.Random], None]


def _instructions(module: ModuleOp) -> list[ResolvedOp]:
    return [op for program in programs(module) for op in program.instructions]


def _values(op: Operation) -> list[SSAValue]:
    """The buffers of the program that holds `op`."""
    block = op.parent
    assert block is not None
    return [result for other in block.ops for result in other.results]


def _swap_operands(module: ModuleOp, draw: random.Random) -> None:
    op = draw.choice(_instructions(module))
    one, other = (draw.randrange(len(op.operands)) for _ in range(2))
    op.operands[one], op.operands[other] = op.operands[other], op.operands[one]


def _replace_operand(module: ModuleOp, draw: random.Random) -> None:
    users = [op for program in programs(module) for op in program.body.block.ops if op.operands]
    op = draw.choice(users)
    index = draw.randrange(len(op.operands))
    others = _values(op)
    alike = [value for value in others if value.type == op.operands[index].type]
    op.operands[index] = draw.choice(alike if draw.random() < 0.7 else others)


def _resize_segments(module: ModuleOp, draw: random.Random) -> None:
    """An operand more or fewer: of `ins`, `outs` or `ws`."""
    op = draw.choice(_instructions(module))
    parts = [list(part) for part in op.parts]
    part = draw.choice(parts)
    if part and draw.random() < 0.5:
        del part[draw.randrange(len(part))]
    else:
        part.insert(draw.randint(0, len(part)), draw.choice(_values(op)))
    fresh = ResolvedOp.build(operands=parts, properties=dict(op.properties))
    Rewriter.replace_op(op, fresh, [])


def _edges(module: ModuleOp, draw: random.Random) -> None:
    op = draw.choice(_instructions(module))
    edges = list(op.after)
    names = [other.instruction.data for other in _instructions(module)]
    kind = draw.choice(("full", "programmatic"))
    bent = EdgeAttr(draw.choice([*names, "nobody"]), kind)
    if edges and draw.random() < 0.8:
        index = draw.randrange(len(edges))
        edges[index : index + 1] = draw.choice(([], [bent], [EdgeAttr(edges[index].source.data, kind)]))
    else:
        edges.append(bent)
    op.properties["after"] = ArrayAttr(edges)


def _drop_instruction(module: ModuleOp, draw: random.Random) -> None:
    op = draw.choice(_instructions(module))
    op.detach()


def _double_instruction(module: ModuleOp, draw: random.Random) -> None:
    op = draw.choice(_instructions(module))
    copy = op.clone({value: value for value in op.operands})
    if draw.random() < 0.7:
        copy.properties["instruction"] = StringAttr("again")
        copy.properties["after"] = ArrayAttr([*op.after, EdgeAttr(op.instruction.data)])
    block = op.parent
    assert block is not None
    block.insert_op_after(copy, draw.choice([op, *_instructions_of(op)]))


def _move_instruction(module: ModuleOp, draw: random.Random) -> None:
    op = draw.choice(_instructions(module))
    block = op.parent
    assert block is not None
    others = [other for other in block.ops if other is not op]
    op.detach()
    block.insert_op_after(op, draw.choice(others))


def _instructions_of(op: ResolvedOp) -> list[ResolvedOp]:
    block = op.parent
    assert block is not None
    return [other for other in block.ops if isinstance(other, ResolvedOp)]


def _record_entry(module: ModuleOp, draw: random.Random) -> None:
    op = draw.choice(_instructions(module))
    if op.kernel is None:
        return
    record = op.kernel.record
    if draw.random() < 0.1:
        entries = dict(record.data)
        del entries[draw.choice(list(entries))]
        edited = DictionaryAttr(entries)
    else:
        path = draw.choice(list(records.paths(record)))
        edited = records.replaced(record, path, draw.choice(records.VALUES))
    assert isinstance(edited, DictionaryAttr)
    op.properties["kernel"] = KernelAttr(op.kernel.kernel.data, edited)


def _foreign_kernel(module: ModuleOp, draw: random.Random) -> None:
    """The record of another instruction, or another kernel's name."""
    op, other = (draw.choice(_instructions(module)) for _ in range(2))
    if op.kernel is None or other.kernel is None:
        return
    name = draw.choice((op.kernel, other.kernel)).kernel.data
    op.properties["kernel"] = KernelAttr(name, draw.choice((op.kernel, other.kernel)).record)


def _foreign_symbol(module: ModuleOp, draw: random.Random) -> None:
    """Another body, generated program or prologue."""
    op, field = draw.choice(_instructions(module)), draw.choice(("body", "code", "prologue"))
    symbols = [
        name.data
        for other in module.body.block.ops
        if isinstance(name := other.properties.get("sym_name"), StringAttr)
    ]
    if field in op.properties and draw.random() < 0.2:
        del op.properties[field]
    else:
        op.properties[field] = SymbolRefAttr(draw.choice([*symbols, "nothing"]))


def _permission(module: ModuleOp, draw: random.Random) -> None:
    op = draw.choice(_instructions(module))
    pair = ArrayAttr([integer(draw.choice((0, 0, 1, -1, 1 << 40))) for _ in range(draw.choice((2, 2, 2, 1)))])
    op.properties["constraints"] = DictionaryAttr({"may_alias": ArrayAttr([pair])})


def _type(module: ModuleOp, draw: random.Random) -> None:
    values = [value for program in programs(module) for op in program.body.block.ops for value in op.results]
    value = draw.choice(values)
    old = value.type
    assert isinstance(old, BufferType)
    shape, strides = list(old.get_shape()), list(old.get_strides())
    element, space = old.element_type, old.space.data
    others = [other.type for other in values if isinstance(other.type, BufferType)]
    match draw.randrange(6):
        case 0:
            draw.shuffle(shape)
        case 1 if shape:
            index = draw.randrange(len(shape))
            shape[index] = _number(shape[index], draw)
        case 2 | 3 if strides:
            index = draw.randrange(len(strides))
            strides[index] = _number(strides[index], draw)
        case 4:
            element = draw.choice(others).element_type
        case _:
            space = draw.choice(others).space.data
    kept = strides if old.get_layout() is None and len(strides) == len(shape) else None
    Rewriter.replace_value_with_new_type(value, BufferType(shape, element, space, kept, old.get_layout()))


# Damages of the text


def _number(old: int, draw: random.Random) -> int:
    near = (old + 1, old - 1, -old, old * 2, old // 2, old + 64, old - 64, 0)
    return draw.choice(near if draw.random() < 0.6 else ODD_INTS)


def _lines_of_programs(lines: Sequence[str]) -> range:
    start = next((number for number, line in enumerate(lines) if "emit.program @" in line), 0)
    return range(start, len(lines))


def _damaged_number(text: str, draw: random.Random) -> str:
    """A number in the lines of a program, sometimes of a body or of generated code."""
    lines = text.split("\n")
    numbers = _lines_of_programs(lines) if draw.random() < 0.85 else range(len(lines))
    able = [number for number in numbers if re.search(r"(?<![\w%.])-?\d+", lines[number])]
    if not able:
        return text
    number = draw.choice(able)
    found = draw.choice(list(re.finditer(r"(?<![\w%.])-?\d+", lines[number])))
    lines[number] = (
        lines[number][: found.start()] + str(_number(int(found[0]), draw)) + lines[number][found.end() :]
    )
    return "\n".join(lines)


_WORDS: Sequence[Sequence[str]] = (
    PHASES,
    ("f32", "f16", "bf16", "f64", "i64", "i32", "i8", "i1"),
    ("bound", "arena", "const"),
    ("input", "output", "param", "state", "meta", "const", "derived"),
    ("direct", "staged"),
    ("full", "programmatic"),
    ("true", "false"),
    ("bitwise", "unordered"),
    ("cpu", "cuda", "reference"),
    ("offset", "size", "align", "binding", "ins", "outs", "ws"),
)
"""Words that mean something in the same place."""

_WORD = re.compile(r'"[^"]*"|[%@][\w:.@="]+|\b[a-z_]\w*')


def _damaged_word(text: str, draw: random.Random) -> str:
    """A word, name or string replaced by another one of its class."""
    lines = text.split("\n")
    numbers = _lines_of_programs(lines) if draw.random() < 0.85 else range(len(lines))
    able = [number for number in numbers if _WORD.search(lines[number])]
    if not able:
        return text
    number = draw.choice(able)
    found = draw.choice(list(_WORD.finditer(lines[number])))
    word = found[0]
    known = [each for words in _WORDS if word in words for each in words]
    alike = [each for each in _WORD.findall(text) if each[0] == word[0] and word[0] in '"%@']
    other = draw.choice(known or alike or ["nothing"])
    lines[number] = lines[number][: found.start()] + other + lines[number][found.end() :]
    return "\n".join(lines)


_OF_MODULE: Mapping[Damage, int] = {
    _swap_operands: 2,
    _replace_operand: 4,
    _resize_segments: 1,
    _edges: 2,
    _drop_instruction: 1,
    _double_instruction: 2,
    _move_instruction: 2,
    _record_entry: 4,
    _foreign_kernel: 1,
    _foreign_symbol: 1,
    _permission: 1,
    _type: 3,
}
_OF_TEXT: Mapping[Callable[[str, random.Random], str], int] = {
    _damaged_number: 10,
    _damaged_word: 4,
    damaged_text: 2,
}


def damaged(text: str, seed: int) -> tuple[str, str]:
    """A program with one to three damages, and their names."""
    draw = random.Random(seed)
    table = {**_OF_MODULE, **_OF_TEXT}
    chosen = draw.choices(list(table), list(table.values()), k=draw.choice((1, 1, 1, 2, 3)))
    module = parse_module(text)
    for damage in _OF_MODULE:
        for _ in range(chosen.count(damage)):
            # What no attribute can hold cannot be written either: the damage is left out.
            with contextlib.suppress(VerifyException):
                if _instructions(module):
                    damage(module, draw)
    text = program_text(module)
    for damage in _OF_TEXT:
        for _ in range(chosen.count(damage)):
            text = damage(text, draw)
    return text, ", ".join(each.__name__.strip("_") for each in chosen)


# Trials


@contextlib.contextmanager
def _guarded_memory() -> Generator[list[Guarded]]:
    """Guards around the arena and all that is prepared; they begin as anything but zeros."""
    made: list[Guarded] = []
    allocate = host_exec.allocate

    def allocate_guarded(nbytes: int, align: int = 64) -> Array:
        if not 0 < nbytes <= _LARGEST or not 0 < align <= 4096:
            return allocate(nbytes, align)
        made.append(Guarded((nbytes,), "uint8", align))
        return made[-1].array

    with (
        mock.patch.object(host_exec, "allocate", allocate_guarded),
        mock.patch.object(host_store, "allocate", allocate_guarded),
    ):
        yield made


def _guarded_copy(array: Array) -> Guarded:
    made = Guarded(array.shape, array.dtype)
    made.array[...] = array
    return made


def _fed(exe: CompiledModel, given: Mapping[str, Any]) -> dict[str, Guarded] | None:
    """Inputs as the damaged program wants them: those of the sample where they fit, else zeros; None if too large."""
    fed: dict[str, Guarded] = {}
    for spec in exe.inputs:
        shape = tuple(1 if isinstance(size, str) else size for size in spec.shape)
        dtype = numpy_dtype(spec.dtype)
        array = given.get(spec.name)
        if math.prod(shape) * dtype.itemsize > _LARGEST:
            return None
        if array is None or array.shape != shape or array.dtype != dtype:
            array = np.zeros(shape, dtype)
        fed[spec.name] = _guarded_copy(array)
    return fed


def trial(samples: Sequence[tuple[str, str, int]], seed: int) -> Verdict:
    """Damages one of `samples`, given by name, target and threads, and says what came of it."""
    name, target, threads = random.Random(seed).choice(samples)
    chosen = sample(name, target, threads)
    text, what = damaged(chosen.text, seed)
    what = f"{name}, {threads} threads, {what}"
    try:
        return _outcome(text, chosen, what)
    except AicfError as error:
        message = str(error)
        if len(message) > MOST or not message.isprintable():
            return Verdict("message", f"{what}: {len(message)} characters: {message[:MOST]!r}")
        return Verdict(REFUSED, f"{what}: {message}")
    except Exception as error:
        error.args = (f"{what}: {error}"[:600],)
        raise


def _outcome(text: str, chosen: Sample, what: str) -> Verdict:
    weights = {key: _guarded_copy(array) for key, array in chosen.weights.items()}
    with _guarded_memory() as memory:
        exe = aicf.compile(text, {key: guarded.array for key, guarded in weights.items()})
        if exe.plan.backend != "cpu" or (inputs := _fed(exe, chosen.inputs)) is None:
            return Verdict(BUILT, what)
        if any(nbytes > _LARGEST for nbytes in exe.memory().values()):
            return Verdict(BUILT, what)
        arrays = {key: guarded.array for key, guarded in inputs.items()}
        first = exe.run(arrays)
        outputs = {key: Guarded(array.shape, array.dtype) for key, array in first.items()}
        exe.run(arrays, out={key: guarded.array for key, guarded in outputs.items()})
        guards = {
            **{f"weight {key}": guarded for key, guarded in weights.items()},
            **{f"input {key}": guarded for key, guarded in inputs.items()},
            **{f"output {key}": guarded for key, guarded in outputs.items()},
            **{f"memory {number}": guarded for number, guarded in enumerate(memory)},
        }
    for key, guarded in guards.items():
        if not guarded.is_intact():
            return Verdict("canary overwritten", f"{what}: that of {key}")
    for key, array in chosen.weights.items():
        if weights[key].array.tobytes() != array.tobytes():
            return Verdict("weight overwritten", f"{what}: {key}")
    if not exe.is_stateful and any(outputs[key].array.tobytes() != first[key].tobytes() for key in first):
        return Verdict("unsteady", f"{what}: a second run gives other bits")
    return Verdict(RAN, what)


def main() -> int:
    """The tool."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument(
        "--names", nargs="*", choices=list(SOURCES), default=list(SOURCES), help="programs to damage"
    )
    parser.add_argument("--show", type=int, help="print the damaged program of this seed, and end")
    options = parser.parse_args()
    chosen = samples_of(options.target, options.names)
    if options.show is not None:
        of = sample(*random.Random(options.show).choice(chosen))
        print(damaged(of.text, options.show)[0])
        return 0
    for each in chosen:
        sample(*each)
    aicf.shutdown()
    seeds = range(options.seed, options.seed + options.count)
    return report(isolated(partial(trial, chosen), seeds, Limits()), GOOD)


if __name__ == "__main__":
    raise SystemExit(main())
