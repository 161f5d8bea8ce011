"""Attention of one query a head without a GPU: what is legal and why not, what records hold, what code contains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, f64, i64
from xdsl.ir import Attribute, Block

from aicf.backends.common.record import integer
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.attention.decode.codegen import emit
from aicf.backends.cuda.families.attention.decode.kernel import (
    AttentionStepKernel,
    Spec,
    ranked_specs,
    read_spec,
    spec_reason,
    specs,
)
from aicf.backends.cuda.families.attention.decode.problem import problem_of
from aicf.backends.cuda.target import ARCHES, arch_named
from aicf.dialects.emit_types import TargetAttr
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.sass import SPILLS, instructions, starting
from tests.support.record_checks import record_reason

TARGET = TargetAttr("cuda", "sm_90a", {})
KERNEL = AttentionStepKernel()


def heads(rows: int, size: int = 64, dtype: str = "f16", count: int = 12) -> OperandInfo:
    """``[count, rows, size]`` as a view of ``[rows, count * size]``."""
    return OperandInfo("temp", (count, rows, size), dtype, (size, count * size, 1))


def work(
    operands: Sequence[OperandInfo],
    results: Sequence[OperandInfo],
    past: int | None = None,
    mask: bool = False,
) -> Workload:
    """Attention, or with several results a step."""
    attrs: Mapping[str, Attribute] = {
        "scale": FloatAttr(0.125, f64),
        "mask": BoolAttr.from_bool(mask),
        "causal": BoolAttr.from_bool(past is not None),
        "past": IntegerAttr(past or 0, i64),
        "nan_as_zero": BoolAttr.from_bool(False),
        "empty_as_zero": BoolAttr.from_bool(False),
    }
    kind = "attention" if len(results) == 1 else "attention_step"
    return Workload("step", kind, attrs, tuple(operands), tuple(results), Block(), None)


def attention(
    keys: int, size: int = 64, dtype: str = "f16", count: int = 12, past: int | None = None
) -> Workload:
    """One query a head on given keys."""
    one, all_ = heads(1, size, dtype, count), heads(keys, size, dtype, count)
    return work([one, all_, all_], [one], past)


def step(keys: int = 512, size: int = 64, index: str = "i64", **changes: object) -> Workload:
    """One query a head, and the row that is written; `changes` are of the state."""
    one, state = heads(1, size), replace(heads(keys, size), **changes)  # type: ignore[arg-type]
    at = OperandInfo("input", (), index, ())
    return work([one, state, state, at, one, one], [one, state, state])


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (attention(512), None),
        (attention(333, 128, "bf16", past=17), None),
        (step(), None),
        (step(index="i32"), None),
        (work([heads(2), heads(9), heads(9)], [heads(2)]), "there are 2 queries a head"),
        (attention(512, dtype="f32"), "not f32: use cuda.attention_simt or cast"),
        (attention(512, 48), "keys and values of 48 and 48 elements"),
        (attention(20000), None),
        (step(offset=4), "rows of the keys are not neighbours"),
        (step(index="i16"), "the row's index is i16"),
        (replace(step(), attrs=attention(9, past=3).attrs), "here later ones are not"),
        (replace(step(), rounding="strict"), "the policy wants them rounded"),
    ],
)
def test_legality_names_the_operand_and_the_way_out(given: Workload, reason: str | None) -> None:
    found = KERNEL.legal(given, TARGET)
    assert found is None if reason is None else found is not None and reason in found


@pytest.mark.parametrize("keys", [1, 17, 512, 2048])
@pytest.mark.parametrize("size", [32, 64, 128])
def test_every_length_has_variants_that_hold_its_keys(keys: int, size: int) -> None:
    """Every key is some lane's, whatever the variant; clusters are for architectures that have them."""
    for arch in ARCHES.values():
        problem = problem_of(attention(keys, size))
        found = list(specs(problem, arch))
        assert found or not arch.has_clusters
        for spec in found:
            assert spec.turns(problem) * spec.parts * spec.loads(problem) * (256 // size) >= keys
            assert spec.splits == 1 or arch.has_clusters


def test_a_record_says_its_variant_and_what_may_share_bytes() -> None:
    """The state may be overwritten, by a step alone; a record that contradicts itself is refused."""
    for given, aliased in ((step(), True), (attention(512), False)):
        records = KERNEL.variants(given, TARGET)
        assert records[0] == KERNEL.record(given, TARGET)
        assert len({read_spec(record) for record in records}) == len(records) > 3
        assert all(("may_alias" in record) == aliased for record in records)
        assert record_reason(KERNEL, given, records[1], TARGET) is None
        edited = {**records[1], "grid": records[1]["block"]}
        assert "its 'grid' is" in str(record_reason(KERNEL, given, edited, TARGET))
    problem, arch = problem_of(step()), arch_named("sm_90a")
    for entry, legal in (("splits", "1, 2, 4, 8"), ("warps", "2, 4, 8, 16")):
        edited = {**KERNEL.record(step(), TARGET), entry: integer(3)}
        assert record_reason(KERNEL, step(), edited, TARGET) == f"its '{entry}' is 3, legal: {legal}"
    assert "sm_80 has no clusters" in str(spec_reason(problem, Spec(2, 4), arch_named("sm_80")))
    wide = problem_of(attention(1024, 128))
    assert "partial results of 128 warps do not fit" in str(spec_reason(wide, Spec(8, 16), arch))


def launched(given: Workload, spec: Spec, in_place: bool = True) -> KernelLaunch:
    """The one launch of a variant."""
    made = launch_of(given, KERNEL.id, KERNEL.record_of(given, TARGET, spec))
    if in_place and len(made.outs) > 1:
        made = replace(made, outs=(made.outs[0], made.ins[1], made.ins[2]))
    (one,) = emit(made)
    assert isinstance(one, KernelLaunch)
    return one


def test_all_of_a_head_is_loaded_at_once_and_one_row_is_stored() -> None:
    """16 bytes a lane for each of its keys and values, before the first is used; out of place every row is stored."""
    spec = ranked_specs(problem_of(step()), arch_named("sm_90a"))[0]
    given, copied, clustered = (
        launched(step(), spec),
        launched(step(), spec, in_place=False),
        launched(step(), Spec(4, 4)),
    )
    made = compile_kernels([one.code for one in (given, copied, clustered)], "sm_90a")
    loads = 2 * spec.loads(problem_of(step()))
    for one in (given, copied, clustered):
        assert not starting(instructions(made[one.code.symbol]), SPILLS)
    found = instructions(made[given.code.symbol])
    assert sum(name.startswith("LDG.E.128") for name in found) == loads + 3
    assert given.code.source != copied.code.source
    assert clustered.cluster == (4, 1, 1) and starting(
        instructions(made[clustered.code.symbol]), "UCGABAR_ARV"
    )
