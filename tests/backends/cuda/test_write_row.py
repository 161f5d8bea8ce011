"""Rows that are written into a state, on a simulated GPU: in place and not, in range and out of it, against NumPy."""

from __future__ import annotations

import json

import numpy as np
import pytest

from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.frontends.text import parse_module
from tests.backends.cuda.simulator import Memory, run
from tests.backends.cuda.test_generated_programs import compiled

SIZE = 5
PROGRAM = """
func.func @f(%t : tensor<2x5x3x{width}x{dtype}> {logical.name = "t", logical.role = "state"},
             %i : {index} {logical.name = "i", logical.role = "input"},
             %u : tensor<2x{rows}x3x{width}x{dtype}> {logical.name = "u", logical.role = "input"})
    -> (tensor<2x5x3x{width}x{dtype}> {logical.updates = "t"}) {
  %written = logical.write_row %u, %i, %t {axis = 1}
      : (tensor<2x{rows}x3x{width}x{dtype}>, {index}, tensor<2x5x3x{width}x{dtype}>) -> tensor<2x5x3x{width}x{dtype}>
  func.return %written : tensor<2x5x3x{width}x{dtype}>
}
"""


def program(dtype: str, rows: int, index: str, width: int, is_state: bool) -> str:
    """A write into a state or into an input."""
    text = PROGRAM if is_state else PROGRAM.replace("state", "input").replace('updates = "t"', 'name = "y"')
    for name, value in (("dtype", dtype), ("rows", rows), ("index", index), ("width", width)):
        text = text.replace(f"{{{name}}}", str(value))
    return text


@pytest.mark.parametrize(
    ("dtype", "rows", "index", "is_state"),
    [
        ("f32", 1, "tensor<2xi64>", True),
        ("f16", 2, "tensor<2xi64>", False),
        ("f32", 1, "tensor<i64>", True),
        ("f32", 3, "tensor<i32>", False),
    ],
)
def test_rows_go_where_the_index_says(dtype: str, rows: int, index: str, is_state: bool) -> None:
    """Into a state in place, and into a copy of an input."""
    random, width = np.random.default_rng(9), 100
    policy = json.dumps({"kernels": {"written": "cuda.write_row"}})
    plan, unit = compiled(parse_module(program(dtype, rows, index, width, is_state)), policy)
    launch = next(launch for launch in unit.launches if launch.kernel == "cuda.write_row")
    assert (launch.ins[2] == launch.outs[0]) == is_state
    own, whole = (
        np.dtype("float16" if dtype == "f16" else "float32"),
        np.dtype("int32" if "i32" in index else "int64"),
    )
    before = random.standard_normal((2, SIZE, 3, width)).astype(own)
    for named in ([0, 3], [-1, 4], [SIZE, -SIZE - 1]):
        given = np.array(named if "2x" in index else named[0], whole)
        new = random.standard_normal((2, rows, 3, width)).astype(own)
        binds = plan.graph.binds
        memory = Memory([max(16, plan.arena_bytes), *(bind.nbytes for bind in binds)])
        arrays = {"t": before, "i": given, "u": new}
        for base, bind in enumerate(binds, 1):
            if bind.name in arrays:
                memory.fill(base, arrays[bind.name])
        for each in unit.launches:
            run([part for part in emitter(each.kernel)(each) if isinstance(part, KernelLaunch)], memory)
        expected = before.copy()
        for batch in range(2):
            for row in range(rows):
                at = int(given[batch] if given.ndim else given) + row
                if -SIZE <= at < SIZE:
                    expected[batch, at] = new[batch, row]
        (at,) = (base for base, bind in enumerate(binds, 1) if bind.name == ("t" if is_state else "y"))
        np.testing.assert_array_equal(memory.buffers[at].view(own).reshape(before.shape), expected)
