"""The gradients of attention of whole heads in a block without a GPU: what is legal and why not, what records hold,
what compiled code contains, and its text on a simulated GPU against float64 NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, IntegerAttr, i64

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.attention.backward.problem import problem_of
from aicf.backends.cuda.families.attention.backward.short.codegen import emit
from aicf.backends.cuda.families.attention.backward.short.kernel import ShortAttentionBackwardKernel
from aicf.backends.cuda.families.attention.backward.short.schedule import (
    Spec,
    layout_of,
    ranked_specs,
    read_spec,
    spec_reason,
)
from aicf.backends.cuda.families.attention.backward.tensor.kernel import AttentionBackwardKernel
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit_types import TargetAttr
from tests.backends.cuda.backward_launches import assert_gradients, simulated, with_a_row_of_none
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.sass import ATOMICS, SPILLS, instructions, starting
from tests.backends.cuda.test_attention_backward import (
    PLAIN,
    TARGET,
    Sizes,
    backward,
    matrix,
    random_operands,
    with_operand,
    with_result,
)
from tests.support.record_checks import record_reason

ARCH = ARCHES["sm_90a"]
KERNEL = ShortAttentionBackwardKernel()
BERT = backward(Sizes((32, 12), 128, 128, 64, 64), "bf16", mask=matrix((32, 1, 1, 128), "bf16"))


# Legality and records


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (PLAIN, None),
        (BERT, None),
        (backward(Sizes((2, 3), 100, 80, 64, 64), "f16", 3, scale=-0.3), None),
        (backward(Sizes((2,), 128, 128, 128, 128), mask=matrix((2, 128, 128), "f32")), None),
        (backward(Sizes((2,), 128, 129, 64, 64)), "128 queries and 129 keys: a block has up to 128"),
        (backward(Sizes((2,), 9, 9, 96, 64)), "no panels of 64"),
        (backward(Sizes((2,), 9, 9, 64, 64), "f32"), "tensor cores multiply f16 and bf16"),
        (with_operand(PLAIN, 3, strides=(19200, 6400, 0, 1)), "the rows of the gradient are one"),
        (with_operand(PLAIN, 1, strides=(15360, 5120, 1, 80)), "of the keys"),
        (with_operand(PLAIN, 2, offset=4), "of the values"),
        (with_result(PLAIN, 0, strides=(19200, 6400, 1, 100)), "rows of the gradient for the queries"),
    ],
)
def test_legality_names_the_operand_and_the_way_out(work: Workload, reason: str | None) -> None:
    """What bulk copies, whole panels and one tile cannot take is refused with its reason."""
    found = KERNEL.legal(work, TARGET)
    assert found is None if reason is None else found is not None and reason in found
    assert "sm_90a" in str(KERNEL.legal(work, TargetAttr("cuda", "sm_90", {})))


def test_no_order_is_given_whatever_the_batch() -> None:
    """Whether the kernel is legal depends on the number of queries."""
    assert KERNEL.fixed_order(replace(PLAIN, batch_invariant=True), TARGET) is None


def test_short_sequences_are_predicted_to_gain() -> None:
    """The prior prefers one launch and each product once where it is legal."""
    assert KERNEL.cost_us(BERT, TARGET) < AttentionBackwardKernel().cost_us(BERT, TARGET)


@pytest.mark.parametrize("rows", [1, 64, 65, 128])
@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize("mask", [None, "f32"])
def test_every_short_head_has_a_variant(rows: int, size: int, mask: str | None) -> None:
    """Shared memory and registers hold all blocks that share a multiprocessor."""
    masked = None if mask is None else matrix((2, rows, 70), mask)
    problem = problem_of(backward(Sizes((2,), rows, 70, size, size), mask=masked)).attention
    found = ranked_specs(problem, ARCH)
    assert found
    for spec in found:
        assert (layout_of(problem, spec).total + 1024) * spec.blocks_per_sm <= ARCH.shared_bytes + 1024


def test_records_are_read_again_and_edited_ones_are_judged() -> None:
    """One block for each head; all variants have the same entries."""
    records = KERNEL.variants(BERT, TARGET)
    ranked = ranked_specs(problem_of(BERT).attention, ARCH)
    assert records[0] == KERNEL.record(BERT, TARGET) and len({frozenset(record) for record in records}) == 1
    assert [read_spec(record) for record in records] == list(ranked) == [Spec(128, 2), Spec(128, 1)]
    assert records[0]["grid"] == ArrayAttr([IntegerAttr(count, i64) for count in (384, 1, 1)])
    for entry, value, reason in (
        ("tile", 64, "128 queries and 128 keys do not fit in a tile of 64"),
        ("tile", 96, "'tile' is 96, legal: 64, 128"),
        ("blocks_per_sm", 4, "registers a thread"),
    ):
        refused = record_reason(KERNEL, BERT, {**records[0], entry: IntegerAttr(value, i64)}, TARGET)
        assert refused is not None and reason in refused


# Machine code


@pytest.mark.parametrize(
    ("work", "spec"),
    [
        (BERT, Spec(128, 2)),
        (backward(Sizes((2,), 100, 90, 64, 64), "f16", 7, matrix((2, 100, 90), "f16")), Spec(128, 2)),
        (backward(Sizes((2,), 50, 64, 64, 64), "bf16", 14), Spec(64, 4)),
        (backward(Sizes((2,), 128, 128, 128, 128), "bf16", mask=matrix((2, 128, 128), "f32")), Spec(128, 1)),
    ],
    ids=["bert", "masked-causal", "small", "wide"],
)
def test_every_product_is_made_once_by_warpgroups(work: Workload, spec: Spec) -> None:
    """Five products (HGMMA), one exponential a score (MUFU.EX2), bulk copies, no spills and no atomics."""
    attention = problem_of(work).attention
    assert spec_reason(attention, spec, ARCH) is None
    ((_, cubin),) = compiled(emit(launch_of(work, KERNEL.id, KERNEL.record_of(work, TARGET, spec))), "sm_90a")
    assert cubin.stack_bytes == 0 and cubin.registers * spec.threads * spec.blocks_per_sm <= 65536
    names = instructions(cubin)
    assert not starting(names, (*ATOMICS, *SPILLS, "HMMA", "LDSM", "LDGSTS"))
    assert starting(names, ("UTMALDG",)) and starting(names, ("STSM.16.M88.4",))
    products = sum(name.startswith("HGMMA") for name in names)
    assert products == (attention.d + attention.dv) // 16 + 3 * spec.tile // 16
    # Where the compiler cannot follow the accumulators, it waits for each product.
    assert sum(name.startswith("WARPGROUP.DEPBAR") for name in names) <= 5
    assert sum(name.startswith("MUFU.EX2") for name in names) == spec.tile // 2
    assert sum(name.startswith("STG.E.128") for name in names) == (2 * attention.d + attention.dv) // 16


# Meaning


@pytest.mark.parametrize(
    ("work", "spec"),
    [
        (backward(Sizes((2,), 64, 64, 64, 64)), Spec(64, 4)),
        (backward(Sizes((1,), 50, 33, 64, 64), "bf16", scale=-0.3), Spec(64, 2)),
        (backward(Sizes((1,), 40, 64, 64, 128), "f16", 24), Spec(64, 2)),
        (backward(Sizes((1,), 64, 40, 64, 64), "bf16", 0), Spec(64, 1)),
        (backward(Sizes((2,), 50, 41, 64, 64), mask=matrix((2, 1, 41), "bf16")), Spec(64, 4)),
        (backward(Sizes((1,), 33, 40, 64, 64), "bf16", 5, matrix((33, 40), "f32")), Spec(64, 4)),
        (backward(Sizes((1,), 128, 128, 64, 64), "bf16", mask=matrix((1, 1, 128), "f32")), Spec(128, 2)),
        (backward(Sizes((1,), 70, 100, 128, 64), "f16", 31), Spec(128, 1)),
    ],
    ids=["plain", "negative", "past", "causal-tall", "padding", "masked-causal", "two-groups", "wide-past"],
)
def test_gradients_are_those_of_the_definition(work: Workload, spec: Spec) -> None:
    """One warpgroup and two, tiles that are not full, keys that no query sees."""
    assert KERNEL.legal(work, TARGET) is None
    ins = random_operands(work)
    assert_gradients(work, ins, simulated(KERNEL, emit, work, spec, ins))


def test_rows_without_a_key_give_zeros_where_the_program_says_so() -> None:
    """They add nothing to gradients for keys and values; without the word, those are NaN."""
    work, ins = with_a_row_of_none(40)
    zeros = replace(work, attrs={**work.attrs, "empty_as_zero": BoolAttr.from_bool(True)})
    assert_gradients(zeros, ins, simulated(KERNEL, emit, zeros, Spec(64, 4), ins))
    of_queries, of_keys, of_values = simulated(KERNEL, emit, work, Spec(64, 4), ins)
    assert np.isnan(of_queries[0, 3].astype(np.float32)).all()
    assert np.isnan(of_keys.astype(np.float32)).all() and np.isnan(of_values.astype(np.float32)).all()
