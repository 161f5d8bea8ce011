"""What rows of elementwise ops share: results without elements, and the type that short floats are computed in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xdsl.ir import SSAValue

from aicf.dialects.types import ElementType, element_named, element_of
from aicf.passes.onnx.ops.base import Lower, Node, Result
from aicf.semantics import composite_element

POINTWISE: set[Lower] = set()
"""The rows of elementwise ops."""


def pointwise(result: int | str = 0) -> Callable[[Lower], Lower]:
    """Around the row of an elementwise op: where no element is asked for, the result is known.

    Args:
        result: The operand whose element type the result has, or the name of that type.
    """

    def around(lower: Lower) -> Lower:
        def lower_unless_empty(node: Node) -> Result:
            given = [node.shape(index) for index in range(node.count) if node.has(index)]
            if all(0 not in shape for shape in given):
                return lower(node)
            element = element_named(result) if isinstance(result, str) else node.element(result)
            return np.empty(node.joint_shape(*given), element.dtype)

        POINTWISE.add(lower_unless_empty)
        return lower_unless_empty

    return around


def widen(node: Node, value: SSAValue) -> SSAValue:
    """A float in the type that formulas of several ops are computed in: f64, else f32. Integers stay."""
    element = element_of(value.type)
    return node.cast(value, composite_element(element), "widen") if element.is_float else value


def narrow(node: Node, value: SSAValue, element: ElementType | None = None) -> SSAValue:
    """The value in the element type of the result: that of operand 0, or another."""
    return node.cast(value, node.element(0) if element is None else element, "narrow")
