"""The wgmma kernel without a GPU: what is legal and why not, what records hold, what compiled code contains."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Attribute

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.gemm.problem import early_b
from aicf.backends.cuda.families.gemm.wgmma.codegen import emit
from aicf.backends.cuda.families.gemm.wgmma.kernel import WgmmaTf32Kernel, spec_of, task_of_launch
from aicf.backends.cuda.families.gemm.wgmma.schedule import (
    Spec,
    legal_specs,
    predicted_us,
    ranked_specs,
    registers,
    spec_reason,
)
from aicf.backends.cuda.families.records import integer, integers, read_integers
from aicf.backends.cuda.runtime.device_program import TensorMap
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit_types import TargetAttr
from aicf.errors import PlanError
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.sass import SPILLS, instructions, listing, starting
from tests.backends.cuda.wgmma_programs import KERNEL, TARGET, launch, task, work
from tests.support.record_checks import record_reason

ARCH = ARCHES["sm_90a"]

WORKS: dict[str, Workload] = {
    "square": work(4096, 4096, 4096),
    "small": work(128, 768, 3072, kind="gemm_epilogue", after="bias_residual"),
    "odd": work(77, 51, 72, kind="gemm_epilogue", after="bias_residual"),
    "gated": work(2048, 11008, 4096, kind="gemm_gated", after="gate"),
    "shared B": work(128, 768, 768, batch=(8,), batched_b=False, kind="gemm_multi", after="bias", products=3),
    "batched": work(128, 128, 64, batch=(8, 12), dtype="f16", result="f32"),
    "untransposed": work(256, 512, 264, transpose_b=False, transpose_a=True),
    "kept gelu": work(4096, 1024, 256, kind="gemm_epilogue", after="kept_gelu", b_role="temp"),
}


def rounded(m: int, n: int, k: int, **options: Any) -> Workload:
    """Products of f32 that may round their operands to TF32."""
    return replace(work(m, n, k, dtype="f32", **options), tf32=True)


def made(job: Workload, spec: Spec | None = None) -> KernelLaunch:
    """The one launch of `job`."""
    (found,) = emit(launch(job, spec))
    assert isinstance(found, KernelLaunch)
    return found


# What is legal


@pytest.mark.parametrize(
    ("job", "target", "reason"),
    [
        (work(64, 64, 64), "sm_80", "sm_90a"),
        (work(64, 64, 64, dtype="f32"), "sm_90a", "f16 and bf16"),
        (work(64, 64, 60), "sm_90a", "strides of whole 16 bytes"),
        (work(64, 60, 64, transpose_b=False), "sm_90a", "strides of whole 16 bytes"),
        (work(64, 64, 0), "sm_90a", "nothing to multiply"),
        (work(64, 64, 64, batch=(2, 2, 2, 2), batched_b=True), "sm_90a", "more than three batch dims"),
    ],
)
def test_illegal_work_is_refused_with_the_reason(job: Workload, target: str, reason: str) -> None:
    """The architecture, the element type and what bulk tensor copies cannot read."""
    found = KERNEL.legal(job, TargetAttr("cuda", target))
    assert found is not None and reason in found


def test_an_operand_at_an_odd_address_or_without_contiguous_dim_is_refused() -> None:
    """Copies start at multiples of 16 bytes and read lines of neighbours."""
    job = work(64, 64, 64)
    moved = replace(job, operands=(replace(job.operands[0], offset=4), job.operands[1]))
    assert "multiple of 16 bytes" in str(KERNEL.legal(moved, TARGET))
    spread = replace(job, operands=(replace(job.operands[0], strides=(256, 2)), job.operands[1]))
    assert "no contiguous dim" in str(KERNEL.legal(spread, TARGET))


def test_epilogues_on_integers_are_refused() -> None:
    """The message names the types that have code."""
    job = work(64, 64, 64, kind="gemm_epilogue", after="bias")
    mask = replace(job.operands[2], dtype="i32")
    assert "not i32" in str(KERNEL.legal(replace(job, operands=(*job.operands[:2], mask)), TARGET))


@pytest.mark.parametrize("name", WORKS)
def test_every_listed_spec_is_legal_and_fits_the_multiprocessor(name: str) -> None:
    """Shared memory, registers and the grid, for every variant that the tuner may try."""
    job = WORKS[name]
    assert KERNEL.legal(job, TARGET) is None
    listed = list(legal_specs(task(job), ARCH))
    assert len(set(listed)) == len(listed) >= 4
    for spec in listed:
        assert spec_reason(spec, task(job), ARCH) is None
        assert spec.shared_bytes(task(job)) <= ARCH.shared_bytes
        clusters = spec.clusters(task(job), ARCH)
        assert clusters > 0 and (spec.split_k > 1 or clusters * spec.cluster <= 132 * spec.blocks_per_sm)


def test_consumers_never_ask_for_registers_that_nobody_gives_up() -> None:
    """A warpgroup that wants more registers than its block has waits forever: the block must have them at its start,
    what the producer gives up included."""
    crowded = Spec(128, 64, 3, blocks_per_sm=2)
    assert "too few registers for 32 sums" in str(spec_reason(crowded, task(work(1024, 768, 768)), ARCH))
    specs = {spec for job in WORKS.values() for spec in legal_specs(task(job), ARCH)}
    assert any(spec.blocks_per_sm > 1 for spec in specs)
    for spec in specs:
        given = 65536 // spec.blocks_per_sm // spec.threads // 8 * 8 * spec.threads
        fewer, more = registers(spec) or (0, 0)
        assert 128 * (fewer + spec.consumers * more) <= given


@pytest.mark.parametrize("name", WORKS)
def test_records_hold_the_spec(name: str) -> None:
    """Every candidate's record gives its spec back, the first is the one that the prior takes, none repeats."""
    job = WORKS[name]
    ranked = ranked_specs(task(job), ARCH)
    records = KERNEL.variants(job, TARGET)
    assert [spec_of(record) for record in records] == ranked
    assert records[0] == KERNEL.record(job, TARGET)
    assert KERNEL.cost_us(job, TARGET) == min(predicted_us(spec, task(job), ARCH) for spec in ranked)


