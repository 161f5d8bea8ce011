"""The record of an attention over a cache, and back."""

from __future__ import annotations

from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import Record, RecordCodec, RecordError, Whole, illegal, integer, read_part
from aicf.backends.cpu.families.attention.cached.problem import CachedProblem
from aicf.backends.cpu.families.attention.cached.schedule import CachedSpec, check_cached
from aicf.backends.cpu.families.attention.schedule import padded_row
from aicf.backends.cpu.families.records import gemm_record, gemm_spec

_CACHED = RecordCodec(CachedSpec)


def cached_record(spec: CachedSpec) -> dict[str, Attribute]:
    """Every decision about an attention over a cache."""
    return {
        **_CACHED.entries(spec),
        "scores": DictionaryAttr(gemm_record(spec.scores)),
        "output": DictionaryAttr(gemm_record(spec.output)),
        "workspace_bytes": integer(spec.workspace_bytes),
        "combination_order": StringAttr(spec.combination_order),
    }


def cached_spec(record: Record, problem: CachedProblem, fused: bool) -> CachedSpec:
    """The decisions of a record for `problem`. Raises RecordError if they contradict each other."""
    entries, copied = _CACHED.values(record), problem.copies_tiles
    rows = entries["block_rows"]
    if rows > problem.rows:
        raise RecordError(f"its {illegal('block_rows', rows, Whole(1, problem.rows))}")
    scores = gemm_spec(read_part(record, "scores"), problem.scores(rows, copied=copied), fused)
    row = padded_row(rows, scores.lanes)
    output = gemm_spec(read_part(record, "output"), problem.output(rows, row, copied=copied), fused)
    spec = CachedSpec(problem, scores=scores, output=output, **entries)
    if (reason := check_cached(spec)) is not None:
        raise RecordError(reason)
    return spec
