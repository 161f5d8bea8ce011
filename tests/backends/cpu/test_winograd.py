"""Winograd's convolutions against float64 NumPy: any size, padding, batch, block and thread count; how a policy says
whether they are taken, and what they cost in accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import aicf
from aicf.backends.common.loop_nest import Access
from aicf.backends.cpu.families.conv.candidates import ConvQuery, ranked
from aicf.backends.cpu.families.conv.checks import check, tiled
from aicf.backends.cpu.families.conv.costs import EpilogueCycles
from aicf.backends.cpu.families.conv.problem import ConvProblem
from aicf.backends.cpu.families.conv.record import conv_record, read_conv_spec
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.conv.template import emit_conv
from aicf.backends.cpu.families.conv.template_base import ConvPointers
from aicf.backends.cpu.families.conv.winograd.matrices import OUTPUT_TILES, TAPS, transforms
from aicf.backends.cpu.families.conv.winograd.pack.template import emit_winograd_pack
from aicf.backends.cpu.families.conv.winograd.schedule import (
    MOST_WEIGHT_BYTES,
    MOST_WORKSPACE_BYTES,
    least_memory_reason,
    with_product,
    without_product,
)
from aicf.backends.cpu.families.gemm.epilogue import make_epilogue
from aicf.backends.cpu.families.gemm.pack.schedule import packed_elements
from aicf.backends.cpu.families.gemm.pack.template import Packer
from aicf.backends.cpu.target import LEVELS, CpuLevel
from aicf.compilation.record import Options
from aicf.compilation.stages import read_decisions
from aicf.dialects.json_values import attribute_of
from aicf.errors import PlanError, PolicyError
from aicf.frontends.text import make_context
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.tuning.candidates import candidates, grouped
from tests.backends.cpu.harness import Function, Poisoned, runnable_levels
from tests.backends.cpu.test_conv import LEVELS_HERE, arrays, instruction, program
from tests.support.random_graphs import run_program

Array = NDArray[Any]

HERE = max(runnable_levels(), key=lambda level: level.vector_bytes)
NO_EPILOGUE = EpilogueCycles(pixels=0.0, channels=1e6)


def problem_of(
    x: tuple[int, int, int, int],
    outputs: int,
    low: tuple[int, int],
    high: tuple[int, int],
    dtype: str = "f32",
) -> ConvProblem:
    n, channels, rows, columns = x
    counts = (rows + low[0] + high[0] - TAPS + 1, columns + low[1] + high[1] - TAPS + 1)
    return ConvProblem(
        dtype=dtype,
        batch=n,
        groups=1,
        channels=channels,
        outputs=outputs,
        sizes=(rows, columns),
        taps=(TAPS, TAPS),
        counts=counts,
        strides=(1, 1),
        dilations=(1, 1),
        low=low,
        x_strides=(channels * rows * columns, rows * columns, columns, 1),
    )


def spec_of(
    problem: ConvProblem, tile: int, block_rows: int, threads: int, level: CpuLevel = HERE
) -> ConvSpec:
    """Tiles in blocks of so many rows."""
    blank = without_product(tiled(problem), tile, block_rows, level.lanes(problem.dtype), threads)
    own = with_product(blank, level)
    return ConvSpec(problem, "winograd", own.lanes, prepared=True, threads=threads, winograd=own)


def convolved(x: Array, weight: Array, low: tuple[int, int], high: tuple[int, int]) -> Array:
    """In float64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *zip(low, high, strict=True)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (TAPS, TAPS), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, weight.astype(np.float64))


@cache
def functions(spec: ConvSpec, level: CpuLevel) -> tuple[Function, Function]:
    """What packs the weight, and what convolves with it."""
    p, dtype = spec.problem, spec.problem.dtype

    def pack(em: Any, source: Any, target: Any, *_: Any) -> None:
        if spec.winograd is not None:
            own = spec.winograd
            sizes = (p.outputs, p.channels)
            emit_winograd_pack(em, dtype, level.lanes("f64"), sizes, own.tile, own.nr, source, target)
        else:
            packer = Packer(em, dtype, dtype, spec.lanes, p.inner, spec.nr, (1, p.inner))
            packer.matrix(p.outputs, source, target)

    def convolve(em: Any, x: Any, weight: Any, y: Any, space: Any, tid: Any, nthreads: Any) -> None:
        access = Access(dtype, 0, (p.outputs * p.pixels, p.pixels, 1))
        epilogue = make_epilogue(em, None, [access], [[y]], "fused")
        emit_conv(em, spec, ConvPointers(x, weight, space, tid, nthreads), epilogue)

    return Function(level, 2, pack), Function(level, 4, convolve)


