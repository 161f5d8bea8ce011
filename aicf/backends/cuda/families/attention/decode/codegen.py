"""The launch of `cuda.attention_step`: a kernel record and operands become constants of its template."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.rotation import TURNS, Pairs
from aicf.backends.cuda.codegen.scalar import address_text, load_text
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in, lie_alike
from aicf.backends.cuda.compiler.specializer import Constant, Snippet, part, stage
from aicf.backends.cuda.families.attention.codegen import LOADS, problem_constants
from aicf.backends.cuda.families.attention.decode import template as templates
from aicf.backends.cuda.families.attention.decode.kernel import (
    Spec,
    group_of,
    lines_of,
    pieces_of,
    read_spec,
)
from aicf.backends.cuda.families.attention.decode.problem import (
    NEW_KEY,
    NEW_VALUE,
    POSITION,
    StepProblem,
    Writes,
    problem_of_launch,
)
from aicf.backends.cuda.families.attention.problem import Rows, read_scale
from aicf.backends.cuda.families.records import is_programmatic, read_shape
from aicf.backends.cuda.target import ELEMENT_BYTES

Constants = dict[str, Constant | Snippet]
_PARTS = {
    name.upper(): part(getattr(templates, name))
    for name in ("keys_and_values", "new_row", "written", "scored", "stored", "combined")
}
"""Of the template, by the names that it splices them in by."""


def emit(launch: Launch) -> Sequence[KernelLaunch]:
    """The one launch of the instruction. Raises RecordError if its record lacks an entry."""
    problem, spec = problem_of_launch(launch), read_spec(launch.record)
    operands = _operands(launch, problem)
    constants = {
        **problem_constants(problem.attention, read_scale(launch.record), log2(2.718281828459045)),
        **_write_constants(launch, problem),
        **_filled_constants(problem),
        **_turning_constants(problem),
        **_method_constants(problem, spec),
        "PROGRAMMATIC": is_programmatic(launch.record),
    }
    source = stage(templates.attention_step, constants)
    source = source.replace("(pointers)", f"({', '.join(operands)})", 1)
    code = KernelCode("attention_step", source, ("ptr",) * len(operands), 32 * spec.warps)
    return [launch_in(read_shape(launch.record), code, tuple(map(address_of, operands.values())))]


def _operands(launch: Launch, problem: StepProblem) -> dict[str, BufferRef]:
    """The kernel's parameters by name."""
    operands = {"q": launch.ins[0], "k": launch.ins[1], "v": launch.ins[2], "result": launch.outs[0]}
    rest = launch.ins[:-1] if problem.filled is not None else launch.ins
    if problem.attention.mask is not None:
        operands["mask"] = rest[-1]
    if problem.filled is not None:
        operands["before"] = launch.ins[-1]
    if problem.turns is not None:
        turns = launch.ins[NEW_VALUE + 1 : NEW_VALUE + 1 + TURNS]
        operands |= zip(("cosines_q", "sines_q", "cosines_k", "sines_k"), turns, strict=True)
    if problem.writes is not None:
        operands |= {
            "position": launch.ins[POSITION],
            "new_k": launch.ins[NEW_KEY],
            "new_v": launch.ins[NEW_VALUE],
            "keys": launch.outs[1],
            "values": launch.outs[2],
        }
    return operands


def _write_constants(launch: Launch, problem: StepProblem) -> Constants:
    """What is written, and whether the state is in place: then rows stay where they are."""
    writes = problem.writes
    if writes is None:
        return {"WRITES": False, "COPIES_K": False, "COPIES_V": False}
    return {
        "WRITES": True,
        "COPIES_K": not lie_alike(launch.ins[1], launch.outs[1]),
        "COPIES_V": not lie_alike(launch.ins[2], launch.outs[2]),
        "ROW": _row(writes, problem.attention.n),
        "NEW_K_BATCH": _batch(writes.row_k),
        "NEW_V_BATCH": _batch(writes.row_v),
        "KEYS_BATCH": _batch(writes.keys),
        "KEYS_ROW": writes.keys.row * 2,
        "VALUES_BATCH": _batch(writes.values),
        "VALUES_ROW": writes.values.row * 2,
    }


def _filled_constants(problem: StepProblem) -> Constants:
    """How many keys come before the query (i64), and how many it sees."""
    filled = problem.filled
    if filled is None:
        return {"FILLED": False}
    strides, dtype = filled.position
    return {
        "FILLED": True,
        "BEFORE_BATCH": tuple(stride * ELEMENT_BYTES[dtype] for stride in reversed(strides)),
        "LOAD_BEFORE": Snippet(("at",), (), f"i64({load_text(dtype, 'at')})"),
        "WINDOW": filled.window,
    }


def _turning_constants(problem: StepProblem) -> Constants:
    """Which elements of queries and the new key turn as pairs, and where their cosines and sines lie."""
    turns = problem.turns
    if turns is None:
        return {"ROTATES": "", "EIGHT": part(templates.eight_of)}
    factors = (*turns.query, *turns.key)
    names = ("OF_COSINES_Q", "OF_SINES_Q", "OF_COSINES_K", "OF_SINES_K")
    return {
        "ROTATES": turns.pairs,
        "EIGHT": part(templates.eight_turned),
        "ANGLES": part(templates.angles),
        **dict(zip(names, map(_strides_of, factors), strict=True)),
    }


def _strides_of(factors: Pairs) -> tuple[tuple[int, ...], int, int]:
    """In bytes, batch dimensions innermost first."""
    size = ELEMENT_BYTES[factors.dtype]
    return tuple(size * each for each in reversed(factors.batch)), size * factors.half, size * factors.pair


def _batch(rows: Rows) -> tuple[int, ...]:
    """Bytes, the innermost dimension first."""
    return tuple(stride * 2 for stride in reversed(rows.batch))


def _row(writes: Writes, rows: int) -> Snippet:
    """The row that is written (i64), counted from the end where it is negative."""
    index = load_text(writes.position, address_text("position", "i64(0)", writes.position))
    from_the_end = f"cuda.selp(at < i64(0), i64(at + i64({rows})), at)"
    return Snippet((), (f"at = i64({index})",), from_the_end)


def _method_constants(problem: StepProblem, spec: Spec) -> Constants:
    """How keys are shared out."""
    pieces, lines, loads = pieces_of(problem), lines_of(problem), spec.loads(problem)
    turn, turns, group = spec.turn(problem), spec.turns(problem), group_of(problem)
    dtype = problem.attention.dtype
    return {
        "N": problem.seen,
        "GROUP": group,
        "SHARED": problem.sharing // group,
        "SPLITS": spec.splits,
        "WARPS": spec.warps,
        "PIECES": pieces,
        "BITS": pieces.bit_length() - 1,
        "LINES": lines,
        "LOADS": loads,
        "PARTS": spec.parts,
        "TURN": turn,
        "TURNS": turns,
        "TAIL": turn * turns != problem.seen,
        "SLOTS": spec.slots(problem),
        "SLOT_BYTES": spec.slot_bytes(problem),
        "COMBINERS": max(1, problem.attention.d // 64),
        **_PARTS,
        "UNPACK": Snippet(("word",), (), f"unpack_{dtype}(word)"),
        "PACK": Snippet(("low", "high"), (), f"pack_{dtype}(low, high)"),
        "LOAD_MASK": LOADS[problem.attention.mask[1] if problem.attention.mask else dtype],
    }
