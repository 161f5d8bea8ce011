"""What kind an instruction is, read from its body: products, updates, and the table of `kind_patterns.py`.

The body is authoritative. A body that fits no row is `generated`: still one kernel, only without a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, StringAttr, f64, i64
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue

from aicf.dialects import logical
from aicf.dialects.emit_kernels import YieldOp
from aicf.dialects.kinds import FLAGS
from aicf.dialects.types import tensor_info
from aicf.passes.bodies.attention import Attention, attention_of
from aicf.passes.bodies.attention_backward import attention_backward_of
from aicf.passes.bodies.convolutions import convolution_of
from aicf.passes.bodies.kind_patterns import Attrs, broadcast_argument, kind_by_pattern, slope_of
from aicf.passes.bodies.operand_sums import OperandSum, operand_sum_of
from aicf.passes.bodies.products import Products, has_kernel_order, products_of, prologue_piece
from aicf.passes.bodies.updates import BodyUpdate, Chain, body_update, is_spread
from aicf.passes.bodies.view_folding import yielded
from aicf.passes.bodies.views import View

_GELU = ("mul", "erf", "add", "mul", "mul")
_GELU_TANH = ("mul", "mul", "mul", "add", "mul", "tanh", "add", "mul", "mul")


def derive_kind(block: Block) -> tuple[str, Attrs]:
    """Kind and attributes of a folded body."""
    ops = [op for op in block.ops if not isinstance(op, YieldOp | logical.ConstantOp)]
    if not ops:
        return _of_nothing(block), {}
    if any(isinstance(op, logical.MatmulOp) for op in ops):
        return _products(block, ops)
    if any(isinstance(op, logical.ConvOp) for op in ops):
        found = convolution_of(block)
        return ("generated", {}) if found is None else (found.kind, found.attrs)
    if len(ops) == 1 and isinstance(ops[0], logical.LogicalOp) and (own := ops[0].kind_alone()) is not None:
        return own
    if any(isinstance(op, logical.MatmulBlocksOp) for op in ops):
        return _packed_products(block)
    if (update := body_update(block)) is not None:
        return _update(update)
    return kind_by_pattern(block) or ("generated", {})


def _of_nothing(block: Block) -> str:
    """Kind of a body without ops."""
    results = yielded(block)
    if isinstance(results[0], BlockArgument):
        return "copy"
    is_zero = (
        len(results) == 1 and isinstance(results[0].owner, logical.ConstantOp) and _is_zero(results[0].owner)
    )
    return "grad_zero" if is_zero and not block.args else "generated"


def _is_zero(constant: logical.ConstantOp) -> bool:
    """Whether all bits of a splat are 0."""
    return constant.is_splat and not any(constant.array.tobytes())


def _update(update: BodyUpdate) -> tuple[str, Attrs]:
    """Kind of a body that updates many tensors: that of a known optimizer if it is so for all but histories."""
    chains = [chain for chain in update.chains if not _keeps_a_history(chain)]
    rates = {_rate_of_step(chain) for chain in chains}
    if len(rates) == 1 and (rate := next(iter(rates))) is not None:
        return "sgd_step", {"learning_rate_operand": IntegerAttr(rate, i64)}
    return ("adam_step" if chains and all(map(_goes_by_moments, chains)) else "update"), {}


def _rate_of_step(chain: Chain) -> int | None:
    """Of a chain ``w - rate * g``: which operand the rate is, -1 if it is a constant or computed in the body."""
    if [type(op) for op in chain.ops] != [logical.MulOp, logical.SubOp]:
        return None
    product, step = chain.ops
    rates = [value for value in product.operands if not isinstance(value, BlockArgument)]
    is_step = isinstance(step.operands[0], BlockArgument) and step.operands[1] is product.results[0]
    if len(rates) != 1 or not is_step:
        return None
    number = broadcast_argument(rates[0])
    return -1 if number is None else number


def _keeps_a_history(chain: Chain) -> bool:
    """Whether a chain puts one number into some of its elements and leaves the others, as a history of losses does, or
    takes over what was computed so elsewhere."""
    last = chain.ops[-1]
    if not isinstance(last, logical.SelectOp):
        return False
    if (new := _guarded(last)) is not None:
        if not isinstance(new, OpResult):
            return True
        last = new.op
    return isinstance(last, logical.SelectOp) and any(
        isinstance(value, OpResult) and is_spread(value.op) for value in last.operands[1:]
    )


def _guarded(choice: logical.SelectOp) -> SSAValue | None:
    """The new value, where one truth value for all elements chooses between it and an old one."""
    condition, new = choice.condition, choice.on_true
    is_number = isinstance(new, OpResult) and is_spread(new.op)
    is_for_all = isinstance(condition, OpResult) and is_spread(condition.op)
    return new if is_for_all and not is_number and isinstance(choice.on_false, BlockArgument) else None


def _goes_by_moments(chain: Chain) -> bool:
    """Whether a chain keeps two running means or more, and takes the root of one."""
    roots = [op for op in chain.ops if isinstance(op, logical.SqrtOp)]
    return len(roots) == 1 and len(chain.results) > 2


def _products(block: Block, ops: Sequence[Operation]) -> tuple[str, Attrs]:
    """Kind of a body with matrix products."""
    matmuls = [op for op in ops if isinstance(op, logical.MatmulOp)]
    if (found := _sum_beside(block)) is not None:
        return "gemm_sums", {**_transposes(found.product), "summed": StringAttr(found.summed)}
    pointwise = not any(op.has_trait(logical.Reduction) for op in ops)
    if len(matmuls) == 1 and pointwise and is_contraction_of_arguments(matmuls[0]):
        return _contraction(matmuls[0], ops, len(yielded(block)))
    if (backward := attention_backward_of(block, block.args)) is not None:
        if backward.operands == tuple(block.args) and tuple(yielded(block)) == backward.results:
            return "attention_backward", _attention(backward.forward)
    elif (attention := attention_of(block, block.args)) is not None:
        if attention.operands == tuple(block.args) and tuple(yielded(block)) == attention.results:
            return _attention_kind(attention)
    elif (products := products_of(block, block.args)) is not None and has_kernel_order(products, block):
        return products.kind, _several(products)
    return "generated", {}


def _sum_beside(block: Block) -> OperandSum | None:
    """The product of a folded body with the sum of an operand, read as kernels of the kind expect."""
    whole: dict[SSAValue, tuple[int, View]] = {
        arg: (arg.index, View.whole(tensor_info(arg.type).shape)) for arg in block.args
    }
    found = operand_sum_of(block, whole)
    is_plain = found is not None and is_contraction_of_arguments(found.product) and len(block.args) == 2
    return found if is_plain else None


def _attention_kind(found: Attention) -> tuple[str, Attrs]:
    if found.is_cached:
        if found.writes is None:
            return "cached_attention", _cached_attention(found)
        rotation = StringAttr("none" if found.turns is None else found.turns[0].pairs)
        return "cached_attention_step", {**_cached_attention(found), "rotation": rotation}
    return "attention" if found.writes is None else "attention_step", _attention(found)


def _cached_attention(found: Attention) -> Attrs:
    return {
        **_attention(found),
        "position": FLAGS[found.position is not None],
        "window": IntegerAttr(found.window or 0, i64),
        "softcap": FloatAttr(found.softcap or 0.0, f64),
    }


def _attention(found: Attention) -> Attrs:
    return {
        "scale": FloatAttr(found.scale, f64),
        "mask": FLAGS[found.mask is not None],
        "causal": FLAGS[found.is_causal],
        "past": IntegerAttr(found.past or 0, i64),
        "nan_as_zero": FLAGS[found.nan_as_zero],
        "empty_as_zero": FLAGS[found.empty_as_zero],
    }


def _packed_products(block: Block) -> tuple[str, Attrs]:
    """Kind of a body with products of packed weights, and ops before or after them."""
    found = products_of(block, block.args)
    if found is None or not has_kernel_order(found, block):
        return "generated", {}
    (scheme,) = {op.scheme for op in found.matmuls if isinstance(op, logical.MatmulBlocksOp)}
    operands = len(prologue_piece(found).arguments) - 1 if found.prologue else 0
    return found.kind, {
        "scheme": scheme,
        "products": IntegerAttr(len(found.matmuls), i64),
        "prologue": FLAGS[bool(found.prologue)],
        "prologue_operands": IntegerAttr(operands, i64),
    }


def _several(found: Products) -> Attrs:
    """Attributes of several products, or of one with a row program."""
    first = found.matmuls[0]
    attrs = _transposes(first) if isinstance(first, logical.MatmulOp) else {}
    if found.prologue:
        count = len(prologue_piece(found).arguments) - 1
        attrs["prologue_operands"] = IntegerAttr(count, i64)
    if len(found.matmuls) > 1 and len(found.results) > 1:
        attrs["products"] = IntegerAttr(len(found.matmuls), i64)
    return attrs


def is_contraction_of_arguments(matmul: logical.MatmulOp) -> bool:
    """Whether the matmul multiplies block arguments 0 and 1, as every contraction kernel expects."""
    operands = matmul.operands
    return all(isinstance(v, BlockArgument) and v.index == index for index, v in enumerate(operands))


def _short(op: Operation) -> str:
    return op.name.removeprefix("logical.")


def _contraction(matmul: logical.MatmulOp, ops: Sequence[Operation], results: int) -> tuple[str, Attrs]:
    attrs = _transposes(matmul)
    if len(ops) == 1:
        return "gemm", attrs
    block = matmul.parent
    assert block is not None
    if results == 1 and (slope := slope_of(block)) is not None:
        return "gemm_epilogue_bwd", {**attrs, "activation": StringAttr(slope)}
    arithmetic = [op for op in ops if op.has_trait(logical.Elementwise)]
    bias = [op for op in arithmetic if _adds(op, _is_row)]
    residual = [op for op in arithmetic if _adds(op, lambda value: isinstance(value, BlockArgument))]
    rest = tuple(_short(op) for op in arithmetic if op not in bias and op not in residual)
    attrs["bias"] = FLAGS[bool(bias)]
    attrs["residual"] = FLAGS[bool(residual)]
    attrs["activation"] = StringAttr(_ACTIVATIONS.get(rest, "generated") if results == 1 else "generated")
    return "gemm_epilogue", attrs


def _transposes(matmul: logical.MatmulOp) -> dict[str, Attribute]:
    return {
        "transpose_a": FLAGS[matmul.transpose_a is not None],
        "transpose_b": FLAGS[matmul.transpose_b is not None],
    }


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
    if not isinstance(value.owner, logical.BroadcastOp):
        return False
    source = value.owner.operands[0]
    last = tensor_info(value.type).rank - 1
    return isinstance(source, BlockArgument) and tuple(value.owner.dimensions.get_values()) == (last,)
