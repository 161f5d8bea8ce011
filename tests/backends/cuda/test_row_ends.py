"""Rows that vectors do not fill, and sums of exponentials in one sweep: what is decided, what the code computes
(simulated), what the machine code holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from aicf.backends.base import BufferRef
from aicf.backends.common.loop_nest import LoopNest, nest_of
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.loops.choice import choose
from aicf.backends.cuda.families.loops.codegen import launches_of
from aicf.backends.cuda.families.loops.costs import cost_us
from aicf.backends.cuda.families.loops.exponential_sums import exponential_sum_of
from aicf.backends.cuda.families.loops.kernel import read_spec, spec_record
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec, partial_bytes
from aicf.backends.cuda.target import ELEMENT_BYTES
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.types import element_named
from tests.backends.cpu.kernels_text import counting, layer_norm, parse_kernel, reduction, softmax
from tests.backends.cuda.sass import ATOMICS, SPILLS, instructions, starting
from tests.backends.cuda.simulator import Memory, run
from tests.backends.cuda.test_generated import ARCH, Shape, close, data, recorded, softmax_of

ROWS, ONLINE = "rows", "online_rows"
LEAST = f"%l = arith.constant {float(np.finfo(np.float32).min)!r} : f32"


def nest_on(kernel: KernelOp, strides: Sequence[tuple[int, ...]], dtypes: Sequence[str]) -> LoopNest:
    return nest_of(kernel, list(strides), list(dtypes))


def simulated(
    kernel: KernelOp,
    shapes: Sequence[Shape],
    dtypes: Sequence[str],
    spec: GeneratedSpec,
    pitch: int | None = None,
    first: int = 0,
    given: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Inputs and outputs of a kernel; matrices have a row every `pitch` elements and begin at element `first`."""
    strides = [(pitch or shape[1], 1) if len(shape) == 2 else (1,) for shape in shapes]
    nest = nest_on(kernel, strides, dtypes)
    assert spec.problem(nest) is None
    sizes, refs, arrays = list[int](), list[BufferRef](), list[np.ndarray]()
    for number, (shape, step, dtype) in enumerate(zip(shapes, strides, dtypes, strict=True)):
        element, start = ELEMENT_BYTES[dtype], first if len(shape) == 2 else 0
        sizes.append(element * (start + shape[0] * step[0]))
        refs.append(BufferRef(number, start * element, shape, step, dtype))
        arrays.append(given if given is not None and number == 0 else data(shape, dtype, number))
    workspace = []
    if spec.splits > 1:
        sizes.append(partial_bytes(nest, spec))
        workspace = [BufferRef(len(refs), 0, (sizes[-1],), (1,), "i1")]
    memory = Memory(sizes)

    def view(number: int, of: Sequence[np.ndarray]) -> np.ndarray:
        """The elements of an operand, seen in bytes of its buffer, [rows, columns, bytes]."""
        element, shape = ELEMENT_BYTES[dtypes[number]], shapes[number]
        steps = tuple(element * step for step in strides[number])
        whole = of[number][refs[number].offset :]
        return np.lib.stride_tricks.as_strided(whole, (*shape, element), (*steps, 1))

    for number in range(nest.inputs):
        raw = np.ascontiguousarray(arrays[number]).view(np.uint8).reshape(*shapes[number], -1)
        view(number, memory.buffers)[...] = raw
        view(number, memory.written)[...] = True
    run(launches_of("k", nest, recorded(nest, spec), refs, workspace), memory)
    for number in range(nest.inputs, len(shapes)):
        assert view(number, memory.written).all(), "an element of an output was not written"
        assert memory.written[number].sum() == np.prod(shapes[number]) * ELEMENT_BYTES[dtypes[number]]
        raw = np.ascontiguousarray(view(number, memory.buffers))
        arrays[number] = raw.view(element_named(dtypes[number]).dtype).reshape(shapes[number])
    return arrays


# Values


