"""What a kind means: one table of bodies, for instructions that were written without one.

The other way round from `bodies/kinds.py`, which reads the kind of a body. Both agree: the kind of a body from here is
the kind it was made for, or there is no body. Composite kinds are written as composite ops and lowered by the same
patterns as a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import logical
from aicf.dialects.emit import BodyOp, YieldOp
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import tensor_info
from aicf.errors import AicfError
from aicf.passes.bodies.kinds import Attrs, derive_kind
from aicf.passes.logical.lowerings import lowerings
from aicf.passes.support.greedy import apply_patterns
from aicf.passes.support.identity import IdTable, derived_id, set_identity, value_hint


class NoBody(Exception):
    """The kind and attributes do not say what the instruction means; the message says why."""


@dataclass(frozen=True)
class Request:
    """An instruction that needs a body.

    Args:
        name: Unique in the module; ids of the body's ops start with it.
        src: The source ops it stands for.
        kind, attrs: As it states them; the attributes fit a schema of the kind.
        operands, results: Tensor types of what it reads and defines, in order.
    """

    name: str
    src: tuple[str, ...]
    kind: str
    attrs: Attrs
    operands: tuple[Attribute, ...]
    results: tuple[Attribute, ...]


def kind_body(request: Request) -> Block:
    """The body of an instruction: primitive logical ops from its operands to `emit.yield` of its results.

    Raises:
        NoBody: the kind has no body of its own, its attributes leave the meaning open, or the operands do not fit.
    """
    if (row := _BODIES.get(request.kind)) is None:
        raise NoBody(
            f"kind '{request.kind}' does not say what it computes; those that do: {', '.join(_BODIES)}"
        )
    writer = _Writer(request)
    wanted = row.names(writer)
    if wanted is not None and len(wanted) != len(request.operands):
        raise NoBody(
            f"it reads {len(request.operands)} buffers, kind '{request.kind}' needs {', '.join(wanted)}"
        )
    try:
        block = writer.finish(row.write(writer))
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


class _Writer:
    """Writes the ops of one body."""

    def __init__(self, request: Request):
        self.request = request
        self.block = Block(arg_types=request.operands)

    @property
    def args(self) -> Sequence[SSAValue]:
        """What the instruction reads."""
        return self.block.args

    def add(self, op: LogicalOp, part: str = "") -> SSAValue:
        """Appends an op called after the instruction and `part`."""
        identity = derived_id(self.request.name, part) if part else self.request.name
        set_identity(op, identity, self.request.src)
        op.results[0].name_hint = value_hint(identity)
        self.block.add_op(op)
        return op.results[0]

    def integer(self, name: str) -> int:
        """An integer or bool attribute."""
        value = self.request.attrs[name]
        assert isinstance(value, IntegerAttr)
        return value.value.data

    def number(self, name: str) -> float:
        """A float attribute."""
        value = self.request.attrs[name]
        assert isinstance(value, FloatAttr)
        return value.value.data

    def text(self, name: str) -> str:
        """A string attribute."""
        value = self.request.attrs[name]
        assert isinstance(value, StringAttr)
        return value.data

    def spread_row(self, row: SSAValue, like: SSAValue, part: str) -> SSAValue:
        """A value of rank 1 repeated along the last dim of `like`."""
        info = tensor_info(like.type)
        return self.add(logical.BroadcastOp(row, [info.rank - 1], info.sizes), part)

    def finish(self, value: SSAValue) -> Block:
        """Yields `value` and lowers composite ops."""
        self.block.add_op(YieldOp([value]))
        body = BodyOp("body", Region(self.block))
        module = ModuleOp([body])
        apply_patterns(module, lowerings(IdTable(module)))
        return body.body.detach_block(self.block)


def _bias_add(writer: _Writer) -> SSAValue:
    x, bias = writer.args
    return writer.add(logical.AddOp(x, writer.spread_row(bias, x, "bias.broadcast")))


def _matmul(writer: _Writer, part: str) -> SSAValue:
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


def _gemm_epilogue(writer: _Writer) -> SSAValue:
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


def _epilogue_names(writer: _Writer) -> tuple[str, ...]:
    optional = (name for name in ("bias", "residual") if writer.integer(name))
    return ("a", "b", *optional)


def _reduce_sum(writer: _Writer) -> SSAValue:
    first = writer.integer("first_axis")
    axes = range(first, first + writer.integer("axis_count"))
    return writer.add(logical.ReduceSumOp(writer.args[0], axes, keepdims=bool(writer.integer("keepdims"))))


def _sgd_step(writer: _Writer) -> SSAValue:
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


def _layer_norm(writer: _Writer) -> SSAValue:
    x, scale, bias = writer.args
    return writer.add(logical.LayerNormOp(x, scale, bias, writer.integer("axis"), writer.number("epsilon")))


@dataclass(frozen=True)
class _Row:
    """How a kind becomes a body: its writer, and the names of its operands (None for any number)."""

    write: Callable[[_Writer], SSAValue]
    names: Callable[[_Writer], tuple[str, ...] | None]


def _fixed(*names: str) -> Callable[[_Writer], tuple[str, ...]]:
    return lambda writer: names


_BODIES: dict[str, _Row] = {
    "add": _Row(lambda writer: writer.add(logical.AddOp(*writer.args)), _fixed("a", "b")),
    "relu": _Row(lambda writer: writer.add(logical.ReluOp(writer.args[0])), _fixed("x")),
    "gemm": _Row(lambda writer: _matmul(writer, ""), _fixed("a", "b")),
    "bias_add": _Row(_bias_add, _fixed("x", "bias")),
    "reduce_sum": _Row(_reduce_sum, _fixed("x")),
    "sgd_step": _Row(_sgd_step, _fixed("parameter", "gradient", "learning rate")),
    "copy": _Row(lambda writer: writer.args[0], _fixed("x")),
    "layernorm_fwd": _Row(_layer_norm, _fixed("x", "scale", "bias")),
    "gemm_epilogue": _Row(_gemm_epilogue, _epilogue_names),
    "softmax": _Row(
        lambda writer: writer.add(logical.SoftmaxOp(writer.args[0], writer.integer("axis"))), _fixed("x")
    ),
    "concat": _Row(
        lambda writer: writer.add(logical.ConcatOp(writer.args, writer.integer("axis"))), lambda writer: None
    ),
}