def test_a_record_without_a_tile_is_an_error() -> None:
    """Nothing is guessed."""
    record = KERNEL.record(work(64, 64, 64), TARGET)
    with pytest.raises(PlanError, match="lacks 'tile', legal: 2 values"):
        spec_of({name: value for name, value in record.items() if name != "tile"})
    with pytest.raises(PlanError, match=r"its 'ring' is \[4, 8\], legal: 3 values"):
        spec_of({**record, "ring": integers([4, 8])})


@pytest.mark.parametrize(
    ("entry", "value", "reason"),
    [
        ("grid", integers([133, 1, 1]), "its 'grid' is [133, 1, 1], legal: [132, 1, 1]"),
        ("grid", integers([0, 1, 1]), "its 'grid' is [0, 1, 1]"),
        ("cluster", integers([2, 1, 1]), "its 'cluster' is [2, 1, 1], legal: [1, 1, 1]"),
        ("shared_bytes", integer(1024), "its 'shared_bytes' is 1024"),
        ("shared_bytes", integer(1 << 20), "its 'shared_bytes' is 1048576"),
        ("early_reads", integers([0]), "its 'early_reads' is [0], legal: [1]"),
        ("tile", integers([128, 512]), "its 'tile[1]' is 512, legal: 64, 128, 192, 256"),
        ("ring", integers([8, 8, 1]), "KiB of shared memory a block"),
        ("ring", integers([4, 0, 1]), "its 'ring[1]' is 0, legal: 1 to 1024"),
        ("cluster_shape", integers([1, 16, 1]), "its 'cluster_shape[1]' is 16, legal: 1 to 8"),
        ("ring", integers([1, 8, 1]), "its 'ring[0]' is 1, legal: 2 to 8"),
        ("spare", integer(1), "it has an entry 'spare', which means nothing here"),
    ],
)
def test_an_edited_record_that_cannot_work_is_refused(entry: str, value: Attribute, reason: str) -> None:
    """The launch, and what is read early, have to be what the tile and the operands ask for."""
    job = work(4096, 4096, 4096)
    record = KERNEL.record_of(job, TARGET, Spec(128, 128, 4))
    assert record_reason(KERNEL, job, record, TARGET) is None
    assert reason in str(record_reason(KERNEL, job, {**record, entry: value}, TARGET))


