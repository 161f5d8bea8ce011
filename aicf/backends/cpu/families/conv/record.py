"""Decisions about convolutions as records, and back. Imports no code generator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from xdsl.dialects.builtin import DictionaryAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import (
    OneOf,
    Record,
    RecordCodec,
    RecordError,
    Whole,
    illegal,
    integer,
    read_entry,
    read_part,
)
from aicf.backends.cpu.families.conv.checks import check, tiled, winograd_reason
from aicf.backends.cpu.families.conv.problem import ConvProblem
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.conv.winograd.matrices import OUTPUT_TILES
from aicf.backends.cpu.families.conv.winograd.schedule import WinogradSpec, without_product
from aicf.backends.cpu.families.gemm.units import QUADS_FEATURE
from aicf.backends.cpu.families.records import gemm_record, gemm_spec
from aicf.backends.cpu.families.vectors import lanes_reason
from aicf.backends.cpu.target import CpuLevel

_CODEC = RecordCodec(ConvSpec)
_WINOGRAD = RecordCodec(WinogradSpec)


def conv_record(spec: ConvSpec) -> dict[str, Attribute]:
    """Every decision about a convolution, those of its products as records of their own."""
    entries: dict[str, Attribute] = {
        "algorithm": StringAttr(spec.algorithm),
        "output_tile": integer(spec.output_tile),
        "unit_channels": integer(spec.problem.terms),
        **_CODEC.entries(spec),
        "workspace_bytes": integer(spec.workspace_bytes),
        "combination_order": StringAttr(spec.combination_order),
    }
    if spec.product is not None:
        entries["product"] = DictionaryAttr(gemm_record(spec.product))
    if (winograd := spec.winograd) is not None:
        own = {**_WINOGRAD.entries(winograd), "product": DictionaryAttr(gemm_record(winograd.product))}
        entries["winograd"] = DictionaryAttr(own)
    return entries


def read_conv_spec(record: Record, problem: ConvProblem, level: CpuLevel) -> ConvSpec:
    """The decisions of a record for `problem`. Raises RecordError if they contradict each other, or need instructions
    that the level lacks."""
    entries, fused = _CODEC.values(record), level.has_fma
    own = problem.terms
    if (terms := read_entry(record, "unit_channels", OneOf((own, 4)))) != own:
        if QUADS_FEATURE not in level.features:
            raise RecordError(
                f"its 'unit_channels' is {terms}: that needs {QUADS_FEATURE}, without it use {own}"
            )
        problem = problem.in_quads()
    if entries["algorithm"] == "gemm":
        if not problem.is_pointwise:
            raise RecordError(f"its {illegal('algorithm', 'gemm', 'one for windows of several elements')}")
        own = gemm_spec(read_part(record, "product"), problem.product(entries["lanes_along"]), fused)
        entries["product"] = own
    elif entries["algorithm"] == "winograd":
        if (reason := winograd_reason(problem)) is not None:
            raise RecordError(f"its 'algorithm' is winograd: {reason}")
        entries["winograd"] = _read_winograd(record, entries, problem, fused)
    spec = ConvSpec(problem, **entries)
    if (reason := lanes_reason(spec.lanes, problem.dtype) or check(spec)) is not None:
        raise RecordError(reason)
    return spec


def _read_winograd(
    record: Record, entries: Mapping[str, Any], problem: ConvProblem, fused: bool
) -> WinogradSpec:
    own = read_part(record, "winograd")
    tile = read_entry(record, "output_tile", OneOf(OUTPUT_TILES))
    rows = _WINOGRAD.values(own)["block_rows"]
    blank = without_product(tiled(problem), tile, rows, entries["lanes"], entries["threads"])
    if rows > blank.rows:
        raise RecordError(f"in its 'winograd', its {illegal('block_rows', rows, Whole(1, blank.rows))}")
    return replace(blank, product=gemm_spec(read_part(own, "product"), blank.product.problem, fused))
