"""Products beside which an operand is summed, without a GPU: refusals, records, values (simulated), machine code."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import BoolAttr, StringAttr
from xdsl.ir import Block

from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.gemm.wgmma.codegen import emit
from aicf.backends.cuda.families.gemm.wgmma.kernel import WgmmaKernel, WgmmaSumsKernel
from aicf.backends.cuda.families.gemm.wgmma.schedule import Spec
from aicf.dialects.types import element_named
from tests.backends.cuda import wgmma_simulator
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.sass import ATOMICS, SPILLS, instructions, starting
from tests.backends.cuda.simulator import Memory
from tests.backends.cuda.wgmma_programs import TARGET, contiguous

KERNEL = WgmmaSumsKernel()


def gradient(
    m: int, n: int, k: int, summed: str, *, dtype: str = "bf16", sums_first: bool = True
) -> Workload:
    """a.T @ b of [k, m] and [k, n], and the sum of a or b over k."""
    shapes = [(k, m), (k, n)]
    results = [(m if summed == "a" else n,), (m, n)]
    operands = tuple(OperandInfo("temp", shape, dtype, contiguous(shape)) for shape in shapes)
    outs = tuple(OperandInfo("temp", shape, dtype, contiguous(shape)) for shape in results)
    attrs = {
        "transpose_a": BoolAttr.from_bool(True),
        "transpose_b": BoolAttr.from_bool(False),
        "summed": StringAttr(summed),
    }
    return Workload(
        "gradient", "gemm_sums", attrs, operands, outs if sums_first else outs[::-1], Block(), None
    )


@pytest.mark.parametrize(
    ("job", "spec"),
    [
        (gradient(136, 72, 100, "a"), Spec(128, 64, 2)),
        (gradient(72, 200, 200, "b", sums_first=False), Spec(64, 192, 3)),
        (gradient(128, 328, 136, "b", dtype="f16"), Spec(128, 192, 2)),
        (gradient(264, 136, 64, "a", dtype="f16"), Spec(64, 128, 2, cluster_m=2)),
    ],
)
def test_values(job: Workload, spec: Spec) -> None:
    """Both operands, both types, tiles that a matrix does not fill, blocks that copy for each other."""
    assert KERNEL.legal(job, TARGET) is None
    record = KERNEL.record_of(job, TARGET, spec)
    launch = launch_of(job, KERNEL.id, record)
    dtype = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}[job.operands[0].dtype]
    random = np.random.default_rng(job.operands[0].shape[0])
    a, b = (random.standard_normal(each.shape).astype(dtype) for each in job.operands)
    infos = (*job.operands, *job.results)
    memory = Memory([2 * int(np.prod(each.shape)) for each in infos])
    memory.fill(0, a)
    memory.fill(1, b)
    wgmma_simulator.run(emit(launch), memory)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    total = (wide_a if record["summed"] == StringAttr("a") else wide_b).sum(0)
    for number, info in enumerate(job.results, 2):
        assert memory.written[number].all()
        found = memory.buffers[number].view(element_named(info.dtype).dtype).reshape(info.shape)
        wanted = total if len(info.shape) == 1 else wide_a.T @ wide_b
        step = 2.0**-8 if dtype is ml_dtypes.bfloat16 else 2.0**-11
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=step, atol=1e-4)


def test_refusals() -> None:
    """Sums along lines of K, and results that are stored one by one."""
    across = gradient(128, 64, 128, "b")
    along = replace(
        across,
        operands=(across.operands[0], OperandInfo("temp", (64, 128), "bf16", (128, 1))),
        attrs={**across.attrs, "transpose_b": BoolAttr.from_bool(True)},
    )
    assert "lines run across K" in str(KERNEL.legal(along, TARGET))
    wide = replace(across, results=(across.results[0], OperandInfo("temp", (128, 64), "f32", (64, 1))))
    assert "lines of 16 bytes" in str(KERNEL.legal(wide, TARGET))


def test_what_it_costs() -> None:
    """More than the product, and less than that and another reading of the operand."""
    job = gradient(3072, 768, 4096, "a")
    product = replace(job, kind="gemm", results=job.results[1:])
    alone = WgmmaKernel().cost_us(product, TARGET)
    assert alone < KERNEL.cost_us(job, TARGET) < alone + 2 * 3072 * 4096 / 3.35e6


@pytest.mark.parametrize(("m", "n", "summed"), [(3072, 768, "a"), (768, 3072, "b")])
def test_machine_code(m: int, n: int, summed: str) -> None:
    """Vectors out of shared memory beside the products, which stay in flight: awaited once in the loop and once
    after it. No atomics, no registers in memory."""
    job = gradient(m, n, 4096, summed)
    ((_, cubin),) = compiled(emit(launch_of(job, KERNEL.id, KERNEL.record(job, TARGET))))
    names = instructions(cubin)
    assert not starting(names, ATOMICS + SPILLS)
    assert starting(names, ("HGMMA",)) and "LDS.128" in names
    assert names.count("WARPGROUP.DEPBAR.LE") == 2