def test_the_grid_of_the_record_is_the_one_that_is_launched() -> None:
    """A kernel whose blocks stay for several tiles runs with fewer of them, too: their step is that of the grid."""
    job = work(4096, 4096, 4096)
    record = {**KERNEL.record_of(job, TARGET, Spec(128, 128, 4)), "grid": integers([64, 1, 1])}
    assert record_reason(KERNEL, job, record, TARGET) is None
    (found,) = emit(launch_of(job, KERNEL.id, record))
    assert isinstance(found, KernelLaunch) and found.grid == (64, 1, 1)
    assert found.code.source != made(job, Spec(128, 128, 4)).code.source


def test_only_what_is_never_written_is_read_early() -> None:
    """A weight of an inference program is; one that a training step updates, an activation, or one of two is not."""
    assert early_b(work(64, 64, 64)) == (1,)
    assert early_b(work(64, 64, 64, b_role="temp")) == ()
    job = work(64, 64, 64)
    trained = replace(job, operands=(job.operands[0], replace(job.operands[1], updated=True)))
    assert early_b(trained) == ()
    gated = work(64, 64, 64, kind="gemm_gated", after="gate")
    assert early_b(gated) == (1, 2)
    half = replace(gated, operands=(*gated.operands[:2], replace(gated.operands[2], role="temp")))
    assert early_b(half) == ()


def test_no_address_is_fixed() -> None:
    """Maps are encoded again for another address; a residual may lie under the result."""
    assert "fixed_addresses" not in KERNEL.record(WORKS["shared B"], TARGET)
    record = KERNEL.record(WORKS["small"], TARGET)
    assert str(record["may_alias"]) == "[[0 : i64, 3 : i64]]"


def test_the_prior_spreads_small_products_over_the_multiprocessors() -> None:
    """A few rows are split along K, in a fixed order, until most multiprocessors have work."""
    record = KERNEL.record(WORKS["small"], TARGET)
    blocks = read_integers(record, "grid")[0]
    assert blocks >= 48
    order = str(record["combination_order"])
    split = record["split_k"]
    assert isinstance(split, IntegerAttr)
    assert ("parts of k" in order) == (split.value.data > 1)


# What is launched


def test_maps_describe_the_operands() -> None:
    """Innermost first: K, rows; then the batch dims that have a stride, whose boxes are 1."""
    found = made(work(128, 128, 64, batch=(8, 12)), Spec(128, 128, 2))
    a, b = (argument for argument in found.arguments if isinstance(argument, TensorMap))
    assert a.sizes == (64, 128, 12, 8) and a.strides == (128, 16384, 12 * 16384) and a.box == (64, 128, 1, 1)
    assert b.sizes == (64, 128, 12, 8) and b.swizzle == 128
    shared = made(work(128, 128, 64, batch=(8,), batched_b=False), Spec(128, 128, 2, 2, 1))
    a, b = (argument for argument in shared.arguments if isinstance(argument, TensorMap))
    assert a.sizes == (64, 1024) and b.box == (64, 64), "rows take the batch in, a share of B is half a tile"
    turned = made(work(256, 512, 264, transpose_b=False), Spec(128, 256, 4))
    _, b = (argument for argument in turned.arguments if isinstance(argument, TensorMap))
    assert b.sizes == (512, 264) and b.box == (64, 64)


def test_the_instruction_reads_as_the_work_did() -> None:
    """The task from the record and the buffers is the task from the work."""
    for job in WORKS.values():
        assert task_of_launch(launch(job)) == task(job)


def test_large_grids_stay_and_split_ones_do_not() -> None:
    """One block a multiprocessor takes tile after tile; a cluster that splits K does one tile."""
    assert made(WORKS["square"], Spec(128, 256, 4, 1, 2, band=16)).grid == (132, 1, 1)
    split = made(WORKS["small"], Spec(64, 64, 8, split_k=4))
    assert split.grid == (2 * 12 * 4, 1, 1) and split.cluster == (4, 1, 1)


# What the code contains

COMPILED = {
    "128x256": (
        work(4096, 4096, 4096, kind="gemm_epilogue", after="bias_relu"),
        Spec(128, 256, 4, 1, 2, band=16),
    ),
    "128x256 gated": (WORKS["gated"], Spec(128, 256, 4, 2, 1)),
    "64x64 split": (WORKS["small"], Spec(64, 64, 8, split_k=4)),
    "odd": (WORKS["odd"], Spec(64, 64, 2)),
    "untransposed": (WORKS["untransposed"], Spec(128, 128, 3, 2, 1)),
    "gelu": (work(512, 512, 512, kind="gemm_epilogue", after="bias_gelu", dtype="f16"), Spec(128, 128, 4)),
    "128x256 kept gelu": (WORKS["kept gelu"], Spec(128, 256, 4)),
}


