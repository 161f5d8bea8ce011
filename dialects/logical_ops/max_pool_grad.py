"""The gradients of poolings that take the largest element of each window."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import I64, DenseArrayBase, IntegerAttr, i64
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.kinds import CONV_DIMS
from aicf.dialects.logical_ops.base import LogicalOp, Operand, OwnKind, require_float, value_per_dimension
from aicf.dialects.logical_ops.convolution import check_known, for_each_dimension
from aicf.dialects.logical_ops.properties import Properties, int_values
from aicf.dialects.traits import Composite, StridedOperands
from aicf.dialects.types import AnyTensor, tensor_info

__all__ = ["MaxPoolGradOp"]

_LEADING = 2
"""Dimensions before the spatial ones: batch and channels."""
_LEAST = {"whole": 1, "sizes": 1, "strides": 1, "dilations": 1, "low": 0}
"""List properties, with the least value of each dimension."""
_KIND_ATTRS = (
    ("size", "sizes", 1),
    ("stride", "strides", 1),
    ("dilation", "dilations", 1),
    ("low", "low", 0),
)
"""Attributes of the kind, one for each dimension, with the property and the value for dimensions that it has not."""


@irdl_op_definition
class MaxPoolGradOp(LogicalOp):
    """What a pooling passes back to its operand: at each element the sum of the gradients of the windows whose largest
    element it is.

    Taps [N, C, O1..Ok] of i8 say which that is, as ``max_pool_taps`` does; grad [N, C, O1..Ok]; result
    [N, C, S1..Sk] with S the sizes ``whole``: window o is ``sizes`` elements, ``dilations`` apart, from
    o * stride - low on. Windows add their gradients in row-major order. Defaults are those of ``max_pool``.
    """

    name = "logical.max_pool_grad"
    taps = operand_def()
    grad = operand_def()
    whole = prop_def(DenseArrayBase[I64])
    sizes = prop_def(DenseArrayBase[I64])
    strides = prop_def(DenseArrayBase[I64])
    dilations = prop_def(DenseArrayBase[I64])
    low = prop_def(DenseArrayBase[I64])
    traits = traits_def(Composite(), StridedOperands())

    def __init__(
        self,
        taps: Operand,
        grad: Operand,
        whole: Sequence[int],
        sizes: Sequence[int],
        strides: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
    ):
        super().__init__(
            *(taps, grad),
            whole=whole,
            sizes=sizes,
            strides=for_each_dimension(grad, strides, 1),
            dilations=for_each_dimension(grad, dilations, 1),
            low=for_each_dimension(grad, low, 0),
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """``[N, C, S1..Sk]`` of the element type of grad."""
        taps, grad = (tensor_info(operand) for operand in operands)
        require_float(grad)
        if taps.element.name != "i8" or taps.sizes != grad.sizes or grad.rank <= _LEADING:
            raise VerifyException(
                f"taps {taps} and grad {grad} are an i8 and a float for each window: [N, C, O1..Ok] both"
            )
        check_known("grad", grad, grad.sizes[_LEADING:])
        whole, *_ = (
            value_per_dimension(name, properties, grad, least, leading=_LEADING)
            for name, least in _LEAST.items()
        )
        return grad.with_sizes([*grad.sizes[:_LEADING], *whole])

    def kind_alone(self) -> OwnKind | None:
        """`max_pool_grad`; none of more dimensions than its attributes have room for."""
        if len(int_values(self.sizes)) > CONV_DIMS:
            return None
        attrs: dict[str, Attribute] = {}
        for name, source, absent in _KIND_ATTRS:
            values = int_values(self.properties[source])
            for dim in range(CONV_DIMS):
                attrs[f"{name}_{dim}"] = IntegerAttr(values[dim] if dim < len(values) else absent, i64)
        return "max_pool_grad", attrs
