"""Prefix sums on a GPU, without one: what is decided, what the code computes (simulated), and the machine code."""

from __future__ import annotations

import numpy as np
import pytest

from aicf.backends.base import BufferRef
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.loops.codegen import launches_of
from aicf.backends.cuda.families.loops.kernel import code_reason
from aicf.backends.cuda.families.loops.schedule import GeneratedSpec, partial_bytes
from tests.backends.cpu.kernels_text import parse_kernel
from tests.backends.cpu.test_scans import FLAGS, expected, scan
from tests.backends.cuda.sass import ATOMICS, SPILLS, instructions, starting
from tests.backends.cuda.test_generated import chosen_spec, recorded, references, simulated

ROWS, COLUMNS, CHAIN = "scan_rows", "scan_columns", "scan_chain"


def check(
    shape: tuple[int, int], dtype: str, flags: str, first: bool = False, spec: GeneratedSpec | None = None
) -> None:
    """The scan of a matrix along its last dim, or the first one, against NumPy."""
    kernel = parse_kernel(scan(*shape, dtype, flags, first))
    x, y = simulated(kernel, [shape] * 2, [dtype] * 2, spec)
    if dtype[0] == "i":
        np.testing.assert_array_equal(y, expected(x, flags, 0 if first else 1))
        return
    wanted = expected(x, flags, 0 if first else 1)
    scale = np.abs(x.astype(np.float64)).sum(0 if first else 1, keepdims=True) * np.abs(x.astype(np.float64))
    tolerance = {"f32": 2e-6, "f16": 1e-3, "f64": 1e-14}[dtype]
    assert np.all(np.abs(y.astype(np.float64) - wanted) <= tolerance * scale + tolerance)


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3, 40), "f32"), ((5, 7), "f64"), ((2, 100), "f16"), ((1, 1030), "i32"), ((2, 72), "i8")],
)
def test_rows(shape: tuple[int, int], dtype: str, flags: str) -> None:
    """Part of a warp, a warp and a block for a row; vectors that fill it and that do not."""
    check(shape, dtype, flags)


@pytest.mark.parametrize("flags", FLAGS)
def test_columns(flags: str) -> None:
    """A thread for each vector of columns."""
    check((33, 8), "f32", flags, first=True)
    check((9, 5), "i64", flags, first=True)


@pytest.mark.parametrize("flags", ["", "exclusive reverse "])
@pytest.mark.parametrize("columns", [1536, 1600, 2000])
def test_split_rows(columns: int, flags: str) -> None:
    """Parts of a row that are equal, a last one that is shorter, and tiles that end within a part; twice the same."""
    check((1, columns), "f32", flags, spec=GeneratedSpec(ROWS, 4, 64, 64, 2, 3))


@pytest.mark.parametrize("flags", ["", "exclusive reverse "])
@pytest.mark.parametrize(
    ("shape", "dtype", "spec"),
    [
        ((1, 8192), "f32", GeneratedSpec(CHAIN, 4, 64, 64, 2, 16)),
        ((1, 8000), "i32", GeneratedSpec(CHAIN, 4, 32, 32, 1, 63)),
        ((3, 1000), "f16", GeneratedSpec(CHAIN, 8, 64, 64, 1, 2)),
    ],
)
def test_chained_rows(shape: tuple[int, int], dtype: str, spec: GeneratedSpec, flags: str) -> None:
    """A block for each tile, in groups and over groups; the workspace holds rubbish before."""
    check(shape, dtype, flags, spec=spec)


def test_links_of_a_chain_are_tiles() -> None:
    """A record that says otherwise is refused, and so are values that do not fit beside a flag."""
    nest, _ = chosen_spec(parse_kernel(scan(1, 8192, "f32", "")), [(1, 8192)] * 2, ["f32"] * 2)
    assert GeneratedSpec(CHAIN, 4, 64, 64, 2, 16).problem(nest) is None
    assert "a link of a chain is one tile" in str(GeneratedSpec(CHAIN, 4, 64, 64, 2, 8).problem(nest))
    nest, _ = chosen_spec(parse_kernel(scan(1, 8192, "f64", "")), [(1, 8192)] * 2, ["f64"] * 2)
    assert "fits a word with a flag" in str(GeneratedSpec(CHAIN, 2, 64, 64, 2, 32).problem(nest))


@pytest.mark.parametrize("flags", ["", "exclusive reverse "])
def test_split_columns(flags: str) -> None:
    check((100, 8), "f32", flags, first=True, spec=GeneratedSpec(COLUMNS, 4, 32, 1, 8, 3))


@pytest.mark.parametrize(
    ("shape", "first", "strategy", "lanes", "split"),
    [
        ((262144, 256), False, ROWS, 32, False),
        ((16384, 4096), False, ROWS, 256, False),
        ((1, 1 << 26), False, CHAIN, 512, True),
        ((1, 12000), False, ROWS, 256, False),
        ((4096, 16384), True, COLUMNS, 1, False),
        ((16384, 4096), True, COLUMNS, 1, True),
    ],
)
def test_what_is_decided(shape: tuple[int, int], first: bool, strategy: str, lanes: int, split: bool) -> None:
    """One long row keeps the whole GPU busy: its tiles are a chain, where there are enough of them."""
    kernel = parse_kernel(scan(*shape, "f32", "", first))
    nest, spec = chosen_spec(kernel, [shape] * 2, ["f32"] * 2)
    assert spec.problem(nest) is None
    assert (spec.strategy, spec.lanes, spec.splits > 1) == (strategy, lanes, split)


def test_machine_code() -> None:
    """No atomics and no registers in memory; vectors are loaded whole."""
    shape = (1, 1 << 22)
    nest, spec = chosen_spec(parse_kernel(scan(*shape, "f32", "")), [shape] * 2, ["f32"] * 2)
    workspace = [BufferRef(9, 0, (partial_bytes(nest, spec),), (1,), "i1")]
    launches = launches_of("k", nest, recorded(nest, spec), references([shape] * 2, ["f32"] * 2), workspace)
    assert len(launches) == 2
    cubins = compile_kernels([launch.code for launch in launches], "sm_90a")
    for cubin in cubins.values():
        assert not starting(instructions(cubin), ATOMICS + SPILLS)
    assert "LDG.E.128" in instructions(cubins[launches[-1].code.symbol])


def test_what_has_no_code_is_refused() -> None:
    """A reduction beside a running sum, and an output of one element a row."""
    text = scan(4, 8, "f32", "").replace(
        "emit.yield", '%m = emit.reduce "max" %s : f32\n    emit.yield %m : f32'
    )
    text = text.replace("emit.phase {", "%p = emit.phase -> f32 {")
    assert (
        code_reason(parse_kernel(text)) == "a running sum and a reduction in one kernel have no code on cuda"
    )
    assert code_reason(parse_kernel(scan(4, 8, "f32", ""))) is None
