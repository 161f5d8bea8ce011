"""`cuda.gemm_mma` and `cuda.gemm_mma_tf32` without a GPU: what is legal and why not, what records hold, what compiled
code contains."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.gemm.mma.codegen import emit, tile_geometry
from aicf.backends.cuda.families.gemm.mma.kernel import (
    MmaKernel,
    MmaSpec,
    MmaTf32Kernel,
    legal_specs,
    spec_of,
    spec_reason,
)
from aicf.backends.cuda.families.gemm.problem import problem_of_work
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit_types import TargetAttr
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.sass import SPILLS, instructions, opcodes, starting
from tests.backends.cuda.wgmma_programs import work

TARGET = TargetAttr("cuda", "sm_90a")
AMPERE = TargetAttr("cuda", "sm_80")
KERNEL = MmaKernel()
TF32 = MmaTf32Kernel()
ARCH = ARCHES["sm_90a"]


def emitted(job: Workload, spec: MmaSpec, target: TargetAttr = TARGET, kernel: MmaKernel = KERNEL):
    """The launches of `job` by `spec`, compiled for `target`."""
    assert kernel.legal(job, target) is None
    record = kernel.record_of(job, target, spec)
    return compiled(emit(launch_of(job, kernel.id, record)), target.arch.data)


def rounded(m: int, n: int, k: int, **options: Any) -> Workload:
    """Products of f32 that may round their operands to TF32."""
    return replace(work(m, n, k, dtype="f32", **options), tf32=True)


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (work(128, 768, 768, kind="gemm"), None),
        (work(1, 1, 1, kind="gemm", dtype="f16"), None),
        (work(77, 99, 133, kind="gemm", dtype="f16", transpose_a=True, transpose_b=False), None),
        (work(128, 768, 768, kind="gemm_multi", products=3, after="bias"), None),
        (work(8, 8, 8, kind="gemm", dtype="f32"), "tensor cores multiply f16 and bf16"),
        (work(8, 8, 0, kind="gemm"), "nothing to multiply"),
        (work(8, 8, 8, kind="gemm", batch=(70000,)), "70000 matrices are more than a grid has room for"),
    ],
)
def test_legality_says_why_not(job: Workload, reason: str | None) -> None:
    """Any shape and orientation of f16 and bf16 is legal; everything else is refused in words."""
    found = KERNEL.legal(job, TARGET)
    assert found is None if reason is None else found is not None and reason in found


def test_products_of_several_b_must_be_alike() -> None:
    """One tile serves all B operands, so they have one shape, one layout and one type."""
    job = work(64, 64, 64, kind="gemm_multi", products=2, dtype="f16")
    other = replace(job.operands[2], strides=(1, 64))
    mixed = replace(job, operands=(job.operands[0], job.operands[1], other))
    assert "B operands differ" in str(KERNEL.legal(mixed, TARGET))


@pytest.mark.parametrize("arch", list(ARCHES))
@pytest.mark.parametrize("shape", [(1, 8, 8), (128, 768, 3072), (540, 10, 64), (4096, 4096, 4096)])
def test_every_proposed_spec_fits(arch: str, shape: tuple[int, int, int]) -> None:
    """Specs fit shared memory, cover k, and have clusters only where the architecture does."""
    problem = problem_of_work(work(*shape, kind="gemm", dtype="f16"))
    found = list(legal_specs(problem, ARCHES[arch]))
    assert found
    for spec in found:
        assert spec.shared_bytes(problem) <= ARCHES[arch].shared_bytes
        assert spec.split * spec.loops(problem) * spec.bk >= problem.k
        assert spec.through != "cluster" or ARCHES[arch].has_clusters


def test_candidates_start_with_the_record_and_have_its_entries() -> None:
    """A tuning table finds a variant by the values of its entries, so all records have the same ones."""
    job = work(128, 768, 768, kind="gemm_epilogue", dtype="f16", after="bias")
    found = KERNEL.variants(job, TARGET)
    assert found[0] == KERNEL.record(job, TARGET)
    assert all(record.keys() == found[0].keys() for record in found)
    assert len({str(record) for record in found}) == len(found)


def test_a_record_gives_its_spec_back() -> None:
    """What the code generator reads is what was decided."""
    job = work(128, 768, 3072, kind="gemm", dtype="f16")
    spec = MmaSpec(64, 64, 64, 2, 2, 1, 4, 4, "cluster", 2)
    record = KERNEL.record_of(job, TARGET, spec)
    assert spec_of(record) == spec
    assert "4 ranges of k, added in ascending order" in str(record["combination_order"])
    assert isinstance(record["rounding"], StringAttr)


def test_only_weights_are_read_early() -> None:
    """A B operand that an earlier kernel may write is not read before the programmatic wait."""

    def early(role: str) -> list[int]:
        record = KERNEL.record(work(64, 64, 64, kind="gemm", b_role=role), TARGET)
        entries = record["early_reads"]
        assert isinstance(entries, ArrayAttr)
        return [entry.value.data for entry in entries if isinstance(entry, IntegerAttr)]

    assert early("param") == [1]
    assert early("temp") == []
    assert "early_reads" not in KERNEL.record(work(64, 64, 64, kind="gemm"), AMPERE)


@pytest.mark.parametrize(
    ("strides", "alignment", "width"),
    [
        ((64, 1), 16, 16),
        ((1, 72), 16, 16),
        ((68, 1), 16, 8),
        ((66, 1), 16, 4),
        ((65, 1), 16, 2),
        ((64, 1), 4, 4),
    ],
)
def test_copies_are_as_wide_as_rows_are_aligned(strides: tuple[int, int], alignment: int, width: int) -> None:
    """16 bytes where every row starts at a multiple of 16, narrower ones else, single elements last."""
    assert tile_geometry(64, 64, strides, (), alignment, (64, 64), 64, 128, 2, 4).width == width


@pytest.mark.parametrize("size", [16, 32, 48, 64, 96, 128])
def test_words_of_a_fragment_lie_in_different_banks(size: int) -> None:
    """A warp reads 8 neighbours of f32 in 4 rows at once, from any 8 of a row and from rows 0 or 4 on."""
    tile = tile_geometry(128, 64, (1, 128), (), 16, (size, 64), 64, 128, size // 16, 8, 4)
    assert tile.words and tile.chunks == size // 4
    for row, column in itertools.product((0, 4), range(0, size, 8)):
        banks: set[int] = set()
        for t, g in itertools.product(range(4), range(8)):
            turn = ((row + t) >> tile.shift) & tile.mask
            chunk = (column + g) // 4 ^ turn << 1
            assert chunk < tile.chunks
            banks.add(((row + t) * tile.chunks + chunk) * 4 + g % 4 & 31)
        assert len(banks) == 32


@pytest.mark.parametrize("size", [16, 32, 48, 64, 96, 128])
def test_no_two_rows_of_eight_share_a_bank(size: int) -> None:
    """ldmatrix reads the same chunk of 8 rows at once: after the permutation they lie in 8 different bank groups."""
    tile = tile_geometry(128, 64, (1, 128), (), 16, (size, 64), 64, 128, 2, 4)
    assert tile.chunks == size // 8
    for chunk in range(tile.chunks):
        slots = [row * tile.chunks + (chunk ^ ((row >> tile.shift) & tile.mask)) for row in range(8)]
        assert len({slot % 8 for slot in slots}) == 8
        assert len({slot // tile.chunks for slot in slots}) == 8


def test_bias_and_residual_through_a_cluster() -> None:
    """Weights are copied asynchronously before the wait; tensor cores multiply; nothing spills."""
    job = work(128, 768, 768, kind="gemm_epilogue", dtype="f16", transpose_b=False, after="bias_residual")
    ((launch, cubin),) = emitted(job, MmaSpec(64, 64, 64, 2, 2, 1, 4, 4, "cluster"))
    found = opcodes(cubin)
    assert launch.grid == (24, 4, 1) and launch.cluster == (1, 4, 1)
    assert cubin.stack_bytes == 0 and cubin.registers <= 128
    assert found["HMMA"] >= 32 and found["LDSM"] >= 16 and found["LDGSTS"] >= 16
    assert not starting(found, SPILLS)


def test_a_workspace_split_is_two_launches_on_ampere() -> None:
    """Without clusters the parts meet in a workspace, and a second launch adds them."""
    job = work(64, 96, 1024, kind="gemm_epilogue", dtype="f16", after="bias_gelu")
    parts = emitted(job, MmaSpec(64, 32, 32, 2, 2, 1, 3, 4, "workspace"), AMPERE)
    assert [launch.code.name for launch, _ in parts] == ["gemm_mma_f16_64x32x32", "add_parts"]
    assert all(cubin.stack_bytes == 0 for _, cubin in parts)
    assert not any("wait_for_predecessors" in launch.code.source for launch, _ in parts)


def test_unaligned_rows_and_edges_compile() -> None:
    """Odd sizes take single elements through registers, in the same kernel."""
    job = work(77, 99, 133, kind="gemm", dtype="bf16", transpose_a=True, transpose_b=False)
    ((_, cubin),) = emitted(job, MmaSpec(32, 64, 32, 1, 2, 2, 3))
    found = opcodes(cubin)
    assert found["LDGSTS"] == 0 and found["LDG"] > 0 and cubin.stack_bytes == 0


def test_gated_products_share_one_a() -> None:
    """Two accumulators, one pass over A."""
    job = work(128, 256, 256, kind="gemm_gated", dtype="bf16", after="gate")
    ((_, cubin),) = emitted(job, MmaSpec(64, 64, 64, 2, 2, 1, 3))
    assert opcodes(cubin)["HMMA"] == 64
    assert cubin.stack_bytes == 0


def test_several_products_choose_their_operands_by_block() -> None:
    """One launch, the third grid dim tells which B, bias and result."""
    job = work(128, 768, 768, kind="gemm_multi", dtype="f16", products=3, after="bias")
    ((launch, cubin),) = emitted(job, MmaSpec(128, 32, 64, 4, 1, 1, 4))
    assert launch.grid == (24, 1, 3) and len(launch.arguments) == 10 and cubin.stack_bytes == 0


def test_a_tile_that_does_not_fit_says_so() -> None:
    """Reasons name the number that is too large."""
    problem = problem_of_work(work(128, 128, 4096, kind="gemm", dtype="f16"))
    assert "KiB of shared memory" in str(spec_reason(MmaSpec(128, 128, 64, 2, 4, 1, 8), problem, ARCH))
    assert "does not divide over its warps" in str(
        spec_reason(MmaSpec(24, 64, 64, 1, 2, 1, 3), problem, ARCH)
    )
    assert "2048 threads are more" in str(spec_reason(MmaSpec(16, 16, 1024, 1, 1, 64, 2), problem, ARCH))
    assert "16 steps of k" in str(spec_reason(MmaSpec(16, 16, 256, 1, 1, 1, 2), problem, ARCH))
    assert "too short" in str(spec_reason(MmaSpec(64, 64, 64, 2, 2, 1, 3, 80, "workspace"), problem, ARCH))


# TF32


def test_tf32_is_for_the_policy_to_allow() -> None:
    """Never by default, and only of f32."""
    job = rounded(64, 64, 64)
    assert TF32.legal(job, TARGET) is None
    assert "the policy has not allowed that (tf32: true)" in str(TF32.legal(replace(job, tf32=False), TARGET))
    assert "only f32 is rounded to TF32, A is f16" in str(TF32.legal(work(64, 64, 64, dtype="f16"), TARGET))


def test_a_record_of_tf32_says_so() -> None:
    """And those of other types say nothing of it."""
    record = TF32.record(rounded(64, 512, 784), TARGET)
    assert record["math"] == StringAttr("tf32")
    assert "steps of 8" in str(record["combination_order"])
    assert "math" not in KERNEL.record(work(64, 512, 784, dtype="f16"), TARGET)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_operands_are_rounded_before_they_are_multiplied(transpose_a: bool, transpose_b: bool) -> None:
    """As `cvt.rna` rounds: half of the last place is added where a number is finite, and the rest cut off. ldmatrix
    reads what lies along k, words are read where it cannot transpose."""
    job = rounded(
        64, 64, 32, transpose_a=transpose_a, transpose_b=transpose_b, after="bias", kind="gemm_epilogue"
    )
    ((launch, cubin),) = emitted(job, MmaSpec(32, 32, 32, 2, 2, 1, 2), kernel=TF32)
    for operand in "ab":
        assert re.search(rf"rounded_tf32\(\w*{operand}_part\)", launch.code.source)
    names = instructions(cubin)
    steps, tiles = 4, 2  # of a warp: in k, and 8 columns of 16 rows each
    assert names.count("HMMA.1688.F32.TF32") == steps * tiles
    assert sum(name.startswith("HMMA") for name in names) == steps * tiles
    assert sum(name.startswith("FSETP") for name in names) >= steps * (4 + 2 * tiles)
    along = [not transpose_a, transpose_b]
    assert sum(name.startswith("LDSM") for name in names) == steps * sum(along)
    words = (not along[0]) * 4 + (not along[1]) * 2 * tiles
    assert 0 <= names.count("LDS") - steps * words < 4  # the end of the tile reads some
    assert cubin.stack_bytes == 0 and not starting(names, SPILLS)


def test_a_split_of_tf32_meets_in_a_cluster_or_a_workspace() -> None:
    """Parts are f32, as those of other types."""
    job = rounded(64, 128, 512, kind="gemm_epilogue", after="bias", transpose_b=False)
    ((launch, _),) = emitted(job, MmaSpec(32, 32, 64, 1, 1, 4, 2, 4, "cluster"), kernel=TF32)
    assert launch.cluster == (1, 4, 1)
    parts = emitted(job, MmaSpec(32, 32, 64, 1, 1, 4, 2, 4, "workspace"), AMPERE, TF32)
    assert [each.code.name for each, _ in parts] == ["gemm_mma_tf32_32x32x64", "add_parts"]


@pytest.mark.parametrize(
    ("strides", "alignment", "width"),
    [((64, 1), 16, 16), ((66, 1), 16, 8), ((65, 1), 16, 4), ((2, 128), 16, 4), ((64, 1), 8, 8)],
)
def test_elements_of_f32_are_copied_asynchronously_whatever_their_strides(
    strides: tuple[int, int], alignment: int, width: int
) -> None:
    """One element is 4 bytes, the least that a copy takes: none goes through registers."""
    tile = tile_geometry(64, 64, strides, (), alignment, (64, 32), 64, 128, 2, 4, 4)
    assert tile.width == width
