"""The gradients of attention by warpgroup products without a GPU: what is legal and why not, what records hold, what
compiled code contains, and its text on a simulated GPU against float64 NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, i64

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.families.attention.backward.problem import problem_of
from aicf.backends.cuda.families.attention.backward.tensor.kernel import AttentionBackwardKernel
from aicf.backends.cuda.families.attention.backward.wgmma.codegen import emit
from aicf.backends.cuda.families.attention.backward.wgmma.kernel import WgmmaAttentionBackwardKernel
from aicf.backends.cuda.families.attention.backward.wgmma.schedule import (
    Spec,
    phases,
    ranked_specs,
    read_spec,
    spec_reason,
)
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit_types import TargetAttr
from tests.backends.cuda.backward_launches import assert_gradients, simulated, with_a_row_of_none
from tests.backends.cuda.gemm_launches import compiled, launch_of
from tests.backends.cuda.sass import ATOMICS, SPILLS, instructions, starting
from tests.backends.cuda.test_attention_backward import (
    FULL_MASK,
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
KERNEL = WgmmaAttentionBackwardKernel()
GPT2 = backward(Sizes((8, 12), 512, 512, 64, 64), "bf16", 0)


# Legality and records


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (PLAIN, None),
        (GPT2, None),
        (backward(Sizes((2, 3), 300, 200, 64, 64), "f16", 3, FULL_MASK, scale=-0.3), None),
        (replace(PLAIN, batch_invariant=True), None),
        (backward(Sizes((2,), 9, 9, 96, 64)), "no panels of 64"),
        (backward(Sizes((2,), 9, 300, 128, 128), "bf16", mask=matrix((2, 1, 300), "f32")), None),
        (backward(Sizes((2,), 9, 9, 64, 64), "f32"), "tensor cores multiply f16 and bf16"),
        (with_operand(PLAIN, 3, strides=(19200, 6400, 0, 1)), "the rows of the gradient are one"),
        (with_operand(PLAIN, 1, strides=(15360, 5120, 1, 80)), "of the keys"),
        (with_result(PLAIN, 2, strides=(15360, 5120, 1, 80)), "rows of the gradient for the values"),
    ],
)
def test_legality_names_the_operand_and_the_way_out(work: Workload, reason: str | None) -> None:
    """What bulk copies, whole panels and registers cannot take is refused with its reason."""
    found = KERNEL.legal(work, TARGET)
    assert found is None if reason is None else found is not None and reason in found
    assert "sm_90a" in str(KERNEL.legal(work, TargetAttr("cuda", "sm_90", {})))


def test_long_sequences_are_predicted_to_gain() -> None:
    """The prior prefers warpgroups where there is enough to multiply."""
    assert KERNEL.cost_us(GPT2, TARGET) < AttentionBackwardKernel().cost_us(GPT2, TARGET)


def test_records_are_read_again_and_edited_ones_are_judged() -> None:
    """All variants have the same entries; resources are there for the blocks that share a multiprocessor."""
    records = KERNEL.variants(GPT2, TARGET)
    problem = problem_of(GPT2).attention
    ranked = ranked_specs(problem, ARCH)
    assert records[0] == KERNEL.record(GPT2, TARGET) and len({frozenset(record) for record in records}) == 1
    assert [read_spec(record) for record in records] == list(ranked) and len(ranked) == 8
    for spec in ranked:
        assert spec_reason(problem, spec, ARCH) is None
        for phase in phases(problem, spec):
            assert phase.registers * phase.threads * phase.blocks_per_sm <= 65536
            assert (phase.shared_bytes + 1024) * phase.blocks_per_sm <= ARCH.shared_bytes + 1024
    for entry, value, reason in (
        ("key_groups", 3, "'key_groups' is 3, legal: 1, 2"),
        ("stages", 4, "'stages' is 4, legal: 2, 3"),
        ("workspace_bytes", 16, "'workspace_bytes' is 16"),
    ):
        refused = record_reason(KERNEL, GPT2, {**records[0], entry: IntegerAttr(value, i64)}, TARGET)
        assert refused is not None and reason in refused


def test_sums_have_one_order_whatever_the_batch() -> None:
    """All variants take tiles of one size; with `batch_invariant`, neither batch nor queries decide what is legal."""
    for batch, m, n in ((1, 1, 9), (64, 2048, 2048)):
        work = replace(backward(Sizes((batch, 3), m, n, 64, 64)), batch_invariant=True)
        assert KERNEL.legal(work, TARGET) is None
        assert KERNEL.fixed_order(work, TARGET) == "by warpgroups, keys and queries in tiles of 64, in order"


# Machine code


@pytest.mark.parametrize(
    ("work", "spec"),
    [
        (GPT2, Spec(1, 1, 2)),
        (backward(Sizes((2, 3), 512, 512, 64, 64), "bf16", mask=matrix((512, 512), "bf16")), Spec(1, 1, 2)),
        (backward(Sizes((2, 3), 300, 200, 64, 64), "f16", 7, FULL_MASK), Spec(2, 2, 3)),
        (backward(Sizes((2, 3), 300, 200, 128, 128), "f16", 7, FULL_MASK), Spec(1, 1, 2)),
    ],
    ids=["gpt2", "full-mask", "masked", "wide-masked"],
)
def test_compiled_code_multiplies_by_warpgroups(work: Workload, spec: Spec) -> None:
    """The intended products, bulk copies, no spills and no atomics, and registers for all blocks of a
    multiprocessor."""
    attention = problem_of(work).attention
    made = compiled(emit(launch_of(work, KERNEL.id, KERNEL.record_of(work, TARGET, spec))), "sm_90a")
    for (_, cubin), phase in zip(made, phases(attention, spec), strict=True):
        assert cubin.stack_bytes == 0
        assert cubin.registers * phase.threads * phase.blocks_per_sm <= 65536
        names = instructions(cubin)
        assert not starting(names, (*ATOMICS, *SPILLS, "HMMA", "LDSM", "LDGSTS"))
        assert starting(names, ("UTMALDG",)) and starting(names, ("STG.E.128",))
        products = sum(name.startswith("HGMMA") for name in names)
        of_scores = (attention.d + attention.dv) // 16
        assert products == (2 * of_scores + 4 if phase.is_rows else of_scores + 8)
        # Where the compiler cannot follow the accumulators, it waits for each product.
        assert sum(name.startswith("WARPGROUP.DEPBAR") for name in names) <= 5


# Meaning


@pytest.mark.parametrize(
    ("work", "spec"),
    [
        (backward(Sizes((2,), 64, 64, 64, 64)), Spec(1, 1, 2)),
        (backward(Sizes((1,), 100, 200, 64, 64), "bf16", scale=-0.3), Spec(2, 1, 2)),
        (backward(Sizes((1,), 70, 260, 64, 64), "f16", 3), Spec(1, 2, 3)),
        (backward(Sizes((1,), 200, 40, 64, 64), "bf16", 0), Spec(2, 2, 3)),
        (backward(Sizes((2,), 50, 140, 64, 64), mask=matrix((2, 1, 140), "bf16")), Spec(1, 1, 3)),
        (backward(Sizes((1,), 133, 140, 64, 64), "bf16", 5, matrix((133, 140), "f32")), Spec(2, 1, 2)),
        (backward(Sizes((1,), 33, 40, 64, 64), mask=matrix((1, 33, 1), "bf16")), Spec(1, 1, 2)),
        (backward(Sizes((1,), 70, 100, 128, 64), "f16", 31), Spec(1, 1, 2)),
    ],
    ids=["plain", "negative", "hidden-keys", "causal-tall", "padding", "masked-causal", "row-mask", "wide"],
)
def test_gradients_are_those_of_the_definition(work: Workload, spec: Spec) -> None:
    """One warpgroup and two, rings that go around, tiles that are not full or left out, keys that no query sees."""
    assert KERNEL.legal(work, TARGET) is None
    ins = random_operands(work)
    assert_gradients(work, ins, simulated(KERNEL, emit, work, spec, ins))


def test_rows_without_a_key_give_zeros_where_the_program_says_so() -> None:
    """They add nothing to gradients for keys and values; without the word, those are NaN."""
    work, ins = with_a_row_of_none(70)
    zeros = replace(work, attrs={**work.attrs, "empty_as_zero": BoolAttr.from_bool(True)})
    assert_gradients(zeros, ins, simulated(KERNEL, emit, zeros, Spec(1, 1, 2), ins))
    of_queries, of_keys, of_values = simulated(KERNEL, emit, work, Spec(1, 1, 2), ins)
    assert np.isnan(of_queries[0, 3].astype(np.float32)).all()
    assert np.isnan(of_keys.astype(np.float32)).all() and np.isnan(of_values.astype(np.float32)).all()
