"""Cases of generated kernels: every operation and element type, reads and writes at computed indices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.frontends.builder import Graph
from tests.gpu import programs
from tests.gpu.case_table.case import (
    CONCAT,
    COPY,
    DEQUANTIZE_BLOCKS,
    DROPPING,
    GENERATED,
    LAST_UPDATE,
    MATMUL_BLOCKS,
    NON_MAX_SUPPRESSION,
    POOL,
    SCATTER,
    SCATTER_SORTED,
    TOPK,
    WRITE_ROW,
    Case,
    program_of,
)
from tests.gpu.programs import Program, random_arrays
from tests.support.blocks import random_rows
from tests.support.indexing_programs import LARGE, PROGRAMS, READS, built
from tests.support.random_programs import random_numbers


def generated_cases() -> dict[str, Case]:
    """Generated kernels: every operation and element type."""
    table: dict[str, tuple[Callable[[str], Graph], tuple[str, ...], tuple[str, ...]]] = {
        "float_operations": (programs.float_operations, ("f32",), (GENERATED,)),
        "summed_operations": (programs.summed_operations, ("f16", "bf16", "f64"), (GENERATED,)),
        "integer_operations": (programs.integer_operations, ("i64", "i32", "i16", "i8", "u8"), (GENERATED,)),
        "angles": (programs.angles, ("f32", "f64"), (GENERATED,)),
        "bool_operations": (programs.bool_operations, ("i1",), (GENERATED, COPY, CONCAT)),
        "broadcasting": (programs.broadcasting, ("f32", "f16"), (GENERATED,)),
        "row_reductions": (programs.row_reductions, ("f32", "f16", "bf16"), (GENERATED,)),
        "concats": (programs.concats, ("f32", "f16", "bf16"), (GENERATED,)),
        "many_classes": (programs.many_classes, ("f32", "bf16"), (GENERATED,)),
        "many_blocks": (programs.many_blocks, ("f32", "f16"), (GENERATED,)),
        "norms": (programs.norms, ("f32", "f16", "bf16"), (GENERATED,)),
        "column_reductions": (programs.column_reductions, ("f32", "f16"), (GENERATED,)),
        "batch_norms": (programs.batch_norms, ("f32", "f16", "bf16", "f64"), (GENERATED,)),
        "integer_reductions": (programs.integer_reductions, ("i32", "i16", "u8"), (GENERATED,)),
        "other_reductions": (
            programs.other_reductions,
            ("f32", "f16", "bf16", "f64", "i32", "i64"),
            (GENERATED,),
        ),
        "places": (programs.indexing, ("f32", "f16", "i64", "i8"), (GENERATED,)),
        "running_sums": (
            programs.running_sums,
            ("f32", "f16", "bf16", "f64", "i64", "i32", "i8"),
            (GENERATED,),
        ),
        "truths": (programs.truths, ("i1",), (GENERATED,)),
        "other_norms": (programs.other_norms, ("f32", "f16", "bf16", "f64"), (GENERATED,)),
        "long_rows": (programs.long_rows, ("f32", "f16"), (GENERATED,)),
        "pooling": (programs.pooling, ("f32", "f16", "bf16", "f64"), (POOL, GENERATED)),
        "padded_pooling": (programs.padded_pooling, ("f32", "f16", "bf16", "i8"), (POOL,)),
        "padded_windows": (programs.padded_pooling, ("f32", "f16", "bf16", "i8"), (GENERATED,)),
        "recurrent": (programs.recurrent, ("f32", "f64"), (GENERATED,)),
        "detection": (programs.detection, ("f32", "f64"), (NON_MAX_SUPPRESSION,)),
        "moves": (programs.moves, ("f32", "bf16", "i64", "i16", "u8"), (COPY, CONCAT)),
        "convolutions": (programs.convolutions, ("f32", "f16"), ()),
        "philox": (random_numbers, ("f32", "f16", "bf16", "f64"), (GENERATED,)),
        "losses": (programs.losses, ("f32", "f16", "bf16", "f64"), (GENERATED,)),
        "counters": (programs.counters, ("f32", "f64"), (GENERATED,)),
        "clipping": (programs.clipping, ("f32", "f64"), (GENERATED,)),
    }
    as_arithmetic = {"forbid": [MATMUL_BLOCKS, DEQUANTIZE_BLOCKS]}
    cases = {"packed_weights-f32": Case(_packed_weights, (GENERATED,), as_arithmetic, depth=4)}
    for family, (build, dtypes, kernels) in table.items():
        for dtype in dtypes:
            name = f"{family}-{dtype}"
            options = DROPPING if family == "philox" else {}
            policy = {"forbid": [POOL]} if family == "padded_windows" else {}
            cases[name] = Case(program_of(name, partial(build, dtype)), kernels, policy, options=options)
    cases["rounded_weights-f32"] = Case(_rounded_weights, (GENERATED,), depth=4)
    return cases


def indexing_cases() -> dict[str, Case]:
    """Reads and writes at places that are computed, with indices in range and out of it."""
    tiles = {"kernels": {"scatter_combine": SCATTER}}
    cases = {"places-rows": Case(_rows_written, (SCATTER, LAST_UPDATE), tiles, depth=4)}
    writes = {"kernels": {"written": WRITE_ROW, "each": WRITE_ROW}}
    cases["places-write_row"] = Case(_rows_written, (WRITE_ROW,), writes, depth=4)
    for name in PROGRAMS:
        dtypes = ("f32", "f16") if name in READS else ("f32",)
        kernels = (TOPK,) if name.startswith("topk") else ()
        for dtype in dtypes:
            cases[f"places-{name}-{dtype}"] = Case(partial(_indexing_program, name, dtype), kernels, depth=4)
    for kernel, pairs in SCATTERS.items():
        policy = {"kernels": {"scatter_combine": kernel}}
        for name, dtype in pairs:
            make = partial(_indexing_program, name, dtype)
            cases[f"places-{KERNEL_NAMES[kernel]}-{name}-{dtype}"] = Case(make, (kernel,), policy, depth=4)
    cases["places-topk-long"] = Case(partial(_indexing_program, "topk-long", "f32"), (TOPK,))
    return cases


_COMBINED = (
    *(("scatter-add", dtype) for dtype in ("f32", "f16", "bf16", "f64", "i64")),
    *((name, "f32") for name in ("scatter-max", "scatter-scalars", "scatter-turned")),
)
SCATTERS = {SCATTER_SORTED: (*_COMBINED, ("scatter-many", "f32")), SCATTER: _COMBINED}
"""Programs that are told how to scatter, by name and type."""
KERNEL_NAMES = {SCATTER_SORTED: "sorted", SCATTER: "tiles"}


def _rows_written() -> Program:
    module = programs.rows_written()
    return Program(module, random_arrays(module, "rows"))


def _packed_weights() -> Program:
    """Scales of the blocks are finite."""
    random, module = np.random.default_rng(101), programs.packed_weights()
    weights = {
        name: random_rows(random, BLOCK_SCHEMES[scheme], rows, 512)
        for name, scheme, rows in (("w", "Q4_0", 37), ("k", "Q6_K", 3))
    }
    return Program(module, {**random_arrays(module, "packed"), **weights})


def _rounded_weights() -> Program:
    """Elements between two steps, not near the middle, where the last bit of a quotient would decide."""
    random, module = np.random.default_rng(103), programs.rounded_weights()
    x = random.integers(-126, 127, (5, 16, 32)) + random.uniform(-0.4, 0.4, (5, 16, 32))
    x[:, :, 3] = 127
    steps = 2.0 ** random.integers(-9, 5, (5, 16, 1))
    packed = random_rows(random, BLOCK_SCHEMES["Q4_0"], 37, 512)
    return Program(module, {"x": (x * steps).reshape(5, 512).astype(np.float32), "w": packed})


def _indexing_program(name: str, dtype: str) -> Program:
    made = built({**PROGRAMS, **LARGE}[name], dtype)
    return Program(made.graph.module(), made.arrays)