def run(spec: ConvSpec, x: Array, weight: Array, level: CpuLevel = HERE) -> Array:
    """The result of all threads, one after the other; nothing else is written."""
    p, dtype = spec.problem, spec.problem.dtype
    panels = packed_elements(p.inner, p.outputs, spec.nr)
    size = panels if spec.winograd is None else spec.winograd.weight_bytes // weight.itemsize
    packed, space = Poisoned((size,), dtype), Poisoned((max(spec.workspace_bytes, 1),), "u8")
    result = Poisoned((p.batch, p.outputs, *p.counts), dtype)
    pack, convolve = functions(spec, level)
    pack(weight, packed.array)
    for tid in range(spec.threads):
        convolve(x, packed.array, result.array, space.array, tid=tid, nthreads=spec.threads)
    for memory in (packed, space, result):
        memory.check()
    return result.array


def random_operands(problem: ConvProblem, seed: int) -> tuple[Array, Array]:
    """Pixels and a weight."""
    random = np.random.default_rng(seed)
    p, kind = problem, np.dtype(np.float32 if problem.dtype == "f32" else np.float64)
    x = random.standard_normal((p.batch, p.channels, *p.sizes)).astype(kind)
    weight = random.standard_normal((p.outputs, p.channels, TAPS, TAPS)) / np.sqrt(p.inner)
    return x, weight.astype(kind)


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_any_size(data: st.DataObject) -> None:
    draw = data.draw
    border = st.integers(0, 3)
    low, high = (draw(border), draw(border)), (draw(border), draw(border))
    sizes = [draw(st.integers(max(1, TAPS - one - other), 19)) for one, other in zip(low, high, strict=True)]
    x = (draw(st.integers(1, 3)), draw(st.integers(1, 40)), sizes[0], sizes[1])
    dtype = draw(st.sampled_from(["f32", "f64"]))
    problem = problem_of(x, draw(st.integers(1, 40)), low, high, dtype)
    level = draw(st.sampled_from([each for each in runnable_levels() if each.lanes(dtype) >= 4]))
    tile = draw(st.sampled_from(OUTPUT_TILES))
    rows = problem.batch * -(-problem.counts[0] // tile)
    spec = spec_of(problem, tile, draw(st.integers(1, rows)), draw(st.integers(1, 2)), level)
    assert check(spec) is None
    pixels, weight = random_operands(problem, draw(st.integers(0, 1000)))
    wanted = convolved(pixels, weight, low, high)
    unit = 2.0 ** (-23 if dtype == "f32" else -52)
    found = run(spec, pixels, weight, level)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=64 * unit * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("channels", [64, 256])
@pytest.mark.parametrize("below_zero", [True, False], ids=["any", "activations"])
def test_error_beside_direct(channels: int, below_zero: bool) -> None:
    problem = problem_of((1, channels, 14, 14), 32, (1, 1), (1, 1))
    x, weight = random_operands(problem, channels)
    x = x if below_zero else np.maximum(x, 0)
    wanted = convolved(x, weight, (1, 1), (1, 1))
    entries = ranked(ConvQuery(problem, HERE, 1, True, NO_EPILOGUE, False))
    (direct,) = (spec for _, spec in entries if spec.algorithm == "direct")
    errors = [
        np.sqrt(np.mean((run(spec, x, weight) - wanted) ** 2))
        for spec in (direct, *(spec_of(problem, tile, 2, 1) for tile in OUTPUT_TILES))
    ]
    assert errors[1] < 1.2 * errors[0]
    assert errors[2] < 3.5 * errors[0]


@pytest.mark.parametrize("tile", OUTPUT_TILES)
def test_transforms_are_exact(tile: int) -> None:
    given = transforms(tile)
    random = np.random.default_rng(tile)
    pixels = [Fraction(int(value)) for value in random.integers(-9, 9, given.size)]
    taps = [Fraction(int(value)) for value in random.integers(-9, 9, TAPS)]
    products = [x * w for x, w in zip(_times(given.input, pixels), _times(given.weight, taps), strict=True)]
    wanted = [sum(pixels[at + tap] * taps[tap] for tap in range(TAPS)) for at in range(tile)]
    assert _times(given.output, products) == wanted
    numbers = [number for matrix in (given.input, given.output) for row in matrix for number in row]
    assert all(Fraction(float(np.float32(float(number)))) == number for number in numbers)


def _times(matrix: Sequence[Sequence[Fraction]], vector: Sequence[Fraction]) -> list[Fraction]:
    return [sum((x * y for x, y in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]


def test_a_record_is_read_again() -> None:
    problem = problem_of((2, 20, 15, 15), 40, (1, 1), (1, 1))
    for threads in (1, 2):
        spec = spec_of(problem, 4, 3, threads)
        assert spec.winograd is not None
        record = conv_record(spec)
        assert read_conv_spec(record, problem, LEVELS["x86-64-v4"]) == spec


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"prepared": False}, "which only a parameter can be"),
        ({"output_tile": 3}, "its 'output_tile' is 3, legal: 2, 4"),
    ],
)
def test_a_record_that_contradicts_itself(entries: dict[str, object], message: str) -> None:
    problem = problem_of((1, 20, 15, 15), 40, (1, 1), (1, 1))
    spec = spec_of(problem, 4, 3, 1)
    assert spec.winograd is not None
    record = conv_record(spec)
    with pytest.raises(PlanError, match=message):
        read_conv_spec(
            {**record, **{name: attribute_of(value) for name, value in entries.items()}},
            problem,
            LEVELS["x86-64-v4"],
        )


