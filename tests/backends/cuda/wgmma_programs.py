"""Matrix products with epilogues as work and as launches of the wgmma kernel: what tests compile and a GPU runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import BoolAttr, FloatAttr, f32
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from aicf.backends.base import Launch
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.gemm.wgmma.kernel import WgmmaKernel, task_of_work
from aicf.backends.cuda.families.gemm.wgmma.schedule import Spec, Task
from aicf.dialects.emit_kernels import CastOp, KernelOp, PhaseOp, SigmoidOp, StoreOp, YieldOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.types import element_named
from tests.backends.cuda.gemm_launches import launch_of

KERNEL = WgmmaKernel()
TARGET = TargetAttr("cuda", "sm_90a")

Body = Callable[[Sequence[SSAValue]], list[Operation]]
"""From f32 values of the operands to ops, the last of which gives the result."""


def _bias_relu(values: Sequence[SSAValue]) -> list[Operation]:
    zero = arith.ConstantOp(FloatAttr(0.0, f32))
    total = arith.AddfOp(values[0], values[1])
    return [zero, total, arith.MaximumfOp(total, zero)]


def _bias(values: Sequence[SSAValue]) -> list[Operation]:
    return [arith.AddfOp(values[0], values[1])]


def _bias_gelu(values: Sequence[SSAValue]) -> list[Operation]:
    half, one = (arith.ConstantOp(FloatAttr(number, f32)) for number in (0.5, 1.0))
    root = arith.ConstantOp(FloatAttr(0.7071067811865476, f32))
    total = arith.AddfOp(values[0], values[1])
    scaled = arith.MulfOp(total, root)
    error = math.ErfOp(scaled)
    above = arith.AddfOp(error, one)
    halved = arith.MulfOp(total, half)
    return [half, one, root, total, scaled, error, above, halved, arith.MulfOp(halved, above)]


def _bias_residual(values: Sequence[SSAValue]) -> list[Operation]:
    total = arith.AddfOp(values[0], values[1])
    return [total, arith.AddfOp(total, values[2])]


def _gate(values: Sequence[SSAValue]) -> list[Operation]:
    sigmoid = SigmoidOp(values[0])
    silu = arith.MulfOp(values[0], sigmoid)
    return [sigmoid, silu, arith.MulfOp(silu, values[1])]


EPILOGUES: dict[str, tuple[Body, tuple[str, ...]]] = {
    "bias": (_bias, ("columns",)),
    "bias_relu": (_bias_relu, ("columns",)),
    "bias_gelu": (_bias_gelu, ("columns",)),
    "bias_residual": (_bias_residual, ("columns", "all")),
    "gate": (_gate, ()),
    "kept_gelu": (_bias_gelu, ("columns",)),
}
"""By name: the ops, and what each operand besides the sums varies with."""

KEPT = {"kept_gelu": 3}
"""By name: the op whose value is a result too, the first."""


def epilogue(name: str, sizes: Sequence[int], dtype: str, result: str, factors: int) -> KernelOp:
    """The `emit.kernel` of an epilogue over `sizes`."""
    body, extras = EPILOGUES[name]
    types = [*[result] * factors, *[dtype] * len(extras)]
    block = Block(arg_types=[element_named(each).type for each in types])
    casts: list[Operation] = [
        CastOp(argument, f32) for argument, each in zip(block.args, types, strict=True) if each != "f32"
    ]
    wide = iter(casts)
    values = [
        argument if each == "f32" else next(wide).results[0]
        for argument, each in zip(block.args, types, strict=True)
    ]
    ops = body(values)
    end: list[Operation] = []
    given = [ops[KEPT[name]], ops[-1]] if name in KEPT else [ops[-1]]
    for output, op in enumerate(given):
        value: SSAValue = op.results[0]
        if result != "f32":
            end.append(cast := CastOp(value, element_named(result).type))
            value = cast.results[0]
        end.append(StoreOp(value, output))
    block.add_op(PhaseOp(Region(Block([*casts, *ops, *end, YieldOp()]))))
    rank = len(sizes)
    identity = AffineMap.identity(rank)
    maps = {"all": identity, "columns": AffineMap(rank, 0, (AffineExpr.dimension(rank - 1),))}
    ins = [*[identity] * factors, *(maps[each] for each in extras)]
    outs = [identity] * (1 + (name in KEPT))
    kernel = KernelOp("epilogue", sizes, [], ins, outs, Region(block))
    kernel.verify()
    return kernel


def _operand(role: str, shape: tuple[int, ...], dtype: str) -> OperandInfo:
    return OperandInfo(role, shape, dtype, contiguous(shape))


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major element strides."""
    return tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))


def work(
    m: int,
    n: int,
    k: int,
    *,
    kind: str = "gemm",
    dtype: str = "bf16",
    result: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
    batch: tuple[int, ...] = (),
    batched_b: bool = True,
    products: int = 1,
    after: str | None = None,
    b_role: str = "param",
) -> Workload:
    """A product of `dtype` matrices of contiguous operands, with epilogue `after`."""
    result = result or dtype
    factors = 2 if kind == "gemm_gated" else 1
    a_shape = (*batch, *((k, m) if transpose_a else (m, k)))
    b_shape = (*(batch if batched_b else ()), *((n, k) if transpose_b else (k, n)))
    c_shape = (*batch, m, n)
    operands = [_operand("input", a_shape, dtype)]
    operands += [_operand(b_role, b_shape, dtype)] * (factors * products)
    code = None
    if after is not None:
        shapes = {"all": c_shape, "columns": (n,)}
        code = epilogue(after, c_shape, dtype, result, factors)
        for _ in range(products):
            operands += [_operand("temp", shapes[each], dtype) for each in EPILOGUES[after][1]]
    attrs = {
        "transpose_a": BoolAttr.from_bool(transpose_a),
        "transpose_b": BoolAttr.from_bool(transpose_b),
    }
    results = (_operand("temp", c_shape, result),) * (products + (after in KEPT))
    return Workload("product", kind, attrs, tuple(operands), results, Block(), code)


def launch(job: Workload, spec: Spec | None = None) -> Launch:
    """The instruction of `job` by `spec`, or by what the prior prefers."""
    reason = KERNEL.legal(job, TARGET)
    assert reason is None, reason
    record = KERNEL.record(job, TARGET) if spec is None else KERNEL.record_of(job, TARGET, spec)
    return launch_of(job, KERNEL.id, record)


def task(job: Workload) -> Task:
    """What the kernel sees of `job`."""
    return task_of_work(job)
