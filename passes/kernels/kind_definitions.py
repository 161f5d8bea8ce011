"""What a kind means: one table of bodies, for instructions that were written without one.

The other way round from `bodies/kinds.py`, which reads the kind of a body. Both agree: the kind of a body from here is
the kind it was made for, or there is no body. Composite kinds are written as composite ops and lowered by the same
patterns as a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.ir import Attribute, Block, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import logical
from aicf.dialects.emit import YieldOp
from aicf.dialects.kinds import KINDS, schema_of
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import tensor_info
from aicf.errors import AicfError
from aicf.passes.bodies.kind_patterns import POINTWISE
from aicf.passes.bodies.kinds import derive_kind
from aicf.passes.kernels.body_writer import BodyWriter, KindRow, NoBody, Request, fixed
from aicf.passes.kernels.training_kinds import TRAINING_KINDS


def kind_body(request: Request) -> Block:
    """The body of an instruction: primitive logical ops from its operands to `emit.yield` of its results.

    Raises:
        NoBody: the kind has no body of its own, its attributes leave the meaning open, or the operands do not fit.
    """
    if (row := BODIES.get(request.kind)) is None:
        raise NoBody(
            f"kind '{request.kind}' does not say what it computes; those that do: {', '.join(BODIES)}"
        )
    if KINDS[request.kind].bare and not request.attrs:
        schema = schema_of(request.kind)
        raise NoBody(
            f"an instruction of kind '{request.kind}' without attributes has them in its body; give {schema}"
        )
    writer = BodyWriter(request)
    wanted = row.names(writer)
    if wanted is not None and len(wanted) != len(request.operands):
        raise NoBody(
            f"it reads {len(request.operands)} buffers, kind '{request.kind}' needs {', '.join(wanted)}"
        )
    try:
        values = row.write(writer)
        block = writer.finish([values] if isinstance(values, SSAValue) else values)
    except (VerifyException, AicfError) as error:
        raise NoBody(str(error)) from error
    _check(request, block)
    return block


def _check(request: Request, block: Block) -> None:
    """The body defines the results, and its kind is the one it was made for."""
    assert isinstance(block.last_op, YieldOp)
    given = [str(tensor_info(type_)) for type_ in block.last_op.operand_types]
    wanted = [str(tensor_info(type_)) for type_ in request.results]
    if given != wanted:
        found = ", ".join(given)
        raise NoBody(
            f"kind '{request.kind}' of its operands gives {found}, its results are {', '.join(wanted)}"
        )
    kind, attrs = derive_kind(block)
    if (kind, dict(attrs)) != (request.kind, dict(request.attrs)):
        element = tensor_info(request.results[0]).element.name
        requested = f"kind '{request.kind}' with {_text(request.attrs)}"
        raise NoBody(f"{requested} is in {element} the body of {kind} with {_text(attrs)}")


def _text(attrs: Mapping[str, Attribute]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in attrs.items()) or "no attributes"


def _bias_add(writer: BodyWriter) -> SSAValue:
    x, bias = writer.args
    return writer.add(logical.AddOp(x, writer.spread_row(bias, x, "bias.broadcast")))


def _matmul(writer: BodyWriter, part: str) -> SSAValue:
    transpose_a, transpose_b = bool(writer.integer("transpose_a")), bool(writer.integer("transpose_b"))
    a, b = writer.args[:2]
    return writer.add(logical.MatmulOp(a, b, transpose_a=transpose_a, transpose_b=transpose_b), part)


_ACTIVATIONS: dict[str, Callable[[SSAValue], LogicalOp]] = {
    "relu": logical.ReluOp,
    "sigmoid": logical.SigmoidOp,
    "tanh": logical.TanhOp,
    "gelu": logical.GeluOp,
    "gelu_tanh": lambda value: logical.GeluOp(value, approximate="tanh"),
}


def _gemm_epilogue(writer: BodyWriter) -> SSAValue:
    activation, residual = writer.text("activation"), writer.integer("residual")
    if activation == "generated":
        raise NoBody("activation 'generated' is whatever its body says")
    if residual and activation != "none":
        raise NoBody(f"a residual and activation '{activation}' do not say which comes first")
    value, rest = _matmul(writer, "matmul"), list(writer.args[2:])
    if writer.integer("bias"):
        bias = writer.spread_row(rest.pop(0), value, "bias.broadcast")
        value = writer.add(logical.AddOp(value, bias), "bias")
    if residual:
        value = writer.add(logical.AddOp(value, rest.pop(0)), "residual")
    if activation != "none":
        value = writer.add(_ACTIVATIONS[activation](value), "activation")
    return value


def _epilogue_names(writer: BodyWriter) -> tuple[str, ...]:
    optional = (name for name in ("bias", "residual") if writer.integer(name))
    return ("a", "b", *optional)


def _reduce_sum(writer: BodyWriter) -> SSAValue:
    first = writer.integer("first_axis")
    axes = range(first, first + writer.integer("axis_count"))
    return writer.add(logical.ReduceSumOp(writer.args[0], axes, keepdims=bool(writer.integer("keepdims"))))


def _sgd_step(writer: BodyWriter) -> SSAValue:
    number = writer.integer("learning_rate_operand")
    if number not in _SGD_ORDER:
        raise NoBody("a constant learning rate stands in the body alone")
    parameter, gradient = (writer.args[index] for index in _SGD_ORDER[number])
    rate = writer.args[number]
    info = tensor_info(gradient.type)
    if tensor_info(rate.type).elements != 1:
        shape = tensor_info(rate.type).shape_text
        raise NoBody(f"operand {number}, the learning rate, has shape {shape}, not one element")
    last = range(info.rank - tensor_info(rate.type).rank, info.rank)
    spread = writer.add(logical.BroadcastOp(rate, last, info.sizes), "rate.broadcast")
    return writer.add(logical.SubOp(parameter, writer.add(logical.MulOp(spread, gradient), "scaled")))


_SGD_ORDER = {0: (2, 1), 1: (2, 0), 2: (0, 1)}
"""Indices of parameter and gradient by the index of the learning rate."""


def _layer_norm(writer: BodyWriter) -> SSAValue:
    x, scale, bias = writer.args
    return writer.add(logical.LayerNormOp(x, scale, bias, writer.integer("axis"), writer.number("epsilon")))


BODIES: dict[str, KindRow] = {
    "add": KindRow(lambda writer: writer.write(POINTWISE["add"]), fixed("a", "b")),
    "mul": KindRow(lambda writer: writer.write(POINTWISE["mul"]), fixed("a", "b")),
    "relu": KindRow(lambda writer: writer.write(POINTWISE["relu"]), fixed("x")),
    "relu_bwd": KindRow(lambda writer: writer.write(POINTWISE["relu_bwd"]), fixed("y", "gradient")),
    "gemm": KindRow(lambda writer: _matmul(writer, ""), fixed("a", "b")),
    "bias_add": KindRow(_bias_add, fixed("x", "bias")),
    "reduce_sum": KindRow(_reduce_sum, fixed("x")),
    "sgd_step": KindRow(_sgd_step, fixed("parameter", "gradient", "learning rate")),
    "copy": KindRow(lambda writer: writer.args[0], fixed("x")),
    "layernorm_fwd": KindRow(_layer_norm, fixed("x", "scale", "bias")),
    "gemm_epilogue": KindRow(_gemm_epilogue, _epilogue_names),
    "softmax": KindRow(
        lambda writer: writer.add(logical.SoftmaxOp(writer.args[0], writer.integer("axis"))), fixed("x")
    ),
    "concat": KindRow(
        lambda writer: writer.add(logical.ConcatOp(writer.args, writer.integer("axis"))), lambda writer: None
    ),
    **TRAINING_KINDS,
}
"""Writer and operands by kind."""
