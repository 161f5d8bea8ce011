"""The gradients of attention without a GPU: what is legal and why not, what records hold, what compiled code contains,
and its text on a simulated GPU against float64 NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, FloatAttr, IntegerAttr, f64, i64
from xdsl.ir import Attribute, Block

from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.families.attention.backward.problem import KIND, problem_of
from aicf.backends.cuda.families.attention.backward.tensor import schedule
from aicf.backends.cuda.families.attention.backward.tensor.codegen import emit
from aicf.backends.cuda.families.attention.backward.tensor.kernel import AttentionBackwardKernel
from aicf.backends.cuda.families.attention.backward.tensor.schedule import (
    Spec,
    phases,
    ranked_specs,
    read_spec,
    spec_reason,
    specs,
)
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit_types import TargetAttr
from tests.backends.cuda import simulator
from tests.backends.cuda.attention_simulator import names
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.sass import ATOMICS, SPILLS, instructions, starting
from tests.backends.cuda.simulator import Memory
from tests.support.attention_gradients import Array, gradients
from tests.support.record_checks import record_reason

TARGET = TargetAttr("cuda", "sm_90a", {})
KERNEL = AttentionBackwardKernel()
DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
WITHIN = {"f16": 2e-3, "bf16": 1.5e-2}
"""Of the largest element: P and the gradient of the scores are rounded once before they are multiplied."""


def matrix(shape: Sequence[int], dtype: str, **changes: object) -> OperandInfo:
    """A matrix for each batch element, row-major."""
    strides = (*reversed([*accumulate(reversed(shape[1:]), int.__mul__, initial=1)]),)
    return replace(OperandInfo("temp", tuple(shape), dtype, strides), **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Sizes:
    """Of an attention."""

    batch: tuple[int, ...]
    m: int
    n: int
    d: int
    dv: int


def backward(
    sizes: Sizes,
    dtype: str = "f16",
    past: int | None = None,
    mask: OperandInfo | None = None,
    scale: float = 0.3,
    nan_as_zero: bool = False,
) -> Workload:
    """A work of kind `attention_backward`. Causal if `past` is given."""
    attrs: Mapping[str, Attribute] = {
        "scale": FloatAttr(scale, f64),
        "mask": BoolAttr.from_bool(mask is not None),
        "causal": BoolAttr.from_bool(past is not None),
        "past": IntegerAttr(past or 0, i64),
        "nan_as_zero": BoolAttr.from_bool(nan_as_zero),
        "empty_as_zero": BoolAttr.from_bool(False),
    }
    q, g = (matrix((*sizes.batch, sizes.m, size), dtype) for size in (sizes.d, sizes.dv))
    k, v = (matrix((*sizes.batch, sizes.n, size), dtype) for size in (sizes.d, sizes.dv))
    operands = (q, k, v, g) if mask is None else (q, k, v, g, mask)
    return Workload("gradients", KIND, attrs, operands, (q, k, v), Block(), None)


def with_operand(work: Workload, number: int, **changes: object) -> Workload:
    """The work with one operand as `changes` say."""
    operands = list(work.operands)
    operands[number] = replace(operands[number], **changes)  # type: ignore[arg-type]
    return replace(work, operands=tuple(operands))


def with_result(work: Workload, number: int, **changes: object) -> Workload:
    """The work with one result as `changes` say."""
    results = list(work.results)
    results[number] = replace(results[number], **changes)  # type: ignore[arg-type]
    return replace(work, results=tuple(results))


def launches(work: Workload, spec: Spec | None = None) -> list[KernelLaunch]:
    """The two launches of `work`."""
    chosen = KERNEL.schedule(work, TARGET) if spec is None else spec
    made = emit(launch_of(work, KERNEL.id, KERNEL.record_of(work, TARGET, chosen)))
    assert len(made) == 2
    return [*made]


# Legality


PLAIN = backward(Sizes((2, 3), 100, 80, 64, 64))
ONE_ROW = matrix((2, 1, 1, 80), "f32", strides=(80, 0, 0, 1))


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (PLAIN, None),
        (backward(Sizes((2, 3), 100, 80, 128, 128), "bf16", 3), None),
        (backward(Sizes((2, 3), 100, 80, 64, 64), mask=ONE_ROW), None),
        (backward(Sizes((), 9, 300, 32, 96)), None),
        (backward(Sizes((2, 3), 100, 80, 64, 64), mask=replace(ONE_ROW, dtype="i1")), "a mask of i1"),
        (backward(Sizes((2,), 9, 9, 64, 64), "f32"), "tensor cores multiply f16 and bf16"),
        (backward(Sizes((2,), 9, 9, 24, 64)), "a query has 24 elements"),
        (backward(Sizes((2,), 9, 9, 64, 144)), "a value has 144 elements"),
        (backward(Sizes((2,), 9, 9, 64, 64), nan_as_zero=True), "0 where they would be NaN"),
        (backward(Sizes((2,), 9, 0, 64, 64)), "an operand is empty"),
        (replace(PLAIN, rounding="strict"), "the policy wants them rounded"),
        (with_operand(PLAIN, 3, dtype="bf16"), "gradients are bf16, f16 where queries are f16"),
        (with_result(PLAIN, 1, dtype="f32"), "gradients are f16, f32 where queries are f16"),
        (with_operand(PLAIN, 3, shape=(2, 1, 100, 64)), "other batch sizes"),
        (with_operand(PLAIN, 0, offset=4), "rows of the queries"),
        (with_operand(PLAIN, 1, strides=(15360, 5120, 1, 80)), "rows of the keys"),
        (with_operand(PLAIN, 2, strides=(15363, 5120, 64, 1)), "rows of the values"),
        (with_operand(PLAIN, 3, strides=(19200, 6400, 0, 1)), None),
        (with_operand(PLAIN, 3, strides=(0, 0, 0, 0)), "rows of the gradient"),
        (with_result(PLAIN, 0, strides=(19200, 6400, 1, 100), offset=3), None),
    ],
)
def test_legality_names_the_operand_and_the_way_out(work: Workload, reason: str | None) -> None:
    """What tensor cores and 16-byte copies cannot take is refused with its reason; any result is written."""
    found = KERNEL.legal(work, TARGET)
    assert found is None if reason is None else found is not None and reason in found


# Records


def test_records_say_which_tiles_and_are_read_again() -> None:
    """All variants have the same entries, start with the record, and give back the specs that they were made of."""
    work = backward(Sizes((8, 12), 512, 512, 64, 64))
    records = KERNEL.variants(work, TARGET)
    ranked = ranked_specs(problem_of(work).attention, ARCHES["sm_90a"])
    assert records[0] == KERNEL.record(work, TARGET) and len(ranked) > 1
    assert [read_spec(record) for record in records] == list(ranked)
    assert len({frozenset(record) for record in records}) == 1
    for record in records:
        assert KERNEL.checked_record(work, record, TARGET) == record


@pytest.mark.parametrize(
    ("entry", "value", "reason"),
    [
        ("tile", IntegerAttr(48, i64), "'tile' is 48, legal: 64, 32"),
        ("key_tiles", IntegerAttr(2, i64), "128 keys of 64 and 64 elements"),
        ("keys_grid", ArrayAttr([IntegerAttr(1, i64)] * 3), "'keys_grid' is [1, 1, 1]"),
        ("workspace_bytes", IntegerAttr(16, i64), "'workspace_bytes' is 16"),
    ],
)
def test_an_edited_record_is_refused(entry: str, value: Attribute, reason: str) -> None:
    record = {**KERNEL.record(PLAIN, TARGET), entry: value}
    found = record_reason(KERNEL, PLAIN, record, TARGET)
    assert found is not None and reason in found


def test_the_launches_follow_from_the_record() -> None:
    """Blocks of queries, then of keys, for each batch element; three numbers of each query, in whole tiles, between."""
    work = backward(Sizes((2, 3), 100, 80, 64, 64), mask=ONE_ROW)
    record = KERNEL.record_of(work, TARGET, Spec(2, 1, 32))
    first, second = launches(work, Spec(2, 1, 32))
    assert (first.grid, second.grid) == ((1 * 6, 1, 1), (2 * 6, 1, 1))
    assert first.block == second.block == (128, 1, 1)
    assert record["workspace_bytes"] == IntegerAttr(6 * 128 * 12, i64)
    of_queries, of_keys = ([each.base for each in made.arguments] for made in (first, second))  # type: ignore[union-attr]
    assert of_queries == [0, 3, 1, 2, 5, 5, 8, 4] and of_keys == [1, 2, 0, 3, 6, 7, 8, 4]


def test_sums_have_one_order_whatever_the_batch() -> None:
    """With `batch_invariant` there is one tiling, which neither the batch nor the number of rows changes."""
    for d in (32, 64, 128):
        works = [
            replace(backward(Sizes((batch, 3), m, n, d, d)), batch_invariant=True)
            for batch, m, n in ((1, 7, 9), (64, 2048, 2048))
        ]
        offered = {read_spec(record) for work in works for record in KERNEL.variants(work, TARGET)}
        assert len(offered) == 1
        assert len({KERNEL.fixed_order(work, TARGET) for work in works}) == 1


@pytest.mark.parametrize("d", range(16, 129, 16))
@pytest.mark.parametrize("dv", [16, 64, 128])
def test_every_size_has_tilings_that_fit(d: int, dv: int) -> None:
    for arch in ARCHES.values():
        problem = problem_of(backward(Sizes((2,), 100, 100, d, dv))).attention
        found = list(specs(problem, arch))
        assert found
        for spec in found:
            assert spec_reason(problem, spec, arch) is None
            for phase in phases(problem, spec):
                assert phase.shared_bytes <= arch.shared_bytes and phase.block % phase.tile == 0


def test_a_causal_gradient_costs_less_and_two_launches_cost_something() -> None:
    full, causal, small = (
        KERNEL.cost_us(work, TARGET)
        for work in (
            backward(Sizes((8, 12), 2048, 2048, 64, 64)),
            backward(Sizes((8, 12), 2048, 2048, 64, 64), past=0),
            backward(Sizes((1, 1), 16, 16, 64, 64)),
        )
    )
    assert causal < 0.75 * full and 8 <= small < 30


# Machine code

FULL_MASK = matrix((1, 3, 300, 200), "f32", strides=(0, 60000, 200, 1))


@pytest.mark.parametrize(
    ("work", "spec", "arch"),
    [
        (backward(Sizes((2, 3), 512, 512, 64, 64), "bf16"), Spec(1, 1, 64), "sm_90a"),
        (backward(Sizes((2, 3), 300, 200, 64, 64), "f16", 7, FULL_MASK), Spec(1, 1, 64), "sm_90a"),
        (backward(Sizes((2, 3), 300, 200, 64, 64), "bf16", 7), Spec(2, 1, 32), "sm_90a"),
        (backward(Sizes((2, 3), 300, 200, 64, 64), "f16", 7), Spec(1, 1, 32), "sm_80"),
        (backward(Sizes((2, 3), 300, 200, 128, 128), "f16", 7, FULL_MASK), Spec(1, 1, 32), "sm_90a"),
        (backward(Sizes((2, 3), 300, 200, 32, 32), "f16", 7, FULL_MASK), Spec(2, 2, 32), "sm_90a"),
    ],
    ids=["plain", "masked", "two-tiles", "ampere", "wide-masked", "narrow"],
)
def test_compiled_code_multiplies_on_tensor_cores(work: Workload, spec: Spec, arch: str) -> None:
    """The intended products and loads, no spills, no atomics; griddepcontrol from sm_90 on."""
    assert spec_reason(problem_of(work).attention, spec, ARCHES[arch]) is None
    record = KERNEL.record_of(work, TargetAttr("cuda", arch), spec)
    for made, cubin in compiled(emit(launch_of(work, KERNEL.id, record)), arch):
        assert cubin.stack_bytes == 0 and cubin.registers <= 65536 // (128 * max(2, made.code.blocks_per_sm))
        found = instructions(cubin)
        kind = ".BF16" if work.operands[0].dtype == "bf16" else ""
        for needed in (f"HMMA.16816.F32{kind}", "LDSM.16.M88.4", "LDSM.16.MT88.4", "MUFU.EX2", "STG.E.128"):
            assert starting(found, (needed,)), needed
        assert any(".128" in name for name in starting(found, ("LDGSTS",)))
        assert not starting(found, ATOMICS + SPILLS)
        assert ("ACQBULK" in found) == (arch == "sm_90a")


# Meaning


def simulated(work: Workload, spec: Spec, ins: Sequence[Array]) -> list[Array]:
    """The results of the launches on a simulated GPU; those that are not plain are read by their strides."""
    record = KERNEL.record_of(work, TARGET, spec)
    workspace = record["workspace_bytes"]
    assert isinstance(workspace, IntegerAttr)
    sizes = [2 * int(np.prod(each.shape)) for each in work.results]
    memory = Memory([*(each.nbytes for each in ins), *sizes, workspace.value.data])
    for base, each in enumerate(ins):
        memory.fill(base, each)
    simulator.run(launches(work, spec), memory, names)
    found: list[Array] = []
    for base, each in enumerate(work.results, len(ins)):
        assert memory.written[base].all()
        values = memory.buffers[base].view(DTYPES[each.dtype])
        steps = tuple(2 * stride for stride in each.strides)
        found.append(np.lib.stride_tricks.as_strided(values, each.shape, steps))
    return found


def assert_gradients(work: Workload, spec: Spec, ins: Sequence[Array]) -> list[Array]:
    """Holds the simulated results, which it gives, to the definition."""
    is_causal = work.attrs["causal"] == BoolAttr.from_bool(True)
    past, scale = work.attrs["past"], work.attrs["scale"]
    assert isinstance(past, IntegerAttr) and isinstance(scale, FloatAttr)
    mask = ins[4] if len(ins) > 4 else None
    q, k, v, g = ins[:4]
    wanted = gradients(q, k, v, g, mask, past.value.data if is_causal else None, scale.value.data)
    within = WITHIN[work.results[0].dtype]
    results = simulated(work, spec, ins)
    for found, right in zip(results, wanted, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), right, atol=within * np.abs(right).max())
    return results


def random_operands(work: Workload, seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(info.shape).astype(DTYPES[info.dtype]) for info in work.operands]


@pytest.mark.parametrize(
    ("work", "spec"),
    [
        (backward(Sizes((1,), 70, 50, 16, 32)), Spec(1, 1, 64)),
        (backward(Sizes((1, 2), 40, 70, 16, 16), "bf16", 30), Spec(1, 1, 32)),
        (backward(Sizes((1,), 40, 130, 16, 16), "f16", 3), Spec(2, 1, 32)),
        (backward(Sizes((1,), 130, 20, 16, 16), "f16", 0), Spec(1, 2, 32)),
        (backward(Sizes((1,), 33, 64, 16, 16), scale=-0.3), Spec(1, 1, 64)),
        (backward(Sizes((2,), 50, 40, 16, 16), mask=matrix((2, 1, 40), "f16")), Spec(1, 1, 32)),
        (backward(Sizes((2,), 33, 40, 16, 16), "bf16", 5, matrix((33, 40), "f32")), Spec(2, 2, 32)),
        (backward(Sizes((1,), 33, 40, 16, 16), mask=matrix((1, 33, 1), "bf16")), Spec(1, 1, 64)),
    ],
    ids=["plain", "past", "hidden-keys", "causal-tall", "negative", "padding", "masked-causal", "row-mask"],
)
def test_gradients_are_those_of_the_definition(work: Workload, spec: Spec) -> None:
    """Tiles that are not full, tiles that are left out, keys that no query sees."""
    assert_gradients(work, spec, random_operands(work))


@pytest.mark.parametrize("chunk", [(16, False), (8, False), (16, True)])
def test_every_way_to_use_registers_has_the_meaning(
    monkeypatch: pytest.MonkeyPatch, chunk: tuple[int, bool]
) -> None:
    """Scores in small parts, and values that are read again, as large heads have them."""
    monkeypatch.setattr(schedule, "_CHUNKS", (chunk,))
    monkeypatch.setattr(schedule, "_CHUNK_OF_THREE", chunk)
    work = backward(Sizes((1,), 40, 33, 16, 16))
    assert_gradients(work, Spec(2, 1, 32), random_operands(work))


def test_results_are_written_with_any_strides() -> None:
    """Transposed, element by element."""
    work = backward(Sizes((1,), 20, 24, 16, 16))
    work = with_result(with_result(work, 0, strides=(320, 1, 20)), 2, strides=(384, 1, 24))
    assert_gradients(work, Spec(1, 1, 32), random_operands(work))


def test_rows_that_the_lowest_number_hides_are_averages() -> None:
    """As in the forward kernel: a mask of f32's lowest number swallows the scores of its row."""
    work = backward(Sizes((1,), 20, 40, 16, 16), mask=matrix((20, 40), "f32"))
    ins = random_operands(work)
    ins[4][3] = ins[4][5, :33] = np.finfo(np.float32).min
    q, k, _, g = (each.astype(np.float64) for each in ins[:4])
    scores = ((q @ np.swapaxes(k, -1, -2)) * 0.3).astype(np.float32) + ins[4]
    weights = np.exp((scores - scores.max(-1, keepdims=True)).astype(np.float64))
    weights /= weights.sum(-1, keepdims=True)
    _, _, found = simulated(work, Spec(1, 1, 32), ins)
    wanted = np.swapaxes(weights, -1, -2) @ g
    np.testing.assert_allclose(found.astype(np.float64), wanted, atol=2e-3 * np.abs(wanted).max())
