"""Launches of generated kernels: the template of the record's strategy with the snippets of the kernel's phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.loop_nest import LoopNest, nest_of
from aicf.backends.common.record import Record
from aicf.backends.cuda.codegen.combine import exchanged_bytes
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import constants_of, stage
from aicf.backends.cuda.families.loops import template_column_sums as column_sums_template
from aicf.backends.cuda.families.loops import template_pointwise as pointwise_template
from aicf.backends.cuda.families.loops import template_rows as rows_template
from aicf.backends.cuda.families.loops import template_scans as scans_template
from aicf.backends.cuda.families.loops import template_tiles as tiles_template
from aicf.backends.cuda.families.loops.column_sums import SumCode
from aicf.backends.cuda.families.loops.kernel import read_shapes, read_spec
from aicf.backends.cuda.families.loops.online import OnlineCode
from aicf.backends.cuda.families.loops.phases import PhaseCode
from aicf.backends.cuda.families.loops.scans import ScanCode, totals_of
from aicf.backends.cuda.families.loops.schedule import (
    SUM_COLUMNS,
    GeneratedSpec,
    partial_bytes,
    parts_together,
)
from aicf.backends.cuda.families.loops.spaces import TILE
from aicf.backends.cuda.families.loops.tiles import TileCode
from aicf.backends.cuda.families.loops.welford import MomentCode
from aicf.backends.cuda.families.records import Rounding, Shape, is_programmatic, read_rounding

Constants = Mapping[str, Any]


def emit(launch: Launch) -> list[KernelLaunch]:
    """The launches of one instruction with a generated scalar program."""
    assert launch.code is not None
    refs = (*launch.ins, *launch.outs)
    nest = nest_of(launch.code, [ref.strides for ref in refs], [ref.dtype for ref in refs])
    return launches_of(launch.kind, nest, launch.record, refs, launch.ws)


def launches_of(
    name: str,
    nest: LoopNest,
    record: Record,
    refs: Sequence[BufferRef],
    workspace: Sequence[BufferRef] = (),
) -> list[KernelLaunch]:
    """The launches of a nest by a record that fits it.

    Args:
        name: Start of the symbols.
        refs: Of the inputs, then of the outputs.
        workspace: One buffer if the record splits.
    """
    made = _Maker(name, nest, record, refs, workspace)
    return _STRATEGIES[made.spec.strategy](made)


def closing_launch(
    name: str,
    nest: LoopNest,
    record: Record,
    refs: Sequence[BufferRef],
    workspace: Sequence[BufferRef],
    code: type[PhaseCode],
) -> KernelLaunch:
    """The last launch of a nest whose parts another kernel leaves in the workspace; the other arguments as in
    `launches_of`.

    Args:
        code: What reads the parts.
    """
    made = _Maker(name, nest, record, refs, workspace, code)
    (run, _), shape = made.spec.launches(nest)[-1], made.shapes[-1]
    return made.launch(rows_template.sweep, _sweep_constants(made, run), shape)


class _Maker:
    """What all strategies share: from a template and its constants to a launch."""

    def __init__(
        self,
        name: str,
        nest: LoopNest,
        record: Record,
        refs: Sequence[BufferRef],
        workspace: Sequence[BufferRef],
        code: type[PhaseCode] | None = None,
    ):
        self.name, self.nest, self.spec = name, nest, read_spec(record)
        self.shapes = read_shapes(record)
        self.rounding: Rounding = read_rounding(record)
        self.programmatic = is_programmatic(record)
        self.refs, self.workspace = refs, workspace
        kind = code or _CODES.get(self.spec.strategy, PhaseCode)
        self.code: PhaseCode = kind(nest, self.spec, refs, self.rounding)

    def of(self, nest: LoopNest, spec: GeneratedSpec) -> _Maker:
        """The maker of another kernel on the same operands, in the shape of the first launch."""
        made = copy(self)
        made.nest, made.spec, made.shapes = nest, spec, self.shapes[:1]
        made.code = PhaseCode(nest, spec, self.refs, self.rounding)
        return made

    def one(self, template: Callable[..., object], constants: Constants) -> list[KernelLaunch]:
        """The only launch."""
        (shape,) = self.shapes
        return [self.launch(template, constants, shape)]

    def launch(self, template: Callable[..., object], constants: Constants, shape: Shape) -> KernelLaunch:
        """The template's parameter `operands` stands for one address for each operand, and the workspace."""
        spec = self.spec
        names = [f"a{i}" for i in range(len(self.refs))] + ["w"] * len(self.workspace)
        common = {**constants_of(spec), "PROGRAMMATIC": self.programmatic}
        staged = stage(template, {**common, **constants})
        head, _, body = staged.partition("(operands):\n")
        index = f"    index = {self.code.index}\n"
        source = f"{head}({', '.join(names)}):\n{index}{body}"
        code = KernelCode(self.name, source, ("ptr",) * len(names), spec.threads, spec.blocks_per_sm)
        return launch_in(shape, code, tuple(address_of(ref) for ref in (*self.refs, *self.workspace)))


