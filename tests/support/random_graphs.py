"""Random logical programs with inputs, over the whole op set.

A program comes with concrete inputs, and every op is evaluated as it is added: an op whose values would leave the
range in which rewrites can be compared (large, not finite, near a discontinuity of a comparison or an integer cast)
is dropped and another is tried. So any two correct executions of a program agree closely. Everything follows from the
seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import TensorInfo, tensor, tensor_info
from aicf.semantics import Mode, evaluate, evaluate_block

Array = NDArray

SIZES = (1, 1, 2, 3, 4, 5, 8)
MAX_ELEMENTS = 256
MAX_MAGNITUDE = 32.0
MARGIN = 1e-2
"""Distance kept from discontinuities and poles."""


@dataclass
class RandomProgram:
    """A module with one function ``@random`` and an array per argument."""

    module: ModuleOp
    inputs: dict[str, Array]


@dataclass
class _Generator:
    random: np.random.Generator
    float_type: str
    block: Block = field(default_factory=Block)
    inputs: dict[str, Array] = field(default_factory=dict)
    arrays: dict[SSAValue, Array] = field(default_factory=dict)
    interface: list[DictionaryAttr] = field(default_factory=list)

    def choice(self, items: Sequence):
        return items[int(self.random.integers(len(items)))]

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        rank = int(self.random.integers(1, 5)) if rank is None else rank
        shape = [int(self.choice(SIZES)) for _ in range(rank)]
        while np.prod(shape) > MAX_ELEMENTS:
            shape[int(np.argmax(shape))] = 2
        return tuple(shape)

    def argument(self, shape: Sequence[int], role: str, element: str | None = None) -> SSAValue:
        element = element or self.float_type
        info = tensor_info(tensor(shape, element))
        value = self.block.insert_arg(info.with_sizes(info.sizes), len(self.block.args))
        name = f"{role}{len(self.inputs)}"
        value.name_hint = name
        if info.element.is_float:
            array = self.random.uniform(-1.5, 1.5, shape).astype(info.element.dtype)
        else:
            array = self.random.integers(-4, 5, shape).astype(info.element.dtype)
        self.inputs[name] = array
        self.arrays[value] = array.astype(np.float64) if info.element.is_float else array
        attributes = {"logical.name": StringAttr(name), "logical.role": StringAttr(role)}
        self.interface.append(DictionaryAttr(attributes))
        return value

    def values(self, test: Callable[[TensorInfo], bool]) -> list[SSAValue]:
        return [value for value in self.arrays if test(tensor_info(value.type))]

    def float_value(self, min_rank: int = 0) -> SSAValue:
        found = self.values(lambda info: info.element.name == self.float_type and info.rank >= min_rank)
        found = [value for value in found if not (value.name_hint or "").startswith("param")]
        # Mostly recent values, so that programs grow deep; old ones too, so that values are shared.
        return found[-1] if self.chance(0.7) else self.choice(found)

    def add(self, op: LogicalOp) -> SSAValue | None:
        """Evaluate an op and append it if its values are tame."""
        operands = [self.arrays[operand] for operand in op.operands]
        (result,) = evaluate(op, operands, "exact")
        if not _is_tame(op, operands) or not _is_bounded(result):
            op.erase()
            return None
        self.block.add_op(op)
        self.arrays[op.result] = result
        return op.result

    def require(self, op: LogicalOp) -> SSAValue:
        result = self.add(op)
        if result is None:
            raise VerifyException("not tame")
        return result

    def like(self, value: SSAValue) -> SSAValue:
        """Another value of the same type: an old one, or one broadcast to it, a constant or a new parameter."""
        info = tensor_info(value.type)
        same = [other for other in self.values(lambda other: other == info) if other is not value]
        if same and self.chance(0.5):
            return self.choice(same)
        if self.chance(0.3):
            number = (
                self.choice((0.0, 1.0, 0.5, -2.0, 0.3)) if info.element.is_float else self.choice((0, 1, 3))
            )
            return self.require(logical.ConstantOp(number, value.type))
        if info.rank and self.chance(0.6):
            return self.broadcast_parameter(info)
        return self.argument(info.shape, "param", info.element.name)

    def broadcast_parameter(self, info: TensorInfo) -> SSAValue:
        kept = sorted(
            self.random.permutation(info.rank)[: int(self.random.integers(0, info.rank + 1))].tolist()
        )
        shape = [1 if self.chance(0.3) else info.shape[axis] for axis in kept]
        small = self.argument(shape, "param", info.element.name)
        return self.require(logical.BroadcastOp(small, kept, info.sizes))


def _is_bounded(result: Array) -> bool:
    small = result.size <= 4 * MAX_ELEMENTS and bool(np.all(np.isfinite(result)))
    return small and (result.dtype.kind == "b" or bool(np.max(np.abs(result)) <= MAX_MAGNITUDE))


def _is_tame(op: LogicalOp, operands: Sequence[Array]) -> bool:
    match op:
        case logical.LogOp() | logical.SqrtOp() | logical.RsqrtOp():
            return bool(np.min(operands[0]) > 10 * MARGIN)
        case logical.DivOp():
            return bool(np.min(np.abs(operands[1])) > 10 * MARGIN)
        case logical.CompareOp() if operands[0].dtype.kind == "f":
            return bool(np.min(np.abs(operands[0] - operands[1])) > MARGIN)
        case logical.CastOp() if operands[0].dtype.kind == "f" and op.info.element.kind == "int":
            fraction = operands[0] - np.floor(operands[0])
            return bool(np.min(np.minimum(fraction, 1 - fraction)) > MARGIN)
        case logical.CastOp() if operands[0].dtype.kind == "f" and op.info.element.kind == "bool":
            return bool(np.min(np.abs(operands[0])) > MARGIN)
        case logical.LayerNormOp():
            spread = np.var(operands[0], axis=logical.normalized_axes(op))
            return bool(np.min(spread) > 10 * MARGIN)
        case _:
            return True


UNARY = (
    logical.NegOp,
    logical.ExpOp,
    logical.LogOp,
    logical.SqrtOp,
    logical.RsqrtOp,
    logical.TanhOp,
    logical.ErfOp,
    logical.ReluOp,
    logical.SigmoidOp,
    logical.SiluOp,
)
POSITIVE_ONLY = (logical.LogOp, logical.SqrtOp, logical.RsqrtOp)
BINARY = (logical.AddOp, logical.SubOp, logical.MulOp, logical.DivOp, logical.MaxOp, logical.MinOp)
REDUCTIONS = (logical.ReduceSumOp, logical.ReduceMeanOp, logical.ReduceMaxOp)


def _unary(g: _Generator) -> None:
    op_class = g.choice(UNARY)
    x = g.float_value()
    if op_class in POSITIVE_ONLY:
        x = g.require(g.choice((logical.ExpOp, logical.SigmoidOp))(x))
    g.add(op_class(x))


def _gelu(g: _Generator) -> None:
    g.add(logical.GeluOp(g.float_value(), g.choice(logical.APPROXIMATIONS)))


def _binary(g: _Generator) -> None:
    lhs = g.float_value()
    rhs = g.like(lhs)
    pair = (lhs, rhs) if g.chance(0.5) else (rhs, lhs)
    g.add(g.choice(BINARY)(*pair))


def _select(g: _Generator) -> None:
    lhs = g.float_value()
    rhs = g.like(lhs)
    condition = g.require(logical.CompareOp(g.choice(logical.PREDICATES), lhs, rhs))
    g.add(logical.SelectOp(condition, g.like(lhs), lhs))


def _casts(g: _Generator) -> None:
    whole = g.require(logical.CastOp(g.float_value(), g.choice(("i32", "i64", "i1"))))
    info = tensor_info(whole.type)
    if info.element.kind == "int":
        whole = g.require(g.choice(BINARY)(whole, g.like(whole)))
    g.add(logical.CastOp(whole, g.float_type))


def _matmul(g: _Generator) -> None:
    lhs = g.float_value(min_rank=2)
    sizes = tensor_info(lhs.type).shape
    transpose_a, transpose_b = g.chance(0.3), g.chance(0.5)
    inner = sizes[-2] if transpose_a else sizes[-1]
    columns = int(g.choice(SIZES))
    matrix = (columns, inner) if transpose_b else (inner, columns)
    batch = sizes[:-2] if g.chance(0.5) else ()
    rhs = g.argument((*batch, *matrix), "param")
    if g.chance(0.3):
        order = [*range(len(batch)), len(batch) + 1, len(batch)]
        rhs = g.require(logical.TransposeOp(rhs, order))
        transpose_b = not transpose_b
    g.add(logical.MatmulOp(lhs, rhs, transpose_a=transpose_a, transpose_b=transpose_b))


def _linear(g: _Generator) -> None:
    x = g.float_value(min_rank=1)
    outputs = int(g.choice(SIZES))
    weight = g.argument((outputs, tensor_info(x.type).shape[-1]), "param")
    bias = g.argument((outputs,), "param") if g.chance(0.7) else None
    g.add(logical.LinearOp(x, weight, bias))


def _axes(g: _Generator, rank: int) -> list[int]:
    return sorted(g.random.permutation(rank)[: int(g.random.integers(1, rank + 1))].tolist())


def _reduce(g: _Generator) -> None:
    x = g.float_value(min_rank=1)
    axes = _axes(g, tensor_info(x.type).rank)
    g.add(g.choice(REDUCTIONS)(x, axes, keepdims=g.chance(0.5)))


def _softmax(g: _Generator) -> None:
    x = g.float_value(min_rank=1)
    g.add(logical.SoftmaxOp(x, int(g.random.integers(tensor_info(x.type).rank))))


def _layer_norm(g: _Generator) -> None:
    x = g.float_value(min_rank=1)
    info = tensor_info(x.type)
    axis = int(g.random.integers(info.rank))
    scale, bias = (g.argument(info.shape[axis:], "param") for _ in range(2))
    g.add(logical.LayerNormOp(x, scale, bias, axis, g.choice((1e-5, 1e-3))))


def _reshape(g: _Generator) -> None:
    x = g.float_value()
    count = int(np.prod(tensor_info(x.type).shape))
    sizes: list[int] = []
    while count > 1 and len(sizes) < 3:
        size = int(g.choice([divisor for divisor in range(1, count + 1) if count % divisor == 0]))
        sizes.append(size)
        count //= size
    g.add(logical.ReshapeOp(x, [*sizes, count]))


def _transpose(g: _Generator) -> None:
    x = g.float_value(min_rank=1)
    g.add(logical.TransposeOp(x, g.random.permutation(tensor_info(x.type).rank).tolist()))


def _broadcast(g: _Generator) -> None:
    x = g.float_value()
    sizes = [int(g.choice(SIZES)) if size == 1 else size for size in tensor_info(x.type).shape]
    dimensions = list(range(len(sizes)))
    if g.chance(0.5) and len(sizes) < 4:
        position = int(g.random.integers(len(sizes) + 1))
        sizes.insert(position, int(g.choice(SIZES)))
        dimensions = [axis if axis < position else axis + 1 for axis in dimensions]
    g.add(logical.BroadcastOp(x, dimensions, sizes))


def _slice(g: _Generator) -> None:
    x = g.float_value(min_rank=1)
    starts, sizes, strides = [], [], []
    for whole in tensor_info(x.type).shape:
        start, stride = int(g.random.integers(whole)), int(g.choice((1, 1, 2)))
        starts.append(start)
        strides.append(stride)
        sizes.append(int(g.random.integers(1, (whole - start - 1) // stride + 2)))
    g.add(logical.SliceOp(x, starts, sizes, strides))


def _concat(g: _Generator) -> None:
    x = g.float_value(min_rank=1)
    shape = tensor_info(x.type).shape
    axis = int(g.random.integers(len(shape)))
    other = g.argument([int(g.choice(SIZES)) if i == axis else size for i, size in enumerate(shape)], "param")
    parts = [x, other, x] if g.chance(0.3) else [other, x]
    g.add(logical.ConcatOp(parts, axis))


def _constant(g: _Generator) -> None:
    shape = g.shape(int(g.random.integers(0, 3)))
    value = g.random.integers(-8, 9, shape) / 4 if g.chance(0.5) else 0.25
    type_ = tensor(shape, g.float_type)
    g.add(logical.ConstantOp(value, type_))


STEPS = (
    *(_unary, _unary, _unary, _gelu, _binary, _binary, _binary, _select, _casts, _matmul, _matmul, _linear),
    *(_linear, _reduce, _reduce, _softmax, _layer_norm, _reshape, _transpose, _broadcast, _slice, _concat),
    _constant,
)


def random_program(seed: int, *, float_type: str = "f32", steps: int = 12) -> RandomProgram:
    """A program of about ``steps`` ops (helpers such as broadcasts and constants come on top).

    Args:
        seed: Decides everything.
        float_type: The element type of all floats: f32 or f64.
        steps: Ops to try to add.
    """
    g = _Generator(np.random.default_rng(seed), float_type)
    for _ in range(int(g.random.integers(1, 4))):
        g.argument(g.shape(), "input")
    added = 0
    for _ in range(20 * steps):
        before = len(g.arrays)
        try:
            g.choice(STEPS)(g)
        except (VerifyException, ValueError, IndexError):
            # The step found no fitting value, or a helper op of it was not tame.
            continue
        added += len(g.arrays) > before
        if added == steps:
            break
    return RandomProgram(_finish(g), g.inputs)


def _finish(g: _Generator) -> ModuleOp:
    computed = [value for value in g.arrays if value.owner is not g.block]
    unused = [value for value in computed if value.first_use is None]
    extra = [value for value in computed if value.first_use is not None and g.chance(0.1)]
    results = (unused[-4:] + extra[:2]) or list(g.block.args[:1])
    names = [DictionaryAttr({"logical.name": StringAttr(f"output{i}")}) for i in range(len(results))]
    g.block.add_op(ReturnOp(*results))
    types = [argument.type for argument in g.block.args], [result.type for result in results]
    function = FuncOp(
        "random", types, Region(g.block), arg_attrs=ArrayAttr(g.interface), res_attrs=ArrayAttr(names)
    )
    return ModuleOp([function])


def run_program(module: ModuleOp, inputs: Mapping[str, Array], mode: Mode = "exact") -> dict[str, Array]:
    """Run the one function of a logical module by the semantics; results by name (updates as ``updates:<name>``)."""
    (function,) = (op for op in module.body.block.ops if isinstance(op, FuncOp))
    assert function.arg_attrs is not None and function.res_attrs is not None
    arguments = [inputs[entry.data["logical.name"].data] for entry in function.arg_attrs]  # type: ignore[union-attr]
    results = evaluate_block(function.body.block, arguments, mode)
    return {_result_name(entry): result for entry, result in zip(function.res_attrs, results, strict=True)}


def _result_name(entry: DictionaryAttr) -> str:
    name = entry.data.get("logical.name")
    if isinstance(name, StringAttr):
        return name.data
    target = entry.data["logical.updates"]
    assert isinstance(target, StringAttr)
    return f"updates:{target.data}"


def assert_same_results(expected: Mapping[str, Array], actual: Mapping[str, Array]) -> None:
    """Equal names, shapes and values, to 1e-12 of the largest magnitude the generator allows; NaN never passes."""
    assert expected.keys() == actual.keys()
    for name, wanted in expected.items():
        found = actual[name]
        assert found.shape == wanted.shape, name
        difference = np.max(np.abs(found.astype(np.float64) - wanted.astype(np.float64)))
        assert difference <= 1e-12 * MAX_MAGNITUDE, f"{name}: {difference}"
