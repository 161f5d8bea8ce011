"""Calling compiled programs: values, what is accepted, and what every wrong input says."""

from __future__ import annotations

import gc
import re
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

from aicf import runtime
from aicf.errors import InputMismatch
from aicf.runtime import Executable
from tests.runtime.support import ADD_RELU, BUCKETS, COUNTER, add_relu, executable, random, scale

pytestmark = pytest.mark.usefixtures("few_objects")
RNG = np.random.default_rng(7)
B = random(RNG, 6)
W = random(RNG, 2)


@pytest.fixture(scope="module")
def two_outputs() -> Executable:
    return executable(ADD_RELU, {"b": B})


@pytest.fixture(scope="module")
def buckets() -> Executable:
    return executable(BUCKETS, {"w": W})


def test_positional_named_and_dict_calls(two_outputs: Executable) -> None:
    x = random(RNG, 4, 6)
    for results in (two_outputs(x), two_outputs(x=x), two_outputs({"x": x})):
        assert isinstance(results, tuple)
        for got, wanted in zip(results, add_relu(x, B), strict=True):
            np.testing.assert_array_equal(got, wanted)
            assert got.dtype == np.float32


def test_one_output_comes_alone(buckets: Executable) -> None:
    for rows in (1, 5):
        x, m = random(RNG, rows, 2), random(RNG, rows, 2)
        for y in (buckets(x, m), buckets(x, m=m), buckets({"m": m, "x": x})):
            np.testing.assert_array_equal(y, scale(x, m, W))


def test_results_are_fresh(two_outputs: Executable) -> None:
    x = random(RNG, 4, 6)
    first, _ = two_outputs(x)
    kept = first.copy()
    first += 1
    second, _ = two_outputs(-x)
    np.testing.assert_array_equal(second, add_relu(-x, B)[0])
    np.testing.assert_array_equal(first, kept + 1)


@pytest.mark.parametrize(
    "view",
    [
        np.asfortranarray,
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[::-1, ::-1][::-1, ::-1],
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape),
    ],
    ids=["fortran", "strided", "reversed", "unaligned"],
)
def test_any_strides_are_accepted(two_outputs: Executable, view: Any) -> None:
    x = random(RNG, 4, 6)
    np.testing.assert_array_equal(two_outputs(view(x))[0], add_relu(x, B)[0])


def test_large_inputs_of_any_strides() -> None:
    text = (
        ADD_RELU.replace("4x6xf32", "999x6xf32")
        .replace("size(96)", "size(23976)")
        .replace("= 128", "= 24064")
    )
    exe = executable(text, {"b": B})
    x = random(RNG, 999, 12)
    for given in (x[:, ::2], np.ascontiguousarray(x[:, ::2]), np.asfortranarray(x[:, ::2])):
        for got, wanted in zip(exe(given), add_relu(x[:, ::2], B), strict=True):
            np.testing.assert_array_equal(got, wanted)
    kept = exe(x[:, ::2])[0]
    exe(-x[:, ::2])
    np.testing.assert_array_equal(kept, add_relu(x[:, ::2], B)[0])


