"""Cases of whole models, of policies, of batches and of random programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

from aicf.frontends.builder import Graph
from aicf.policies.kernel_policy import Fusion
from tests.gpu import programs
from tests.gpu.case_table.case import (
    ATTENTION,
    ATTENTION_SIMT,
    CONCAT,
    DROPPING,
    GEMV,
    GENERATED,
    MMA,
    SIMT,
    WGMMA,
    WGMMA_SUMS,
    Case,
    program_of,
)
from tests.gpu.case_table.variants import variant_cases
from tests.gpu.programs import Program, random_arrays
from tests.support.fused_graphs import FAMILIES, fused_program
from tests.support.multi_output_programs import built as several
from tests.support.random_graphs import random_program


def multi_output_cases() -> dict[str, Case]:
    """One kernel with several results, of the whole space and of one element a row: pointwise, rows in registers, rows
    that are read again, columns, running sums; sums of columns beside rows of a warp and of a block."""
    shapes = {"f32": (64, 1024), "f16": (33, 100), "bf16": (3, 40000)}
    sums = {"f32": (4096, 768), "f16": (16388, 332), "bf16": (2048, 4096), "f64": (5000, 77)}
    names = ("activation", "softmax_and_sum", "largest", "columns", "loss", "running")
    table = {(name, dtype): shape for name in names for dtype, shape in shapes.items()}
    table |= {("norm_gradients", dtype): shape for dtype, shape in sums.items()}
    products = {"f16": (1000, 328), "bf16": (4096, 768)}
    return {
        f"multi-linear_gradients-{dtype}": Case(
            program_of(
                f"multi-linear_gradients-{dtype}", partial(several, "linear_gradients", *shape, dtype)
            ),
            (WGMMA_SUMS,),
            {"kernels": {"gemm_sums": WGMMA_SUMS}},
            depth=4,
        )
        for dtype, shape in products.items()
    } | {
        f"multi-{name}-{dtype}": Case(
            program_of(f"multi-{name}-{dtype}", partial(several, name, *shape, dtype)), (GENERATED,), depth=4
        )
        for (name, dtype), shape in table.items()
    }


def model_cases() -> dict[str, Case]:
    """Models in small, as the compiler likes to run them."""
    chain, encoder = programs.chain, programs.encoder
    return {
        "chain-1": Case(program_of("chain-1", partial(chain, "f16", 1)), (GEMV,), depth=4),
        "chain-64": Case(program_of("chain-64", partial(chain, "f16", 64)), (), depth=4),
        "chain-f32": Case(program_of("chain-f32", partial(chain, "f32", 48, 1, 64, 128)), (SIMT,), depth=4),
        "encoder-f16": Case(
            program_of("encoder-f16", partial(encoder, "f16", 2, 64, 2, 64)), (ATTENTION,), depth=4
        ),
        "encoder-bf16": Case(
            program_of("encoder-bf16", partial(encoder, "bf16", 1, 33, 2, 32)), (ATTENTION,), depth=4
        ),
        "encoder-f32": Case(
            program_of("encoder-f32", partial(encoder, "f32", 1, 24, 2, 16)), (ATTENTION_SIMT,), depth=4
        ),
    }


def single_program_cases() -> dict[str, Case]:
    """Code for Hopper without its `a` features: no warpgroup products, but programmatic launch and clusters."""
    some = {**model_cases(), **variant_cases()}
    names = ("chain-1", "encoder-f16", "mma-split-cluster", "simt-split")
    return {f"plain-{name}": replace(some[name], target="cuda:sm_90") for name in names}


WARPGROUPS = {"one": WGMMA, "two": WGMMA, "rows0": WGMMA}
"""Of the products that are written next to each other."""


def policy_cases() -> dict[str, Case]:
    """What a user may ask for: branches side by side, a rounding after each operation, no fusion."""
    encoder = partial(programs.encoder, "f16", 2, 64, 2, 64)
    unfused = dict.fromkeys((entry.name for entry in fields(Fusion)), False)
    table: dict[str, tuple[Callable[[], Graph], tuple[str, ...], dict[str, Any]]] = {
        "encoder-streams": (encoder, (ATTENTION,), {"streams": 3, "fusion": {"horizontal": False}}),
        "encoder-unfused": (encoder, (MMA, GENERATED), {"fusion": unfused}),
        "concats-streams": (
            partial(programs.concats, "f16"),
            (GENERATED, WGMMA),
            {"streams": 3, "kernels": WARPGROUPS},
        ),
        "concats-mma": (
            partial(programs.concats, "f16"),
            (GENERATED, MMA),
            {"kernels": dict.fromkeys(WARPGROUPS, MMA)},
        ),
        "concats-copied": (
            partial(programs.concats, "f16"),
            (GENERATED, CONCAT),
            {"fusion": {"concat": False}},
        ),
        "norms-strict": (partial(programs.norms, "f16"), (GENERATED,), {"rounding": "strict"}),
        "pitched": (
            partial(programs.pitched, "bf16"),
            (WGMMA, GENERATED),
            {
                "layouts": {"scores": "pitched", "likely": "pitched"},
                "fusion": {"attention": False, "norm": False, "prologue": False},
            },
        ),
    }
    return {
        name: Case(program_of(name, build), kernels, policy, depth=4)
        for name, (build, kernels, policy) in table.items()
    }


BATCHES = (1, 8, 33)
"""Of the cases whose rows may not depend on it."""

IN_BATCHES: dict[str, Callable[[int], Graph]] = {
    "chain": lambda batch: programs.chain("f16", batch, 1),
    "encoder": lambda batch: programs.encoder("f16", batch, 32, 2, 32),
    "scalar": lambda batch: programs.encoder("f32", batch, 24, 2, 16),
    "wide": lambda batch: programs.encoder("f16", batch, 150, 2, 64),
}
"""Models by what they are in the names of cases, as functions of the batch."""


def batch_cases() -> dict[str, Case]:
    """The class `batch_invariant`: one model in batches that all begin with the same rows."""
    policy = {"determinism": "batch_invariant"}
    return {
        f"batch-{name}-{batch}": Case(partial(_batch, name, batch), (), policy, depth=4)
        for name in IN_BATCHES
        for batch in BATCHES
    }


def _batch(name: str, batch: int) -> Program:
    arrays = random_arrays(IN_BATCHES[name](max(BATCHES)).module(), f"batch-{name}")
    return Program(IN_BATCHES[name](batch).module(), {**arrays, "x": arrays["x"][:batch]})


def random_cases() -> dict[str, Case]:
    """Random programs over all operations, and random ones of the forms that passes fuse."""
    cases: dict[str, Case] = {}
    for dtype, seeds in (("f32", (0, 1, 2)), ("f16", (3, 4)), ("bf16", (5,)), ("f64", (6,))):
        for seed in seeds:
            cases[f"random-{dtype}-{seed}"] = Case(
                partial(_random_program, dtype, seed), (), depth=4, options=DROPPING
            )
    for seed, family in enumerate(FAMILIES):
        for dtype in ("f32", "f16"):
            cases[f"fused-{family}-{dtype}"] = Case(partial(_fused_program, family, seed, dtype), (), depth=4)
    return cases


def _random_program(dtype: str, seed: int) -> Program:
    made = random_program(seed, float_type=dtype)
    return Program(made.module, made.inputs)


def _fused_program(family: str, seed: int, dtype: str) -> Program:
    made = fused_program(family, seed, dtype)
    return Program(made.module, made.inputs)
