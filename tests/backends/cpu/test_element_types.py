"""Element types narrower than their registers: conversions, casts, and whole programs of each type against float64."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import aicf
from aicf.backends.cpu.codegen.ir_builder import Emitter, Value
from aicf.backends.cpu.codegen.scalar.ops import Scalars, convert
from aicf.backends.cpu.target import ACCUMULATORS, ELEMENT_BYTES, HALVES, LEVELS, NARROW_FLOATS, CpuLevel
from aicf.dialects.types import ELEMENTS, element_named
from aicf.frontends.builder import Graph
from tests.backends.cpu.harness import NUMPY, Function, Poisoned, runnable_levels, undefined_symbols
from tests.support.elementwise_ops import edges
from tests.support.random_graphs import run_program

Array = NDArray[Any]

FLOATS = ("f16", "bf16")
NARROW = (*FLOATS, "i16", "i8", "u8")
EPS = {"f16": 2.0**-10, "bf16": 2.0**-7}


def as_f64(array: Array) -> Array:
    with np.errstate(all="ignore"):
        return array.astype(np.float64)


def random(shape: tuple[int, ...], dtype: str, seed: int) -> Array:
    rng, element = np.random.default_rng(seed), element_named(dtype)
    if element.is_float:
        return rng.standard_normal(shape).astype(element.dtype)
    return rng.integers(-9, 10, shape).astype(element.dtype)


def run(graph: Graph, inputs: Mapping[str, Array], **options: Any) -> dict[str, Array]:
    """Results by name of a program compiled for this machine."""
    module = graph.module()
    wanted = run_program(module, inputs)
    found = aicf.compile(module, target=options.pop("target", "cpu"), **options)(dict(inputs))
    arrays = found if isinstance(found, tuple) else (found,)
    return dict(zip(wanted, map(np.asarray, arrays), strict=True))


def check(graph: Graph, inputs: Mapping[str, Array], rounds: float = 2.0) -> None:
    """Integers exactly; floats within `rounds` of a unit of the largest number of a result, or of 1."""
    found = run(graph, inputs)
    for name, wanted in run_program(graph.module(), inputs).items():
        actual = found[name]
        assert actual.shape == wanted.shape, name
        if actual.dtype.kind in "biu":
            np.testing.assert_array_equal(actual, wanted, err_msg=name)
            continue
        eps = float(ml_dtypes.finfo(actual.dtype).eps)
        limit = rounds * eps * max(1.0, float(np.abs(wanted).max()))
        assert np.abs(as_f64(actual) - wanted).max() <= limit, name


def test_every_type_of_the_dialect_has_its_size() -> None:
    assert {element.name: element.bytes for element in ELEMENTS} == ELEMENT_BYTES


# Conversions


def word_of(dtype: str) -> np.dtype[Any]:
    """The unsigned integer with as many bits as a type."""
    return np.dtype(f"u{ELEMENT_BYTES[dtype]}")


OVERFLOW = {
    "f16": (0x7C00, 2.0**16),
    "bf16": (0x7F80, 2.0**128),
    "f8E5M2": (0x7C, 2.0**16),
    "f8E4M3FN": (0x7F, 480.0),
}
"""The bits that a number too large for a type becomes, and the number that would be next to the largest."""


def nearest(x: Array, dtype: str) -> Array:
    """The bits of the narrow float nearest to each f64, even between two: the best beside a first guess."""
    kind, word = element_named(dtype).dtype, word_of(dtype)
    overflow, after = OVERFLOW[dtype]
    with np.errstate(all="ignore"):
        guess = np.abs(x).astype(np.float32).astype(kind).view(word).astype(np.int64)
    candidates = np.stack([np.maximum(guess + step, 0) for step in (-1, 0, 1)])
    values = as_f64(np.minimum(candidates, overflow).astype(word).view(kind))
    # What is too large takes the place of the number that would come next.
    values = np.where(candidates >= overflow, after, values)
    with np.errstate(all="ignore"):
        distance = np.abs(values - np.abs(x))
    # Of two at one distance the even one: it has the smaller key.
    best = np.lexsort((candidates & 1, distance), axis=0)[0]
    chosen = np.minimum(np.take_along_axis(candidates, best[None], 0)[0], overflow)
    sign = 1 << 8 * word.itemsize - 1
    return np.where(np.abs(x) >= after, overflow, chosen).astype(word) | np.where(
        np.signbit(x), sign, 0
    ).astype(word)


def every_number(dtype: str) -> Array:
    """The bits of every number of a narrow type."""
    word = word_of(dtype)
    return np.arange(1 << 8 * word.itemsize, dtype=np.int64).astype(word)


def hard_numbers(dtype: str) -> Array:
    """Every number of a type, the middles between neighbours and what is next to those, and random bits, as f64."""
    kind = element_named(dtype).dtype
    every = np.sort(as_f64(every_number(dtype).view(kind)))
    every = every[np.isfinite(every)]
    middles = (every[1:] + every[:-1]) / 2
    beside = [np.nextafter(middles, way) for way in (-np.inf, np.inf)]
    bits = np.random.default_rng(1).integers(0, 1 << 63, 4096, dtype=np.int64).view(np.float64)
    above = (every[-1] + OVERFLOW[dtype][1]) / 2
    edges = [np.nextafter(above, 0), above, np.nextafter(above, np.inf), OVERFLOW[dtype][1]]
    largest = np.array(
        [every[-1], every[-1] * (1 + 2.0**-9), np.inf, -np.inf, 1e300, -1e300, -0.0, 5e-324, *edges]
    )
    found = np.concatenate([every, middles, *beside, largest, bits[np.isfinite(bits)]])
    return np.resize(found, len(found) // 16 * 16)


def converter(level: CpuLevel, source: str, target: str, count: int, lanes: int) -> Function:
    def emit(em: Emitter, x: Value, y: Value, *_: Value) -> None:
        def body(i: Value, _: list[Value]) -> list[Value]:
            loaded = em.load(em.address(x, i, source), source, lanes)
            value = convert(Scalars(em, lanes), loaded, source, target)
            em.store(value, em.address(y, i, target), target, lanes)
            return []

        em.loop(0, count, lanes, [], body)

    return Function(level, 2, emit)


@pytest.mark.parametrize("level", runnable_levels(), ids=lambda level: level.name)
@pytest.mark.parametrize("dtype", NARROW_FLOATS)
def test_every_number_widens_and_the_nearest_is_stored(dtype: str, level: CpuLevel) -> None:
    bits = every_number(dtype)
    wide = np.zeros(len(bits), np.float32)
    converter(level, dtype, "f32", len(bits), 16)(bits, wide)
    with np.errstate(all="ignore"):
        exact = bits.view(NUMPY[dtype]).astype(np.float32)
    np.testing.assert_array_equal(wide, exact)
    np.testing.assert_array_equal(np.signbit(wide), np.signbit(exact))
    hard = hard_numbers(dtype)
    for source, lanes in (("f64", 16), ("f32", 16), ("f32", 1)):
        with np.errstate(all="ignore"):
            given = hard.astype(NUMPY[source])
        found = np.zeros(len(given), word_of(dtype))
        converter(level, source, dtype, len(given), lanes)(given, found)
        np.testing.assert_array_equal(found, nearest(as_f64(given), dtype))
        converter(level, source, dtype, 16, lanes)(np.full(16, np.nan, NUMPY[source]), found)
        assert np.isnan(as_f64(found[:16].view(NUMPY[dtype]))).all()


@pytest.mark.parametrize("level", LEVELS.values(), ids=lambda level: level.name)
def test_no_conversion_calls_a_library(level: CpuLevel) -> None:
    def emit(em: Emitter, x: Value, y: Value, *_: Value) -> None:
        for lanes in (1, 4):
            for half in NARROW_FLOATS:
                for wide in ("f32", "f64"):
                    value = convert(Scalars(em, lanes), em.load(x, wide, lanes), wide, half)
                    em.store(value, y, half, lanes)
                    em.store(convert(Scalars(em, lanes), em.load(x, half, lanes), half, wide), y, wide, lanes)

    assert undefined_symbols(Function.compile_only(level, 2, emit)) == []


@pytest.mark.parametrize("level", runnable_levels(), ids=lambda level: level.name)
def test_parts_of_vectors(level: CpuLevel) -> None:
    """Lanes that do not exist are neither read nor written, down to a single one."""
    given = {dtype: np.arange(1, 17).astype(NUMPY[dtype]) for dtype in NARROW}
    for dtype, array in given.items():
        wide = ACCUMULATORS[dtype]
        out = [Poisoned((active,), dtype) for active in range(1, 16)]

        def emit(em: Emitter, x: Value, *pointers: Value, dtype: str = dtype, wide: str = wide) -> None:
            for active in range(1, 16):
                loaded = convert(Scalars(em, 16), em.load(x, dtype, 16, active), dtype, wide)
                doubled = em.b.fadd(loaded, loaded) if dtype in HALVES else em.b.add(loaded, loaded)
                value = convert(Scalars(em, 16), doubled, wide, dtype)
                em.store(value, pointers[active - 1], dtype, 16, active)

        Function(level, 16, emit)(array, *(part.array for part in out))
        for part in out:
            part.check()
            np.testing.assert_array_equal(part.array, 2 * array[: len(part.array)])


def cast_inputs(dtype: str) -> Array:
    """Edges of a type, and numbers around the limits of every integer type."""
    element = element_named(dtype)
    if not element.is_float:
        return edges(dtype)
    limits = np.array([2.0**bits for bits in (0, 7, 8, 15, 16, 31, 63)])
    around = np.concatenate([limits, limits * (1 - 2.0**-7), limits - 0.5, limits + 1.5])
    with np.errstate(all="ignore"):
        return np.concatenate([edges(dtype), *(s * around.astype(element.dtype) for s in (1, -1))])


@pytest.mark.parametrize("source", [element.name for element in ELEMENTS])
def test_casts_to_every_type(source: str) -> None:
    """One program for each source: truncated, saturated, wrapped around or rounded as the dialect says."""
    x = cast_inputs(source)
    graph = Graph("casts")
    value = graph.input("x", x.shape, source)
    for element in ELEMENTS:
        if element.name != source:
            graph.output(graph.cast(value, element.name), element.name)
    found = run(graph, {"x": x})
    for name, wanted in run_program(graph.module(), {"x": x}).items():
        dtype = element_named(name).dtype
        if name in NARROW_FLOATS:
            # From integers by way of f32, as NumPy does it.
            wanted = nearest(as_f64(wanted.astype(np.float32) if x.dtype.kind == "i" else wanted), name)
            bits, is_nan = found[name].view(word_of(name)), np.isnan(as_f64(x))
            assert np.isnan(as_f64(found[name][is_nan])).all(), name
            np.testing.assert_array_equal(bits[~is_nan], wanted[~is_nan], err_msg=name)
            continue
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(as_f64(found[name]), as_f64(wanted.astype(dtype)), err_msg=name)


# Programs


@pytest.mark.parametrize("dtype", NARROW)
def test_reductions(dtype: str) -> None:
    """Along rows and along columns, one after the other and fused; integers wrap around in their own type."""
    graph, inputs = Graph("reductions"), {"x": random((7, 37), dtype, 1), "w": random((37,), dtype, 2)}
    x = graph.input("x", (7, 37), dtype)
    for axis in (0, 1):
        for name in ("sum", "max", "min"):
            graph.output(getattr(graph, f"reduce_{name}")(x, [axis]), f"{name}{axis}")
        graph.output(graph.argmax(x, axis), f"argmax{axis}")
        graph.output(graph.argmin(x, axis), f"argmin{axis}")
        graph.output(graph.cumsum(x, axis), f"cumsum{axis}")
        if dtype in FLOATS:
            graph.output(graph.reduce_mean(x, [axis]), f"mean{axis}")
            graph.output(graph.softmax(x, axis), f"softmax{axis}")
            graph.output(graph.reduce_logsumexp(x, [axis]), f"logsumexp{axis}")
        else:
            graph.output(graph.reduce_prod(x, [axis]), f"prod{axis}")
    w = graph.input("w", (37,), dtype)
    if dtype in FLOATS:
        graph.output(graph.layer_norm(x, w, w), "norm")
    graph.output(graph.sub(x, graph.reduce_max(x, [1], keepdims=True)), "below")
    check(graph, inputs)


@pytest.mark.parametrize("dtype", NARROW)
def test_moves_and_reads_at_indices(dtype: str) -> None:
    graph = Graph("moves")
    inputs = {"x": random((5, 6, 19), dtype, 3), "i": np.array([4, -1, 0, 2], np.int32)}
    x, i = graph.input("x", (5, 6, 19), dtype), graph.input("i", (4,), "i32")
    graph.output(graph.gather(x, i, 0), "rows")
    graph.output(graph.gather(x, i, 2), "columns")
    graph.output(graph.flip(x, [2]), "flipped")
    graph.output(graph.transpose(x, [2, 0, 1]), "transposed")
    graph.output(graph.concat([x, graph.abs(x)], 2), "joined")
    graph.output(graph.neg(graph.slice(x, [1, 0, 3], [4, 3, 5], [1, 2, 3])), "sliced")
    graph.output(graph.tile(x, [1, 2, 1]), "tiled")
    graph.output(graph.iota((3, 40), 1, dtype), "counted")
    graph.output(graph.pad(x, [0, 1, 2], [1, 0, 3]), "padded")
    graph.output(graph.where(graph.gt(x, graph.flip(x, [0])), x, graph.neg(x)), "chosen")
    check(graph, inputs)


@pytest.mark.parametrize("dtype", NARROW)
def test_scatters_and_topk(dtype: str) -> None:
    """Many updates of one row are added in f32 and rounded once."""
    graph = Graph("places")
    inputs = {"x": random((6, 21), dtype, 1), "u": random((400, 21), dtype, 2)}
    inputs["i"] = np.random.default_rng(3).integers(-7, 8, 400).astype(np.int32)
    x, u, i = (
        graph.input("x", (6, 21), dtype),
        graph.input("u", (400, 21), dtype),
        graph.input("i", (400,), "i32"),
    )
    for mode in ("add", "max", "min", "mul", "set"):
        graph.output(graph.scatter(x, i, u, mode), mode)
    values, indices = graph.topk(u, 3)
    graph.output(values, "values")
    graph.output(indices, "places")
    check(graph, inputs, 0.51)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("threads", [1, 2])
def test_products(dtype: str, threads: int) -> None:
    """A weight packed ahead, a right operand that changes, a batch, and what follows a product."""
    shapes = {"x": (9, 33), "b": (33, 21), "y": (2, 3, 5, 8), "z": (2, 3, 8, 7)}
    weights = {"w": random((40, 33), dtype, 5), "c": random((40,), dtype, 6)}
    inputs = {name: random(shape, dtype, number) for number, (name, shape) in enumerate(shapes.items())}
    graph = Graph("products")
    x, b, y, z = (graph.input(name, shape, dtype) for name, shape in shapes.items())
    w, c = (graph.param(name, array.shape, dtype) for name, array in weights.items())
    graph.output(graph.relu(graph.linear(x, w, c)), "layer")
    graph.output(graph.matmul(x, b), "product")
    graph.output(graph.matmul(y, z), "batch")
    module = graph.module()
    exe = aicf.compile(module, weights=weights, target="cpu", threads=threads)
    for actual, wanted in zip(exe(inputs), run_program(module, inputs | weights).values(), strict=True):
        if dtype in FLOATS:
            assert np.abs(as_f64(actual) - wanted).max() <= 2 * EPS[dtype] * np.abs(wanted).max()
        else:
            np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_is_as_the_policy_says(dtype: str) -> None:
    """`strict` has the bits of the typed semantics, op by op; `fused` those of one rounding at the end."""
    inputs = {name: random((4, 50), dtype, seed) for seed, name in enumerate("xyz")}
    graph = Graph("rounding")
    x, y, z = (graph.input(name, (4, 50), dtype) for name in "xyz")
    graph.output(graph.sub(graph.mul(graph.add(x, y), z), y), "chain")
    module = graph.module()
    strict, fused = (
        np.asarray(aicf.compile(module, target="cpu", policy={"rounding": rounding})(inputs))
        for rounding in ("strict", "fused")
    )
    wanted = run_program(module, inputs, "typed")["chain"]
    np.testing.assert_array_equal(strict.view(np.uint16), wanted.view(np.uint16))
    a, b, c = (array.astype(np.float32) for array in inputs.values())
    np.testing.assert_array_equal(
        fused.view(np.uint16), ((a + b) * c - b).astype(fused.dtype).view(np.uint16)
    )
    assert (strict != fused).any()


@pytest.mark.parametrize("dtype", NARROW)
def test_saved_loaded_and_bound(dtype: str, tmp_path: Path) -> None:
    """Arrays of the type go in and out, copied and in place, in the artifact as well."""
    weights = {"w": random((24, 16), dtype, 1)}
    graph = Graph("bound")
    x = graph.input("x", (6, 24), dtype)
    graph.output(graph.matmul(x, graph.param("w", (24, 16), dtype)), "y")
    exe = aicf.compile(graph.module(), weights=weights, target="cpu")
    array = random((6, 24), dtype, 2)
    first = exe(array)
    assert first.dtype == element_named(dtype).dtype
    exe.save(tmp_path / "narrow.aicf")
    loaded = aicf.load(tmp_path / "narrow.aicf")
    np.testing.assert_array_equal(loaded(array), first)
    out = np.zeros_like(first)
    bound = loaded.bind(x=array, y=out)
    array[...] = -array if dtype in FLOATS else array + 1
    bound.replay()
    np.testing.assert_array_equal(out, loaded(array))
