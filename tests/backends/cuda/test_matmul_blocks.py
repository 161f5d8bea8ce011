"""`cuda.matmul_blocks` without a GPU: products against float64 on simulated threads, bits that depend on nothing but a
row, machine code, decisions and refusals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Block

import aicf
from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.record import RecordError, integer
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.blocks.codegen import emit
from aicf.backends.cuda.families.blocks.kernel import MatmulBlocksKernel, problem_of, read_schedule
from aicf.backends.cuda.families.blocks.layout import TileLayout, tiles_layout
from aicf.backends.cuda.families.blocks.pack.codegen import emit as emit_pack
from aicf.backends.cuda.families.blocks.pack.kernel import PackBlocksKernel, pack_record
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.block_schemes import BLOCK_SCHEMES
from aicf.dialects.emit_types import TargetAttr, contiguous_strides
from aicf.errors import PlanError
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from tests.backends.cuda import attention_simulator, simulator
from tests.backends.cuda.integer_simulator import simulated
from tests.backends.cuda.sass import SPILLS, listing, names_of, starting
from tests.backends.cuda.simulator import Memory
from tests.support.blocks import random_rows, widened

RNG = np.random.default_rng(233)
KERNEL, TARGET, ARCH = MatmulBlocksKernel(), TargetAttr("cuda", "sm_90a"), ARCHES["sm_90a"]
UNIT, LEAST = 2.0**-23, 2.0**-100
"""Of f32 in relation to a number, and what is lost of results that are smaller by so much than any number of use."""

Array = np.ndarray


def work_of(scheme: str, m: int, n: int, k: int) -> Workload:
    """x of m rows times a weight of n rows and k columns."""
    stored = BLOCK_SCHEMES[scheme]
    return Workload(
        "w",
        "matmul_blocks",
        {"scheme": StringAttr(scheme)},
        (operand("temp", (m, k), "f32"), operand("param", (n, k // stored.length * stored.nbytes), "u8")),
        (operand("temp", (m, n), "f32"),),
        Block(),
        None,
    )


def operand(role: str, shape: Sequence[int], dtype: str) -> OperandInfo:
    return OperandInfo(role, tuple(shape), dtype, tuple(contiguous_strides(shape)))


def launched(work: Workload, record: Mapping[str, Attribute]) -> KernelLaunch:
    """The launch of a work; its operands and its result are buffers 0 to 2."""
    x, weight, result = (*work.operands, *work.results)
    layout = tiles_layout(problem_of(work).scheme, weight.shape)
    refs = [
        BufferRef(0, 0, x.shape, x.strides, "f32"),
        BufferRef(1, 0, weight.shape, weight.strides, "u8", layout),
        BufferRef(2, 0, result.shape, result.strides, "f32"),
    ]
    (made,) = emit(
        Launch("w", work.kind, KERNEL.id, record, (refs[0], refs[1]), (refs[2],), (), Block(), None, ())
    )
    return made


def in_tiles(scheme: str, packed: Array) -> Array:
    """The bytes of a weight in tiles, every one of them written."""
    layout, shape = tiles_layout(scheme, packed.shape), tuple(packed.shape)
    memory = Memory([packed.nbytes, TileLayout(scheme).nbytes(*shape)])
    memory.fill(0, packed)
    source = BufferRef(0, 0, shape, (shape[1], 1), "u8")
    target = BufferRef(1, 0, shape, (shape[1], 1), "u8", layout)
    record = pack_record(layout, shape, TARGET).record.data
    pack = Launch("p", "pack", PackBlocksKernel.id, record, (source,), (target,), (), Block(), None, ())
    simulator.run(emit_pack(pack), memory)
    assert memory.written[1].all()
    return memory.buffers[1]


def multiplied(
    work: Workload, tiles: Array, x: Array, record: Mapping[str, Attribute] | None = None
) -> Array:
    """The result on simulated threads."""
    shape = work.results[0].shape
    memory = Memory([x.nbytes, tiles.nbytes, 4 * shape[0] * shape[1]])
    memory.fill(0, x)
    memory.fill(1, tiles)
    made = launched(work, record or KERNEL.record(work, TARGET))
    simulator.run([made], memory, attention_simulator.names)
    assert memory.written[2].all()
    return memory.buffers[2].view(np.float32).reshape(shape)


def random_x(*sizes: int) -> Array:
    """Elements of magnitudes that differ from row to row."""
    x = RNG.standard_normal(sizes) * 10.0 ** RNG.integers(-4, 4, (*sizes[:-1], 1))
    return x.astype(np.float32)


def check(found: Array, x: Array, wide: Array) -> None:
    """Off by at most a few units of f32 in the sum of the magnitudes."""
    wanted = x.astype(np.float64) @ wide.T
    magnitude = np.abs(x).astype(np.float64) @ np.abs(wide).T
    assert (np.abs(found - wanted) <= 4 * UNIT * magnitude).all()


def in_a_program(scheme: str, packed: Array, x: Array) -> Array:
    """The product of a program, `@prepare` included."""
    g = aicf.Graph("product")
    weight = g.dequantize_blocks(g.param("w", packed.shape, "u8"), scheme)
    g.output(g.linear(g.input("x", x.shape), weight), "y")
    module = g.module()
    AicfInferencePass("cuda:sm_90a").apply(make_context(), module)
    assert '"cuda.matmul_blocks"' in str(module) and '"cuda.pack_blocks"' in str(module)
    run = partial(simulator.run, more=attention_simulator.names)
    return simulated(module, {"w": packed, "x": x}, run)["y"]


# What it computes


@pytest.mark.parametrize("scheme", BLOCK_SCHEMES)
def test_every_scheme(scheme: str) -> None:
    """Rows of the weight and columns of the last tile that are past the end; two groups of rows of x."""
    columns = max(96, 2 * BLOCK_SCHEMES[scheme].length)
    packed = random_rows(RNG, BLOCK_SCHEMES[scheme], 18, columns)
    x = random_x(5, columns)
    check(in_a_program(scheme, packed, x), x, widened(BLOCK_SCHEMES[scheme], packed))


def test_a_code_that_is_not_a_number_reaches_the_results_of_its_row() -> None:
    packed = random_rows(RNG, BLOCK_SCHEMES["E4M3_32"], 16, 64)
    packed[5, 36 + 4 + 19] = 0xFF
    found = in_a_program("E4M3_32", packed, random_x(2, 64))
    assert np.isnan(found[:, 5]).all() and np.isfinite(np.delete(found, 5, 1)).all()


def test_rows_of_several_dims() -> None:
    packed = random_rows(RNG, BLOCK_SCHEMES["Q5_1"], 16, 64)
    x = random_x(2, 1, 3, 64)
    found = in_a_program("Q5_1", packed, x)
    assert found.shape == (2, 1, 3, 16)
    check(found.reshape(6, 16), x.reshape(6, 64), widened(BLOCK_SCHEMES["Q5_1"], packed))


def test_bits_of_a_row_depend_on_nothing_else() -> None:
    """Neither on the number of rows, nor on how they are shared, nor on any decision that a tuner may take."""
    packed = random_rows(RNG, BLOCK_SCHEMES["Q4_1"], 34, 576)
    tiles, x = in_tiles("Q4_1", packed), random_x(5, 576)
    work = work_of("Q4_1", 5, 34, 576)
    wanted = multiplied(work, tiles, x)
    check(wanted, x, widened(BLOCK_SCHEMES["Q4_1"], packed))
    for rows in (1, 2):
        found = multiplied(work_of("Q4_1", rows, 34, 576), tiles, x[:rows])
        np.testing.assert_array_equal(found, wanted[:rows])
    chosen = KERNEL.schedule(work, TARGET)
    sliced = replace(chosen, tile_rows=2, unroll=1, slice_tiles=chosen.parts)
    assert sliced.slices(problem_of(work)) > 1 and sliced.row_blocks(problem_of(work)) == 3
    turns = replace(chosen, groups=1, rounds=3, unroll=2, ahead=2)
    records = [KERNEL.record_of(work, TARGET, each) for each in (sliced, turns)]
    for record in records:
        np.testing.assert_array_equal(multiplied(work, tiles, x, record), wanted)
    orders = {str(record["combination_order"]) for record in records}
    assert orders == {str(StringAttr(KERNEL.fixed_order(work, TARGET)))}


def test_edges_of_x() -> None:
    """Zeros, the largest and the smallest numbers; what is not finite reaches all results of its row alone."""
    largest = np.finfo(np.float32).max
    packed = random_rows(RNG, BLOCK_SCHEMES["Q4_0"], 16, 128)
    wide = widened(BLOCK_SCHEMES["Q4_0"], packed)
    x = np.zeros((6, 128), np.float32)
    x[1, 7], x[2] = 1e-3 * largest, 1e-37 * RNG.standard_normal(128)
    x[3, 40], x[4, 3] = np.inf, np.nan
    x[5], x[5, 9] = 1e-4 * RNG.standard_normal(128), 1e8
    y = multiplied(work_of("Q4_0", 6, 16, 128), in_tiles("Q4_0", packed), x)
    assert not y[0].any() and not np.isfinite(y[3:5]).any()
    finite = np.abs(wide[:, 7] * x[1, 7]) < largest
    assert finite.any()
    np.testing.assert_allclose(y[1][finite], (wide[:, 7] * x[1, 7])[finite], rtol=1e-6)
    assert (np.abs(y[2] - wide @ x[2].astype(np.float64)) <= LEAST).all()
    # One element is 10^12 times as large as the others. Of a code as of a weight of 0 it leaves what f32 rounds off.
    assert (np.abs(y[5] - x[5].astype(np.float64) @ wide.T) <= 4 * UNIT * 1e8 * np.abs(wide).max(1)).all()


# Machine code


@pytest.mark.parametrize(("scheme", "m", "most"), [("Q4_0", 1, 4.0), ("Q6_K", 12, 13.0)])
def test_machine_code(scheme: str, m: int, most: float) -> None:
    """Nothing spills; the weight is read 16 bytes at a time, before the wait; codes are never converted by themselves.
    Instructions of a lane for each weight, everything included, stay below what memory leaves time for: 128 lanes of
    each of 132 multiprocessors at 1.7 GHz are 5.4 for the weights of a Q4_0 at 3 TB/s."""
    n, k = 2048, 2048
    work = work_of(scheme, m, n, k)
    made = launched(work, KERNEL.record(work, TARGET))
    cubin = compile_kernels([made.code], ARCH.name)[made.code.symbol]
    lines = listing(cubin)
    names = names_of(lines)
    assert cubin.stack_bytes == 0 and not starting(names, SPILLS)
    wait = next(number for number, line in enumerate(lines) if "ACQBULK" in line)
    streamed = [number for number, line in enumerate(lines) if re.search(r"LDG\.E\.NA.*\.128", line)]
    assert streamed and streamed[0] < wait
    assert any(name.startswith("HMMA.16816.F32") for name in names)
    assert not starting(names, ("I2F",))
    assert len(lines) <= most * n * k / (made.grid[0] * made.code.threads)


# Decisions


def test_a_record_holds_every_decision() -> None:
    work = work_of("Q4_K", 16, 1024, 4096)
    record = KERNEL.record(work, TARGET)
    assert read_schedule(record) == KERNEL.schedule(work, TARGET)
    assert KERNEL.schedule(work, TARGET).early == (1,)
    variants = KERNEL.variants(work, TARGET)
    assert variants[0] == record and len({str(each) for each in variants}) == len(variants) > 1
    for each in variants:
        assert KERNEL.checked_record(work, each, TARGET) == each


SHAPES = ((1, 128256, 2048), (16, 2048, 8192), (64, 4096, 4096), (512, 576, 1536))
"""Rows of x, rows of the weight and columns of products of language models."""


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_90a"])
def test_schedules_of_models_can_be_carried_out(arch: str) -> None:
    target = TargetAttr("cuda", arch)
    for (m, n, k), scheme in product(SHAPES, BLOCK_SCHEMES):
        work = work_of(scheme, m, n, k)
        assert KERNEL.legal(work, target) is None
        assert KERNEL.schedule_reason(work, target, KERNEL.schedule(work, target)) is None


def test_many_rows_are_multiplied_with_the_widened_weight() -> None:
    """Where it is predicted to take less time: with TF32 and many rows, never with few."""
    few, many = (replace(work_of("Q4_0", m, 4096, 4096), tf32=True) for m in (16, 4096))
    assert KERNEL.cost_us(few, TARGET) < KERNEL.unfused_us(few, TARGET)
    assert KERNEL.cost_us(many, TARGET) > KERNEL.unfused_us(many, TARGET)
    g = aicf.Graph("many")
    weight = g.dequantize_blocks(g.param("w", (4096, 4096 // 32 * 18), "u8"), "Q4_0")
    g.output(g.linear(g.input("x", (4096, 4096)), weight), "y")
    module = g.module()
    AicfInferencePass("cuda:sm_90a", policy='{"tf32": true}').apply(make_context(), module)
    assert '"cuda.dequantize_blocks"' in str(module) and '"cuda.matmul_blocks"' not in str(module)
    assert "as a product with the widened weight" in str(module)


def test_what_it_refuses() -> None:
    work = work_of("Q4_0", 4, 32, 64)
    x, weight = work.operands
    given = replace(work, operands=(x, replace(weight, role="input")))
    assert "no parameter" in (KERNEL.legal(given, TARGET) or "")
    odd = replace(work, operands=(replace(x, strides=(66, 1)), weight))
    assert "multiple of 4 elements" in (KERNEL.legal(odd, TARGET) or "")
    chosen = replace(work, operands=(x, weight, operand("temp", (4,), "i64")))
    assert "an index chooses" in (KERNEL.legal(chosen, TARGET) or "")
    assert "131073 blocks, more than 65535" in (KERNEL.legal(work_of("Q4_0", 4194305, 32, 64), TARGET) or "")
    apart = replace(work, operands=(x, replace(weight, strides=(72, 1))))
    assert "in one piece" in (KERNEL.legal(apart, TARGET) or "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k_parts": 17}, "'k_parts' is 17, legal: 1 to 16"),
        ({"panel_groups": 16}, "16 panels of 16 warps each are more than 16 warps"),
        ({"slice_tiles": 9}, "'slice_tiles' is 9, no multiple"),
    ],
)
def test_records_that_were_edited_are_told(change: dict[str, int], message: str) -> None:
    work = work_of("Q4_0", 4, 512, 4096)
    record = KERNEL.record(work, TARGET) | {key: integer(value) for key, value in change.items()}
    with pytest.raises((RecordError, PlanError), match=message):
        KERNEL.checked_record(work, record, TARGET)
