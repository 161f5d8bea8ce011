# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
# Templates are text in the form of functions: their parameters have no types.
"""Launches of updates of many tensors: the template with the snippets of each program, and the table of the parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.loop_nest import nest_of
from aicf.backends.common.multi_tensor import Turn, numbers_code, program_code
from aicf.backends.common.record import RecordError
from aicf.backends.cuda.codegen.scalar import REGISTERS, dtype_of
from aicf.backends.cuda.compiler import specializer
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Snippet, stage
from aicf.backends.cuda.families.loops.cells import packed
from aicf.backends.cuda.families.loops.phases import PhaseCode
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec
from aicf.backends.cuda.families.multi_tensor import template as updates_template
from aicf.backends.cuda.families.multi_tensor.kernel import UpdateSpec, read_spec, turns_of
from aicf.backends.cuda.families.records import Rounding, is_programmatic, read_rounding, read_shape
from aicf.backends.cuda.runtime.device_program import Address, Table
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_updates import Part, Update, update_of
from aicf.errors import PlanError

_NEVER = 1 << 62
"""A first block beyond every block."""
_NO_TICKET = 0
"""The counter before the first ticket, and after the last."""
_WARP = 32


def emit(launch: Launch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    if launch.code is None:
        raise PlanError(f"instruction '{launch.name}' has no generated code: run generate-kernels")
    update = update_of(launch.code, len(launch.ins), len(launch.outs))
    spec = read_spec(launch.record)
    if len(spec.vectors) != len(update.parts):
        raise RecordError("it is not that of the body")
    return [_launch(launch, launch.code, update, spec)]


@dataclass(frozen=True)
class _Variant:
    """The parts of one program that are handled in vectors of one width, and turned alike."""

    program: int
    vector: int
    turn: Turn
    parts: tuple[Part, ...]


_AS_IT_LIES = Turn(0, 1)
"""Of parts that are not turned."""


def _variants(update: Update, spec: UpdateSpec, outs: Sequence[BufferRef]) -> list[_Variant]:
    found: dict[tuple[int, int, Turn], list[Part]] = {}
    for part, vector, turn in zip(update.parts, spec.vectors, turns_of(update, outs), strict=True):
        found.setdefault((part.program, vector, turn or _AS_IT_LIES), []).append(part)
    keys = sorted(found, key=lambda key: (*key[:2], key[2].channels, key[2].window))
    return [_Variant(*key, tuple(found[key])) for key in keys]


class _PartCode(PhaseCode):
    """Snippets of one program: its elements lie where the table says, numbers where the parameters do."""

    def __init__(self, numbers: int, *given: Any):
        self.numbers = numbers
        super().__init__(*given)

    def base(self, number: int) -> str:
        return f"a{number}" if number < self.numbers else f"pointer[{number - self.numbers}]"

    def computes_before(self) -> bool:
        """Whether numbers are computed, not only read."""
        arguments: set[SSAValue] = set(self.kernel.body.block.args)
        return not arguments.issuperset(self.boundary(0))

    def board(self) -> Snippet:
        """No parameters; the result is shared memory for what one warp computes."""
        lines = [
            f"s{i} = cuda.shared.array(1, {'i32' if dtype == 'bool' else dtype})"
            for i, dtype in enumerate(self._broadcast_dtypes())
        ]
        return Snippet((), tuple(lines), packed([f"s{i}" for i in range(len(lines))]))

    def put(self) -> Snippet:
        """Parameters board, values."""
        lines = [
            f"board[{i}][0] = {f'cuda.selp(values[{i}], i32(1), i32(0))' if dtype == 'bool' else f'values[{i}]'}"
            for i, dtype in enumerate(self._broadcast_dtypes())
        ]
        return Snippet(("board", "values"), tuple(lines or ["pass"]))

    def get(self) -> Snippet:
        """Parameter board; the result is what is there."""
        names = [
            f"(board[{i}][0] != i32(0))" if dtype == "bool" else f"board[{i}][0]"
            for i, dtype in enumerate(self._broadcast_dtypes())
        ]
        return Snippet(("board",), (), packed(names))

    def _broadcast_dtypes(self) -> list[str]:
        return [REGISTERS[dtype_of(value)] for value in self.boundary(0)]


def _launch(launch: Launch, code: KernelOp, update: Update, spec: UpdateSpec) -> KernelLaunch:
    variants, rounding = _variants(update, spec, launch.outs), read_rounding(launch.record)
    parts = [part for variant in variants for part in variant.parts]
    starts = _starts(variants, spec)
    pointers = max(len(part.operands) + len(part.results) for part in parts)
    rounds = -(-len(parts) // _WARP)
    refs = [
        *(launch.ins[number] for number in update.scalars),
        *(launch.outs[number] for number in update.scalar_results),
    ]
    shape = read_shape(launch.record)
    constants: dict[str, Any] = {
        "THREADS": spec.threads,
        "UNROLL": spec.unroll,
        "PROGRAMMATIC": is_programmatic(launch.record),
        "ROUNDS": rounds,
        "PARTS": len(parts),
        "POINTERS": pointers,
        "ELEMENTS_AT": 8 * _WARP * rounds,
        "TICKET_AT": 8 * (_WARP * rounds + len(parts)),
        "POINTERS_AT": 8 * (_WARP * rounds + len(parts) + 1),
        "BLOCKS": shape.grid[0],
        "ROW_MAJOR": specializer.part(updates_template.row_major),
        **_number_constants(code, update, refs, rounding),
        **_variant_constants(launch, code, update, variants, rounding),
    }
    names = ["table", *(f"a{number}" for number in range(len(refs)))]
    head, _, body = stage(updates_template.update, constants).partition("(operands):\n")
    source = f"{head}({', '.join(names)}):\n    index = {_index(parts)}\n{body}"
    kernel = KernelCode(launch.kind, source, ("ptr",) * len(names), spec.threads)
    table = Table(
        (*starts, *[_NEVER] * (_WARP * rounds - len(parts)), *(part.elements for part in parts), _NO_TICKET),
        tuple(address for part in parts for address in _addresses(launch, part, pointers)),
    )
    return launch_in(shape, kernel, (table, *map(address_of, refs)))


def _starts(variants: Sequence[_Variant], spec: UpdateSpec) -> list[int]:
    """The first block of each part."""
    starts, block = list[int](), 0
    for variant in variants:
        for part in variant.parts:
            starts.append(block)
            block += spec.blocks(part, variant.vector)
    return starts


def _addresses(launch: Launch, part: Part, count: int) -> list[Address]:
    """Of a part's operands and results; the last one again up to `count`."""
    refs = [*(launch.ins[i] for i in part.operands), *(launch.outs[i] for i in part.results)]
    own = [address_of(ref) for ref in refs]
    return [*own, *[own[-1]] * (count - len(own))]


