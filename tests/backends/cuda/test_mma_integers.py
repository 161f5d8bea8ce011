"""`cuda.gemm_mma_int8` without a GPU: what is legal and why not, what records hold, what compiled code contains, and
what simulated threads compute."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, cast

import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr, StringAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.gemm.mma import kernel as mma
from aicf.backends.cuda.families.gemm.mma.codegen import emit
from aicf.backends.cuda.families.gemm.mma.kernel import MmaIntegerKernel, MmaSpec
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit_types import TargetAttr
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.plan_from_ir import code_units
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.integer_simulator import simulated
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.wgmma_programs import work
from tests.gpu.integers import AFTER, TYPES, integer_gated, integer_product, integer_projections, whole_range
from tests.gpu.programs import Array
from tests.support.random_graphs import run_program

TARGET = TargetAttr("cuda", "sm_90a")
KERNEL = MmaIntegerKernel()


def integers(
    m: int, n: int, k: int, types: tuple[str, str] = ("i8", "i8"), result: str = "i32", **options: Any
) -> Workload:
    """A product of 8-bit integers."""
    made = work(m, n, k, dtype=types[0], result=result, **options)
    a, b, *others = made.operands
    return replace(made, operands=(a, replace(b, dtype=types[1]), *others))


# What is legal


@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("arch", list(ARCHES))
def test_all_pairs_of_types_are_legal_on_every_architecture(types: tuple[str, str], arch: str) -> None:
    for shape in ((1, 8, 16), (16, 4096, 4096), (77, 99, 132), (4096, 4096, 4096)):
        assert KERNEL.legal(integers(*shape, types), TargetAttr("cuda", arch)) is None


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (work(64, 64, 64, dtype="f16"), "it multiplies i8 and u8, the operands are f16 and f16"),
        (integers(64, 64, 64, ("i16", "i8")), "the operands are i16 and i8"),
        (integers(64, 64, 64, result="i8"), "in i32, its sums are i8"),
        (integers(64, 64, 64, transpose_a=True), "A lies along M: transpose it first"),
        (
            integers(64, 64, 64, transpose_b=False, b_role="temp"),
            "B lies along N: give it as [N, K] with transpose_b, or as a parameter",
        ),
        (integers(64, 64, 63), "begin at multiples of 4 bytes, A has [63]"),
        (integers(8, 8, 0), "nothing to multiply"),
    ],
)
def test_legality_says_why_not(job: Workload, reason: str) -> None:
    assert reason in str(KERNEL.legal(job, TARGET))


def test_a_weight_along_n_is_packed() -> None:
    """Its lines are then of whole 16 bytes, whatever K."""
    record = KERNEL.record(integers(64, 96, 100, transpose_b=False), TARGET)
    layouts = cast("ArrayAttr[Attribute]", record["layouts"]).data
    assert [isinstance(layout, UnitAttr) for layout in layouts] == [True, False]
    assert "bytes = 10752" in str(layouts[1])
    assert "layouts" not in KERNEL.record(integers(64, 96, 100), TARGET)


def test_a_record_names_the_types_and_claims_any_order() -> None:
    """Sums of integers are exact: those of a batch are what they are alone, by any tile and split."""
    job = integers(64, 512, 4096, ("u8", "i8"))
    record = KERNEL.record(job, TARGET)
    assert record["math"] == StringAttr("u8_i8")
    assert "exact" in str(record["combination_order"])
    fixed = replace(job, batch_invariant=True)
    assert KERNEL.fixed_order(fixed, TARGET) == "any: sums of integers are exact"
    assert len(KERNEL.variants(fixed, TARGET)) == len(KERNEL.variants(job, TARGET))


def test_large_products_are_predicted_to_take_half_the_time_of_halves() -> None:
    """Twice the rate, half the bytes."""
    halves = mma.MmaKernel().cost_us(work(4096, 4096, 4096, dtype="f16"), TARGET)
    assert 0.45 < KERNEL.cost_us(integers(4096, 4096, 4096), TARGET) / halves < 0.6


# What compiled code contains


def emitted(job: Workload, spec: MmaSpec, arch: str = "sm_90a"):
    """The launches of `job` by `spec`, compiled for `arch`."""
    target = TargetAttr("cuda", arch)
    assert KERNEL.legal(job, target) is None
    return compiled(emit(launch_of(job, KERNEL.id, KERNEL.record_of(job, target, spec))), arch)


@pytest.mark.parametrize("types", TYPES)
def test_tensor_cores_multiply_32_integers_at_a_time(types: tuple[str, str]) -> None:
    ((launch, cubin),) = emitted(integers(256, 256, 1024, types), MmaSpec(128, 128, 128, 2, 2, 1, 3))
    names = instructions(cubin)
    a, b = (each.replace("i", "s").upper() for each in types)
    steps, tiles = 128 // 32, 4 * 8
    assert launch.code.name == f"gemm_mma_{types[0]}_{types[1]}_128x128x128"
    assert sum(name.startswith(f"IMMA.16832.{a}.{b}") for name in names) == steps * tiles
    assert sum(name.startswith("LDSM") for name in names) == steps * 8
    assert cubin.stack_bytes == 0 and not starting(names, SPILLS)


def test_a_split_is_added_in_i32() -> None:
    """In a cluster, and through a workspace on Ampere."""
    job = integers(64, 96, 1024)
    ((launch, cubin),) = emitted(job, MmaSpec(64, 32, 64, 2, 1, 2, 3, 4, "cluster"))
    assert launch.cluster == (1, 4, 1) and cubin.stack_bytes == 0
    assert not starting(instructions(cubin), ("FADD",))
    parts = emitted(job, MmaSpec(64, 32, 64, 2, 2, 1, 3, 4, "workspace"), "sm_80")
    assert [each.code.name for each, _ in parts] == ["gemm_mma_i8_i8_64x32x64", "add_parts"]
    assert not any(starting(instructions(each), ("FADD",)) for _, each in parts)


# What simulated threads compute


def _pick_any_spec(seed: int, patch: pytest.MonkeyPatch) -> None:
    """Lets the family prefer a spec that `seed` draws."""
    ranked, source = mma.ranked_specs, random.Random(seed)

    @cache
    def drawn_first(*arguments: Any) -> tuple[tuple[float, MmaSpec], ...]:
        found = ranked(*arguments)
        first = source.choice(found)
        return first, *(each for each in found if each is not first)

    patch.setattr(mma.MmaIntegerKernel, "ranked", staticmethod(drawn_first))


def assert_multiplied(graph: Graph, name: str, kind: str = "gemm") -> None:
    """Runs a program on simulated threads, its product by this kernel, and holds it to the semantics."""
    program = whole_range(graph, name)
    wanted: dict[str, Array] = run_program(program.module, program.arrays, "typed")
    kernels = dict.fromkeys(("gemm", "gemm_epilogue", "gemm_multi", "gemm_gated"), KERNEL.id)
    policy = json.dumps({"kernels": kernels})
    AicfInferencePass("cuda:sm_90a", policy=policy).apply(make_context(), program.module)
    launches = [launch for unit in code_units(program.module) for launch in unit.launches]
    kinds = {launch.kind for launch in launches if launch.kernel == KERNEL.id}
    assert kinds <= {kind, f"{kind}_epilogue"} and kinds
    found = simulated(program.module, dict(program.arrays))
    for output, exact in wanted.items():
        if exact.dtype.kind == "f":
            np.testing.assert_allclose(
                found[output].astype(np.float64), exact.astype(np.float64), rtol=2e-3, atol=1e-3
            )
        else:
            np.testing.assert_array_equal(found[output], exact)


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(16))
def test_any_spec_multiplies_anything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random sizes, types, orders of B and epilogues by random specs: no access reaches out of an operand."""
    _pick_any_spec(seed, monkeypatch)
    source = random.Random(seed)
    sizes = source.randint(1, 70), source.randint(1, 70), 4 * source.randint(1, 60)
    after = source.choice(sorted(AFTER))
    batch = source.choice(((), (), (2,)))
    graph = integer_product(TYPES[seed % 4], *sizes, after, batch, transpose_b=source.random() < 0.5)
    assert_multiplied(graph, f"integers {seed}")


@pytest.mark.parametrize("types", TYPES)
def test_sums_are_those_of_numpy(types: tuple[str, str]) -> None:
    """Bytes of the whole range, odd sizes."""
    program = whole_range(integer_product(types, 37, 29, 84), f"numpy {types}")
    a, b = (program.arrays[name].astype(np.int64) for name in "ab")
    policy = json.dumps({"kernels": {"gemm": KERNEL.id}})
    AicfInferencePass("cuda:sm_90a", policy=policy).apply(make_context(), program.module)
    np.testing.assert_array_equal(simulated(program.module, dict(program.arrays))["y"], a @ b.T)


@pytest.mark.parametrize(
    ("graph", "kind"), [(integer_gated, "gemm_gated"), (integer_projections, "gemm_multi")]
)
def test_products_that_share_an_operand_are_one_instruction(graph: Callable[..., Graph], kind: str) -> None:
    """Their weights are packed side by side."""
    made = graph(("u8", "i8"), 40, 36, 64)
    assert_multiplied(made, kind, kind)
