"""`cuda.dequantize_blocks` without a GPU: widened rows bit for bit on simulated threads, its code, what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block

import aicf
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.blocks.widen.codegen import emit
from aicf.backends.cuda.families.blocks.widen.kernel import DequantizeBlocksKernel
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.dialects.emit_types import TargetAttr, contiguous_strides
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.integer_simulator import simulated
from tests.backends.cuda.sass import SPILLS, listing, names_of, starting
from tests.backends.cuda.simulator import Memory, run
from tests.support.blocks import random_rows

RNG = np.random.default_rng(227)
KERNEL, TARGET = DequantizeBlocksKernel(), TargetAttr("cuda", "sm_90a")
ROWS, COLUMNS = 5, 512


def work_of(scheme: str, rows: tuple[int, ...], columns: int) -> Workload:
    """Rows of blocks that are widened."""
    stored = BLOCK_SCHEMES[scheme]
    packed, wide = (*rows, columns // stored.length * stored.nbytes), (*rows, columns)
    return Workload(
        "w",
        "dequantize_blocks",
        {"scheme": StringAttr(scheme)},
        (OperandInfo("temp", packed, "u8", tuple(contiguous_strides(packed))),),
        (OperandInfo("temp", wide, "f32", tuple(contiguous_strides(wide))),),
        Block(),
        None,
    )


@pytest.mark.parametrize("scheme", BLOCK_SCHEMES)
def test_every_scheme(scheme: str) -> None:
    """Rows of two dims, the threads of the last block not all in use."""
    packed = random_rows(RNG, BLOCK_SCHEMES[scheme], ROWS * 2, COLUMNS)
    work = work_of(scheme, (ROWS, 2), COLUMNS)
    assert KERNEL.legal(work, TARGET) is None
    memory = Memory([packed.nbytes, 4 * ROWS * 2 * COLUMNS])
    memory.fill(0, packed)
    run(emit(launch_of(work, KERNEL.id, KERNEL.record(work, TARGET))), memory)
    found = memory.buffers[1].view(np.float32).reshape(-1, COLUMNS)
    np.testing.assert_array_equal(found, BLOCK_SCHEMES[scheme].rows(packed))


def test_a_gather_widens_the_rows_that_it_reads() -> None:
    """The rows of an embedding are gathered in blocks: what is widened has as many rows as there are indices."""
    packed = random_rows(RNG, BLOCK_SCHEMES["Q4_1"], 9, 64)
    g = aicf.Graph("rows")
    weight = g.dequantize_blocks(g.param("w", packed.shape, "u8"), "Q4_1")
    g.output(g.gather(weight, g.input("i", (3,), "i64")), "y")
    module = g.module()
    AicfInferencePass("cuda:sm_90a").apply(make_context(), module)
    assert '"cuda.dequantize_blocks"' in str(module)
    found = simulated(module, {"w": packed, "i": np.array([8, 0, -2])})["y"]
    np.testing.assert_array_equal(found, BLOCK_SCHEMES["Q4_1"].rows(packed[[8, 0, 7]]))


@pytest.mark.parametrize("scheme", ["Q4_0", "Q6_K"])
def test_machine_code(scheme: str) -> None:
    """Four elements are stored at once; nothing spills, and no f32 is rounded by a fused multiply-add."""
    work = work_of(scheme, (64,), 2048)
    (made,) = emit(launch_of(work, KERNEL.id, KERNEL.record(work, TARGET)))
    cubin = compile_kernels([made.code], "sm_90a")[made.code.symbol]
    names = names_of(listing(cubin))
    assert not starting(names, SPILLS) and cubin.stack_bytes == 0
    assert not starting(names, ("FFMA",))
    assert any(name.startswith("STG") and name.endswith(".128") for name in names)


def test_what_it_refuses() -> None:
    """Bytes of a row that lie apart, rows at odd bytes, and results that are not in sixteens of bytes."""
    work = work_of("Q4_0", (4,), 64)
    (packed,), (wide,) = work.operands, work.results
    odd = replace(work, operands=(replace(packed, offset=1),))
    assert "odd bytes" in (KERNEL.legal(odd, TARGET) or "")
    apart = replace(work, operands=(replace(packed, strides=(1, 4)),))
    assert "in one piece" in (KERNEL.legal(apart, TARGET) or "")
    narrow = replace(work, results=(replace(wide, strides=(66, 1)),))
    assert "16 bytes" in (KERNEL.legal(narrow, TARGET) or "")


def test_blocks_of_odd_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes are loaded at once, which then are at odd addresses in every second block."""
    monkeypatch.setitem(BLOCK_SCHEMES, "Q4_0", replace(BLOCK_SCHEMES["Q4_0"], nbytes=19))
    assert KERNEL.legal(work_of("Q4_0", (4,), 64), TARGET) == "blocks of Q4_0 have 19 bytes, an odd number"