@pytest.mark.parametrize("name", COMPILED)
def test_code_multiplies_by_warpgroups_and_copies_in_bulk(name: str) -> None:
    """Four products a stage, one wait after them with one group in flight, bulk copies, no spills, no global fence."""
    job, spec = COMPILED[name]
    found = made(job, spec)
    (cubin,) = compile_kernels([found.code], "sm_90a").values()
    assert cubin.stack_bytes == 0
    sass = "\n".join(listing(cubin))
    assert "HGMMA" in sass and "UTMALDG" in sass and "SYNCS" in sass
    assert ("UTMALDG.2D.MULTICAST" in sass) == (spec.sharers > 1)
    assert ("tnspB" in sass) == (name == "untransposed")
    assert not starting(instructions(cubin), SPILLS), "sums or addresses were spilled"
    assert re.search(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x1", sass), "products are not kept in flight"
    assert len(re.findall(r"HGMMA\.\S+", sass)) % 4 == 0
    assert ("USETMAXREG" in sass) == (spec.tile_n == 256)
    if name.startswith("128x256"):
        assert "STSM" in sass and re.search(r"STG\.E\.128", sass)


def test_an_epilogue_reads_its_operands_before_the_product_where_registers_last() -> None:
    """Bias and residual of a narrow tile wait in registers; beside the sums of a wide one only the bias has room."""
    for columns, held in ((64, {0, 1}), (256, {0})):
        job = work(512, 512, 512, kind="gemm_epilogue", after="bias_residual")
        found = made(job, Spec(128, columns, 4))
        (cubin,) = compile_kernels([found.code], "sm_90a").values()
        names = instructions(cubin)
        product = next(index for index, name in enumerate(names) if name.startswith("HGMMA"))
        loads = [index for index, name in enumerate(names) if name.startswith("LDG")]
        words = columns // 8 * sum(1 + extra for extra in held)
        assert sum(index < product for index in loads) == words
        assert all(index < product for index in loads) == (held == {0, 1})


# TF32

TF32 = WgmmaTf32Kernel()


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (rounded(100, 72, 68, batch=(3,)), None),
        (rounded(64, 64, 66), "needs strides of whole 16 bytes, A has [66] elements"),
        (rounded(64, 64, 64, transpose_b=False), "read lines along K, those of B run across"),
        (rounded(64, 64, 64, transpose_a=True), "read lines along K, those of A run across"),
        (replace(rounded(64, 64, 64), tf32=False), "the policy has not allowed that (tf32: true)"),
        (work(64, 64, 64), "only f32 is rounded to TF32, A is bf16"),
    ],
)
def test_tf32_is_multiplied_out_of_lines_along_k(job: Workload, reason: str | None) -> None:
    """Only halves are transposed on the way to the tensor cores."""
    found = TF32.legal(job, TARGET)
    assert found is None if reason is None else found is not None and reason in found


def test_copies_round_to_tf32() -> None:
    """The type of the maps says so; a stage is 32 elements of K, which four products take, 8 each."""
    job = rounded(256, 128, 512, kind="gemm_epilogue", after="bias_relu")
    record = TF32.record_of(job, TARGET, Spec(64, 64, 4))
    assert record["math"] == StringAttr("tf32") and "steps of 8" in str(record["combination_order"])
    (found,) = emit(launch_of(job, TF32.id, record))
    assert isinstance(found, KernelLaunch)
    a, b = (argument for argument in found.arguments if isinstance(argument, TensorMap))
    assert a.dtype == b.dtype == "tf32" and a.sizes == (512, 256) and a.strides == (2048,)
    assert a.box == b.box == (32, 64)
    cubin = compile_kernels([found.code], "sm_90a")[found.code.symbol]
    names = instructions(cubin)
    products = [name for name in names if name.startswith("HGMMA")]
    assert set(products) == {"HGMMA.64x64x8.F32.TF32"} and len(products) % 4 == 0
    assert cubin.stack_bytes == 0 and not starting(names, SPILLS)
