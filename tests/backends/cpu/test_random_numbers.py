"""Random numbers, native on this machine: the bits of the semantics at every level, and dropout in other kernels."""

from __future__ import annotations

import numpy as np
import pytest

import aicf
from aicf.backends.cpu.target import check_host, level_named
from tests.support.random_graphs import run_program
from tests.support.random_programs import KEYS, assert_same_numbers, random_inputs, random_numbers

TOLERANCE = {"f32": 1e-5, "f16": 4e-3, "f64": 1e-12}


@pytest.mark.parametrize(
    ("level", "dtype"),
    [
        ("x86-64-v2", "f32"),
        ("x86-64-v3", "f32"),
        ("x86-64-v4", "f32"),
        ("x86-64-v3", "f64"),
        ("x86-64-v3", "f16"),
    ],
)
def test_the_bits_of_the_semantics(level: str, dtype: str) -> None:
    """Whole vectors, tails, single elements, seeds from lane to lane; replays follow the offset and repeat with it."""
    try:
        check_host(level_named(level))
    except aicf.BackendUnavailable as error:
        pytest.skip(str(error))
    module = random_numbers(dtype).module()
    exe = aicf.compile(module, target=f"cpu:{level}", training=True)
    names = [output.name for output in exe.outputs]
    results: list[dict[str, np.ndarray]] = []
    for seed, offset in (*KEYS, KEYS[0]):
        inputs = random_inputs(dtype, seed, offset)
        found = dict(zip(names, exe(inputs), strict=True))
        assert_same_numbers(found, run_program(module, inputs, "typed"), TOLERANCE[dtype])
        results.append(found)
    assert all(np.array_equal(results[0][name], results[3][name]) for name in names)
    assert all(not np.array_equal(results[0][name], results[1][name]) for name in ("bits", "normal"))


def test_dropout_is_part_of_what_stands_around_it() -> None:
    """One kernel with its neighbours; after a product the ledger says why it is one of its own."""
    g = aicf.Graph("f")
    seed, offset = g.input("s", (), "i64"), g.input("o", (), "i64")
    x, w = g.input("x", (64, 128)), g.param("w", (128, 128))
    y = g.dropout(
        g.layer_norm(x, g.param("g", (128,)), g.param("b", (128,))), seed, offset, 0.1, name="inside"
    )
    g.output(g.gelu(y) + x, "inside")
    g.output(g.dropout(g.matmul(y, w), seed, g.add(offset, 2048), 0.1, name="behind"), "behind")
    arrays = {
        name: np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        for name, shape in (("g", (128,)), ("b", (128,)), ("w", (128, 128)))
    }
    exe = aicf.compile(g.module(), weights=arrays, target="cpu:x86-64-v3", training=True)
    text = exe.ir("emit")
    kernels = text.split("emit.kernel @")[1:]
    found = [kernel.split(" ")[0] for kernel in kernels if "emit.philox" in kernel]
    assert found == ["layer_norm0.code", "behind.code"] and "a coordinate (iota) next to a product" in text
