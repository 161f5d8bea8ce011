"""Attention out of bulk tensor copies without a GPU: what is legal and why not, what records hold, what compiled code
contains and in which order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pytest
from xdsl.dialects.builtin import BoolAttr
from xdsl.ir import Attribute

from aicf.backends.common.record import integer
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.attention.problem import problem_of
from aicf.backends.cuda.families.attention.tensor.kernel import AttentionKernel
from aicf.backends.cuda.families.attention.wgmma.codegen import emit
from aicf.backends.cuda.families.attention.wgmma.kernel import (
    Spec,
    WgmmaAttentionKernel,
    layout_of,
    ranked_specs,
    read_spec,
    spec_reason,
    specs,
)
from aicf.backends.cuda.runtime.device_program import TensorMap
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit_types import TargetAttr
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.sass import ATOMICS, SPILLS, instructions, starting
from tests.backends.cuda.test_attention import MASK, attention, packed
from tests.support.record_checks import record_reason

TARGET, ARCH = TargetAttr("cuda", "sm_90a", {}), ARCHES["sm_90a"]
KERNEL = WgmmaAttentionKernel()
X = packed(2, 100, 3, 64)


def launch(work: Workload, record: Mapping[str, Attribute]) -> KernelLaunch:
    """The one launch of `work`."""
    (made,) = emit(launch_of(work, KERNEL.id, record))
    return made


def maps(made: KernelLaunch) -> list[TensorMap]:
    """Those of queries, keys and values."""
    return [argument for argument in made.arguments if isinstance(argument, TensorMap)]


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (attention([X, X, X], X), None),
        (attention([X, X, X], X, past=5), None),
        (attention([X, X, X], X, scale=-0.5), "above 0"),
        (attention([X, X, X, MASK], X), None),
        (attention([X, X, X, replace(MASK, dtype="i1")], X), "a mask of i1"),
        (attention([packed(2, 9, 3, 64, "f32")] * 3, packed(2, 9, 3, 64, "f32")), "multiply f16 and bf16"),
        (attention([packed(2, 9, 3, 96)] * 3, packed(2, 9, 3, 96)), "no panels of 64"),
        (attention([X, X, X], replace(X, offset=4)), "rows of the result"),
        (attention([X, replace(X, offset=4), X], X), "of the keys"),
        (attention([X, X, replace(X, strides=(19200, 64, 193, 1))], X), "of the values"),
    ],
)
def test_legality_names_the_operand_and_the_way_out(work: Workload, reason: str | None) -> None:
    """What bulk copies and whole panels cannot take is refused with its reason."""
    found = KERNEL.legal(work, TARGET)
    assert found is None if reason is None else found is not None and reason in found
    assert "sm_90a" in str(KERNEL.legal(work, TargetAttr("cuda", "sm_90", {})))


@pytest.mark.parametrize("rows", [1, 64, 100, 512, 2048])
@pytest.mark.parametrize("size", [64, 128])
def test_proposed_variants_fit(rows: int, size: int) -> None:
    """Every length has variants; shared memory and registers hold all blocks that share a multiprocessor."""
    x = packed(1, rows, 2, size)
    problem = problem_of(attention([x, x, x], x))
    found = list(specs(problem, ARCH))
    assert found
    for spec in found:
        assert (layout_of(problem, spec).total + 1024) * spec.blocks_per_sm <= ARCH.shared_bytes + 1024
        fewer, more = spec.registers
        assert 128 * spec.blocks_per_sm * (fewer + spec.groups * more) <= 65536


def test_records_differ_in_values_only_and_edited_ones_are_judged() -> None:
    """The prior's first is the record; a variant that has no code, or a grid of another, is refused in words."""
    x = packed(8, 512, 12, 64)
    work = attention([x, x, x], x)
    records = KERNEL.variants(work, TARGET)
    assert records[0] == KERNEL.record(work, TARGET) and len({frozenset(record) for record in records}) == 1
    assert [read_spec(record) for record in records] == list(ranked_specs(problem_of(work), ARCH))
    problem = problem_of(work)
    assert "no turns" in str(spec_reason(problem, Spec(1, 128, 2, 1), ARCH))
    assert "shared memory" in str(spec_reason(problem, Spec(1, 128, 4, 0), ARCH))
    assert record_reason(KERNEL, work, records[0], TARGET) is None
    edited = dict(records[0]) | {
        "grid": KERNEL.record_of(attention([X, X, X], X), TARGET, Spec(1, 64, 2, 0))["grid"]
    }
    assert "'grid'" in str(record_reason(KERNEL, work, edited, TARGET))
    for entry, value, legal in (
        ("groups", integer(4), "4, legal: 1, 2, 3"),
        ("block_n", integer(96), "96, legal: 64, 128"),
        ("stages", integer(1), "1, legal: 2 to 8"),
        ("turns", BoolAttr.from_bool(True), "True, legal: 0, 1"),
    ):
        refused = record_reason(KERNEL, work, {**records[0], entry: value}, TARGET)
        assert refused == f"its '{entry}' is {legal}"