WIDE = problem_of((1, 512, 8, 8192), 512, (1, 1), (1, 1))
DEEP = problem_of((8, 4096, 16, 16), 4096, (1, 1), (1, 1))


@pytest.mark.parametrize("problem", [WIDE, DEEP], ids=["wide", "deep"])
@pytest.mark.parametrize("threads", [1, 4])
def test_memory_has_a_bound(problem: ConvProblem, threads: int) -> None:
    """A row of tiles of a wide image, a weight of many channels: what takes too much is not offered, the rest is."""
    specs = [spec for _, spec in ranked(ConvQuery(problem, HERE, threads, True, NO_EPILOGUE, True))]
    tiles = [spec.winograd for spec in specs if spec.winograd is not None]
    assert specs and all(tile.weight_bytes <= MOST_WEIGHT_BYTES for tile in tiles)
    assert all(tile.workspace_bytes <= MOST_WORKSPACE_BYTES * tile.threads for tile in tiles)
    refused = [tile for tile in OUTPUT_TILES if least_memory_reason(tiled(problem), HERE, tile) is not None]
    assert refused and not {tile.tile for tile in tiles} & set(refused)


def test_a_record_that_takes_too_much_memory() -> None:
    """Records of files keep to the bound too."""
    spec = spec_of(DEEP, 4, 1, 1)
    assert spec.winograd is not None
    record = conv_record(spec)
    with pytest.raises(PlanError, match=r"its transformed weight would take \d+ MiB, the most is 256"):
        read_conv_spec(record, DEEP, LEVELS["x86-64-v4"])


def test_the_ledger_says_what_takes_too_much() -> None:
    graph = aicf.Graph("deep")
    x, w = graph.input("x", (1, 4096, 12, 12)), graph.param("w", (4096, 4096, 3, 3))
    graph.output(graph.conv(x, w, low=(1, 1), high=(1, 1)), "y")
    module = graph.module()
    AicfInferencePass(target="cpu:x86-64-v3").apply(make_context(), module)
    (against,) = (d.rejected for d in read_decisions(module) if d.made_by == "select-kernels" and d.rejected)
    for tile in OUTPUT_TILES:
        assert "its transformed weight would take" in str(against[f"winograd {tile}x{tile}"])


def test_what_no_tile_takes() -> None:
    spec = spec_of(problem_of((1, 20, 15, 15), 40, (1, 1), (1, 1)), 4, 3, 1)
    for change, reason in (
        ({"strides": (2, 2)}, "windows of 3 x 3, one next to the other"),
        ({"groups": 2}, "of all channels, in one group"),
    ):
        assert reason in (check(replace(spec, problem=replace(spec.problem, **change))) or "")
    assert spec.winograd is not None
    too_long = replace(spec, winograd=replace(spec.winograd, block_rows=9))
    assert "no more rows than there are" in (check(too_long) or "")


# What is compiled

X, WEIGHT = (2, 24, 17, 18), (40, 24, 3, 3)
PADDED = {"low": [1, 1], "high": [1, 0]}


def pinned(tile: int) -> dict[str, Any]:
    return {"records": {"c": {"algorithm": "winograd", "output_tile": tile}}}


def compiled(role: str = "param", **options: Any) -> tuple[Any, dict[str, Array], Array]:
    """A convolution with bias, activation and residual after it, its inputs, and what the reference gives."""
    graph = program(X, WEIGHT, PADDED, "f32", role)
    given = arrays(graph)
    wanted = run_program(graph.module(), given)["y"]
    weights = {name: given.pop(name) for name in ("w", "b") if name == "b" or role == "param"}
    return aicf.compile(graph.module(), weights=weights, **{"target": "cpu", **options}), given, wanted


