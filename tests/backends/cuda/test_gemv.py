"""`cuda.gemv`: what it takes, what it decides, and what its machine code looks like. No GPU is needed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

import pytest
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, Block

from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.families.gemm.gemv.codegen import emit
from aicf.backends.cuda.families.gemm.gemv.kernel import GemvKernel, read_spec, specs
from aicf.backends.cuda.families.gemm.gemv.schedule import (
    ColumnsSpec,
    RowsSpec,
    TilesSpec,
    choose,
    read_problem,
)
from aicf.backends.cuda.target import ARCHES
from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import TargetAttr, contiguous_strides
from aicf.errors import PlanError
from tests.backends.cpu.kernels_text import parse_kernel
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.sass import listing

TARGET = TargetAttr("cuda", "sm_90a")
ARCH = ARCHES["sm_90a"]
KERNEL = GemvKernel()


def layer_norm(rows: int, k: int, dtype: str) -> KernelOp:
    """Layer normalisation of [rows, k] with scale and bias, f32 inside."""
    casts = "".join(f"%{name} = emit.cast %{name}i : {dtype} to f32 " for name in ("x", "g", "c"))
    return parse_kernel(
        f"""emit.kernel @p parallel [{rows}] reduce [{k}]
            ins [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d1)>]
            outs [affine_map<(d0, d1) -> (d0, d1)>] {{
        ^bb0(%xi : {dtype}, %gi : {dtype}, %ci : {dtype}):
          %s = emit.phase -> f32 {{
            %x = emit.cast %xi : {dtype} to f32 %a = emit.reduce "sum" %x : f32 emit.yield %a : f32 }}
          %mu, %q = emit.phase -> f32, f32 {{
            %n = arith.constant {float(k)} : f32
            %m = arith.divf %s, %n : f32
            %x = emit.cast %xi : {dtype} to f32
            %d = arith.subf %x, %m : f32
            %dd = arith.mulf %d, %d : f32
            %a = emit.reduce "sum" %dd : f32
            emit.yield %m, %a : f32, f32 }}
          emit.phase {{
            {casts}
            %n = arith.constant {float(k)} : f32
            %e = arith.constant 0.00001 : f32
            %v = arith.divf %q, %n : f32
            %w = arith.addf %v, %e : f32
            %r = math.rsqrt %w : f32
            %d = arith.subf %x, %mu : f32
            %t = arith.mulf %d, %r : f32
            %u = arith.mulf %t, %g : f32
            %y = arith.addf %u, %c : f32
            %z = emit.cast %y : f32 to {dtype}
            emit.store %z, 0 : {dtype}
            emit.yield }}
        }}"""
    )


def epilogue(rows: int, n: int, dtype: str, operands: str, body: str) -> KernelOp:
    """One value for each element: `operands` maps of what it reads (`;` between), `body` computes %r from %0, %1 .."""
    maps = ", ".join(f"affine_map<(d0, d1) -> ({m})>" for m in operands.split(";"))
    arguments = ", ".join(f"%{index} : {dtype}" for index in range(len(operands.split(";"))))
    named = re.sub(r"%(\d)", r"%a\1", f"^bb0({arguments}): emit.phase {{ {body} emit.store %r, 0 : {dtype}")
    return parse_kernel(
        f"emit.kernel @e parallel [{rows}, {n}] reduce [] ins [{maps}] outs [affine_map<(d0, d1) -> (d0, d1)>] "
        f"{{ {named} emit.yield }} }}"
    )


def bias_gelu(rows: int, n: int, dtype: str) -> KernelOp:
    """gelu(acc + bias)"""
    body = f"""
        %s = arith.addf %0, %1 : {dtype}
        %k = arith.constant 0.707106769 : {dtype}
        %one = arith.constant 1.0 : {dtype}
        %half = arith.constant 0.5 : {dtype}
        %t = arith.mulf %s, %k : {dtype}
        %e = math.erf %t : {dtype}
        %f = arith.addf %e, %one : {dtype}
        %h = arith.mulf %s, %half : {dtype}
        %r = arith.mulf %h, %f : {dtype}"""
    return epilogue(rows, n, dtype, "d0, d1;d1", body)


def bias_residual(rows: int, n: int, dtype: str) -> KernelOp:
    """acc + bias + residual"""
    body = f"%s = arith.addf %0, %1 : {dtype} %r = arith.addf %s, %2 : {dtype}"
    return epilogue(rows, n, dtype, "d0, d1;d1;d0, d1", body)


def gate(rows: int, n: int, dtype: str) -> KernelOp:
    """silu(acc0) * acc1"""
    body = f"""
        %s = emit.sigmoid %0 : {dtype}
        %t = arith.mulf %0, %s : {dtype}
        %r = arith.mulf %t, %1 : {dtype}"""
    return epilogue(rows, n, dtype, "d0, d1;d0, d1", body)


def operand(role: str, shape: Sequence[int], dtype: str, strides: Sequence[int] | None = None) -> OperandInfo:
    """An operand, contiguous unless said."""
    return OperandInfo(role, tuple(shape), dtype, tuple(strides or contiguous_strides(shape)))


def product(
    m: int,
    n: int,
    k: int,
    dtype: str = "f16",
    *,
    kind: str = "gemm",
    transpose_b: bool = True,
    extras: Sequence[tuple[str, Sequence[int]]] = (),
    code: KernelOp | None = None,
    prologue: KernelOp | None = None,
    attrs: Mapping[str, int] | None = None,
) -> Workload:
    """A product of [m, k] with weights; `extras` are (role, shape)."""
    results = (attrs or {}).get("products", 1)
    weights = 2 if kind.endswith("gated") else results
    weight = operand("param", (n, k) if transpose_b else (k, n), dtype)
    entries: dict[str, Attribute] = {
        "transpose_a": BoolAttr.from_bool(False),
        "transpose_b": BoolAttr.from_bool(transpose_b),
    }
    entries |= {name: IntegerAttr(value, i64) for name, value in (attrs or {}).items()}
    operands = (
        operand("temp", (m, k), dtype),
        *[weight] * weights,
        *(operand(role, shape, dtype) for role, shape in extras),
    )
    outputs = tuple(operand("temp", (m, n), dtype) for _ in range(results))
    return Workload("w", kind, entries, operands, outputs, Block(), code, prologue)


def up_projection(m: int = 1, dtype: str = "f16", transpose_b: bool = True) -> Workload:
    """Layer norm, 768 -> 3072, bias and GELU."""
    return product(
        m,
        3072,
        768,
        dtype,
        kind="norm_gemm",
        extras=[("param", (768,)), ("param", (768,)), ("param", (3072,))],
        code=bias_gelu(m, 3072, dtype),
        prologue=layer_norm(m, 768, dtype),
        attrs={"prologue_operands": 2},
        transpose_b=transpose_b,
    )


def down_projection(m: int = 1, dtype: str = "f16", transpose_b: bool = True) -> Workload:
    """3072 -> 768, bias and residual."""
    return product(
        m,
        768,
        3072,
        dtype,
        kind="gemm_epilogue",
        extras=[("param", (768,)), ("temp", (m, 768))],
        code=bias_residual(m, 768, dtype),
        transpose_b=transpose_b,
    )


def normed(m: int, k: int) -> Workload:
    """Layer norm and a product with [1024, k], nothing behind it."""
    return product(
        m,
        1024,
        k,
        kind="norm_gemm",
        extras=[("param", (k,))] * 2,
        prologue=layer_norm(m, k, "f16"),
        attrs={"prologue_operands": 2},
    )


def launched(work: Workload, record: Mapping[str, Attribute] | None = None) -> KernelLaunch:
    """The launch of a work, each operand in a bind of its own."""
    (made,) = emit(launch_of(work, KERNEL.id, record or KERNEL.record(work, TARGET)))
    return made


WORKS = {
    "norm, bias and gelu": up_projection,
    "bias and residual": down_projection,
    "plain bf16, 4 rows": lambda: product(4, 512, 1024, "bf16"),
    "plain f32, K not a whole number of warps": lambda: product(2, 100, 300, "f32"),
    "swiglu": lambda: product(1, 1024, 1024, kind="gemm_gated", code=gate(1, 1024, "f16")),
    "normed swiglu": lambda: product(
        1,
        1024,
        1024,
        kind="norm_gated",
        extras=[("param", (1024,))] * 2,
        code=gate(1, 1024, "f16"),
        prologue=layer_norm(1, 1024, "f16"),
        attrs={"prologue_operands": 2},
    ),
    "three side by side": lambda: product(1, 768, 768, kind="gemm_multi", attrs={"products": 3}),
    "tiles, 4 rows": lambda: down_projection(4),
    "tiles with norm, 16 rows": lambda: up_projection(16, "bf16"),
    "columns": lambda: down_projection(transpose_b=False),
    "columns with norm": lambda: up_projection(transpose_b=False),
}


@pytest.mark.parametrize("name", WORKS)
def test_machine_code(name: str) -> None:
    """Nothing spills, weights come in 16-byte loads that start before the wait, and dependents start before it too."""
    work = WORKS[name]()
    assert KERNEL.legal(work, TARGET) is None
    made = launched(work)
    cubin = compile_kernels([made.code], ARCH.name)[made.code.symbol]
    assert cubin.stack_bytes == 0
    assert cubin.registers * made.code.threads * made.code.blocks_per_sm <= 65536
    instructions = listing(cubin)
    wait = next(i for i, text in enumerate(instructions) if "ACQBULK" in text)
    start = next(i for i, text in enumerate(instructions) if "PREEXIT" in text)
    streamed = [i for i, text in enumerate(instructions) if re.search(r"LDG\.E\.NA.*\.128", text)]
    assert start < wait
    assert streamed and streamed[0] < wait
    if isinstance(read_spec(KERNEL.record(work, TARGET)), RowsSpec):
        assert streamed[-1] < wait
    stores = [i for i, text in enumerate(instructions) if re.search(r"\bSTG", text)]
    assert stores and min(stores) > wait


def test_activations_are_read_after_the_wait() -> None:
    """A weight that the program updates, and with it everything else, is not touched before the wait."""
    work = product(1, 512, 1024)
    changed = dataclasses.replace(work.operands[1], updated=True)
    work = dataclasses.replace(work, operands=(work.operands[0], changed))
    made = launched(work)
    instructions = listing(compile_kernels([made.code], ARCH.name)[made.code.symbol])
    wait = next(i for i, text in enumerate(instructions) if "ACQBULK" in text)
    assert not any("LDG" in text for text in instructions[:wait])


def _expected(name: str) -> type[RowsSpec | ColumnsSpec | TilesSpec]:
    if "columns" in name:
        return ColumnsSpec
    return TilesSpec if "tiles" in name or "bf16" in name else RowsSpec


@pytest.mark.parametrize("name", WORKS)
def test_records_hold_every_decision(name: str) -> None:
    """The record gives back the spec; operands read early are the parameters, never x or a residual."""
    work = WORKS[name]()
    record = KERNEL.record(work, TARGET)
    problem = read_problem(work.kind, work.attrs, work.operands)
    chosen = choose(problem, ARCH)
    assert chosen is not None
    params = tuple(i for i, o in enumerate(work.operands) if o.role == "param")
    assert read_spec(record) == dataclasses.replace(chosen, early=params)
    assert read_problem(work.kind, record, work.operands) == problem
    assert isinstance(chosen, _expected(name))
    assert KERNEL.cost_us(work, TARGET) > 0


def test_every_spec_for_the_tuner_is_different_and_emits() -> None:
    """Candidates differ, and each record makes a launch that covers all columns."""
    work = down_projection()
    records = specs(work, TARGET)
    assert len({str(record) for record in records}) == len(records) > 4
    assert records[0] == KERNEL.record(work, TARGET)
    texts = {launched(work, record).code.symbol for record in records}
    assert len(texts) == len(records)


def test_the_same_record_makes_the_same_text() -> None:
    """Code is a pure function of the record and the operands."""
    assert launched(up_projection()).code == launched(up_projection()).code


def test_a_record_with_a_missing_decision_is_refused() -> None:
    """No default is made up at build time."""
    work = down_projection()
    record = KERNEL.record(work, TARGET)
    for key in ("early_reads", "rows_per_warp", "k_parts", "along", "grid", "shared_bytes"):
        with pytest.raises(PlanError, match=key):
            launched(work, {name: value for name, value in record.items() if name != key})


def _strided(work: Workload, index: int, shape: Sequence[int], strides: Sequence[int]) -> Workload:
    operands = list(work.operands)
    operands[index] = dataclasses.replace(operands[index], shape=tuple(shape), strides=tuple(strides))
    return dataclasses.replace(work, operands=tuple(operands))


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (lambda: product(17, 64, 64), "17 rows, at most 16"),
        (lambda: product(1, 64, 60), "multiple of 16 bytes"),
        (lambda: product(1, 64, 64, "i32"), "f32, f16 or bf16, one is i32"),
        (
            lambda: _strided(product(1, 64, 64), 1, (64, 64), (256, 2)),
            "contiguous neither along K nor along N",
        ),
        (lambda: _strided(product(1, 64, 64), 0, (1, 64), (128, 2)), "x is not contiguous along K"),
        (lambda: _strided(product(2, 64, 64), 0, (2, 64), (65, 1)), "rows of x do not start"),
        (lambda: _strided(product(1, 64, 64), 1, (2, 64, 64), (4096, 64, 1)), "have a batch"),
        (lambda: normed(16, 16384), "16 rows of 16384 elements do not fit into the registers"),
        (lambda: product(1, 64, 64, kind="gemm_epilogue"), "has no generated code"),
    ],
)
def test_refusals_name_their_reason(work: Callable[[], Workload], reason: str) -> None:
    """What it cannot run it refuses in the user's words."""
    refused = KERNEL.legal(work(), TARGET)
    assert refused is not None and reason in refused


def test_strict_rounding_changes_the_text() -> None:
    """The record, not a default, says where f16 values are rounded."""
    work = up_projection()
    record = KERNEL.record(work, TARGET)
    strict = launched(work, {**record, "rounding": StringAttr("strict")})
    assert strict.code.source != launched(work, record).code.source
