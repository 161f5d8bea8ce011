"""Random numbers as words of the Philox stream, each at the row-major number of its element.

The number is computed from coordinates, so it is that of the element of the model however a kernel walks its loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.dims import Size
from aicf.dialects.types import ElementType, element_named, tensor, tensor_info
from aicf.passes.logical.lowerings.base import Formulas, Lowering
from aicf.passes.support.writing import static_size
from aicf.semantics import composite_element
from aicf.semantics.random import TWO_PI, UNIFORM_DIGITS, WORD_BITS


def _philox(lower: Lowering, op: logical.PhiloxOp) -> SSAValue:
    index = _number(lower, op.info.sizes)
    match op.form.data:
        case "normal":
            return _normal(lower, op, index)
        case "uniform":
            return _uniform(lower, _word(lower, op.seed, op.offset, index), op.info.element)
        case _:
            return _word(lower, op.seed, op.offset, index)


def _number(lower: Lowering, sizes: Sequence[Size]) -> SSAValue:
    """The row-major number of each element, in i64."""
    total: SSAValue | None = None
    step = 1
    for axis in reversed(range(len(sizes))):
        if sizes[axis] != 1:
            number = lower.add(logical.IotaOp(axis, sizes, element_named("i64")), "place")
            number = number if step == 1 else lower.apply(logical.MulOp, number, step)
            total = number if total is None else lower.apply(logical.AddOp, number, total)
        # The outermost size is no step of anything: it may be symbolic.
        step *= static_size(lower.op, sizes[axis]) if axis else 1
    return total if total is not None else lower.add(logical.ConstantOp(0, tensor(sizes, "i64")), "place")


def _word(lower: Lowering, seed: SSAValue, offset: SSAValue, index: SSAValue) -> SSAValue:
    sizes = tensor_info(index.type).sizes
    key = [lower.broadcast(value, (), sizes, name) for value, name in ((seed, "seed"), (offset, "offset"))]
    return lower.add(logical.PhiloxWordOp(key[0], key[1], index), "word")


def _uniform(lower: Lowering, word: SSAValue, element: ElementType) -> SSAValue:
    """A whole number times a power of two: exact."""
    wide = composite_element(element)
    if element.name == "f64":
        scaled = lower.apply(logical.MulOp, lower.cast(word, wide, "whole"), 2.0**-WORD_BITS)
        return lower.apply(logical.AddOp, scaled, 0.5)
    digits = UNIFORM_DIGITS[element.name]
    low = lower.apply(logical.AndOp, word, (1 << digits) - 1)
    return lower.apply(logical.MulOp, lower.cast(low, wide, "whole"), 2.0**-digits)


def _normal(lower: Lowering, op: logical.PhiloxOp, index: SSAValue) -> SSAValue:
    """sqrt(-2 log(1 - u)) cos(2 pi v), the sine as the cosine a quarter of a turn earlier."""
    wide = composite_element(op.info.element)
    odd = lower.apply(logical.AndOp, index, 1, name="odd")
    pair = (lower.apply(logical.AndOp, index, -2), lower.apply(logical.OrOp, index, 1))
    u, v = (_uniform(lower, _word(lower, op.seed, op.offset, number), wide) for number in pair)
    log = lower.apply(logical.LogOp, lower.apply(logical.AddOp, lower.apply(logical.NegOp, u), 1.0))
    radius = lower.apply(logical.SqrtOp, lower.apply(logical.MulOp, log, -2.0))
    quarter = lower.apply(logical.MulOp, lower.cast(odd, wide, "quarters"), 0.25)
    turn = lower.apply(logical.SubOp, v, quarter)
    return lower.apply(
        logical.MulOp, radius, lower.apply(logical.CosOp, lower.apply(logical.MulOp, turn, TWO_PI))
    )


def _dropout(lower: Lowering, op: logical.DropoutOp) -> SSAValue:
    """x / (1 - rate) where the uniform number is at least the rate, else 0."""
    rate = op.rate.value.data
    if rate == 0:
        return op.operand
    x = lower.widen(op.operand)
    word = _word(lower, op.seed, op.offset, _number(lower, op.info.sizes))
    number = _uniform(lower, word, element_named("f32"))
    kept = lower.add(logical.CompareOp("ge", number, lower.splat(rate, number, "rate")), "kept")
    scaled = lower.apply(logical.MulOp, x, 1 / (1 - rate))
    return lower.apply(logical.SelectOp, kept, scaled, lower.splat(0, scaled, "zero"))


FORMULAS: Formulas = {
    logical.PhiloxOp: _philox,
    logical.DropoutOp: _dropout,
}
