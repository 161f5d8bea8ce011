"""What kind an instruction is, read from its body: one table of shapes of bodies.

The body is authoritative. A body that fits no row is `generated`: still one kernel, only without a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, StringAttr, f64, i64
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit_kernels import YieldOp
from aicf.dialects.types import tensor_info
from aicf.passes.support.peeling import yielded
from aicf.passes.support.scalar_ops import splat_value

Attrs = Mapping[str, Attribute]

_SOFTMAX = (
    "reduce_max $0",
    "broadcast %0",
    "sub $0 %1",
    "exp %2",
    "reduce_sum %3",
    "broadcast %4",
    "div %3 %5",
)
_LAYER_NORM = (
    "reduce_sum $0",
    "div %0 c",
    "broadcast %1",
    "sub $0 %2",
    "mul %3 %3",
    "reduce_sum %4",
    "div %5 c",
    "add %6 c",
    "rsqrt %7",
    "broadcast %8",
    "mul %3 %9",
    "broadcast $1",
    "mul %10 %11",
    "broadcast $2",
    "add %12 %13",
)
_GELU = ("mul", "erf", "add", "mul", "mul")
_GELU_TANH = ("mul", "mul", "mul", "add", "mul", "tanh", "add", "mul", "mul")


def derive_kind(block: Block) -> tuple[str, Attrs]:
    """Kind and attributes of a peeled body."""
    ops = [op for op in block.ops if not isinstance(op, YieldOp | logical.ConstantOp)]
    if not ops:
        return ("copy" if isinstance(yielded(block)[0], BlockArgument) else "generated"), {}
    matmuls = [op for op in ops if isinstance(op, logical.MatmulOp)]
    if len(matmuls) == 1 and is_contraction_of_arguments(matmuls[0]):
        return _contraction(matmuls[0], ops)
    if len(ops) == 1 and isinstance(ops[0], logical.ConcatOp):
        return "concat", {"axis": IntegerAttr(ops[0].axis.value.data, i64)}
    signature = _signature(block, ops)
    for kind, rows, attrs in _KINDS:
        if signature in rows and len(yielded(block)) == 1 and (found := attrs(ops)) is not None:
            return kind, found
    return "generated", {}


def is_contraction_of_arguments(matmul: logical.MatmulOp) -> bool:
    """Whether the matmul multiplies block arguments 0 and 1, as every contraction kernel expects."""
    operands = matmul.operands
    return all(isinstance(v, BlockArgument) and v.index == place for place, v in enumerate(operands))


def _signature(block: Block, ops: Sequence[Operation]) -> tuple[str, ...]:
    """The ops in order, operands as `$argument`, `%earlier op` or `c` for a splat constant."""
    names: dict[SSAValue, str] = {argument: f"${argument.index}" for argument in block.args}
    lines: list[str] = []
    for number, op in enumerate(ops):
        lines.append(" ".join([_short(op), *(names.get(operand, "c") for operand in op.operands)]))
        names[op.results[0]] = f"%{number}"
    return tuple(lines)


def _short(op: Operation) -> str:
    return op.name.removeprefix("logical.")


def _contraction(matmul: logical.MatmulOp, ops: Sequence[Operation]) -> tuple[str, Attrs]:
    attrs: dict[str, Attribute] = {
        "transpose_a": BoolAttr.from_bool(matmul.transpose_a is not None),
        "transpose_b": BoolAttr.from_bool(matmul.transpose_b is not None),
    }
    if len(ops) == 1:
        return "gemm", attrs
    arithmetic = [op for op in ops if op.has_trait(logical.Elementwise)]
    bias = [op for op in arithmetic if _adds(op, _is_row)]
    residual = [op for op in arithmetic if _adds(op, _is_whole)]
    rest = tuple(_short(op) for op in arithmetic if op not in bias and op not in residual)
    attrs["bias"] = BoolAttr.from_bool(bool(bias))
    attrs["residual"] = BoolAttr.from_bool(bool(residual))
    attrs["activation"] = StringAttr(_ACTIVATIONS.get(rest, "generated"))
    return "gemm_epilogue", attrs


_ACTIVATIONS: dict[tuple[str, ...], str] = {
    (): "none",
    ("relu",): "relu",
    ("sigmoid",): "sigmoid",
    ("tanh",): "tanh",
    _GELU: "gelu",
    _GELU_TANH: "gelu_tanh",
}


def _adds(op: Operation, what: Callable[[SSAValue], bool]) -> bool:
    return isinstance(op, logical.AddOp) and any(what(operand) for operand in op.operands)


def _is_row(value: SSAValue) -> bool:
    """A block argument broadcast along its last dim only."""
    if not isinstance(value, OpResult) or not isinstance(value.op, logical.BroadcastOp):
        return False
    source = value.op.operands[0]
    last = tensor_info(value.type).rank - 1
    return isinstance(source, BlockArgument) and tuple(value.op.dimensions.get_values()) == (last,)


def _is_whole(value: SSAValue) -> bool:
    return isinstance(value, BlockArgument)


def _none(ops: Sequence[Operation]) -> Attrs | None:
    return {}


def _reduce_sum(ops: Sequence[Operation]) -> Attrs | None:
    op = ops[0]
    assert isinstance(op, logical.ReduceSumOp)
    axes = tuple(op.axes.get_values())
    if axes != tuple(range(axes[0], axes[0] + len(axes))):
        return None
    return {
        "first_axis": IntegerAttr(axes[0], i64),
        "axis_count": IntegerAttr(len(axes), i64),
        "keepdims": BoolAttr.from_bool(op.keepdims is not None),
    }


def _softmax(ops: Sequence[Operation]) -> Attrs | None:
    maximum, total = ops[0], ops[4]
    assert isinstance(maximum, logical.ReduceMaxOp) and isinstance(total, logical.ReduceSumOp)
    if len(maximum.axes) != 1 or maximum.axes != total.axes:
        return None
    return {"axis": IntegerAttr(int(maximum.axes.get_values()[0]), i64)}


def _layer_norm(ops: Sequence[Operation]) -> Attrs | None:
    mean, variance = ops[0], ops[5]
    assert isinstance(mean, logical.ReduceSumOp) and isinstance(variance, logical.ReduceSumOp)
    axes = tuple(mean.axes.get_values())
    info = tensor_info(mean.operands[0].type)
    count = 1
    for axis in axes:
        count *= info.shape[axis]
    divisors = [_splat(ops[place].operands[1]) for place in (1, 6)]
    epsilon = _splat(ops[7].operands[1])
    trailing = axes == tuple(range(axes[0], info.rank))
    if not trailing or mean.axes != variance.axes or divisors != [count, count] or epsilon is None:
        return None
    return {"axis": IntegerAttr(axes[0], i64), "epsilon": FloatAttr(float(epsilon), f64)}


def _splat(value: SSAValue) -> float | int | None:
    if isinstance(value, OpResult) and isinstance(value.op, logical.ConstantOp):
        return splat_value(value.op)
    return None


def _sgd_step(ops: Sequence[Operation]) -> Attrs | None:
    factor = ops[-2].operands[1] if isinstance(ops[-2].operands[1], OpResult) else ops[-2].operands[0]
    source = factor.op.operands[0] if isinstance(factor, OpResult) and factor.op.operands else None
    number = source.index if isinstance(source, BlockArgument) else -1
    return {"learning_rate_operand": IntegerAttr(number, i64)}


def _bias_add(ops: Sequence[Operation]) -> Attrs | None:
    return {} if _is_row(ops[0].results[0]) else None


_KINDS: tuple[tuple[str, frozenset[tuple[str, ...]], Callable[[Sequence[Operation]], Attrs | None]], ...] = (
    ("add", frozenset({("add $0 $1",)}), _none),
    ("relu", frozenset({("relu $0",)}), _none),
    ("bias_add", frozenset({("broadcast $1", "add $0 %0"), ("broadcast $0", "add $1 %0")}), _bias_add),
    ("reduce_sum", frozenset({("reduce_sum $0",)}), _reduce_sum),
    ("softmax", frozenset({_SOFTMAX}), _softmax),
    ("layernorm_fwd", frozenset({_LAYER_NORM}), _layer_norm),
    (
        "sgd_step",
        frozenset(
            {
                ("broadcast $0", "mul %0 $1", "sub $2 %1"),
                ("broadcast $0", "mul $1 %0", "sub $2 %1"),
                ("broadcast $1", "mul $0 %0", "sub $2 %1"),
                ("mul $0 c", "sub $1 %0"),
                ("mul c $0", "sub $1 %0"),
            }
        ),
        _sgd_step,
    ),
)
