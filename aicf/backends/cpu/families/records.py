"""Kernel records of the CPU backend: decisions to attributes and back. Imports no code generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.loop_nest import LoopNest, value_types
from aicf.backends.common.record import (
    ROUNDINGS,
    OneOf,
    Record,
    RecordCodec,
    RecordError,
    Whole,
    illegal,
    integer,
    read_entry,
    read_integer,
    read_part,
    read_parts,
)
from aicf.backends.cpu.families.attention.schedule import (
    AttentionProblem,
    AttentionSpec,
    check_attention,
    padded_row,
)
from aicf.backends.cpu.families.gemm.spec import GemmProblem, GemmSpec, check
from aicf.backends.cpu.families.gemm.units import legal_terms, terms_by_type
from aicf.backends.cpu.families.loops.schedule import LoopSpec, check_loops
from aicf.backends.cpu.target import NARROW_FLOATS
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.kinds import FLAGS

GEMM_VERSION = 5
"""Of every kernel whose record holds what `gemm_record` gives; 2 brought panels in groups, prefetch, element, 3 the
blocks of sums of the row program, 4 pairs of short integers, 5 quads of 8-bit integers and pairs of bf16."""
ATTENTION_VERSION = 5
"""Of the kernels of attention, whose record holds two of those; 4 brought rows whose probabilities are NaN, 5 rows
that see no key and give 0."""


def boolean(value: bool) -> Attribute:
    """An i1 attribute."""
    return FLAGS[value]


def pairs(entries: list[tuple[int, int]]) -> ArrayAttr[ArrayAttr[IntegerAttr]]:
    """``[[out, in], ...]``."""
    return ArrayAttr([ArrayAttr([integer(out), integer(in_)]) for out, in_ in entries])


def get_bool(record: Record, key: str) -> bool:
    """A bool entry."""
    return bool(read_integer(record, key))


_GEMM = RecordCodec(GemmSpec)
_UNITS = {2: "pairs_of_k", 4: "quads_of_k"}
"""Terms of K in a unit, where there are several, to the entry that says so."""
_EPILOGUE_FROM = OneOf(("registers", "tile buffer"))


def gemm_record(spec: GemmSpec) -> dict[str, Attribute]:
    """Every decision about a GEMM."""
    return {
        **_GEMM.entries(spec),
        "epilogue_from": StringAttr("tile buffer" if spec.tile_buffer else "registers"),
        "combination_order": StringAttr(spec.combination_order),
        **({"b_element": StringAttr(spec.b_element)} if spec.problem.b_element != spec.problem.dtype else {}),
        **({_UNITS[spec.problem.terms]: boolean(True)} if spec.problem.terms > 1 else {}),
    }


def gemm_spec(record: Record, problem: GemmProblem, fused: bool, any_units: bool = False) -> GemmSpec:
    """The decisions of a record for `problem`, in units as its types say or in `any_units` that some level has.

    Raises RecordError if they contradict each other.
    """
    problem = _with_units(record, problem, legal_terms(problem) if any_units else (terms_by_type(problem),))
    spec = GemmSpec(
        problem,
        **_GEMM.values(record),
        fused=fused,
        tile_buffer=read_entry(record, "epilogue_from", _EPILOGUE_FROM) == "tile buffer",
        b_panel_type=_panel_type(record, problem),
    )
    if (reason := check(spec)) is not None:
        raise RecordError(reason)
    return spec


def _with_units(record: Record, problem: GemmProblem, legal: Sequence[int]) -> GemmProblem:
    """The problem with the terms of K that the record has in a unit, one of the `legal` numbers."""
    found = [terms for terms, key in _UNITS.items() if record.get(key) == boolean(True)]
    terms = found[0] if len(found) == 1 else len(found) + 1
    if terms not in legal:
        ways = [f"'{_UNITS[each]}'" if each in _UNITS else "neither" for each in legal]
        raise RecordError(
            f"its 'pairs_of_k' and 'quads_of_k' are not those of its operands, legal: {' or '.join(ways)}"
        )
    return replace(problem, unit_terms=0 if terms == terms_by_type(problem) else terms)


def _panel_type(record: Record, problem: GemmProblem) -> str:
    """Element type of packed panels, where it is not that of the multiplication."""
    if record.get("b_source") != StringAttr("packed") or problem.b_element == problem.dtype:
        return ""
    legal = OneOf(tuple(dict.fromkeys((problem.b_element, problem.wide_element))))
    element = read_entry(record, "b_element", legal)
    return "" if element == problem.wide_element else element


_ATTENTION = RecordCodec(AttentionSpec)


def attention_record(spec: AttentionSpec) -> dict[str, Attribute]:
    """Every decision about an attention."""
    return {
        "block_rows": integer(spec.block_rows),
        "scores": DictionaryAttr(gemm_record(spec.scores)),
        "output": DictionaryAttr(gemm_record(spec.output)),
        **_ATTENTION.entries(spec),
        "workspace_bytes": integer(spec.workspace_bytes),
        "combination_order": StringAttr(spec.combination_order),
    }


def attention_spec(record: Record, problem: AttentionProblem, fused: bool) -> AttentionSpec:
    """The decisions of a record for `problem`. Raises RecordError if they contradict each other."""
    entries = _ATTENTION.values(record)
    rows = entries["block_rows"]
    if rows > problem.m:
        raise RecordError(f"its {illegal('block_rows', rows, Whole(1, problem.m))}")
    scores = gemm_spec(read_part(record, "scores"), problem.scores(rows), fused)
    row = padded_row(problem.n, scores.lanes)
    output = gemm_spec(read_part(record, "output"), problem.output(rows, row), fused)
    spec = AttentionSpec(problem, scores=scores, output=output, **entries)
    if (reason := check_attention(spec)) is not None:
        raise RecordError(reason)
    return spec


_LOOPS = RecordCodec(LoopSpec)


def loop_record(spec: LoopSpec, nest: LoopNest) -> dict[str, Attribute]:
    """Every decision about the loops of a generated kernel."""
    return {
        **_LOOPS.entries(spec),
        "combination_order": StringAttr(spec.combination_order(nest)),
        **({"sum_block": integer(spec.sum_block)} if nest.reduce_dims else {}),
        **rounding_record(nest.kernel, spec.rounding),
    }


def rounding_record(kernel: KernelOp | None, rounding: str) -> dict[str, Attribute]:
    """Where a scalar program rounds, if it has values of narrow floats; no others are rounded."""
    has_narrow = kernel is not None and not value_types(kernel).isdisjoint(NARROW_FLOATS)
    return {"rounding": StringAttr(rounding)} if has_narrow else {}


def read_rounding(record: Record) -> str:
    """`fused` or `strict`; `fused` for a program whose values are all as wide as their registers."""
    return read_entry(record, "rounding", ROUNDINGS) if "rounding" in record else "fused"


def loop_spec(record: Record, nest: LoopNest) -> LoopSpec:
    """The decisions of a record for `nest`. Raises RecordError if they do not fit it."""
    block = read_entry(record, "sum_block", Whole(0)) if nest.reduce_dims else 0
    spec = LoopSpec(**_LOOPS.values(record), rounding=read_rounding(record), sum_block=block)
    if (reason := check_loops(nest, spec)) is not None:
        raise RecordError(reason)
    return spec


def read_loops(record: Record, nests: Sequence[LoopNest]) -> list[LoopSpec]:
    """The decisions of the records `parts` about one nest each. Raises RecordError if they do not fit them."""
    parts = read_parts(record, "parts", len(nests))
    return [loop_spec(part, nest) for part, nest in zip(parts, nests, strict=True)]
