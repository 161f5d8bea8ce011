"""The attention kernels without a GPU: what is legal and why not, what records hold, what compiled code contains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, f64, i64
from xdsl.ir import Attribute, Block

from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.attention.problem import problem_of
from aicf.backends.cuda.families.attention.simt import codegen as simt_code
from aicf.backends.cuda.families.attention.simt.kernel import SimtAttentionKernel
from aicf.backends.cuda.families.attention.tensor import codegen as tensor_code
from aicf.backends.cuda.families.attention.tensor.kernel import AttentionKernel
from aicf.backends.cuda.families.attention.tensor.schedule import (
    AttentionSpec,
    ranked_specs,
    read_spec,
    shared_layout,
    specs,
)
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit_types import TargetAttr
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.sass import ATOMICS, SPILLS, instructions, starting

TARGET = TargetAttr("cuda", "sm_90a", {})
KERNEL, SIMT = AttentionKernel(), SimtAttentionKernel()


def packed(
    batch: int, rows: int, heads: int, size: int, dtype: str = "f16", **changes: object
) -> OperandInfo:
    """``[batch, heads, rows, size]`` as a view of ``[batch, rows, heads * size]``."""
    strides = (rows * heads * size, size, heads * size, 1)
    return replace(OperandInfo("temp", (batch, heads, rows, size), dtype, strides), **changes)  # type: ignore[arg-type]


def attention(
    operands: Sequence[OperandInfo], result: OperandInfo, scale: float = 0.125, past: int | None = None
) -> Workload:
    """A work of kind `attention`; a fourth operand is the mask. Causal if `past` is given."""
    attrs: Mapping[str, Attribute] = {
        "scale": FloatAttr(scale, f64),
        "mask": BoolAttr.from_bool(len(operands) > 3),
        "causal": BoolAttr.from_bool(past is not None),
        "past": IntegerAttr(past or 0, i64),
        "nan_as_zero": BoolAttr.from_bool(False),
        "empty_as_zero": BoolAttr.from_bool(False),
    }
    return Workload("attention", "attention", attrs, tuple(operands), (result,), Block(), None)


def bert(batch: int = 1, rows: int = 128, dtype: str = "f16") -> Workload:
    """Self-attention of BERT-base."""
    x = packed(batch, rows, 12, 64, dtype)
    return attention([x, x, x], x)


def launch(work: Workload, record: Mapping[str, Attribute], kernel: str = KERNEL.id) -> KernelLaunch:
    """The one launch of `work`."""
    emit = simt_code.emit if kernel == SIMT.id else tensor_code.emit
    (made,) = emit(launch_of(work, kernel, record))
    assert isinstance(made, KernelLaunch)
    return made


X = packed(2, 100, 3, 64)
MASK = OperandInfo("const", (2, 1, 1, 100), "f32", (100, 0, 0, 1))


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (attention([X, X, X], X), None),
        (attention([X, X, X, MASK], X), None),
        (attention([X, X, X, replace(MASK, dtype="i1")], X), "a mask of i1"),
        (attention([X, X, X], X, past=3), None),
        (attention([X, X, X], replace(X, dtype="f32")), "differ in type"),
        (bert(dtype="f32"), "tensor cores multiply f16 and bf16"),
        (attention([packed(2, 9, 3, 24)] * 3, packed(2, 9, 3, 24)), "a query has 24 elements"),
        (attention([packed(2, 9, 3, 144)] * 3, packed(2, 9, 3, 144)), "a query has 144 elements"),
        (attention([X, replace(X, offset=4), X], X), "rows of the keys"),
        (attention([X, X, replace(X, strides=(19200, 64, 193, 1))], X), "rows of the values"),
        (attention([replace(X, strides=(19200, 6400, 1, 100)), X, X], X), "rows of the queries"),
        (attention([X, X, X], replace(X, strides=(19200, 6400, 1, 100), offset=3)), None),
        (attention([X, packed(2, 0, 3, 64), packed(2, 0, 3, 64)], X), "an operand is empty"),
    ],
)
def test_legality_names_the_operand_and_the_way_out(work: Workload, reason: str | None) -> None:
    """What tensor cores and 16-byte copies cannot take is refused with its reason; any result is written."""
    found = KERNEL.legal(work, TARGET)
    assert found is None if reason is None else found is not None and reason in found


def test_scalar_units_take_any_strides_and_f32() -> None:
    """What the tensor core kernel refuses for its type or layout runs on `cuda.attention_simt`."""
    odd = replace(packed(2, 9, 3, 25, "f32"), strides=(675, 225, 1, 9), offset=1)
    assert SIMT.legal(attention([odd, odd, odd], odd), TARGET) is None
    wide = packed(1, 9, 1, 300, "f32")
    assert "300 elements" in str(SIMT.legal(attention([wide] * 3, wide), TARGET))


@pytest.mark.parametrize("rows", [1, 16, 17, 100, 128, 200, 256, 512, 2048])
@pytest.mark.parametrize("size", [16, 64, 96, 128])
def test_every_length_and_head_has_tilings_that_fit(rows: int, size: int) -> None:
    """Each proposed tiling has whole 16-row and 16-key tiles and fits shared memory; one stage means one tile."""
    x = packed(1, rows, 2, size)
    for arch in ARCHES.values():
        problem = problem_of(attention([x, x, x], x))
        found = list(specs(problem, arch))
        assert found
        for spec in found:
            assert spec.row_tiles * 16 * spec.warps_m == spec.block_m and spec.keys % 16 == 0
            assert shared_layout(problem, spec).total <= arch.shared_bytes
            assert (spec.stages == 1) == (spec.block_n >= rows)


def test_candidates_differ_in_values_only_and_start_with_the_record() -> None:
    """A tuning table finds a variant by its entries, so all records have the same ones."""
    work = bert(8, 512)
    records = KERNEL.variants(work, TARGET)
    assert records[0] == KERNEL.record(work, TARGET)
    assert len({frozenset(record) for record in records}) == 1
    assert len({str(sorted(record.items(), key=str)) for record in records}) == len(records)
    assert [read_spec(record) for record in records] == list(ranked_specs(problem_of(work), ARCHES["sm_90a"]))


@pytest.mark.parametrize(
    ("batch", "rows", "heads", "size", "fastest"),
    [
        (1, 128, 12, 64, AttentionSpec(64, 128, 1, 4, 1, 1)),
        (8, 128, 12, 64, AttentionSpec(64, 128, 1, 4, 1, 1)),
        (8, 512, 12, 64, AttentionSpec(64, 128, 2, 4, 1, 1)),
        (4, 2048, 8, 128, AttentionSpec(128, 128, 2, 8, 1, 1)),
    ],
)
def test_the_prior_chooses_what_was_fastest(
    batch: int, rows: int, heads: int, size: int, fastest: AttentionSpec
) -> None:
    """Without a table, self-attention gets the tiling that won on an H100."""
    x = packed(batch, rows, heads, size)
    assert read_spec(KERNEL.record(attention([x, x, x], x), TARGET)) == fastest


def test_the_launch_follows_from_record_and_operands() -> None:
    """One block for each tile of queries and each head; the mask is the last argument."""
    work = attention([X, X, X, MASK], X)
    made = launch(work, KERNEL.record_of(work, TARGET, AttentionSpec(64, 64, 2, 4, 1)))
    assert made.grid == (2 * 6, 1, 1) and made.block == (128, 1, 1)
    assert [argument.base for argument in made.arguments] == [0, 1, 2, 4, 3]  # type: ignore[union-attr]
    assert made == launch(work, KERNEL.record_of(work, TARGET, AttentionSpec(64, 64, 2, 4, 1)))


@pytest.mark.parametrize(
    ("work", "spec", "arch"),
    [
        (bert(), AttentionSpec(32, 128, 1, 2, 2), "sm_90a"),
        (attention([X, X, X, MASK], replace(X, offset=1)), AttentionSpec(32, 64, 2, 1, 2), "sm_80"),
    ],
    ids=["bert", "masked"],
)
def test_compiled_code_multiplies_on_tensor_cores(work: Workload, spec: AttentionSpec, arch: str) -> None:
    """The intended products and loads, no spills, no atomics; griddepcontrol from sm_90 on."""
    code = launch(work, KERNEL.record_of(work, TargetAttr("cuda", arch), spec)).code
    (cubin,) = compile_kernels([code], arch).values()
    assert cubin.stack_bytes == 0 and cubin.registers <= 255
    names = instructions(cubin)
    for needed in ("HMMA.16816.F32", "LDSM.16.M88.4", "LDSM.16.MT88.4"):
        assert starting(names, (needed,)), needed
    assert any(".128" in name for name in starting(names, ("LDGSTS",)))
    assert not starting(names, ATOMICS + SPILLS)
    assert ("ACQBULK" in names) == (arch == "sm_90a")


def test_warpgroups_multiply_from_shared_memory() -> None:
    """A wgmma tiling has HGMMA alone, no fragment loads and no spills, and takes whole panels of 64 elements only."""
    work = bert(8, 512)
    made = launch(work, KERNEL.record_of(work, TARGET, AttentionSpec(64, 64, 2, 4, 1, 1)))
    (cubin,) = compile_kernels([made.code], "sm_90a").values()
    names = instructions(cubin)
    assert cubin.stack_bytes == 0
    assert starting(names, ("HGMMA.64x64x16.F32",)) and not starting(names, ("HMMA", "LDSM"))
    narrow = packed(1, 512, 2, 48)
    problem = problem_of(attention([narrow] * 3, narrow))
    assert not any(spec.warpgroups for spec in specs(problem, ARCHES["sm_90a"]))
    assert not any(spec.warpgroups for spec in specs(problem_of(work), ARCHES["sm_80"]))


def test_causal_blocks_leave_out_the_keys_that_none_of_them_sees() -> None:
    """As many tiles as the last query of a block sees, all of them at most; without a causal mask all, always."""
    x, keys = packed(1, 200, 2, 64), packed(1, 300, 2, 64)
    assert problem_of(attention([x, keys, keys], x)).tiles_seen(64, 64) == [5, 5, 5, 5]
    assert problem_of(attention([x, keys, keys], x, past=0)).tiles_seen(64, 64) == [1, 2, 3, 4]
    assert problem_of(attention([x, keys, keys], x, past=100)).tiles_seen(64, 64) == [3, 4, 5, 5]
    assert problem_of(attention([x, keys, keys], x, past=1)).tiles_seen(64, 128) == [1, 2, 2, 3]


def test_a_causal_mask_costs_less_than_none_and_the_record_says_it() -> None:
    """The prior counts the tiles that are visited; `past` and `causal` are in the record and change the code."""
    x = packed(8, 512, 12, 64)
    full, causal, later = (attention([x, x, x], x, past=past) for past in (None, 0, 7))
    for kernel in (KERNEL, SIMT):
        assert kernel.cost_us(causal, TARGET) < 0.8 * kernel.cost_us(full, TARGET)
        record = kernel.record(later, TARGET)
        assert record["causal"] == BoolAttr.from_bool(True) and record["past"] == IntegerAttr(7, i64)
        codes = {launch(w, kernel.record(w, TARGET), kernel.id).code.source for w in (full, causal, later)}
        assert len(codes) == 3


@pytest.mark.parametrize("warpgroups", [1, 0])
def test_causal_code_keeps_to_its_registers(warpgroups: int) -> None:
    """A mask inside of the diagonal tiles spills nothing."""
    x = packed(2, 200, 3, 64)
    work = attention([x, x, x], x, past=9)
    made = launch(work, KERNEL.record_of(work, TARGET, AttentionSpec(64, 128, 2, 4, 1, warpgroups)))
    (cubin,) = compile_kernels([made.code], "sm_90a").values()
    assert cubin.stack_bytes == 0 and not starting(instructions(cubin), ATOMICS + SPILLS)


def test_f32_arithmetic_is_ieee() -> None:
    """The scalar kernel uses no tensor cores, divides exactly (FCHK) and does not spill."""
    x = packed(2, 40, 3, 48, "f32")
    work = attention([x, x, x], x)
    code = launch(work, SIMT.record(work, TARGET), SIMT.id).code
    (cubin,) = compile_kernels([code], "sm_90a").values()
    assert cubin.stack_bytes == 0
    names = instructions(cubin)
    assert starting(names, ("FCHK",)) and not starting(names, ("HMMA", "HGMMA"))