def _pointwise(made: _Maker) -> list[KernelLaunch]:
    spec, nest, code = made.spec, made.nest, made.code
    vectors, tail = divmod(nest.parallel_size, spec.vector)
    one = PhaseCode(nest, _one_by_one(spec), made.refs, made.rounding)
    constants = {
        "VECTORS": vectors,
        "WORDS": max(1, code.loaded),
        "LOAD": code.load(),
        "CELL": code.pointwise(),
        "TAIL": tail,
        "WORDS_ONE": max(1, one.loaded),
        "LOAD_ONE": one.load(),
        "CELL_ONE": one.pointwise(),
    }
    return made.one(pointwise_template.pointwise, constants)


def _one_by_one(spec: GeneratedSpec) -> GeneratedSpec:
    return GeneratedSpec(spec.strategy, 1, spec.threads, spec.lanes, spec.unroll, spec.splits)


def _phase_constants(code: PhaseCode) -> dict[str, Any]:
    """Snippets and register counts by phase."""
    phases = range(len(code.kernel.phases))

    def each(make: Callable[[int], object]) -> tuple[object, ...]:
        return tuple(make(k) for k in phases)

    return {
        "PHASES": len(phases),
        "WORDS": max(1, code.loaded),
        "CELL": code.cell_registers,
        "KNOWN": code.known_registers,
        "KNOWN_INPUTS": max(1, code.known_inputs),
        "KNOWN_AT": tuple(code.totals_at),
        "KNOWN_TO": each(code.known_to),
        "KEPT_AT": tuple(code.kept_at),
        "LOAD": code.load(),
        "LOAD_POINT": code.load_point(),
        "SWEEPS": each(code.sweeps),
        "REDUCTIONS": each(lambda k: len(code.reductions(k))),
        "EXCHANGED_BYTES": each(lambda k: exchanged_bytes(code.spec, code.reductions(k))),
        "POINT_STORES": each(code.has_point_stores),
        "TOTALS": each(code.totals),
        "BEFORES": each(code.before_count),
        "KEPT": each(code.kept_count),
        "BEFORE": each(code.before),
        "START": each(code.start),
        "SWEEP": each(code.sweep),
        "COMBINE": each(code.combine),
        "POINT_STORE": each(code.point_stores),
    }


def _resident(made: _Maker) -> list[KernelLaunch]:
    spec, nest = made.spec, made.nest
    constants = {
        **_phase_constants(made.code),
        "CHUNKS": spec.unroll,
        "SPAN": spec.span(nest),
        "POINTS": nest.parallel_size,
        "REDUCE": nest.reduce_size,
    }
    return made.one(rows_template.resident, constants)


def _sweep(made: _Maker) -> list[KernelLaunch]:
    """One launch, or one for each phase that does something if rows are split."""
    return [
        made.launch(rows_template.sweep, _sweep_constants(made, run), shape)
        for (run, _), shape in zip(made.spec.launches(made.nest), made.shapes, strict=True)
    ]


def _sweep_constants(made: _Maker, run: range) -> Constants:
    """Of the launch that runs the phases `run`."""
    spec, nest, code = made.spec, made.nest, made.code
    columns = not spec.by_rows
    point_vector, reduce_vector = (spec.vector, 1) if columns else (1, spec.vector)
    phases = range(len(code.kernel.phases))
    constants = {
        **_phase_constants(code),
        "FIRST": run[0],
        "LAST": run[-1],
        "FIRST_AT": tuple(map(code.first_at, phases)),
        "FROM_FIRST": tuple(map(code.from_first, phases)),
        "COLUMNS": columns,
        "BACKWARDS": tuple(columns and k > 0 and not code.reductions(k) for k in phases),
        "SPAN": spec.span(nest),
        "POINT_VECTOR": point_vector,
        "REDUCE_VECTOR": reduce_vector,
        "POINT_VECTORS": nest.parallel_size // point_vector,
        "REDUCE": nest.reduce_size,
        "ENDS": spec.has_ends(nest),
    }
    if spec.has_ends(nest):
        one = type(code)(nest, replace(spec, vector=1), made.refs, made.rounding)
        constants |= {
            "HEAD": code.head(),
            "WORDS_ONE": max(1, one.loaded),
            "LOAD_ONE": one.load(),
            "SWEEP_ONE": tuple(one.sweep(k) for k in phases),
        }
    if spec.splits > 1:
        constants |= {
            "TOGETHER": parts_together(nest, spec),
            "PARTIALS": tuple(code.partials(k) for k in phases),
            "READ": tuple(code.load_partials(k) for k in phases),
            "ADD": tuple(code.add_partials(k) for k in phases),
            "WRITE": tuple(code.write_partials(k) for k in phases),
            "PARTIAL": tuple(code.combine(k, finish=False) for k in phases),
        }
    return constants


