"""`cuda.gemm_simt` without a GPU: what is legal, how operands are copied, what compiled code contains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.gemm.problem import problem_of_work
from aicf.backends.cuda.families.gemm.simt.codegen import emit, tile_copies
from aicf.backends.cuda.families.gemm.simt.kernel import SimtKernel, SimtSpec, legal_specs, spec_of
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.json_values import attribute_of
from aicf.dialects.types import element_named
from aicf.frontends.builder import Graph
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.sass import instructions, opcodes
from tests.backends.cuda.test_generated_programs import compiled as device_code
from tests.backends.cuda.test_generated_programs import simulated
from tests.backends.cuda.wgmma_programs import work
from tests.gpu import programs
from tests.support.random_graphs import run_program
from tests.support.record_checks import record_reason

TARGET = TargetAttr("cuda", "sm_90a")
KERNEL = SimtKernel()
LARGE = SimtSpec(128, 128, 16, 8, 8, 1, 3)
SMALL = SimtSpec(32, 32, 32, 4, 4, 4, 3)


def emitted(job: Workload, spec: SimtSpec, arch: str = "sm_90a"):
    """The launch of `job` by `spec` and its cubin."""
    target = TargetAttr("cuda", arch)
    assert KERNEL.legal(job, target) is None
    record = KERNEL.record_of(job, target, spec)
    (made,) = compiled(emit(launch_of(job, KERNEL.id, record)), arch)
    return made


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (work(540, 10, 64, kind="gemm_epilogue", dtype="f32", after="bias"), None),
        (work(3, 5, 7, kind="gemm", dtype="f64", transpose_a=True), None),
        (work(3, 5, 7, kind="gemm", dtype="i64"), None),
        (work(3, 5, 7, kind="gemm", dtype="u8"), None),
        (work(8, 8, 8, kind="gemm", dtype="f16"), "multiplies f32, f64, i32, i64, i16, i8, u8, A is f16"),
        (work(8, 8, 0, kind="gemm", dtype="f32"), "nothing to multiply"),
    ],
)
def test_legality_says_why_not(job: Workload, reason: str | None) -> None:
    """Any shape and orientation of the types is legal."""
    found = KERNEL.legal(job, TARGET)
    assert found is None if reason is None else found is not None and reason in found


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64", "i8"])
@pytest.mark.parametrize("layout", [(False, False), (True, True), (False, True)])
@pytest.mark.parametrize("shape", [(540, 128, 64), (33, 41, 20), (4096, 4096, 4096)])
def test_the_copies_of_every_spec_cover_the_tile_once(
    dtype: str, layout: tuple[bool, bool], shape: tuple[int, int, int]
) -> None:
    """Each element of a tile is copied by exactly one thread, whatever lies along k."""
    problem = problem_of_work(
        work(*shape, kind="gemm", dtype=dtype, transpose_a=layout[0], transpose_b=layout[1])
    )
    for spec in legal_specs(problem, ARCHES["sm_90a"]):
        tile = tile_copies(
            spec, problem, spec.bm, problem.m, problem.a_strides, problem.a_batch, problem.a_alignment
        )
        touched = [
            (row + (i * tile.step if tile.down_k else 0), offset + (0 if tile.down_k else i * tile.step) + e)
            for thread in range(spec.threads)
            if thread // tile.fast < tile.slow
            for again in range(tile.repeats)
            for row, offset in [
                (thread % tile.fast + again * tile.fast, thread // tile.fast)
                if tile.fast_along_k
                else (thread // tile.fast, thread % tile.fast * tile.elements)
            ]
            for i in range(tile.count)
            for e in range(tile.elements)
        ]
        assert sorted(touched) == [(k, m) for k in range(spec.bk) for m in range(spec.bm)]


def test_candidates_start_with_the_record_and_give_their_specs_back() -> None:
    """A tuning table finds a variant by the values of its entries, so all records have the same ones."""
    job = work(64, 128, 64, kind="gemm_epilogue", dtype="f32", after="bias_relu")
    found = KERNEL.variants(job, TARGET)
    assert found[0] == KERNEL.record(job, TARGET)
    assert all(record.keys() == found[0].keys() for record in found)
    assert len({spec_of(record) for record in found}) == len(found)


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_a_stage_has_at_most_16_steps_of_k_for_each_set_of_warps(depth: int) -> None:
    """Each step has code of its own: the bound is what keeps an edited record from asking for a program without end."""
    job = work(64, 128, 1024, kind="gemm", dtype="f32")
    spec = SimtSpec(32, 32, 16 * depth, 4, 4, depth, 2)
    for bk, reason in (
        (16, None),
        (32, "32 steps of k in a stage, each with code of its own, are more than 16"),
    ):
        record = KERNEL.record_of(job, TARGET, replace(spec, bk=bk * depth))
        found = record_reason(KERNEL, job, record, TARGET)
        assert found is None if reason is None else found is not None and found.startswith(reason)


@pytest.mark.parametrize(
    ("entry", "value", "reason"),
    [
        ("tile", [32, 16, 32], "its 'tile[1]' is 16, legal: 32, 64, 128, 256, 512, 1024"),
        ("tile", [48, 32, 32], "its 'tile[0]' is 48, legal: 16, 32, 64, 128, 256, 512, 1024"),
        ("tile", [32, 32, 1024], "its 'tile[2]' is 1024, legal: 8, 16, 32, 64, 128, 256, 512"),
        ("thread_tile", [4, 64], "its 'thread_tile[1]' is 64, legal: 4, 8, 16, 32"),
        ("depth", 3, "its 'depth' is 3, legal: 1, 2, 4, 8, 16, 32"),
        ("stages", 9, "its 'stages' is 9, legal: 2 to 8"),
        ("split_k", 16, "its 'split_k' is 16, legal: 1, 2, 4, 8"),
        ("tile_group", 1 << 31, "its 'tile_group' is 2147483648, legal: 1 to 1024"),
    ],
)
def test_a_number_that_no_product_has_is_refused(entry: str, value: object, reason: str) -> None:
    """Whatever the sizes: the entry is named, with its values."""
    job = work(64, 128, 1024, kind="gemm", dtype="f32")
    record = {**KERNEL.record_of(job, TARGET, SMALL), entry: attribute_of(value)}
    assert record_reason(KERNEL, job, record, TARGET) == reason


@pytest.mark.parametrize("transpose_b", [False, True])
def test_large_f32_is_fused_multiply_adds_without_spills(transpose_b: bool) -> None:
    """One FFMA per product and lane, four shared loads of 16 bytes per 64 of them, two blocks on a multiprocessor."""
    job = work(4096, 4096, 4096, kind="gemm", dtype="f32", transpose_b=transpose_b)
    launch, cubin = emitted(job, LARGE)
    found = opcodes(cubin)
    assert launch.grid == (1024, 1, 1)
    assert found["FFMA"] == 16 * 64 and found["LDGSTS"] > 0
    assert cubin.stack_bytes == 0 and cubin.registers <= 128


@pytest.mark.parametrize(("dtype", "opcode"), [("f64", "DFMA"), ("i32", "IMAD")])
def test_other_types_have_their_own_arithmetic(dtype: str, opcode: str) -> None:
    """The sums of f64 and i32 are made in their own type."""
    _, cubin = emitted(work(100, 70, 33, kind="gemm", dtype=dtype), SMALL)
    assert opcodes(cubin)[opcode] >= 128
    assert cubin.stack_bytes == 0


@pytest.mark.parametrize(
    "program",
    [
        partial(programs.product, "i8", 20, 24, 18, transpose="nt"),
        partial(programs.product, "i16", 20, 24, 18, (2,), transpose="tn"),
        partial(programs.integer_dense, "u8", 17, 21, 19),
        partial(programs.integer_dense, "i8", 17, 21, 19),
    ],
    ids=["rows", "columns", "u8-widened", "i8-widened"],
)
def test_short_integers_wrap_as_they_do_by_themselves(program: Callable[[], Graph]) -> None:
    """Random numbers of the whole range: what comes out, and what an epilogue reads, is the sum in its own type."""
    plan, unit = device_code(program().module())
    assert [launch.kernel for launch in unit.launches] == [KERNEL.id]
    rng = np.random.default_rng(7)
    inputs: dict[str, np.ndarray] = {}
    for bind in plan.graph.binds:
        if bind.role != "output":
            dtype = element_named(bind.dtype).dtype
            span = np.iinfo(dtype)
            inputs[bind.name] = rng.integers(span.min, span.max, bind.shape, dtype, endpoint=True)
    (wanted,) = run_program(program().module(), inputs).values()
    np.testing.assert_array_equal(simulated(plan, unit, inputs)["y"], wanted)


def test_short_integers_are_loaded_together_and_stored_without_spills() -> None:
    """All loads of a stage are under way before the first of them is stored."""
    _, cubin = emitted(work(256, 256, 256, kind="gemm", dtype="i8", transpose_b=True), LARGE)
    names = instructions(cubin)
    letters = {"LDG.E.S8": "l", "STS": "s"}
    events = "".join(mark for name in names for start, mark in letters.items() if name.startswith(start))
    assert "l" * 8 + "s" * 8 in events, events
    assert cubin.stack_bytes == 0 and cubin.registers <= 128


def test_a_cluster_adds_its_parts_in_order() -> None:
    """The blocks that share a tile are one cluster, and the record says how their sums combine."""
    job = work(64, 96, 1000, kind="gemm_epilogue", dtype="f32", after="bias")
    spec = SimtSpec(32, 32, 32, 4, 4, 4, 3, 4)
    launch, cubin = emitted(job, spec)
    assert launch.cluster == (1, 4, 1) and cubin.stack_bytes == 0
    order = str(KERNEL.record_of(job, TARGET, spec)["combination_order"])
    assert "4 sets of warps by turns, added in order; 4 ranges of k, added in ascending order" in order


def test_ampere_code_has_no_programmatic_waits() -> None:
    """griddepcontrol is Hopper's."""
    launch, cubin = emitted(
        work(540, 64, 128, kind="gemm_epilogue", dtype="f32", after="bias"), SMALL, "sm_80"
    )
    assert "wait_for_predecessors" not in launch.code.source and cubin.stack_bytes == 0
