"""`cuda.gemm_skinny` without a GPU: the text of the kernel on a simulated one has the bits of `cuda.gemm_mma` whatever
the number of rows, what is legal and why not, what it is predicted to cost, and what its machine code contains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.families.gemm.mma import codegen as mma_code
from aicf.backends.cuda.families.gemm.mma.kernel import MmaKernel, MmaSpec
from aicf.backends.cuda.families.gemm.problem import problem_of_work
from aicf.backends.cuda.families.gemm.skinny import codegen as skinny_code
from aicf.backends.cuda.families.gemm.skinny.kernel import SkinnyKernel, spec_of
from aicf.backends.cuda.families.gemm.skinny.schedule import SkinnySpec, legal_specs, spec_reason
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit_types import TargetAttr
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.integer_simulator import names
from tests.backends.cuda.sass import SPILLS, opcodes, starting
from tests.backends.cuda.simulator import Memory, run
from tests.backends.cuda.wgmma_programs import work

TARGET, ARCH = TargetAttr("cuda", "sm_90a"), ARCHES["sm_90a"]
SKINNY, MMA = SkinnyKernel(), MmaKernel()
HALVES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
DTYPES = {**HALVES, "f32": np.dtype(np.float32)}
Array = np.ndarray


def launched(job: Workload, spec: SkinnySpec) -> KernelLaunch:
    """The launch of `job` by `spec`."""
    assert SKINNY.legal(job, TARGET) is None
    (launch,) = skinny_code.emit(launch_of(job, SKINNY.id, SKINNY.record_of(job, TARGET, spec)))
    return launch


WHOLE, SHARED = MmaSpec(64, 32, 32, 2, 2, 1, 2), MmaSpec(32, 32, 64, 1, 1, 4, 2)
"""Tiles of prompts, whose sums over k are whole, and such as four warps share."""


def of_many_rows(job: Workload, spec: MmaSpec = WHOLE) -> Sequence[KernelLaunch]:
    """The launches of `job` by `cuda.gemm_mma`."""
    record = MMA.record_of(job, TARGET, spec)
    return [one for one in mma_code.emit(launch_of(job, MMA.id, record)) if isinstance(one, KernelLaunch)]


def computed(job: Workload, launches: Sequence[KernelLaunch], ins: Sequence[Array]) -> list[Array]:
    """The results on the simulator; no element stays unwritten."""
    outs = [np.empty(each.shape, DTYPES[each.dtype]) for each in job.results]
    memory = Memory([each.nbytes for each in (*ins, *outs)])
    for base, each in enumerate(ins):
        memory.fill(base, each)
    run(launches, memory, names)
    found = range(len(ins), len(ins) + len(outs))
    assert all(memory.written[base].all() for base in found)
    return [
        memory.buffers[base].view(out.dtype).reshape(out.shape) for base, out in zip(found, outs, strict=True)
    ]


def drawn(job: Workload) -> list[Array]:
    """Random operands of `job`; the left one is the first rows of the same matrix whatever their number."""
    random = np.random.default_rng(7)
    (rows, k), *others = (each.shape for each in job.operands)
    x = random.standard_normal((64, k))[:rows]
    return [each.astype(DTYPES[job.operands[0].dtype]) for each in (x, *map(random.standard_normal, others))]


def product(rows: int, dtype: str = "bf16", n: int = 44, k: int = 344) -> Workload:
    """Columns that fill no block and a k that fills no stage; results as the sums are."""
    return work(rows, n, k, kind="gemm_epilogue", dtype=dtype, result="f32", after="bias")


SPECS = {
    1: SkinnySpec(8, 16, 64, 4),
    2: SkinnySpec(8, 32, 64, 8),
    8: SkinnySpec(8, 16, 64, 2),
    13: SkinnySpec(16, 32, 128, 2),
    16: SkinnySpec(16, 16, 256, 4),
    32: SkinnySpec(32, 64, 64, 4),
}
"""By the number of rows: one panel of x and several, rings that come around once and often, and not at all."""


@pytest.mark.parametrize("dtype", HALVES)
def test_rows_have_the_bits_of_a_prompt(dtype: str) -> None:
    """Whatever their number and the spec; and these are the product's, against float64. Another order has others."""
    prompt = product(40, dtype)
    ins = drawn(prompt)
    (expected,) = computed(prompt, of_many_rows(prompt), ins)
    x, weights, bias = (each.astype(np.float64) for each in ins)
    np.testing.assert_allclose(expected.astype(np.float64), x @ weights.T + bias, rtol=1e-5, atol=1e-4)
    assert computed(prompt, of_many_rows(prompt, SHARED), ins)[0].tobytes() != expected.tobytes()
    for rows, spec in SPECS.items():
        job = product(rows, dtype)
        (found,) = computed(job, [launched(job, spec)], drawn(job))
        assert found.tobytes() == expected[:rows].tobytes(), (rows, spec)


