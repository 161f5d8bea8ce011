"""Kernel records of the CPU backend: decisions to attributes and back. Imports no code generator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FloatAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from aicf.backends.cpu.attention_spec import AttentionProblem, AttentionSpec, Share, padded_row
from aicf.backends.cpu.gemm_spec import BSource, GemmProblem, GemmSpec, Partition, check
from aicf.backends.cpu.loop_spec import LoopSpec
from aicf.backends.cpu.target import HALVES
from aicf.backends.nests import LoopNest, value_types
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.kinds import FLAGS
from aicf.errors import PlanError

Record = Mapping[str, Attribute]

GEMM_VERSION = 4
"""Of every kernel whose record holds what `gemm_record` gives; 2 brought panels in groups, prefetch, element, 3 the
blocks of sums of the rows in front, 4 pairs of short integers."""
ATTENTION_VERSION = 4
"""Of the kernels of attention, whose record holds two of those; 4 brought rows whose probabilities are NaN."""


@lru_cache(maxsize=4096, typed=True)
def integer(value: int) -> IntegerAttr:
    """An i64 attribute."""
    return IntegerAttr(value, i64)


def boolean(value: bool) -> Attribute:
    """An i1 attribute."""
    return FLAGS[value]


def pairs(entries: list[tuple[int, int]]) -> ArrayAttr[ArrayAttr[IntegerAttr]]:
    """``[[out, in], ...]``."""
    return ArrayAttr([ArrayAttr([integer(out), integer(in_)]) for out, in_ in entries])


def get_int(record: Record, key: str) -> int:
    """An integer entry. Raises PlanError if the record lacks it."""
    value = record.get(key)
    if not isinstance(value, IntegerAttr):
        raise PlanError(f"kernel record lacks the integer '{key}': run select-kernels again")
    return value.value.data


def get_bool(record: Record, key: str) -> bool:
    """A bool entry."""
    return bool(get_int(record, key))


def get_float(record: Record, key: str) -> float:
    """A number. Raises PlanError if the record lacks it."""
    value = record.get(key)
    if not isinstance(value, FloatAttr):
        raise PlanError(f"kernel record lacks the number '{key}': run select-kernels again")
    return value.value.data


def get_text(record: Record, key: str) -> str:
    """A string entry. Raises PlanError if the record lacks it."""
    value = record.get(key)
    if not isinstance(value, StringAttr):
        raise PlanError(f"kernel record lacks the string '{key}': run select-kernels again")
    return value.data


def gemm_record(spec: GemmSpec) -> dict[str, Attribute]:
    """Every decision about a GEMM."""
    return {
        "lanes": integer(spec.lanes),
        "tile_rows": integer(spec.mr),
        "tile_vectors": integer(spec.nv),
        "k_split": integer(spec.k_split),
        "k_unroll": integer(spec.k_unroll),
        "b_source": StringAttr(spec.b_source),
        "panel_group": integer(spec.group),
        "block_rows": integer(spec.mc),
        "partition": StringAttr(spec.partition),
        "threads": integer(spec.threads),
        "prefetch_lines": integer(spec.prefetch_lines),
        "prefetch_ahead": integer(spec.prefetch_ahead),
        "epilogue_from": StringAttr("tile buffer" if spec.tile_buffer else "registers"),
        "combination_order": StringAttr(spec.combination_order),
        **({"b_element": StringAttr(spec.b_element)} if spec.problem.b_element != spec.problem.dtype else {}),
        **({"pairs_of_k": boolean(True)} if spec.problem.pairs else {}),
    }


def gemm_spec(record: Record, problem: GemmProblem, fused: bool) -> GemmSpec:
    """The decisions of a record for `problem`. Raises PlanError if they contradict each other."""
    spec = GemmSpec(
        problem,
        lanes=get_int(record, "lanes"),
        mr=get_int(record, "tile_rows"),
        nv=get_int(record, "tile_vectors"),
        k_unroll=get_int(record, "k_unroll"),
        k_split=get_int(record, "k_split"),
        b_source=cast(BSource, one_of(record, "b_source", ("packed", "direct", "workspace"))),
        group=get_int(record, "panel_group"),
        mc=get_int(record, "block_rows"),
        partition=cast(Partition, one_of(record, "partition", ("none", "rows", "columns"))),
        threads=get_int(record, "threads"),
        fused=fused,
        prefetch_lines=get_int(record, "prefetch_lines"),
        prefetch_ahead=get_int(record, "prefetch_ahead"),
        tile_buffer=one_of(record, "epilogue_from", ("registers", "tile buffer")) == "tile buffer",
        b_panel_type=_panel_type(record, problem),
    )
    if ("pairs_of_k" in record) != problem.pairs:
        raise PlanError("kernel record of a GEMM is not that of its element types: run select-kernels again")
    if (problem_found := check(spec)) is not None:
        raise PlanError(
            f"kernel record of a GEMM contradicts itself: {problem_found}; run select-kernels again"
        )
    return spec


def _panel_type(record: Record, problem: GemmProblem) -> str:
    """Element type of packed panels, where it is not that of the multiplication."""
    if "b_element" not in record or get_text(record, "b_source") != "packed":
        return ""
    element = one_of(record, "b_element", (problem.b_element, problem.wide_element))
    return "" if element == problem.wide_element else element


def one_of(record: Record, key: str, legal: tuple[str, ...]) -> str:
    """A string entry that is one of a few. Raises PlanError if it is none of them."""
    value = get_text(record, key)
    if value not in legal:
        raise PlanError(f"kernel record: '{key}' must be one of {', '.join(legal)}, is '{value}'")
    return value


def attention_record(spec: AttentionSpec) -> dict[str, Attribute]:
    """Every decision about an attention."""
    return {
        "block_rows": integer(spec.block_rows),
        "scores": DictionaryAttr(gemm_record(spec.scores)),
        "output": DictionaryAttr(gemm_record(spec.output)),
        "share": StringAttr(spec.share),
        "threads": integer(spec.threads),
        "key_steps": integer(spec.key_steps),
        "workspace_bytes": integer(spec.workspace_bytes),
        "combination_order": StringAttr(spec.combination_order),
    }


def attention_spec(record: Record, problem: AttentionProblem, fused: bool) -> AttentionSpec:
    """The decisions of a record for `problem`. Raises PlanError if they contradict each other."""
    rows, threads = get_int(record, "block_rows"), get_int(record, "threads")
    share = cast(Share, one_of(record, "share", ("none", "batches", "rows")))
    scores = gemm_spec(get_record(record, "scores"), problem.scores(rows), fused)
    row = padded_row(problem.n, scores.lanes)
    output = gemm_spec(get_record(record, "output"), problem.output(rows, row), fused)
    steps = get_int(record, "key_steps")
    whole = share == "rows" or problem.past is None
    wrong_steps = steps < 1 or (whole and steps > 1)
    if rows < 1 or (share == "none") != (threads == 1) or scores.b_source != "packed" or wrong_steps:
        raise PlanError("kernel record of an attention contradicts itself: run select-kernels again")
    return AttentionSpec(problem, rows, scores, output, share, threads, steps)


def loop_record(spec: LoopSpec, nest: LoopNest) -> dict[str, Attribute]:
    """Every decision about the loops of a generated kernel."""
    return {
        "vector_dim": integer(spec.vector_dim),
        "lanes": integer(spec.lanes),
        "unroll": integer(spec.unroll),
        "threads": integer(spec.threads),
        "partition_dim": integer(spec.partition_dim),
        "combination_order": StringAttr(spec.combination_order(nest)),
        **({"sum_block": integer(spec.sum_block)} if nest.reduce_dims else {}),
        **rounding_record(nest.kernel, spec.rounding),
    }


def rounding_record(kernel: KernelOp | None, rounding: str) -> dict[str, Attribute]:
    """Where a scalar program rounds, if it has values of f16 or bf16; no others are rounded."""
    has_halves = kernel is not None and not value_types(kernel).isdisjoint(HALVES)
    return {"rounding": StringAttr(rounding)} if has_halves else {}


def read_rounding(record: Record) -> str:
    """`fused` or `strict`; `fused` for a program whose values are all as wide as their registers."""
    return one_of(record, "rounding", ("fused", "strict")) if "rounding" in record else "fused"


def loop_spec(record: Record, nest: LoopNest) -> LoopSpec:
    """The decisions of a record for `nest`. Raises PlanError if they do not fit it."""
    spec = LoopSpec(
        get_int(record, "vector_dim"),
        get_int(record, "lanes"),
        get_int(record, "unroll"),
        get_int(record, "threads"),
        get_int(record, "partition_dim"),
        read_rounding(record),
        get_int(record, "sum_block") if nest.reduce_dims else 0,
    )
    parallel = (-1, *nest.parallel_dims)
    if not -1 <= spec.vector_dim < len(nest.dims) or spec.partition_dim not in parallel or spec.unroll < 1:
        raise PlanError(
            "kernel record names loops that the generated kernel does not have: run select-kernels again"
        )
    if spec.sum_block < 0 or spec.sum_block == 1:
        raise PlanError("kernel record: 'sum_block' is 0 or at least 2: run select-kernels again")
    if spec.lanes < 1 or spec.lanes & (spec.lanes - 1) or (spec.threads == 1) != (spec.partition_dim == -1):
        raise PlanError("kernel record of a generated kernel contradicts itself: run select-kernels again")
    return spec


def get_record(record: Record, key: str) -> Record:
    """A dictionary. Raises PlanError if the record lacks it."""
    value = record.get(key)
    if not isinstance(value, DictionaryAttr):
        raise PlanError(f"kernel record lacks the entries '{key}': run select-kernels again")
    return value.data


def sub_records(record: Record, key: str) -> list[Record]:
    """An array of dictionaries. Raises PlanError if the record lacks it."""
    value = record.get(key)
    if not isinstance(value, ArrayAttr):
        raise PlanError(f"kernel record lacks the list '{key}': run select-kernels again")
    entries = cast("ArrayAttr[Attribute]", value).data
    return [entry.data for entry in entries if isinstance(entry, DictionaryAttr)]
