"""A step of a decoder that turns its query and its new key without a GPU: the text of the kernel on a simulated one,
against complex numbers in float64, and the machine code of what models of several sizes ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, StringAttr, f64, i64
from xdsl.ir import Attribute, Block

from aicf.backends.common.record import read_integer, read_text
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.attention.decode.codegen import emit
from aicf.backends.cuda.families.attention.decode.kernel import CachedStepKernel, Spec, group_of
from aicf.backends.cuda.families.attention.decode.problem import problem_of
from aicf.dialects.emit_types import TargetAttr
from tests.backends.cuda.attention_simulator import names
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.backends.cuda.simulator import Memory, run

Array = np.ndarray
TARGET = TargetAttr("cuda", "sm_90a", {})
KERNEL = CachedStepKernel()
SCALE = 0.25
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def work(
    rotation: str,
    capacity: int,
    heads: int = 2,
    shared: int = 3,
    size: int = 32,
    dtype: str = "f16",
    window: int = 0,
) -> Workload:
    """One token of `heads * shared` heads, which lie side by side; keys and values of `heads` heads lie by tokens."""
    half = size // 2
    pairs, steps = ((2, half), (half, 1)) if rotation == "halves" else ((half, 2), (2, 1))
    # Cosines are the same for both elements of a pair.
    cosine, sine = ((0, 1), (half, 1)) if rotation == "halves" else ((1, 0), (2, 1))
    batch = (heads, shared)

    def factors(of: tuple[int, ...], inner: tuple[int, int]) -> OperandInfo:
        return OperandInfo("temp", (*of, 1, *pairs), "f32", (*(0 for _ in of), 0, *inner))

    query = OperandInfo("temp", (*batch, 1, *pairs), dtype, (shared * size, size, size, *steps))
    key = OperandInfo("temp", (heads, 1, *pairs), dtype, (size, heads * size, *steps))
    value = OperandInfo("temp", (heads, 1, size), dtype, (size, heads * size, 1))
    state = OperandInfo("state", (heads, capacity, size), dtype, (size, heads * size, 1))
    row = OperandInfo("input", (), "i64", ())
    position = OperandInfo("input", (*batch, 1, capacity), "i64", (0, 0, 0, 0))
    turns = [factors(of, inner) for of in (batch, (heads,)) for inner in (cosine, sine)]
    result = OperandInfo("temp", (*batch, 1, size), dtype, (shared * size, size, size, 1))
    attrs: Mapping[str, Attribute] = {
        "scale": FloatAttr(SCALE, f64),
        **{
            name: BoolAttr.from_bool(name in ("causal", "position"))
            for name in ("mask", "causal", "position", "nan_as_zero", "empty_as_zero")
        },
        "past": IntegerAttr(0, i64),
        "window": IntegerAttr(window, i64),
        "softcap": FloatAttr(0.0, f64),
        "rotation": StringAttr(rotation),
    }
    operands = (query, state, state, row, key, value, *turns, position)
    return Workload("step", "cached_attention_step", attrs, operands, (result, state, state), Block(), None)


def launched(given: Workload, spec: Spec, in_place: bool = True) -> KernelLaunch:
    """The launch of a variant."""
    made = launch_of(given, KERNEL.id, KERNEL.record_of(given, TARGET, spec))
    if in_place:
        made = replace(made, outs=(made.outs[0], made.ins[1], made.ins[2]))
    (one,) = emit(made)
    assert isinstance(one, KernelLaunch)
    return one


def turned(x: Array, angles: Array, rotation: str) -> Array:
    """Pairs of the last dimension as complex numbers, turned."""
    half = len(angles)
    first, second = (x[..., :half], x[..., half:]) if rotation == "halves" else (x[..., 0::2], x[..., 1::2])
    found = (first + 1j * second) * np.exp(1j * angles)
    parts = [found.real, found.imag]
    joined = np.concatenate(parts, -1) if rotation == "halves" else np.stack(parts, -1)
    return joined.reshape(x.shape)


def factors_of(angles: Array, rotation: str) -> list[Array]:
    """Cosines of pairs, and sines with those of the first of a pair negated."""
    sines = np.stack([-np.sin(angles), np.sin(angles)], 0 if rotation == "halves" else 1)
    return [np.cos(angles).astype(np.float32), sines.astype(np.float32)]


@pytest.mark.parametrize(
    ("rotation", "dtype", "shared", "spec", "capacity", "position", "window"),
    [
        ("halves", "f16", 3, Spec(2, 2), 70, 40, 0),
        ("neighbours", "bf16", 2, Spec(1, 2), 70, 69, 0),
        ("halves", "f16", 3, Spec(1, 2), 150, 140, 0),  # in turns, all of which are taken
        ("neighbours", "f16", 3, Spec(1, 2), 150, 70, 9),  # the first turn is passed over
    ],
)
def test_what_is_turned_and_written(
    rotation: str, dtype: str, shared: int, spec: Spec, capacity: int, position: int, window: int
) -> None:
    """Keys and values that are not seen are NaN; the new row and nothing else is stored."""
    given = work(rotation, capacity, 2, shared, 32, dtype, window)
    assert group_of(problem_of(given)) == shared
    check_step(given, spec, position)


@pytest.mark.parametrize(
    ("shared", "group", "spec", "in_place", "window"),
    [
        (10, 5, Spec(1, 2), True, 0),
        (10, 5, Spec(2, 2), False, 0),
        (3, 3, Spec(1, 2), False, 9),
        (11, 1, Spec(4, 2), True, 0),
    ],
)
def test_one_cluster_of_those_that_share_keys_writes(
    shared: int, group: int, spec: Spec, in_place: bool, window: int
) -> None:
    """More heads than a cluster takes, or a number that no cluster divides, and a new state that lies elsewhere."""
    given = work("halves", 40, 1, shared, window=window)
    assert group_of(problem_of(given)) == group
    check_step(given, spec, 33, in_place)


def test_heads_that_share_old_keys_alone_each_write_their_row() -> None:
    """Of an old state that is one for all heads, the new ones are different."""
    given = work("halves", 20, heads=4, shared=1)
    query, old, _, *rest = given.operands
    one_for_all = replace(old, strides=(0, old.shape[-1], 1))
    given = replace(given, operands=(query, one_for_all, one_for_all, *rest))
    assert problem_of(given).sharing == 1
    check_step(given, Spec(1, 2), 13, in_place=False)


def check_step(given: Workload, spec: Spec, position: int, in_place: bool = True) -> None:
    """Runs a step on random operands: keys and values that it does not see are NaN."""
    rotation, window = read_text(given.attrs, "rotation"), read_integer(given.attrs, "window")
    (heads, shared, _, size), (_, capacity, _) = given.results[0].shape, given.results[1].shape
    type_, random = DTYPES[given.results[0].dtype], np.random.default_rng(position)
    q, k, v = (random.standard_normal((heads, count, size)).astype(type_) for count in (shared, 1, 1))
    stored_heads = heads if given.operands[1].strides[0] else 1
    caches = random.standard_normal((2, capacity, stored_heads, size)).astype(type_)
    first = max(0, position + 1 - window) if window else 0
    caches[:, position:] = caches[:, :first] = np.nan
    angles = random.uniform(-3, 3, size // 2)
    number = np.array([position], np.int64)
    factors = factors_of(angles, rotation)
    ins = [q, *caches, number, k, v, *factors, *factors, number]
    new = np.zeros((capacity, heads, size), type_)
    memory = Memory([*(each.nbytes for each in ins), q.nbytes, new.nbytes, new.nbytes])
    for base, each in enumerate(ins):
        memory.fill(base, each)
    run([launched(given, spec, in_place)], memory, names)
    bases = (1, 2) if in_place else (len(ins) + 1, len(ins) + 2)
    written = [memory.buffers[base].view(type_).reshape(new.shape) for base in bases]
    new_key = turned(k[:, 0].astype(np.float64), angles, rotation)
    np.testing.assert_allclose(written[0][position].astype(np.float64), new_key, rtol=2**-7, atol=2**-7)
    np.testing.assert_array_equal(written[1][position], v[:, 0])
    for found, before in zip(written, caches, strict=True):
        kept = np.broadcast_to(np.delete(before, position, 0), (capacity - 1, heads, size))
        np.testing.assert_array_equal(np.delete(found, position, 0), kept)
    seen_k, seen_v = (each[first : position + 1].astype(np.float64).transpose(1, 0, 2) for each in written)
    scores = np.einsum("hgd,hnd->hgn", turned(q.astype(np.float64), angles, rotation), seen_k) * SCALE
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    exact = np.einsum("hgn,hnd->hgd", weights / weights.sum(-1, keepdims=True), seen_v)
    found = memory.buffers[len(ins)].view(type_).reshape(q.shape).astype(np.float64)
    np.testing.assert_allclose(found, exact, atol=3e-3 if type_ is np.float16 else 3e-2)


@pytest.mark.parametrize(
    ("heads", "shared", "size", "capacity"),
    [(8, 4, 64, 256), (8, 8, 128, 8192), (1, 32, 64, 2048)],
    ids=["Llama 3.2 1B", "Llama 3.1 70B", "one head of keys"],
)
def test_machine_code_of_models(heads: int, shared: int, size: int, capacity: int) -> None:
    """Loads of 16 bytes a lane, and nothing is spilled."""
    given = work("halves", capacity, heads, shared, size, "bf16")
    assert KERNEL.legal(given, TARGET) is None
    one = launched(given, KERNEL.schedule(given, TARGET))
    found = instructions(compile_kernels([one.code], "sm_90a")[one.code.symbol])
    assert not starting(found, SPILLS)
    assert any(name.startswith("LDG.E.128") for name in found)


def test_factors_of_half_precision_are_told() -> None:
    given = work("halves", 64)
    operands = [*given.operands]
    operands[6] = replace(operands[6], dtype="f16")
    found = KERNEL.legal(replace(given, operands=tuple(operands)), TARGET)
    assert found == "cosines and sines that turn pairs are f32 here: cast them"