def test_gated_and_several_products_as_well() -> None:
    """Two accumulators of a warp, and blocks that choose their product."""
    for options in (
        {"kind": "gemm_gated", "after": "gate"},
        {"kind": "gemm_multi", "products": 2, "after": "bias"},
    ):
        job = work(3, 24, 136, dtype="f16", **options)
        ins = drawn(job)
        found = computed(job, [launched(job, SkinnySpec(8, 16, 64, 2))], ins)
        expected = computed(job, of_many_rows(job), ins)
        assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]


def test_its_order_is_that_of_many_rows() -> None:
    """So `select-kernels` may choose it for few rows where the batch must not show in the bits."""
    few, many = (replace(work(rows, 256, 512), batch_invariant=True) for rows in (4, 400))
    assert SKINNY.legal(many, TARGET) == "x has 400 rows, at most 32 are streamed past the weights"
    order = SKINNY.fixed_order(few, TARGET)
    assert order == MMA.fixed_order(few, TARGET) == MMA.fixed_order(many, TARGET)
    assert order == SKINNY.record(few, TARGET)["combination_order"].data


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (work(1, 8, 8), None),
        (work(32, 99, 1000, dtype="f16", kind="gemm_epilogue", after="bias_residual"), None),
        (work(4, 64, 64, dtype="f32"), "tensor cores multiply f16 and bf16"),
        (work(33, 64, 64), "at most 32"),
        (work(4, 64, 64, transpose_b=False), "copied along K"),
        (work(4, 64, 68), "no multiple of 16 bytes"),
        (work(4, 64, 64, batch=(3,)), "there are 3 matrices"),
    ],
)
def test_legality_says_why_not(job: Workload, reason: str | None) -> None:
    """What is legal here is legal for `cuda.gemm_mma`, too: the order of sums is there for any number of rows."""
    found = SKINNY.legal(job, TARGET)
    assert found is None if reason is None else found is not None and reason in found
    assert found is not None or MMA.legal(job, TARGET) is None


SHARED_KIB = {"sm_80": 163, "sm_86": 99, "sm_90a": 227}
"""Of a block at most."""


@pytest.mark.parametrize("arch", SHARED_KIB)
@pytest.mark.parametrize("rows", [1, 9, 32])
def test_every_spec_fits(arch: str, rows: int) -> None:
    """By the bytes of its launch, in what CUDA's programming guide says that a block may have; and a record gives its
    spec back."""
    job, target = work(rows, 4096, 14336, kind="gemm_gated", after="gate"), TargetAttr("cuda", arch)
    problem = problem_of_work(job)
    specs = list(legal_specs(problem, ARCHES[arch]))
    assert specs
    for spec in specs:
        record = SKINNY.record_of(job, target, spec)
        (launch,) = skinny_code.emit(launch_of(job, SKINNY.id, record))
        assert launch.shared_bytes == spec.shared_bytes(problem)
        assert 0 < launch.shared_bytes <= SHARED_KIB[arch] << 10
        assert spec_of(record) == spec
    assert "has room for 8" in str(spec_reason(SkinnySpec(8, 16, 64, 4), problem, ARCH)) or rows <= 8


@pytest.mark.parametrize(("n", "k"), [(6144, 4096), (4096, 4096), (4096, 14336), (2048, 2048), (2048, 8192)])
def test_its_price_for_few_rows_is_that_of_streaming(n: int, k: int) -> None:
    """Predicted for what Llama multiplies: within a microsecond or 2 % of what reading the weights takes at 90 % of the
    memory's speed; far below tiles of many rows, whose order it has."""
    job = work(8, n, k)
    price, streaming = SKINNY.cost_us(job, TARGET), 2 * n * k / (0.9 * ARCH.bandwidth_gbs * 1e3)
    assert streaming < price <= max(1.02 * streaming, streaming + 1)
    assert price < 0.8 * MMA.cost_us(replace(job, batch_invariant=True), TARGET)


@pytest.mark.parametrize("rows", [8, 16, 32])
def test_machine_code(rows: int) -> None:
    """Weights are copied asynchronously, before the wait for predecessors; nothing spills."""
    job = work(rows, 14336, 4096, kind="gemm_gated", after="gate")
    launch = launched(job, SKINNY.schedule(job, TARGET))
    ((_, cubin),) = compiled([launch])
    found = opcodes(cubin)
    assert found["HMMA"] >= 8 and found["LDSM"] >= 4 and found["LDGSTS"] >= 16
    assert cubin.stack_bytes == 0 and not starting(found, SPILLS)
    text = launch.code.source
    assert (
        text.index("copy_async16_or_zero")
        < text.index("wait_for_predecessors")
        < text.index("load_u32x4_or_zero")
    )