def _column_sums(made: _Maker) -> list[KernelLaunch]:
    """The walk over rows, and what combines its parts."""
    spec, nest, code = made.spec, made.nest, made.code
    assert isinstance(code, SumCode)
    sums = range(len(code.sums))
    common = {"PARTS": spec.splits, "REDUCE": nest.reduce_size, "BOARDS": len(sums)}
    walk = {
        **_phase_constants(code),
        "CHUNKS": spec.unroll,
        "POINTS": nest.parallel_size,
        "SUMS": len(sums) * spec.vector,
        "SUM_START": code.sum_start(),
        "BOARD": code.board(),
        "PUT": code.put(),
        "WRITE": code.write(),
    }
    combine = {
        "COLUMNS": SUM_COLUMNS,
        "GROUPS": -(-nest.reduce_size // SUM_COLUMNS),
        "TOGETHER": 8,
        "FIRST": tuple(map(code.first, sums)),
        "READ": tuple(map(code.read, sums)),
        "ADD": tuple(map(code.add, sums)),
        "FINISH": tuple(map(code.finish, sums)),
    }
    first, second = made.shapes
    return [
        made.launch(column_sums_template.walk, {**common, **walk}, first),
        made.launch(column_sums_template.combine, {**common, **combine}, second),
    ]


def _tiles(made: _Maker) -> list[KernelLaunch]:
    nest, spec, code = made.nest, made.spec, made.code
    assert isinstance(code, TileCode)
    vectors = [code.tile_vector(number) for number in code.tiled]
    constants = {
        "DIMS": len(nest.dims),
        "STEPS": spec.unroll,
        "TILED": len(code.tiled),
        "FETCHES": tuple(TILE * TILE // (vector.count * spec.threads) for vector in vectors),
        "FETCH_WORDS": tuple(vector.words for vector in vectors),
        "FETCH": tuple(code.fetch(number) for number in code.tiled),
        "KEEP": tuple(code.keep(number) for number in code.tiled),
        "BESIDE_WORDS": max(1, code.loaded),
        "BESIDE": code.load_beside(),
        "START": code.tile_start(),
        "SHARED": code.tiles(),
        "CELL": code.tile_cell(),
    }
    return made.one(tiles_template.tiles, constants)


def _scan(made: _Maker) -> list[KernelLaunch]:
    """The scan, after a launch for the totals of its parts where rows or columns are split."""
    spec, nest, code = made.spec, made.nest, made.code
    assert isinstance(code, ScanCode)
    totals = made.of(*totals_of(nest, spec))
    constants = {
        **_scan_snippets(code),
        "SCANS": len(code.scans),
        "REVERSE": code.is_reverse,
        "WORDS": max(1, code.loaded),
        "KNOWN": code.known_registers,
        "KNOWN_INPUTS": max(1, code.known_inputs),
        "BEFORES": code.before_count(0),
        "GROUP": code.group,
        "WARPS": spec.lanes // code.group,
        "CHAIN": spec.strategy == "scan_chain",
        "SPAN": spec.span(nest),
        "POINTS": nest.parallel_size,
        "POINT_VECTORS": nest.parallel_size // spec.vector,
        "REDUCE": nest.reduce_size,
        "READ": totals.code.load_partials(0),
        "ADD": totals.code.add_partials(0),
        "COMBINE": totals.code.combine(0, finish=False),
    }
    template = scans_template.rows if spec.by_rows else scans_template.columns
    launch = made.launch(template, constants, made.shapes[-1])
    if spec.strategy == "scan_chain":
        words = {"WORDS": partial_bytes(nest, spec) // 8}
        return [made.launch(scans_template.clear, words, made.shapes[0]), launch]
    return [*(_sweep(totals) if spec.splits > 1 else []), launch]


def _scan_snippets(code: ScanCode) -> dict[str, Any]:
    common = {
        "LOAD": code.load(),
        "LOAD_POINT": code.load_point(),
        "BEFORE": code.before(0),
        "START": code.starts(),
    }
    if not code.by_rows:
        return {**common, "STEP": code.step()}
    return {
        **common,
        "PREFIX": code.prefix(),
        "UP_TO": code.up_to(),
        "AHEAD": code.ahead(),
        "WHOLE": code.whole(),
        "JOIN": code.join(),
        "BOARD": code.board(),
        "PUT": code.put(),
        "GET": code.get(),
        "FINISH": code.finish(),
        "TELL": code.tell(),
        "ASK": code.ask(),
    }


_STRATEGIES: Mapping[str, Callable[[_Maker], list[KernelLaunch]]] = {
    "pointwise": _pointwise,
    "resident": _resident,
    "column_sums": _column_sums,
    "rows": _sweep,
    "online_rows": _sweep,
    "columns": _sweep,
    "online_columns": _sweep,
    "tiles": _tiles,
    "scan_rows": _scan,
    "scan_columns": _scan,
    "scan_chain": _scan,
}

_CODES: Mapping[str, type[PhaseCode]] = {
    "tiles": TileCode,
    "column_sums": SumCode,
    "online_rows": OnlineCode,
    "online_columns": MomentCode,
    "scan_rows": ScanCode,
    "scan_columns": ScanCode,
    "scan_chain": ScanCode,
}
"""Strategies with snippets of their own."""