class FromDLPack:
    """An array of another library."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_dlpack_inputs_and_outputs(buckets: Executable) -> None:
    x, m = random(RNG, 5, 2), random(RNG, 5, 2)
    np.testing.assert_array_equal(buckets(FromDLPack(x), FromDLPack(m)), scale(x, m, W))
    y = np.zeros((5, 2), np.float32)
    bound = buckets.bind(x=FromDLPack(x), m=FromDLPack(m), y=FromDLPack(y))
    bound.replay()
    np.testing.assert_array_equal(y, scale(x, m, W))


def test_scalar_inputs() -> None:
    text = ADD_RELU.replace("<4x6xf32", "<f32").replace("<6xf32", "<f32").replace(", strides [0, 1]", "")
    exe = executable(text, {"b": np.float32(2).reshape(())})
    y, z = exe(np.float32(1.5))
    assert (y.shape, float(y), float(z)) == ((), 3.5, 7.0)


X = np.ones((4, 6), np.float32)
WRONG_CALLS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((), {}, "missing input x; it takes x: f32[4, 6]"),
    ((X, X), {}, "expected 1 inputs (x), got 2"),
    ((X,), {"x": X}, "input 'x' is given by position and by name; give it once"),
    ((), {"x": X, "weight": X}, "there is no input 'weight'; it has x"),
    ((), {"x": X, "X1": X}, "there is no input 'X1'; it has x"),
    ((), {"x": X, "b": X}, "'b' is a weight, not an input; set_state() changes those that programs update"),
    (
        (X.astype(np.float64),),
        {},
        "input 'x': expected f32[4, 6], got f64[4, 6]; convert it, as in array.astype('float32')",
    ),
    (
        (X.astype(">f4"),),
        {},
        "input 'x': expected f32[4, 6], got >f4[4, 6]; convert it, as in array.astype('float32')",
    ),
    (
        (X[:3],),
        {},
        "input 'x': expected f32[4, 6], got f32[3, 6]; the shape was fixed when the program was compiled",
    ),
    ((X[0],), {}, "input 'x': expected f32[4, 6], got f32[6]; rank must be 2, is 1"),
    ((X.tolist(),), {}, "input 'x': expected an array f32[4, 6], got list; use np.asarray"),
    ((None,), {}, "input 'x': expected an array f32[4, 6], got NoneType; use np.asarray"),
    ((np.ma.masked_array(X, X > 0),), {}, "input 'x' is a masked array; fill it with array.filled(value)"),
]


@pytest.mark.parametrize(("args", "feeds", "message"), WRONG_CALLS)
def test_wrong_inputs_say_what_is_wrong(two_outputs: Executable, args: Any, feeds: Any, message: str) -> None:
    with pytest.raises(InputMismatch) as error:
        two_outputs(*args, **feeds)
    assert error.value.message == message
    x = random(RNG, 4, 6)
    np.testing.assert_array_equal(two_outputs(x)[0], add_relu(x, B)[0])


def rows(count: int) -> np.ndarray:
    return np.ones((count, 2), np.float32)


WRONG_BUCKETS: list[tuple[tuple[Any, ...], str]] = [
    ((rows(7), rows(7)), "no program for N=7; compiled for N=1 | N=5; compile for it too"),
    ((rows(5), rows(1)), "N is 5 in input 'x', 1 in 'm'; compiled for N=1 | N=5"),
    ((rows(5)[:, :1], rows(5)), "input 'x': expected f32[N, 2], got f32[5, 1]; compiled for N=1 | N=5"),
    ((rows(5)[0], rows(5)), "input 'x': expected f32[N, 2], got f32[2]; compiled for N=1 | N=5"),
    (([[1.0]], rows(5)), "input 'x': expected an array f32[1, 2], got list; use np.asarray"),
]


@pytest.mark.parametrize(("args", "message"), WRONG_BUCKETS)
def test_unknown_sizes_list_the_buckets(buckets: Executable, args: Any, message: str) -> None:
    with pytest.raises(InputMismatch) as error:
        buckets(*args)
    assert error.value.message == message


def test_the_dtype_is_checked_in_every_bucket(buckets: Executable) -> None:
    with pytest.raises(InputMismatch, match=r"input 'm': expected f32\[5, 2\], got f64\[5, 2\]"):
        buckets(rows(5), rows(5).astype(np.float64))


def test_descriptions(two_outputs: Executable, buckets: Executable) -> None:
    assert [str(spec) for spec in buckets.inputs] == ["f32[N, 2]", "f32[N, 2]"]
    assert [(spec.name, spec.shape) for spec in two_outputs.outputs] == [("y", (4, 6)), ("z", (4, 6))]
    wanted = "Executable(x: f32[N, 2], m: f32[N, 2] -> y: f32[N, 2]; reference:typed, compiled for N=1 | N=5)"
    assert repr(buckets) == wanted
    assert buckets.dims_of(rows(5), rows(5)) == {"N": 5}
    instance = (128 + 64) + 3 * (96 + 64)  # the arena, and x, y and z, each with room to align it
    assert two_outputs.memory() == {
        "arena@add_relu": 128,
        "instance@add_relu": instance,
        "peak@add_relu": instance,
        "weights": 24,
        "derived": 0,
        "state": 0,
    }
    assert buckets.memory()["derived"] == 64


# out=


def test_out_is_written_in_place(two_outputs: Executable, buckets: Executable) -> None:
    x, y = random(RNG, 4, 6), np.zeros((4, 6), np.float32)
    results = two_outputs.run({"x": x}, out={"y": y})
    assert results["y"] is y
    np.testing.assert_array_equal(y, add_relu(x, B)[0])
    np.testing.assert_array_equal(results["z"], add_relu(x, B)[1])
    kept = y.copy()
    two_outputs(-x)
    two_outputs.run({"x": -x})
    np.testing.assert_array_equal(y, kept)
    m, one = random(RNG, 1, 2), np.zeros((1, 2), np.float32)
    assert buckets.run({"x": m, "m": m}, out=one)["y"] is one
    np.testing.assert_array_equal(one, scale(m, m, W))


SHARED = np.zeros((8, 6), np.float32)
READ_ONLY = np.zeros((4, 6), np.float32)
READ_ONLY.flags.writeable = False
WRONG_OUTS: list[tuple[Any, str]] = [
    (
        {"y": np.zeros((4, 5), np.float32)},
        "output 'y': expected f32[4, 6], got f32[4, 5]; the shape was fixed",
    ),
    ({"y": np.zeros((4, 6))}, "output 'y': expected f32[4, 6], got f64[4, 6]; convert it"),
    (
        {"y": np.zeros((6, 4), np.float32).T},
        "output 'y' has strides (4, 16) bytes, zero-copy needs aligned (24, 4)",
    ),
    ({"y": READ_ONLY}, "output 'y' is a read-only array; give writable memory"),
    ({"y": SHARED[:4]}, "output 'y' overlaps 'x' in memory; give it memory of its own"),
    ({"y": SHARED[1:5]}, "output 'y' overlaps 'x' in memory"),
    ({"y": SHARED[4:], "z": SHARED[4:]}, "output 'y' overlaps 'z' in memory"),
    ({"Y": SHARED[4:]}, "there is no output 'Y'; it has y, z"),
    (np.zeros((4, 6), np.float32), "there are 2 outputs; give out= as a dict by name"),
]


@pytest.mark.parametrize(("out", "message"), WRONG_OUTS)
def test_wrong_outs_say_what_is_wrong(two_outputs: Executable, out: Any, message: str) -> None:
    with pytest.raises(InputMismatch) as error:
        two_outputs.run({"x": SHARED[:4]}, out=out)
    assert error.value.message.startswith(message)


def test_out_may_not_overlap_a_weight() -> None:
    memory = np.zeros(64, np.float32)
    exe = executable(ADD_RELU, {"b": memory[10:16]})
    with pytest.raises(InputMismatch, match="output 'y' overlaps 'b' in memory"):
        exe.run({"x": X}, out={"y": memory[:24].reshape(4, 6)})
    exe.run({"x": X}, out={"y": memory[16:40].reshape(4, 6)})


# Zero-copy


def test_bound_memory_is_read_and_written_by_each_replay(two_outputs: Executable) -> None:
    x, y = random(RNG, 4, 6), np.zeros((4, 6), np.float32)
    bound = two_outputs.bind(x=x, y=y)
    bound.replay()
    np.testing.assert_array_equal(y, add_relu(x, B)[0])
    np.testing.assert_array_equal(bound["z"], add_relu(x, B)[1])
    x += 1
    bound.replay()
    np.testing.assert_array_equal(y, add_relu(x, B)[0])
    other = random(RNG, 4, 6)
    bound.bind({"x": other})
    bound.replay()
    np.testing.assert_array_equal(y, add_relu(other, B)[0])
    assert bound["y"] is y


def test_unbound_memory_is_ours(two_outputs: Executable) -> None:
    bound = two_outputs.instantiate()
    with pytest.raises(
        InputMismatch, match=r"input 'x' is not bound; bind\(\) it, or fill graph_exec\['x'\]"
    ):
        bound.replay()
    bound["x"][...] = x = random(RNG, 4, 6)
    bound.replay()
    np.testing.assert_array_equal(bound["y"], add_relu(x, B)[0])


WRONG_BINDS: list[tuple[dict[str, Any], str]] = [
    (
        {"x": np.asfortranarray(X)},
        "input 'x' has strides (4, 16) bytes, zero-copy needs aligned (24, 4); use np.ascont",
    ),
    ({"x": X[:2]}, "input 'x': expected f32[4, 6], got f32[2, 6]"),
    ({"x": X, "b": B}, "'b' is a param, not an input: weights come with the executable"),
    ({"x": X, "q": B}, "there is no input or output 'q'; it has x, y, z"),
    ({"x": SHARED[:4], "y": SHARED[2:6]}, "output 'y' overlaps 'x' in memory"),
]


@pytest.mark.parametrize(("arrays", "message"), WRONG_BINDS)
def test_wrong_bindings_say_what_is_wrong(two_outputs: Executable, arrays: Any, message: str) -> None:
    with pytest.raises(InputMismatch) as error:
        two_outputs.bind(arrays)
    assert error.value.message.startswith(message)


def test_a_refused_binding_changes_nothing(two_outputs: Executable) -> None:
    x, y = random(RNG, 4, 6), np.zeros((4, 6), np.float32)
    bound = two_outputs.bind(x=x, y=y)
    with pytest.raises(InputMismatch, match="output 'y' overlaps 'z'"):
        bound.bind({"x": X, "z": y})
    bound.replay()
    np.testing.assert_array_equal(y, add_relu(x, B)[0])


def test_a_bucket_is_chosen_by_the_inputs(buckets: Executable) -> None:
    x, m = random(RNG, 5, 2), random(RNG, 5, 2)
    bound = buckets.bind({"x": x, "m": m})
    bound.replay(3)
    np.testing.assert_array_equal(bound["y"], scale(x, m, W))
    with pytest.raises(InputMismatch, match="missing input m"):
        buckets.bind({"x": x})
    assert buckets.instantiate(N=1).plan.name == "scale@N=1"
    with pytest.raises(InputMismatch, match=r"no program for N=3; compiled for N=1 \| N=5"):
        buckets.instantiate(N=3)
    with pytest.raises(InputMismatch, match=r"no program for N=\?"):
        buckets.instantiate()
    with pytest.raises(InputMismatch, match="there is no dimension 'M'; it has N"):
        buckets.instantiate(M=3)


# Weights and prepared weights

WRONG_WEIGHTS: list[tuple[dict[str, np.ndarray], str]] = [
    ({}, "missing weight b; given: none; pass a .safetensors file (--weights) or arrays by name"),
    ({"b": B, "c": B}, "there is no weight 'c'; it has b"),
    ({"b": B[:5]}, "weight 'b': expected f32[6], got f32[5]; save it with that type"),
    ({"b": B.astype(np.float64)}, "weight 'b': expected f32[6], got f64[6]; save it with that type"),
]


@pytest.mark.parametrize(("weights", "message"), WRONG_WEIGHTS)
def test_wrong_weights_say_what_is_wrong(weights: Any, message: str) -> None:
    with pytest.raises(InputMismatch) as error:
        executable(ADD_RELU, weights)
    assert error.value.message == message


def test_weights_of_any_strides() -> None:
    x = random(RNG, 4, 6)
    np.testing.assert_array_equal(executable(ADD_RELU, {"b": np.repeat(B, 2)[::2]})(x)[0], add_relu(x, B)[0])
    unaligned = np.frombuffer(b"\0" + B.tobytes(), np.uint8)[1:].view(np.float32)
    np.testing.assert_array_equal(executable(ADD_RELU, {"b": unaligned})(x)[0], add_relu(x, B)[0])


def test_prepared_weights_can_be_cached(buckets: Executable) -> None:
    prepared = buckets.prepared()
    assert {name: array.nbytes for name, array in prepared.items()} == {"w.half": 64}
    x, m = random(RNG, 5, 2), random(RNG, 5, 2)
    again = executable(BUCKETS, {"w": W}, derived=prepared)
    np.testing.assert_array_equal(again(x, m), scale(x, m, W))
    doubled = (prepared["w.half"].view(np.float32) * 2).view(np.uint8)
    other = executable(BUCKETS, {"w": W}, derived={"w.half": doubled})
    np.testing.assert_array_equal(other(x, m), scale(x, m, 2 * W))


# State


def test_calls_update_the_state() -> None:
    w, x = random(RNG, 3), random(RNG, 3)
    exe = executable(COUNTER, {"w": w})
    assert exe(x) == () and exe.is_stateful
    exe(x)
    np.testing.assert_array_equal(exe.state()["w"], w + x + x)
    np.testing.assert_array_equal(exe.weights["w"], w)
    bound = exe.bind(x=x)
    bound.replay(2)
    np.testing.assert_array_equal(exe.state()["w"], w + x + x + x + x)
    exe.set_state({"w": x})
    exe(x)
    np.testing.assert_array_equal(exe.state()["w"], x + x)


@pytest.mark.parametrize("n", [0, -1, 2.5, True, "3", None])
def test_what_is_no_number_of_runs_runs_nothing(n: Any) -> None:
    w = random(RNG, 3)
    exe = executable(COUNTER, {"w": w})
    bound = exe.bind(x=random(RNG, 3))
    for refused in (bound.replay, partial(runtime.Stream().submit, bound)):
        with pytest.raises(InputMismatch, match=re.escape(f"{n!r} is no number of runs; give a whole one")):
            refused(n)
    np.testing.assert_array_equal(exe.state()["w"], w)


def test_an_instance_has_a_state_of_its_own() -> None:
    w, x = random(RNG, 3), random(RNG, 3)
    exe = executable(COUNTER, {"w": w})
    exe(x)
    instance = exe.instantiate()
    instance.bind({"x": x})
    instance.replay(3)
    np.testing.assert_array_equal(instance.state["w"], w + x + x + x)
    np.testing.assert_array_equal(exe.state()["w"], w + x)


def test_feeds_cannot_overwrite_state() -> None:
    w, x = random(RNG, 3), random(RNG, 3)
    exe = executable(COUNTER, {"w": w})
    with pytest.raises(InputMismatch, match="'w' is a weight, not an input"):
        exe(x, w=x)
    with pytest.raises(InputMismatch, match="'w' is a param, not an input"):
        exe.bind(x=x, w=x)
    with pytest.raises(InputMismatch, match=r"state 'w': expected f32\[3\], got f64\[3\]"):
        exe.set_state({"w": x.astype(np.float64)})
    with pytest.raises(InputMismatch, match="there is no state 'v'; it has w"):
        exe.set_state({"v": x})
    np.testing.assert_array_equal(exe.state()["w"], w)


def test_a_snapshot_of_the_state_is_a_copy() -> None:
    exe = executable(COUNTER, {"w": random(RNG, 3)})
    snapshot = exe.state()["w"]
    before = snapshot.copy()
    exe(np.ones(3, np.float32))
    np.testing.assert_array_equal(snapshot, before)


def test_stateless_programs_have_no_state(two_outputs: Executable) -> None:
    assert not two_outputs.is_stateful and two_outputs.state() == {}
    with pytest.raises(InputMismatch, match="the program updates nothing, so it has no state"):
        two_outputs.set_state({"b": B})


# Threads and lifetime


def in_threads(count: int, work: Any) -> None:
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_eight_threads_get_their_own_answers(buckets: Executable) -> None:
    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(25):
            x, m = random(rng, 5, 2), random(rng, 5, 2)
            np.testing.assert_array_equal(buckets(x, m), scale(x, m, W))

    in_threads(8, work)


def test_stateful_calls_take_turns() -> None:
    exe = executable(COUNTER, {"w": np.zeros(3, np.float32)})
    in_threads(8, lambda _: [exe(np.ones(3, np.float32)) for _ in range(25)])
    np.testing.assert_array_equal(exe.state()["w"], np.full(3, 200, np.float32))


def test_calls_work_again_after_shutdown() -> None:
    x, w = random(RNG, 5, 2), random(RNG, 3)
    exe, counter = executable(BUCKETS, {"w": W}), executable(COUNTER, {"w": w})
    bound = exe.bind(x=x, m=x)
    for _ in range(3):
        np.testing.assert_array_equal(exe(x, x), scale(x, x, W))
        bound.replay()
        np.testing.assert_array_equal(bound["y"], scale(x, x, W))
        counter(w)
        assert runtime.is_initialized()
        runtime.shutdown()
        assert not runtime.is_initialized()
    np.testing.assert_array_equal(counter.state()["w"], w + w + w + w)
    runtime.init()
    runtime.init()
    assert runtime.is_initialized()


def test_shutdown_releases_memory() -> None:
    text = ADD_RELU.replace("arena_bytes = 128", "arena_bytes = 50000000")
    exe = executable(text, {"b": B})
    gc.collect()
    before = runtime.statistics().live_bytes
    runtime.reset_peak()
    exe(random(RNG, 4, 6))
    held = runtime.statistics()
    assert held.live_bytes - before >= 50_000_000 and held.peak_bytes >= held.live_bytes
    runtime.shutdown()
    gc.collect()
    assert runtime.statistics().live_bytes - before < 1_000_000
    assert runtime.statistics().peak_bytes == held.peak_bytes


def test_shutdown_during_calls() -> None:
    exe = executable(BUCKETS, {"w": W})
    x = random(RNG, 5, 2)

    def work(number: int) -> None:
        for _ in range(15):
            if number == 0:
                runtime.shutdown()
            np.testing.assert_array_equal(exe(x, x), scale(x, x, W))

    in_threads(4, work)


def test_texts_are_kept_by_stage() -> None:
    exe = executable(ADD_RELU, {"b": B}, texts={"emit": ADD_RELU})
    assert exe.ir("emit") == ADD_RELU
    with pytest.raises(InputMismatch, match="there is no IR stage 'emitt'; did you mean 'emit'"):
        exe.ir("emitt")