@pytest.mark.parametrize("columns", [2, 7, 129, 300, 517])
@pytest.mark.parametrize(("pitch", "first"), [(0, 0), (0, 3), (3, 1), (8, 0)])
@pytest.mark.parametrize("strategy", [ROWS, ONLINE])
def test_softmax_of_any_rows(strategy: str, columns: int, pitch: int, first: int) -> None:
    """Every alignment of the first element and of the rows, with gaps and without; fewer elements than a vector."""
    step = columns if pitch == 0 else -(-columns // pitch) * pitch
    spec = GeneratedSpec(strategy, 4, 64, 64, 2, 1)
    x, y = simulated(softmax(3, columns), [(3, columns)] * 2, ["f32"] * 2, spec, step, first)
    close(y, softmax_of(x), 1e-6)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "f32"])
@pytest.mark.parametrize("splits", [1, 3])
def test_softmax_of_every_type(dtype: str, splits: int) -> None:
    """By one block, or by several of which the first has what is beside the vectors."""
    spec = GeneratedSpec(ROWS, 16 // ELEMENT_BYTES[dtype], 64, 64, 2, splits)
    x, y = simulated(softmax(2, 1203, dtype), [(2, 1203)] * 2, [dtype] * 2, spec)
    close(y, softmax_of(x), {"f16": 2e-3, "bf16": 1e-2, "f64": 1e-14}.get(dtype, 1e-6))


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize("columns", [129, 3, 77])
def test_integers_are_exact(dtype: str, columns: int) -> None:
    """Coordinates too."""
    spec = GeneratedSpec(ROWS, 16 // ELEMENT_BYTES[dtype], 64, 64, 1, 1)
    shapes = [(5, columns), (5,), (5, columns)]
    x, sums, y = simulated(counting(5, columns, dtype), shapes, [dtype] * 3, spec)
    wide = x.astype(np.int64)
    with np.errstate(over="ignore"):
        wanted = (wide * (np.arange(columns) + 1)).sum(1).astype(x.dtype)
        points = (wide + 100 * np.arange(5)[:, None] + np.arange(columns)).astype(x.dtype)
    np.testing.assert_array_equal(sums, wanted)
    np.testing.assert_array_equal(y, points)


@pytest.mark.parametrize("dtype", ["i8", "i16", "bf16"])
def test_reductions_of_narrow_types(dtype: str) -> None:
    """Up to 16 elements in a vector, and 15 before or after them."""
    spec = GeneratedSpec(ROWS, 16 // ELEMENT_BYTES[dtype], 64, 64, 1, 1)
    kernel = reduction("5", "1077", "d0, d1", "d0", "max", dtype)
    x, y = simulated(kernel, [(5, 1077), (5,)], [dtype] * 2, spec)
    np.testing.assert_array_equal(y, x.max(1))


def test_operands_that_rows_share_are_at_other_places() -> None:
    """Scale and bias lie at multiples of the vector, where rows with a head of 1 to 3 elements do not."""
    shapes = [(4, 203), (203,), (203,), (4, 203)]
    spec = GeneratedSpec(ROWS, 4, 64, 64, 1, 1)
    x, scale, bias, y = simulated(layer_norm(4, 203), shapes, ["f32"] * 4, spec)
    wide = x.astype(np.float64)
    centered = wide - wide.mean(1, keepdims=True)
    close(y, centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5) * scale + bias, 2e-6)


@pytest.mark.parametrize("strategy", [ROWS, ONLINE])
def test_numbers_that_are_none(strategy: str) -> None:
    """-inf counts 0, also where a thread sees nothing else; a row of -inf, one with inf and one with NaN are NaN."""
    x = np.random.default_rng(1).standard_normal((6, 301)).astype(np.float32)
    x[0, ::2], x[1, :290], x[2], x[3, 7], x[4, 300] = -np.inf, -np.inf, -np.inf, np.inf, np.nan
    spec = GeneratedSpec(strategy, 4, 64, 64, 2, 1)
    _, y = simulated(softmax(6, 301), [(6, 301)] * 2, ["f32"] * 2, spec, given=x)
    with np.errstate(invalid="ignore"):
        wanted = softmax_of(x)
    assert np.isnan(wanted).all(1).tolist() == [False, False, True, True, True, False]
    np.testing.assert_allclose(y, wanted, 1e-5, 1e-7)


def test_maxima_that_grow_shrink_what_was_summed() -> None:
    """Each element above all before it, by more than an exponential of f32 holds, or by little."""
    x = np.stack([np.arange(517) * step for step in (40.0, 0.01, -40.0)]).astype(np.float32)
    spec = GeneratedSpec(ONLINE, 4, 32, 32, 2, 1)
    _, y = simulated(softmax(3, 517), [(3, 517)] * 2, ["f32"] * 2, spec, given=x)
    close(y, softmax_of(x), 2e-6)


def guarded_softmax(rows: int, columns: int) -> KernelOp:
    """0 for rows that are -inf all along: what is subtracted is finite, and what divides is 1 at least."""
    return parse_kernel(
        f"""emit.kernel @k parallel [{rows}] reduce [{columns}]
            ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {{
        ^bb0(%x : f32):
          %m = emit.phase -> f32 {{ %0 = emit.reduce "max" %x : f32 emit.yield %0 : f32 }}
          %t, %k = emit.phase -> f32, f32 {{
            {LEAST}
            %f = arith.maximumf %m, %l : f32
            %s = arith.subf %x, %f : f32
            %e = math.exp %s : f32
            %0 = emit.reduce "sum" %e : f32
            emit.yield %0, %e : f32, f32 }}
          emit.phase {{
            %one = arith.constant 1.0 : f32
            %d = arith.maximumf %t, %one : f32
            %y = arith.divf %k, %d : f32
            emit.store %y, 0 : f32 emit.yield }}
        }}"""
    )


@pytest.mark.parametrize("strategy", [ROWS, ONLINE])
def test_rows_without_a_number_are_zeros_if_guarded(strategy: str) -> None:
    x = np.random.default_rng(1).standard_normal((4, 301)).astype(np.float32)
    x[0, ::2], x[1], x[2, :290], x[3, 3] = -np.inf, -np.inf, -np.inf, np.nan
    spec = GeneratedSpec(strategy, 4, 64, 64, 2, 1)
    _, y = simulated(guarded_softmax(4, 301), [(4, 301)] * 2, ["f32"] * 2, spec, given=x)
    with np.errstate(invalid="ignore"):
        wanted = softmax_of(x)
    wanted[1] = 0
    np.testing.assert_allclose(y, wanted, 1e-5, 1e-7)


# Decisions


def chosen(
    kernel: KernelOp,
    strides: Sequence[tuple[int, ...]],
    dtypes: Sequence[str],
    offsets: Sequence[int] = (0, 0),
) -> tuple[LoopNest, GeneratedSpec]:
    nest = nest_on(kernel, strides, dtypes)
    return nest, choose(nest, offsets, ARCH)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("pitch", [50257, 50264])
def test_odd_rows_are_read_sixteen_bytes_at_a_time(dtype: str, pitch: int) -> None:
    """With gaps that align each row, and without."""
    nest, spec = chosen(softmax(4096, 50257, dtype), [(pitch, 1)] * 2, [dtype] * 2)
    assert spec.vector == 16 // ELEMENT_BYTES[dtype] and spec.has_ends(nest)
    assert read_spec(spec_record(nest, spec)) == spec
    by_element = replace(spec, vector=1)
    assert "beside them" in spec.combination_order(nest)
    if dtype != "f32":  # neighbouring threads fill whole sectors in f32
        assert cost_us(nest, spec, ARCH) < 0.75 * cost_us(nest, by_element, ARCH)


def test_rows_that_differ_in_alignment_are_read_by_element() -> None:
    """The result has a gap that the operand has not."""
    _, spec = chosen(softmax(4096, 50257, "bf16"), [(50257, 1), (50264, 1)], ["bf16"] * 2)
    assert spec.vector == 1
    _, spec = chosen(softmax(4096, 50257, "bf16"), [(50257, 1)] * 2, ["bf16"] * 2, (3, 3))
    assert spec.vector == 8


def test_one_sweep_is_for_sums_of_exponentials_in_f32() -> None:
    """It takes less: rows are read once less. Other sums, other types and parts of rows are read as before, and few
    rows that fit into the registers of clusters once."""
    nest, spec = chosen(softmax(4096, 65536), [(65536, 1)] * 2, ["f32"] * 2)
    assert spec.strategy == ONLINE and spec.sweeps(nest) == 2
    two = replace(spec, strategy=ROWS)
    assert two.sweeps(nest) == 3 and cost_us(nest, spec, ARCH) < cost_us(nest, two, ARCH)
    assert replace(spec, splits=2).problem(nest) == "strategy 'online_rows' does not split"
    nest, spec = chosen(softmax(8, 65536), [(65536, 1)] * 2, ["f32"] * 2)
    assert spec.strategy == "resident" and spec.cluster > 1 and spec.sweeps(nest) == 1
    nest, spec = chosen(softmax(8, 1048576), [(1048576, 1)] * 2, ["f32"] * 2)
    assert spec.strategy == ROWS and spec.splits > 1
    nest, spec = chosen(softmax(4096, 65536, "f64"), [(65536, 1)] * 2, ["f64"] * 2)
    assert spec.strategy == ROWS
    assert "sum exponentials" in str(replace(spec, strategy=ONLINE).problem(nest))
    sums = reduction("4096", "65536", "d0, d1", "d0", "sum")
    assert chosen(sums, [(65536, 1), (1,)], ["f32"] * 2)[1].strategy == ROWS


def exponentials(shifted: str, total: str = "sum", stored: str = "") -> KernelOp:
    """A maximum, then a reduction of exponentials of `%s`, which is computed of `%x` and the maximum `%m`."""
    return parse_kernel(
        f"""emit.kernel @k parallel [8] reduce [99]
            ins [affine_map<(d0, d1) -> (d0, d1)>]
            outs [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>] {{
        ^bb0(%x : f32):
          %m = emit.phase -> f32 {{ %0 = emit.reduce "max" %x : f32 emit.yield %0 : f32 }}
          %t = emit.phase -> f32 {{
            {shifted}
            %e = math.exp %s : f32
            %0 = emit.reduce "{total}" %e : f32
            {stored}
            emit.yield %0 : f32 }}
          emit.phase {{ emit.store %t, 0 : f32 {"" if stored else "emit.store %x, 1 : f32"} emit.yield }}
        }}"""
    )


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (exponentials("%s = arith.subf %x, %m : f32"), True),
        (exponentials(f"{LEAST} %f = arith.maximumf %m, %l : f32 %s = arith.subf %x, %f : f32"), True),
        (exponentials(f"{LEAST} %f = arith.maximumf %l, %m : f32 %s = arith.subf %x, %f : f32"), False),
        (exponentials("%f = arith.negf %m : f32 %s = arith.subf %x, %f : f32"), False),
        (exponentials("%s = arith.subf %m, %x : f32"), False),
        (exponentials("%s = arith.addf %x, %m : f32"), False),
        (exponentials("%h = arith.mulf %x, %x : f32\n%s = arith.subf %h, %m : f32"), False),
        (exponentials("%s = arith.subf %x, %x : f32"), False),
        (exponentials("%s = arith.subf %x, %m : f32", "max"), False),
        (exponentials("%s = arith.subf %x, %m : f32", stored="emit.store %e, 1 : f32"), False),
    ],
)
def test_what_is_such_a_sum(kernel: KernelOp, found: bool) -> None:
    assert (exponential_sum_of(kernel) is not None) == found


# Machine code


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("pitch", [50257, 50264])
def test_odd_rows_compile_without_spills(dtype: str, pitch: int) -> None:
    """Whole vectors are loaded and stored 16 bytes at a time."""
    nest, spec = chosen(softmax(4096, 50257, dtype), [(pitch, 1)] * 2, [dtype] * 2)
    refs = [BufferRef(number, 0, (4096, 50257), (pitch, 1), dtype) for number in range(2)]
    (launch,) = launches_of("k", nest, recorded(nest, spec), refs)
    (cubin,) = compile_kernels([launch.code], "sm_90a").values()
    names = instructions(cubin)
    assert cubin.stack_bytes == 0 and not starting(names, ATOMICS + SPILLS)
    assert "STG.E.128" in names and names.count("LDG.E.128") >= spec.unroll * spec.sweeps(nest)
