"""The constructors of ops that the builder has methods for, and what those take in place of their arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword

from aicf.dialects import logical
from aicf.dialects.logical import Elementwise, Internal, LogicalOp

BY_HAND: Mapping[type[LogicalOp], str] = {
    logical.ConstantOp: "takes a shape and the name of an element type in place of a type",
    logical.IotaOp: "takes the shape first, for the axis has a default",
    logical.MatmulOp: "reshapes vectors to matrices, and the result back",
    logical.OneHotOp: "makes constants of numbers, which have no other operand's type",
    logical.PadOp: "makes a constant of a number, and other ops for the modes edge and reflect",
    logical.SelectOp: "broadcasts operands of two types",
}
"""Ops whose method is written by hand, with what it does besides making the op."""

_ANNOTATIONS = {
    "Operand": "Value",
    "Operand | None": "Value | None",
    "Sequence[Operand]": "Sequence[Value]",
    "Counter": "Value | int",
    "ElementType | str": "str",
    "ElementType | str | None": "str | None",
    "Sequence[Size]": "Shape",
}
"""What a method takes in place of an argument, by annotation; any other it takes as it is."""
_NAMES = {"operand": "x", "element": "dtype"}
_SHAPES = {"sizes": "shape"}
"""Names of arguments in the methods; `sizes` are a shape only where they are `Sequence[Size]`."""


@dataclass(frozen=True)
class Argument:
    """An argument of a constructor, and of the method."""

    own: inspect.Parameter
    taken: inspect.Parameter
    together: bool
    """Whether it is an operand that is broadcast together with others, and may be a Python number."""

    @property
    def stated(self) -> str:
        """The constructor's annotation."""
        return str(self.own.annotation)


@dataclass(frozen=True)
class Constructor:
    """The constructor of a class of ops."""

    op_class: type[LogicalOp]
    arguments: Sequence[Argument]

    @property
    def method(self) -> str:
        """The name of the method."""
        name = self.op_class.name.removeprefix("logical.")
        return f"{name}_" if iskeyword(name) else name

    @property
    def signature(self) -> inspect.Signature:
        """What the method takes and gives; annotations are text."""
        several = self.op_class.HAS_MORE_RESULTS
        return inspect.Signature(
            [_SELF, *(argument.taken for argument in self.arguments), _NAME],
            return_annotation="list[Value]" if several else "Value",
        )


_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
_NAME = inspect.Parameter("name", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | None")


def constructors() -> Iterator[Constructor]:
    """Those of all ops that a method is derived for."""
    for op_class in logical.Logical.operations:
        if issubclass(op_class, LogicalOp) and op_class not in BY_HAND and not op_class.has_trait(Internal):
            yield _constructor(op_class)


def _constructor(op_class: type[LogicalOp]) -> Constructor:
    # A base class takes the properties of its subclasses as keywords of any name.
    own = [
        parameter
        for parameter in inspect.signature(op_class.__init__).parameters.values()
        if parameter.name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    ]
    operands = [parameter for parameter in own if parameter.annotation == "Operand"]
    together = operands if len(operands) > 1 and op_class.has_trait(Elementwise) else []
    return Constructor(op_class, [_argument(parameter, parameter in together) for parameter in own])


def _argument(own: inspect.Parameter, together: bool) -> Argument:
    stated = str(own.annotation)
    names = {**_NAMES, **_SHAPES} if stated == "Sequence[Size]" else _NAMES
    annotation = "Operand" if together else _ANNOTATIONS.get(stated, stated)
    return Argument(own, own.replace(name=names.get(own.name, own.name), annotation=annotation), together)
