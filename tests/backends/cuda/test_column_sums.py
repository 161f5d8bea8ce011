"""Sums of columns beside rows, without a GPU: what is decided, what the code computes (simulated), the machine code."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from aicf.backends.base import BufferRef
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.loops.codegen import launches_of
from aicf.backends.cuda.families.loops.column_choice import holds_sums
from aicf.backends.cuda.families.loops.costs import cost_us
from aicf.backends.cuda.families.loops.kernel import read_spec, spec_record
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec, partial_bytes
from aicf.dialects.emit_kernels import KernelOp
from tests.backends.cpu.kernels_text import parse_kernel
from tests.backends.cuda.sass import ATOMICS, SPILLS, instructions, starting
from tests.backends.cuda.test_generated import ARCH, chosen_spec, close, recorded, references, simulated
from tests.backends.cuda.test_generated_programs import compiled
from tests.backends.cuda.test_generated_programs import simulated as simulated_plan
from tests.gpu.programs import random_arrays
from tests.support.multi_output_programs import built
from tests.support.random_graphs import run_program

MEMBERS = (
    *("mul0", "mul1", "mul2", "mul3", "sub0", "sub1", "cast0"),
    *("reduce_mean0", "reduce_mean0.sum", "reduce_mean1", "reduce_mean1.sum"),
    *("reduce_sum0", "reduce_sum1", "reduce_sum2"),
)
"""The ops of the program `norm_gradients`."""
CASTS = tuple(f"reduce_mean{number}.{way}" for number in range(2) for way in ("widen", "narrow"))
"""More of them, where its elements are no f32."""


def norm_gradient(rows: int, columns: int, dtype: str = "f32") -> KernelOp:
    """The gradients of a layer norm without a shift: of its normalised input, its scale and its bias, and what the bias
    of a product before it takes: of x, dy [rows, columns] and scale [columns] the results dx [rows, columns] and the
    sums of dy * x, of dy and of dx over rows [columns]."""
    widen = (
        "" if dtype == "f32" else f"%xw = emit.cast %x : {dtype} to f32 %yw = emit.cast %y : {dtype} to f32"
    )
    x, y = ("%x", "%y") if dtype == "f32" else ("%xw", "%yw")
    full, row = "affine_map<(d0, d1) -> (d0, d1)>", "affine_map<(d0, d1) -> (d1)>"
    return parse_kernel(
        f"""emit.kernel @k parallel [{rows}] reduce [{columns}]
            ins [{full}, {full}, {row}] outs [{full}, {row}, {row}, {row}] {{
        ^bb0(%x : {dtype}, %y : {dtype}, %scale : f32):
          %sum, %product = emit.phase -> f32, f32 {{
            {widen}
            %g = arith.mulf {y}, %scale : f32
            %p = arith.mulf %g, {x} : f32
            %d = arith.mulf {y}, {x} : f32
            %s0 = emit.reduce "sum" %g : f32
            %s1 = emit.reduce "sum" %p : f32
            emit.accumulate "sum" %d, 1 : f32
            emit.accumulate "sum" {y}, 2 : f32
            emit.yield %s0, %s1 : f32, f32 }}
          emit.phase {{
            {widen}
            %n = arith.constant {1 / columns!r} : f32
            %a = arith.mulf %sum, %n : f32
            %b = arith.mulf %product, %n : f32
            %g = arith.mulf {y}, %scale : f32
            %c = arith.subf %g, %a : f32
            %e = arith.mulf {x}, %b : f32
            %f = arith.subf %c, %e : f32
            emit.store %f, 0 : f32
            emit.accumulate "sum" %f, 3 : f32
            emit.yield }}
        }}"""
    )


def shapes_of(rows: int, columns: int) -> list[tuple[int, ...]]:
    """Of its operands and results."""
    return [(rows, columns), (rows, columns), (columns,), (rows, columns), *[(columns,)] * 3]


def types_of(dtype: str) -> list[str]:
    """Of its operands and results."""
    return [dtype, dtype, *["f32"] * 5]


def expected(x: np.ndarray, y: np.ndarray, scale: np.ndarray) -> list[np.ndarray]:
    """In float64."""
    x, y, scale = (each.astype(np.float64) for each in (x, y, scale))
    g = y * scale
    dx = g - g.mean(1, keepdims=True) - x * (g * x).mean(1, keepdims=True)
    return [dx, (x * y).sum(0), y.sum(0), dx.sum(0)]


@pytest.mark.parametrize(
    ("rows", "columns", "dtype", "spec"),
    [
        (37, 96, "f32", None),
        (5, 40, "bf16", None),
        (40, 7, "f32", None),
        (33, 200, "f32", GeneratedSpec("column_sums", 4, 128, 32, 2, 3, late=True)),
        (9, 300, "f32", GeneratedSpec("column_sums", 4, 64, 64, 2, 2, late=True)),
        (50, 64, "f32", GeneratedSpec("column_sums", 2, 64, 8, 4, 3)),
    ],
)
def test_sums_of_columns(rows: int, columns: int, dtype: str, spec: GeneratedSpec | None) -> None:
    """Several rows of a block, and one; rows that vectors do not fill; walks of different lengths."""
    found = simulated(norm_gradient(rows, columns, dtype), shapes_of(rows, columns), types_of(dtype), spec)
    for result, wanted in zip(found[3:], expected(*found[:3]), strict=True):
        close(result, wanted, 1e-5)


@pytest.mark.parametrize(("dtype", "members"), [("f32", MEMBERS), ("bf16", (*MEMBERS, *CASTS))])
def test_a_program(dtype: str, members: tuple[str, ...]) -> None:
    """The gradients of a norm as the passes fuse them, one of them of rows with one dim more: its meaning."""
    module = built("norm_gradients", 40, 96, dtype).module()
    inputs = random_arrays(module, dtype)
    exact, typed = (run_program(module, inputs, mode) for mode in ("exact", "typed"))
    plan, unit = compiled(module, json.dumps({"groups": [list(members)]}))
    assert [len(launch.outs) for launch in unit.launches] == [5]
    for name, found in simulated_plan(plan, unit, inputs).items():
        wanted = exact[name].astype(np.float64)
        rounded = np.abs(typed[name].astype(np.float64) - wanted).max()
        assert np.abs(found.astype(np.float64) - wanted).max() <= max(
            3 * rounded, 1e-5 * np.abs(wanted).max()
        )


@pytest.mark.parametrize(("how", "dtype"), [("max", "f16"), ("min", "i8"), ("prod", "f64"), ("max", "i1")])
def test_other_ways_to_combine(how: str, dtype: str) -> None:
    """Of elements of any type, beside sums of rows of another one."""
    full = "affine_map<(d0, d1) -> (d0, d1)>"
    kernel = parse_kernel(
        f"""emit.kernel @k parallel [19] reduce [24] ins [{full}]
            outs [affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0)>] {{
        ^bb0(%x : {dtype}):
          %s = emit.phase -> f32 {{
            %w = emit.cast %x : {dtype} to f32
            emit.accumulate "{how}" %x, 0 : {dtype}
            %0 = emit.reduce "sum" %w : f32
            emit.yield %0 : f32 }}
          emit.phase {{ emit.store %s, 1 : f32 emit.yield }}
        }}"""
    )
    x, columns, rows = simulated(kernel, [(19, 24), (24,), (19,)], [dtype, dtype, "f32"])
    wanted = {"max": np.max, "min": np.min, "prod": np.prod}[how](x, axis=0)
    close(columns, wanted, 1e-12 if how == "prod" else 0)
    close(rows, x.astype(np.float64).sum(1), 1e-6)


@pytest.mark.parametrize(
    ("columns", "dtype", "lanes", "splits"),
    [(768, "f32", 32, 264), (1024, "f32", 128, 528), (768, "bf16", 32, 396), (4096, "f32", 512, 132)],
)
def test_what_is_decided(columns: int, dtype: str, lanes: int, splits: int) -> None:
    """A warp has a row while registers hold it beside the sums; the record reads back."""
    nest, spec = chosen_spec(norm_gradient(4096, columns, dtype), shapes_of(4096, columns), types_of(dtype))
    assert (spec.lanes, spec.splits) == (lanes, splits)
    assert spec.problem(nest) is None and holds_sums(nest, spec)
    assert read_spec(spec_record(nest, spec)) == spec
    assert partial_bytes(nest, spec) == 3 * 4 * splits * columns


def test_rows_that_leave_no_registers() -> None:
    """Are refused; so are records that name another strategy, or a single part."""
    nest, spec = chosen_spec(norm_gradient(64, 65536), shapes_of(64, 65536), types_of("f32"))
    assert not holds_sums(nest, spec)
    nest, spec = chosen_spec(norm_gradient(64, 768), shapes_of(64, 768), types_of("f32"))
    assert "column sums are for kernels" in str(replace(spec, strategy="resident", splits=1).problem(nest))
    assert "two parts or more" in str(replace(spec, splits=1).problem(nest))


def test_what_they_cost() -> None:
    """Less than the rows and a second reading of both operands."""
    rows, columns = 4096, 768
    nest, spec = chosen_spec(norm_gradient(rows, columns), shapes_of(rows, columns), types_of("f32"))
    moved = 4 * 3 * rows * columns + 2 * partial_bytes(nest, spec)
    assert (
        moved / ARCH.bandwidth_gbs / 1e3 < cost_us(nest, spec, ARCH) < 1.5 * moved / ARCH.bandwidth_gbs / 1e3
    )


@pytest.mark.parametrize("columns", [768, 4096])
def test_machine_code(columns: int) -> None:
    """Two launches without atomics and without registers in memory; elements are loaded in whole vectors."""
    shapes, types = shapes_of(4096, columns), types_of("f32")
    nest, spec = chosen_spec(norm_gradient(4096, columns), shapes, types)
    workspace = [BufferRef(9, 0, (partial_bytes(nest, spec),), (1,), "i1")]
    launches = launches_of("k", nest, recorded(nest, spec), references(shapes, types), workspace)
    cubins = compile_kernels([launch.code for launch in launches], "sm_90a")
    assert len(cubins) == 2
    for cubin in cubins.values():
        assert not starting(instructions(cubin), ATOMICS + SPILLS)
    assert "LDG.E.128" in instructions(cubins[launches[0].code.symbol])