@pytest.mark.parametrize(
    ("batch", "rows", "heads", "size", "fastest"),
    [
        (8, 512, 12, 64, Spec(1, 128, 2, 0)),
        (4, 2048, 8, 128, Spec(2, 128, 2, 0)),
        (8, 128, 12, 64, None),
    ],
)
def test_the_priors_choose_what_was_fastest(
    batch: int, rows: int, heads: int, size: int, fastest: Spec | None
) -> None:
    """Without a table, the variant that won on an H100; where one tile holds all keys, the kernel without a ring."""
    x = packed(batch, rows, heads, size)
    work = attention([x, x, x], x)
    assert (KERNEL.cost_us(work, TARGET) < AttentionKernel().cost_us(work, TARGET)) == (fastest is not None)
    assert fastest is None or read_spec(KERNEL.record(work, TARGET)) == fastest


def test_grouped_heads_are_one_dimension_less_to_copy() -> None:
    """Keys that several heads of queries share have a stride of 0: their map leaves the dimension out."""
    q = OperandInfo("temp", (2, 2, 3, 100, 64), "f16", (38400, 19200, 6400, 64, 1))
    k = OperandInfo("temp", (2, 2, 3, 130, 64), "f16", (16640, 8320, 0, 64, 1))
    work = attention([q, k, k], q, past=30)
    assert KERNEL.legal(work, TARGET) is None
    made = launch(work, KERNEL.record_of(work, TARGET, Spec(2, 128, 2, 0)))
    of_q, of_k, of_v = maps(made)
    assert of_q.sizes == (64, 100, 3, 2, 2) and of_q.box == (64, 128, 1, 1, 1)
    assert (
        of_k.sizes == (64, 130, 2, 2)
        and of_k.strides == (128, 16640, 33280)
        and of_k == replace(of_v, base=1)
    )


def mask_of(rows: int, dtype: str) -> OperandInfo:
    """One for all heads, with a row for each of `rows` queries or one for all."""
    return OperandInfo("temp", (2, 1, rows, 500), dtype, (rows * 500, rows * 500, 500, 1))


@pytest.mark.parametrize(
    ("size", "past", "mask", "spec"),
    [
        (64, None, None, Spec(2, 128, 2, 0)),
        (128, 70, mask_of(500, "f16"), Spec(2, 128, 2, 1)),
    ],
    ids=["full", "masked-causal"],
)
def test_the_softmax_falls_between_the_products(
    size: int, past: int | None, mask: OperandInfo | None, spec: Spec
) -> None:
    """Scores and sums are multiplied in one go (HGMMA), one of them is waited for (DEPBAR 1), and the exponentials of
    a tile come before the other is (DEPBAR 0). A mask is loaded before the first wait. Nothing spills; copies are bulk
    tensor copies."""
    x = packed(2, 500, 3, size)
    work = attention([x, x, x] if mask is None else [x, x, x, mask], x, past=past)
    (cubin,) = compile_kernels([launch(work, KERNEL.record_of(work, TARGET, spec)).code], "sm_90a").values()
    names = instructions(cubin)
    assert cubin.stack_bytes == 0 and not starting(names, ATOMICS + SPILLS)
    assert starting(names, ("HGMMA",)) and starting(names, ("UTMALDG",))
    assert not starting(names, ("HMMA", "LDSM", "LDGSTS"))
    letters = {"HGMMA": "p", "WARPGROUP.DEPBAR": "w", "MUFU.EX2": "e"}
    events = "".join(mark for name in names for start, mark in letters.items() if name.startswith(start))
    together = size // 16 + spec.block_n // 16
    assert re.search(f"wp{{{together}}}we{{{spec.block_n // 2},}}w", events), events
    pairs = 0 if mask is None else spec.block_n // 8 * (2 if mask.shape[2] > 1 else 1)
    assert len([name for name in names if name.startswith("LDG")]) == 2 * pairs
    loads = "".join(
        mark for name in names for start, mark in {**letters, "LDG": "l"}.items() if name.startswith(start)
    )
    for product in re.findall("w([pl]+)we", loads):
        assert product.count("l") == pairs, loads


@pytest.mark.parametrize(
    ("size", "mask", "width"), [(64, None, 128), (128, None, 128), (64, "f16", 128), (128, "f32", 64)]
)
def test_keys_are_combined_in_one_order_whatever_the_batch(size: int, mask: str | None, width: int) -> None:
    """For work that is batch-invariant, all variants take tiles of one width, which neither the number of queries nor
    that of batch elements has a part in."""
    orders: set[str] = set()
    for batch, rows in ((1, 1), (1, 64), (7, 65), (2, 500), (33, 2048)):
        x, keys = packed(batch, rows, 3, size), packed(batch, 500, 3, size)
        masks = [] if mask is None else [replace(mask_of(1, mask), shape=(1, 1, 1, 500))]
        work = replace(attention([x, keys, keys, *masks], x), batch_invariant=True)
        assert KERNEL.legal(work, TARGET) is None
        orders.add(KERNEL.fixed_order(work, TARGET))
        records = KERNEL.variants(work, TARGET)
        assert records[0] == KERNEL.record(work, TARGET)
        assert {read_spec(record).block_n for record in records} == {width}
    assert orders == {f"by warpgroups, keys in tiles of {width}, in order"}


def test_what_is_legal_for_one_row_of_one_batch_is_legal_for_all() -> None:
    """Strides along a dim of size 1 decide nothing, unless the work is to be the same for other sizes."""
    x = OperandInfo("temp", (1, 3, 1, 64), "f16", (196, 64, 196, 1))
    keys = packed(1, 500, 3, 64)
    free = attention([x, keys, keys], packed(1, 1, 3, 64))
    assert KERNEL.legal(free, TARGET) is None
    assert "of the queries" in str(KERNEL.legal(replace(free, batch_invariant=True), TARGET))