def _index(parts: Sequence[Part]) -> str:
    """The integer type that counts the elements of every part, and those of threads past the end."""
    return "i32" if max(part.elements for part in parts) < (1 << 31) - (1 << 22) else "i64"


def _variant_constants(
    launch: Launch, code: KernelOp, update: Update, variants: Sequence[_Variant], rounding: Rounding
) -> dict[str, Any]:
    wide = [_code(launch, code, update, v.program, v.parts, v.vector, rounding) for v in variants]
    single = [_code(launch, code, update, v.program, v.parts, 1, rounding) for v in variants]
    ends = [sum(len(v.parts) for v in variants[: k + 1]) for k in range(len(variants))]
    return {
        "VARIANTS": len(variants),
        "FROM": (0, *ends[:-1]),
        "UNTIL": tuple(ends),
        "VECTOR": tuple(variant.vector for variant in variants),
        "CHANNELS": tuple(variant.turn.channels for variant in variants),
        "WINDOW": tuple(variant.turn.window for variant in variants),
        # Only the thread that takes the ticket may have read numbers that are overwritten.
        "ONE": tuple(bool(update.scalar_results) or made.computes_before() for made in wide),
        "WORDS": tuple(max(1, made.loaded) for made in wide),
        "LOAD": tuple(made.load() for made in wide),
        "KNOWN": tuple(made.known_registers for made in wide),
        "KNOWN_INPUTS": tuple(max(1, made.known_inputs) for made in wide),
        "LOAD_POINT": tuple(made.load_point() for made in wide),
        "BEFORES": tuple(made.before_count(0) for made in wide),
        "BEFORE": tuple(made.before(0) for made in wide),
        "BOARD": tuple(made.board() for made in wide),
        "PUT": tuple(made.put() for made in wide),
        "GET": tuple(made.get() for made in wide),
        "SWEEP": tuple(made.sweep(0) for made in wide),
        "WORDS_ONE": tuple(max(1, made.loaded) for made in single),
        "LOAD_ONE": tuple(made.load() for made in single),
        "SWEEP_ONE": tuple(made.sweep(0) for made in single),
    }


def _code(
    launch: Launch,
    code: KernelOp,
    update: Update,
    program: int,
    parts: Sequence[Part],
    vector: int,
    rounding: Rounding,
) -> _PartCode:
    """Snippets for the elements of a program's parts: those of the longest one, as they all start at an aligned
    address and are counted alike."""
    first, numbers = parts[0], len(update.scalars)
    longest = max(part.elements for part in parts)
    size = _WARP * -(-longest // _WARP)
    read = [launch.ins[number] for number in (*update.scalars, *first.operands)]
    dtypes = [ref.dtype for ref in (*read, *(launch.outs[number] for number in first.results))]
    strides = [() if index < numbers else (1,) for index in range(len(dtypes))]
    shapes = [() if index < numbers else (size,) for index in range(len(dtypes))]
    refs = [BufferRef(0, 0, *each) for each in zip(shapes, strides, dtypes, strict=True)]
    nest = nest_of(program_code(code, update, program, size, apart=True), strides, dtypes)
    spec = GeneratedSpec("rows", vector, _WARP, _WARP, 1, 1)
    return _PartCode(numbers, nest, spec, refs, rounding)


def _number_constants(
    code: KernelOp, update: Update, refs: Sequence[BufferRef], rounding: Rounding
) -> dict[str, Any]:
    """Snippets for the new values of numbers; `refs` of the numbers that are read, then of those."""
    kernel = numbers_code(code, update)
    if kernel is None:
        return {"NUMBERS": False}
    nest = nest_of(kernel, [()] * len(refs), [ref.dtype for ref in refs])
    made = PhaseCode(nest, GeneratedSpec("pointwise", 1, _WARP, 1, 1, 1), refs, rounding)
    return {
        "NUMBERS": True,
        "NUMBERS_WORDS": max(1, made.loaded),
        "NUMBERS_LOAD": made.load(),
        "NUMBERS_CELL": made.pointwise(),
    }