@pytest.fixture(scope="module")
def chosen() -> str:
    """The instruction of a compilation that no policy binds."""
    return instruction(compiled()[0])


@pytest.mark.parametrize(("level", "tile"), [*((level, 4) for level in LEVELS_HERE), (HERE.name, 2)])
def test_a_policy_pins_the_tile(level: str, tile: int) -> None:
    exe, given, wanted = compiled(target=f"cpu:{level}", policy=pinned(tile))
    assert f'algorithm = "winograd", output_tile = {tile} : i64' in instruction(exe)
    assert f"Winograd F({tile}x{tile}, 3x3)" in instruction(exe)
    np.testing.assert_allclose(exe.run(given)["y"], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "policy",
    [
        {"records": {"c": {"algorithm": "direct"}}},
        {"rounding": "strict"},
        {"determinism": "batch_invariant"},
    ],
    ids=["pinned", "strict", "batch invariant"],
)
def test_a_policy_that_excludes_it(policy: dict[str, Any], chosen: str) -> None:
    assert 'algorithm = "winograd"' in chosen
    exe, given, wanted = compiled(policy=policy)
    assert 'algorithm = "direct", output_tile = 0 : i64' in instruction(exe)
    np.testing.assert_allclose(exe.run(given)["y"], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_every_algorithm_is_measured() -> None:
    module = program(X, WEIGHT, PADDED, "f32", "param").module()
    options = Options("cpu:x86-64-v3", "{}", "", 1)
    found = candidates(grouped(module, options, make_context(), lambda _: None), 9)
    specs = [candidate.spec for candidate in found if candidate.kernel.id == "cpu.conv_avx2"]
    assert len(specs) == 9 and {spec["output_tile"] for spec in specs} == {0, 2, 4}


def test_a_weight_that_is_no_parameter_is_not_transformed() -> None:
    exe, _, _ = compiled("input")
    assert 'algorithm = "direct"' in instruction(exe)
    with pytest.raises(PolicyError, match="does not offer winograd; it offers direct"):
        compiled("input", policy=pinned(4))


@pytest.mark.parametrize("tile", OUTPUT_TILES)
def test_threads_give_the_same_bits(tile: int) -> None:
    found = [
        exe.run(given)["y"].tobytes()
        for threads in (1, 2)
        for policy in ({"records": {"c": {**pinned(tile)["records"]["c"], "threads": threads}}},)
        for exe, given, _ in (compiled(threads=threads, policy=policy),)
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("tile", OUTPUT_TILES)
def test_an_image_has_the_same_bits_in_any_batch(tile: int) -> None:
    together = problem_of((3, 24, 10, 11), 40, (1, 1), (1, 1))
    x, weight = random_operands(together, tile)
    spec = spec_of(together, tile, 4, 1)
    alone = spec_of(problem_of((1, 24, 10, 11), 40, (1, 1), (1, 1)), tile, 2, 1)
    found = run(spec, x, weight)
    for image in range(3):
        assert (
            run(alone, np.ascontiguousarray(x[image : image + 1]), weight).tobytes() == found[image].tobytes()
        )


def test_an_artifact_holds_the_transformed_weight(tmp_path: Path) -> None:
    exe, given, _ = compiled(policy=pinned(4))
    exe.save(tmp_path / "model.aicf")
    again = aicf.load(tmp_path / "model.aicf")
    assert "winograd_weight" in exe.ir("emit")
    assert again.run(given)["y"].tobytes() == exe.run(given)["y"].tobytes()


@pytest.mark.parametrize("tile", OUTPUT_TILES)
@pytest.mark.parametrize(
    ("level", "dtype"), [("x86-64-v2", "f64"), ("x86-64-v4", "f32"), ("x86-64-v4", "f64")]
)
def test_levels_have_code_or_do_not_offer_it(level: str, tile: int, dtype: str) -> None:
    own = LEVELS[level]
    problem = problem_of((1, 20, 9, 9), 40, (1, 1), (1, 1), dtype)
    if own.lanes(dtype) < tile:
        assert all(
            spec.output_tile != tile
            for _, spec in ranked(ConvQuery(problem, own, 1, True, NO_EPILOGUE, True))
        )
        return
    spec = spec_of(problem, tile, 2, 1, own)

    def convolve(em: Any, x: Any, weight: Any, y: Any, space: Any, tid: Any, nthreads: Any) -> None:
        access = Access(dtype, 0, (40 * 81, 81, 1))
        epilogue = make_epilogue(em, None, [access], [[y]], "fused")
        emit_conv(em, spec, ConvPointers(x, weight, space, tid, nthreads), epilogue)

    assert Function.compile_only(own, 4, convolve)
