"""Prefix sums of the generated loops against NumPy: along the vectors and across them, from both ends, with tails."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu.kernels_text import parse_kernel
from tests.backends.cpu.test_loops import LEVELS, run

FLAGS = ("", "exclusive ", "reverse ", "exclusive reverse ")


def scan(rows: int, columns: int, dtype: str, flags: str, first: bool = False) -> str:
    """The running sum of a matrix along its last dim, or the first one, after an addition and before a product."""
    points, size = (columns, rows) if first else (rows, columns)
    map_ = "affine_map<(d0, d1) -> (d1, d0)>" if first else "affine_map<(d0, d1) -> (d0, d1)>"
    add, multiply = ("arith.addf", "arith.mulf") if dtype[0] == "f" else ("arith.addi", "arith.muli")
    return f"""
emit.kernel @k parallel [{points}] reduce [{size}] ins [{map_}] outs [{map_}] {{
^bb0(%x : {dtype}):
  emit.phase {{
    %d = {add} %x, %x : {dtype}
    %s = emit.scan "sum" {flags}%d : {dtype}
    %y = {multiply} %s, %x : {dtype}
    emit.store %y, 0 : {dtype}
    emit.yield
  }}
}}"""


def expected(x: np.ndarray, flags: str, axis: int) -> np.ndarray:
    wide = x.astype(np.float64 if x.dtype.kind == "f" else x.dtype)
    walked = np.flip(2 * wide, axis) if "reverse" in flags else 2 * wide
    sums = np.cumsum(walked, axis, dtype=wide.dtype)
    sums = sums - walked if "exclusive" in flags else sums
    return (np.flip(sums, axis) if "reverse" in flags else sums) * wide


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize(("rows", "columns"), [(3, 1), (5, 7), (2, 100), (1, 1000), (40, 33)])
def test_running_sums(rows: int, columns: int, flags: str, level) -> None:
    """Rows of less than a vector, of a few that stay in registers, and of many; columns of vectors and of a rest."""
    random = np.random.default_rng(rows * columns)
    for dtype, made in (("f32", np.float32), ("f64", np.float64), ("i32", np.int32), ("i64", np.int64)):
        x = (random.standard_normal((rows, columns)) * 8).astype(made)
        for first in (False, True):
            if (rows if first else columns) == 1:
                continue
            found = run(parse_kernel(scan(rows, columns, dtype, flags, first)), [x], (x.shape, dtype), level)
            wanted = expected(x, flags, 0 if first else 1)
            if x.dtype.kind == "i":
                np.testing.assert_array_equal(found, wanted)
            else:
                scale = np.abs(x).sum(0 if first else 1, keepdims=True) * np.abs(x)
                assert np.all(np.abs(found - wanted) <= 16 * np.finfo(made).eps * scale)


def test_a_reduction_of_a_running_sum() -> None:
    """The same phase reduces what it scans; a later one scans again."""
    text = """
emit.kernel @k parallel [9] reduce [77] ins [affine_map<(d0, d1) -> (d0, d1)>] outs [affine_map<(d0, d1) -> (d0, d1)>] {
^bb0(%x : f64):
  %m = emit.phase -> f64 {
    %s = emit.scan "sum" %x : f64
    %m = emit.reduce "max" %s : f64
    emit.yield %m : f64
  }
  emit.phase {
    %s = emit.scan "sum" %x : f64
    %y = arith.subf %m, %s : f64
    emit.store %y, 0 : f64
    emit.yield
  }
}"""
    x = np.random.default_rng(0).standard_normal((9, 77))
    sums = np.cumsum(x, 1)
    found = run(parse_kernel(text), [x], (x.shape, "f64"))
    np.testing.assert_allclose(found, sums.max(1, keepdims=True) - sums, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_loads_at_a_running_sum_of_what_is_alike_along_it(level) -> None:
    """Each lane loads elsewhere, although all of them add up the same number."""
    text = """
emit.kernel @k parallel [3] reduce [37] ins [indexed, affine_map<(d0, d1) -> (d0)>]
    outs [affine_map<(d0, d1) -> (d0, d1)>] {
^bb0(%t : memref<200xf32>, %x : i64):
  emit.phase {
    %s = emit.scan "sum" %x : i64
    %y = emit.load %t[%s] : memref<200xf32>, i64
    emit.store %y, 0 : f32
    emit.yield
  }
}"""
    table, steps = np.arange(200, dtype=np.float32), np.array([0, 1, 5])
    found = run(parse_kernel(text), [table, steps], ((3, 37), "f32"), level)
    np.testing.assert_array_equal(found, steps[:, None] * np.arange(1, 38))
