"""Random numbers by Philox4x32-10, a function of a seed and a counter: nothing is drawn, so a replay repeats its bits.

Salmon, Moraes, Dror and Shaw, Parallel Random Numbers: As Easy as 1, 2, 3, 2011. The seed is the key. The counter is
``offset + i/4`` modulo 2^64 for element i in row-major order, whatever the layout, and the element takes word i mod 4
of the four that Philox makes of it. So a tensor of n elements uses (n + 3)/4 counters; the next random tensor
starts after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

from xdsl.dialects.builtin import FloatAttr, StringAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.dims import Size
from aicf.dialects.logical_ops.base import (
    LogicalOp,
    Operand,
    StatedResultOp,
    TypeText,
    require_float,
    same_types,
)
from aicf.dialects.logical_ops.properties import Properties, float_value, word_value
from aicf.dialects.traits import Composite, Elementwise, Expensive, RandomNumbers
from aicf.dialects.types import AnyTensor, ElementType, tensor, tensor_info

__all__ = ["PHILOX_FORMS", "DropoutOp", "PhiloxForm", "PhiloxOp", "PhiloxWordOp"]

PhiloxForm = Literal["bits", "uniform", "normal"]
Counter: TypeAlias = Operand
"""An operand that is one i64 of rank 0, for which the builder takes a Python integer as well."""
PHILOX_FORMS: tuple[PhiloxForm, ...] = ("bits", "uniform", "normal")


def _check_key(seed: Attribute, offset: Attribute) -> None:
    """Seed and offset are i64 scalars."""
    for name, type_ in (("seed", seed), ("offset", offset)):
        info = tensor_info(type_)
        if info.rank or info.element.name != "i64":
            raise VerifyException(f"the {name} is {info}; it is one i64 of rank 0")


@irdl_op_definition
class PhiloxOp(StatedResultOp):
    """Random numbers of the stream of ``seed`` and ``offset``, in one of three forms; w is the word of an element.

    ``bits``: w itself, an i32. ``uniform``: in [0, 1), the low b bits of w times 2^-b, with b the digits of the type
    (f32 24, f16 11, bf16 8); of f64 the whole word, w * 2^-32 + 1/2. Both are the same bits on every backend.

    ``normal``: Box and Muller's transform of the words of the elements 2j and 2j + 1: with u and v their uniforms, as
    f64 for f64 and as f32 for other types, element 2j is sqrt(-2 log(1 - u)) cos(2 pi v) and element 2j + 1 the same
    with the sine.
    """

    name = "logical.philox"
    seed = operand_def()
    offset = operand_def()
    form = prop_def(StringAttr)
    traits = traits_def(Composite(), RandomNumbers())

    def __init__(
        self,
        seed: Counter,
        offset: Counter,
        sizes: Sequence[Size],
        form: PhiloxForm = "uniform",
        element: ElementType | str | None = None,
    ):
        element = element or ("i32" if form == "bits" else "f32")
        super().__init__(seed, offset, result=tensor(sizes, element), form=form)

    @classmethod
    def check_result(cls, operands: Sequence[Attribute], properties: Properties, result: Attribute) -> None:
        """An i32 tensor of bits, else one of floats."""
        _check_key(*operands)
        form = word_value("form", properties, PHILOX_FORMS)
        element = tensor_info(result).element
        if form == "bits" and element.name != "i32":
            raise VerifyException(f"bits are i32, not {element.name}; cast them, or ask for another form")
        if form != "bits" and not element.is_float:
            raise VerifyException(f"numbers of form {form} are floats, not {element.name}")


@irdl_op_definition
class PhiloxWordOp(LogicalOp):
    """The word of each index in the stream of a seed and an offset, as bits of an i32: what all forms are made of.

    Elementwise: word ``index mod 4`` of counter ``offset + index/4``, all unsigned, modulo 2^64.
    """

    name = "logical.philox_word"
    seed = operand_def()
    offset = operand_def()
    index = operand_def()
    TYPE_TEXT: ClassVar[TypeText] = TypeText.ARROW
    traits = traits_def(Elementwise(), Expensive(), RandomNumbers())

    def __init__(self, seed: Operand, offset: Operand, index: Operand):
        super().__init__(seed, offset, index)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operands' shape, of i32."""
        info = same_types(operands)
        if info.element.name != "i64":
            raise VerifyException(f"seed, offset and index are {info.element.name}; cast them to i64")
        return tensor(info.sizes, "i32")


@irdl_op_definition
class DropoutOp(LogicalOp):
    """``x / (1 - rate)`` where an element is kept, 0 where it is dropped, whatever it was.

    Element i is kept where the f32 ``uniform`` of ``logical.philox`` is at least ``rate``, for every element type.
    Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov, Dropout, 2014.
    """

    name = "logical.dropout"
    operand = operand_def()
    seed = operand_def()
    offset = operand_def()
    rate = prop_def(FloatAttr)
    traits = traits_def(Composite())

    def __init__(
        self,
        operand: Operand,
        seed: Counter,
        offset: Counter,
        rate: float,
    ):
        super().__init__(operand, seed, offset, rate=rate)

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """The operand's type."""
        info = tensor_info(operands[0])
        require_float(info)
        _check_key(*operands[1:])
        if not 0 <= (rate := float_value(properties.get("rate"))) < 1:
            raise VerifyException(f"rate is {rate}; it is at least 0 and below 1")
        return info.with_sizes(info.sizes)
