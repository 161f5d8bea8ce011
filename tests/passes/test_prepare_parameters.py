"""What is computed of parameters alone runs once: programs, values, and what becomes of them with other weights."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import aicf
from aicf.compilation.compiled import CompiledModel
from aicf.frontends.builder import Graph
from aicf.inference.packing import packing_keys
from aicf.semantics import Array

ROWS, DEPTH, COLUMNS = 4, 64, 32

QUANTIZED = f"""
func.func @main(
    %x: tensor<?x{DEPTH}xf32, #logical.dims<["N", ""]>> {{logical.name = "x", logical.role = "input"}},
    %w: tensor<{COLUMNS}x{DEPTH}xi8> {{logical.name = "w", logical.role = "param"}},
    %s: tensor<{COLUMNS}xf32> {{logical.name = "s", logical.role = "param"}},
    %b: tensor<{COLUMNS}xf32> {{logical.name = "b", logical.role = "param"}})
    -> (tensor<?x{COLUMNS}xf32, #logical.dims<["N", ""]>> {{logical.name = "y"}}) {{
  %wide = logical.cast %w : tensor<{COLUMNS}x{DEPTH}xi8> -> tensor<{COLUMNS}x{DEPTH}xf32>
  %scale = logical.broadcast %s {{dimensions = [0]}} : tensor<{COLUMNS}xf32> -> tensor<{COLUMNS}x{DEPTH}xf32>
  %weight = logical.mul %wide, %scale : tensor<{COLUMNS}x{DEPTH}xf32>
  %bias = logical.exp %b : tensor<{COLUMNS}xf32>
  %y = logical.linear %x, %weight, %bias :
    (tensor<?x{DEPTH}xf32, #logical.dims<["N", ""]>>, tensor<{COLUMNS}x{DEPTH}xf32>, tensor<{COLUMNS}xf32>)
    -> tensor<?x{COLUMNS}xf32, #logical.dims<["N", ""]>>
  func.return %y : tensor<?x{COLUMNS}xf32, #logical.dims<["N", ""]>>
}}
"""


def weights(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        "w": rng.integers(-128, 128, (COLUMNS, DEPTH)).astype(np.int8),
        "s": rng.uniform(0.001, 0.01, COLUMNS).astype(np.float32),
        "b": rng.standard_normal(COLUMNS).astype(np.float32),
    }


def expected(x: Array, given: dict[str, Array]) -> Array:
    wide = given["w"].astype(np.float64) * given["s"].astype(np.float64)[:, None]
    return x.astype(np.float64) @ wide.T + np.exp(given["b"].astype(np.float64))


def inputs(rows: int = ROWS, seed: int = 7) -> Array:
    return np.random.default_rng(seed).standard_normal((rows, DEPTH)).astype(np.float32)


def compiled(
    tmp_path: Path, dims: dict[str, list[int]], target: str = "cpu", **options: object
) -> CompiledModel:
    path = tmp_path / "quantized.mlir"
    path.write_text(QUANTIZED)
    return aicf.compile(path, weights=weights(1), target=target, dims=dims, **options)  # pyright: ignore


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_programs_hold_nothing_that_follows_from_parameters(tmp_path: Path, target: str):
    exe = compiled(tmp_path, {"N": [ROWS]}, target)
    (program,), prepare = exe.plan.programs, exe.plan.prepare
    assert prepare is not None
    assert len(program.launches) == 1
    assert {"w", "s", "b"}.isdisjoint(bind.name for bind in program.graph.binds)
    assert {bind.name for bind in prepare.graph.with_role("param")} == {"w", "s", "b"}
    np.testing.assert_allclose(exe(inputs()), expected(inputs(), weights(1)), rtol=1e-5, atol=1e-5)


def test_a_policy_without_prepared_weights_computes_all_at_every_call(tmp_path: Path):
    exe = compiled(tmp_path, {"N": [ROWS]}, policy={"prepared_weights": False})
    assert exe.plan.prepare is None and len(exe.plan.programs[0].launches) > 1
    np.testing.assert_allclose(exe(inputs()), expected(inputs(), weights(1)), rtol=1e-5, atol=1e-5)


def test_what_only_packing_reads_is_kept_packed_alone(tmp_path: Path):
    exe = compiled(tmp_path, {"N": [ROWS]})
    assert exe.plan.prepare is not None
    layouts = {bind.name: bind.layout for bind in exe.plan.derived}
    assert layouts["b:bias"] is None and "w:weight" not in layouts
    packed = [name for name, layout in layouts.items() if layout is not None]
    assert [name.rpartition(":")[0] for name in packed] == ["w:weight"]
    assert exe.plan.prepare.arena_bytes >= COLUMNS * DEPTH * 4


def test_buckets_share_what_is_computed(tmp_path: Path):
    exe = compiled(tmp_path, {"N": [1, ROWS]})
    assert exe.plan.prepare is not None
    computing = [node for node in exe.plan.prepare.graph.nodes if node.kind != "pack"]
    assert len(computing) == 2
    for rows in (1, ROWS):
        x = inputs(rows)
        np.testing.assert_allclose(exe(x), expected(x, weights(1)), rtol=1e-5, atol=1e-5)


def test_an_artifact_holds_what_was_computed_and_other_weights_are_computed_again(tmp_path: Path):
    exe = compiled(tmp_path, {"N": [ROWS]})
    path = tmp_path / "quantized.aicf"
    exe.save(path)
    x, before = inputs(), exe(inputs())
    np.testing.assert_array_equal(aicf.load(path)(x), before)
    for name, array in aicf.load(path).prepared().items():
        np.testing.assert_array_equal(array, exe.prepared()[name])
    np.testing.assert_allclose(
        aicf.load(path, weights=weights(2))(x), expected(x, weights(2)), rtol=1e-5, atol=1e-5
    )


def test_weights_that_only_prepare_reads_are_asked_for_by_name(tmp_path: Path):
    exe = compiled(tmp_path, {"N": [ROWS]})
    path = tmp_path / "bare.aicf"
    exe.save(path, weights=False)
    given = weights(3)
    del given["s"]
    with pytest.raises(aicf.errors.InputMismatch, match="missing weight s"):
        aicf.load(path, weights=given)


def test_eight_threads_read_the_same_values(tmp_path: Path):
    exe = compiled(tmp_path, {"N": [ROWS]})
    batches = [inputs(seed=seed) for seed in range(32)]
    with ThreadPoolExecutor(8) as pool:
        for x, y in zip(batches, pool.map(exe, batches), strict=True):
            np.testing.assert_allclose(y, expected(x, weights(1)), rtol=1e-5, atol=1e-5)


def test_what_computes_otherwise_is_not_shared(tmp_path: Path):
    """Sessions share by these keys: generated kernels differ by what they mean, and by nothing in their records."""
    one = compiled(tmp_path, {"N": [ROWS]})
    path = tmp_path / "other.mlir"
    path.write_text(QUANTIZED.replace("%bias = logical.exp", "%bias = logical.neg"))
    other = aicf.compile(path, weights=weights(1), target="cpu", dims={"N": [ROWS]})
    ours, theirs = packing_keys(one.plan), packing_keys(other.plan)
    assert ours.keys() == theirs.keys()
    assert {name for name in ours if ours[name] != theirs[name]} == {"b:bias"}


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_views_that_strides_cannot_express_are_copied_one_after_the_other(target: str):
    """Both repetitions of `w` need memory of their own: the second cannot be strides of the first."""
    graph = Graph("tiles")
    tiled = graph.tile(graph.tile(graph.exp(graph.param("w", (3, 2, 4))), [2, 2, 2]), [2, 1, 1])
    graph.output(graph.matmul(graph.input("x", (12, 8, 4)), tiled), "y")
    random = np.random.default_rng(5)
    w, x = (random.standard_normal(shape).astype(np.float32) for shape in ((3, 2, 4), (12, 8, 4)))
    exe = aicf.compile(graph, weights={"w": w}, target=target)
    assert len(exe.plan.programs[0].launches) == 1
    wanted = x.astype(np.float64) @ np.tile(np.tile(np.exp(w.astype(np.float64)), (2, 2, 2)), (2, 1, 1))
    np.testing.assert_allclose(exe(x), wanted, rtol=1e-5, atol=1e-5)
