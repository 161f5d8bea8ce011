"""Ops of the lit tests with other element types: which types the verifier of each op accepts, by asking it.

An example of an op names its shapes, attributes and types. One element type of it is replaced by every other: that for
which most replacements verify is the type that the op is about, so that indices, seeds and conditions stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FloatAttr, IntegerAttr, StringAttr, f64, i64
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import logical
from aicf.dialects.logical import NAME_ATTR, ROLE_ATTR, LogicalOp
from aicf.dialects.types import ELEMENTS, ElementType, TensorInfo, tensor, tensor_info
from aicf.frontends.text import make_context, parse_module

EXAMPLES = Path(__file__).resolve().parent.parent / "lit_tests" / "dialects" / "logical"

Samples = Mapping[str, LogicalOp]
"""By the name of the element type, in the order of the type table; operands are arguments of a block of their own."""


@cache
def samples() -> Mapping[type[Operation], Samples]:
    """Of every op of the lit tests the types that it accepts, from all its examples together."""
    found: dict[type[Operation], dict[str, LogicalOp]] = {}
    for example in _examples():
        for name, op in _retyped(example).items():
            found.setdefault(type(op), {}).setdefault(name, op)
    order = [element.name for element in ELEMENTS]
    return {
        op: dict(sorted(each.items(), key=lambda item: order.index(item[0]))) for op, each in found.items()
    }


def samples_of(op: type[Operation]) -> Samples:
    """Of one op. Raises ValueError if no lit test has an example of it."""
    if op not in samples():
        where = "lit_tests/dialects/logical/, in a file that ends in _ops.mlir"
        raise ValueError(f"{op.name} has no example of static shape: write one into {where}")
    return samples()[op]


def _examples() -> Iterator[LogicalOp]:
    """Ops of static shapes, each kind of operands and attributes once."""
    context = make_context()
    seen: set[object] = set()
    for path in sorted(EXAMPLES.glob("*_ops.mlir")):
        for op in parse_module(path.read_text("utf-8"), context=context).walk():
            if not isinstance(op, LogicalOp) or not all(info.is_static for info in _infos(op)):
                continue
            key = type(op), tuple(op.operand_types), op.result.type, frozenset(op.properties.items())
            if key not in seen:
                seen.add(key)
                yield op


def _infos(op: LogicalOp) -> list[TensorInfo]:
    """Of the result, then of the operands."""
    return [tensor_info(value.type) for value in (op.result, *op.operands)]


def _retyped(example: LogicalOp) -> Samples:
    """The example with the element type that it is about replaced."""
    elements = dict.fromkeys(info.element for info in _infos(example))
    choices = [
        {new.name: op for new in ELEMENTS if (op := _with_element(example, old, new)) is not None}
        for old in elements
    ]
    return max(choices, key=len)


def _with_element(example: LogicalOp, old: ElementType, new: ElementType) -> LogicalOp | None:
    """The op with one element type in place of another, with numbers as the type takes them; None if none verifies."""
    infos = _infos(example)
    types = [_replaced(info, old, new) for info in infos]
    fixed = [example.result.type] if any(info.element == old for info in infos[1:]) else []
    for properties in _number_forms(example, types[0]):
        for result in dict.fromkeys((types[0], *fixed)):
            try:
                type(example).check_result(types[1:], properties, result)
                type(example).check_float8([*types[1:], result])
            except (VerifyException, ValueError):
                continue
            block = Block(arg_types=types[1:])
            more = type(example).infer_more(types[1:], properties) or ()
            op = type(example).create(
                operands=block.args, result_types=[result, *more], properties=properties
            )
            op.verify()
            return op
    return None


def _replaced(info: TensorInfo, old: ElementType, new: ElementType) -> Attribute:
    return tensor(info.sizes, new if info.element == old else info.element)


def _number_forms(example: LogicalOp, result: Attribute) -> Sequence[dict[str, Attribute]]:
    """The properties as they are, with their numbers as floats, and with their numbers as integers."""
    own = dict(example.properties)
    if isinstance(example, logical.ConstantOp):
        return [dict(logical.ConstantOp(1, result).properties)]
    numbers = {
        name: value.value.data for name, value in own.items() if isinstance(value, FloatAttr | IntegerAttr)
    }
    if not numbers:
        return [own]
    floats: dict[str, Attribute] = {name: FloatAttr(float(number), f64) for name, number in numbers.items()}
    whole: dict[str, Attribute] = {name: IntegerAttr(int(number), i64) for name, number in numbers.items()}
    return [own, {**own, **floats}, {**own, **whole}]


def function_of(op: LogicalOp) -> FuncOp:
    """A function of a copy of the op: its operands are inputs, its result is ``y``."""
    block = Block(arg_types=list(op.operand_types))
    copy = type(op).create(operands=block.args, result_types=op.result_types, properties=op.properties)
    block.add_ops([copy, ReturnOp(copy.result)])
    inputs = [
        {NAME_ATTR: StringAttr(f"x{number}"), ROLE_ATTR: StringAttr("input")}
        for number in range(len(block.args))
    ]
    return FuncOp(
        "f",
        (op.operand_types, [op.result.type]),
        Region(block),
        arg_attrs=ArrayAttr(DictionaryAttr(entry) for entry in inputs),
        res_attrs=ArrayAttr([DictionaryAttr({NAME_ATTR: StringAttr("y")})]),
    )
