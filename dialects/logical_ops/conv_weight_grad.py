"""The gradients of the weights of convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import I64, DenseArrayBase, IntegerAttr
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, traits_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.kinds import CONV_DIMS
from aicf.dialects.logical_ops.base import LogicalOp, Operand, OwnKind, check_elements, value_per_dimension
from aicf.dialects.logical_ops.convolution import check_known, for_each_dimension, group_count, window_attrs
from aicf.dialects.logical_ops.properties import Properties, int_values
from aicf.dialects.traits import Composite, Contraction, PositionalOperands
from aicf.dialects.types import AnyTensor, TensorInfo, tensor_info

__all__ = ["ConvWeightGradOp"]

_LEAST = {"sizes": 1, "strides": 1, "low": 0, "dilations": 1}
"""List properties, with the least value of each dimension."""


@irdl_op_definition
class ConvWeightGradOp(LogicalOp):
    """What a convolution passes back to its weight: the sums over batch and windows of the operand's elements times
    what is passed back to the result.

    Operand [N, C, S1..Sk], grad [N, M, O1..Ok], result [M, C / groups, K1..Kk] with K the ``sizes`` of a window:
    window o is K elements, ``dilations`` apart, from o * stride - low on; what lies outside of the operand is zeros.
    Output channel m sees the channels of group m / (M / groups) alone. Defaults are those of ``conv``.
    """

    name = "logical.conv_weight_grad"
    operand = operand_def()
    grad = operand_def()
    sizes = prop_def(DenseArrayBase[I64])
    strides = prop_def(DenseArrayBase[I64])
    low = prop_def(DenseArrayBase[I64])
    dilations = prop_def(DenseArrayBase[I64])
    groups = prop_def(IntegerAttr[I64])
    traits = traits_def(Composite(), Contraction(), PositionalOperands())

    def __init__(
        self,
        operand: Operand,
        grad: Operand,
        sizes: Sequence[int],
        *,
        strides: Sequence[int] | None = None,
        low: Sequence[int] | None = None,
        dilations: Sequence[int] | None = None,
        groups: int = 1,
    ):
        super().__init__(
            *(operand, grad),
            sizes=sizes,
            strides=for_each_dimension(operand, strides, 1),
            low=for_each_dimension(operand, low, 0),
            dilations=for_each_dimension(operand, dilations, 1),
            groups=groups,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """``[M, C / groups, K1..Kk]`` of the operands' element type."""
        x, grad = (tensor_info(operand) for operand in operands)
        check_elements({"operand": x, "grad": grad}, False)
        if x.rank < 3 or grad.rank != x.rank or x.sizes[0] != grad.sizes[0]:
            raise VerifyException(
                f"operand {x} and grad {grad} are the channels of one batch along as many dimensions: "
                "[N, C, S1..Sk] and [N, M, O1..Ok]"
            )
        for name, info in (("operand", x), ("grad", grad)):
            check_known(name, info, info.sizes[1:])
        groups = group_count(properties)
        channels, outputs = (_channels(what, info, groups) for what, info in (("input", x), ("output", grad)))
        sizes, *_ = (
            value_per_dimension(name, properties, x, least, leading=2) for name, least in _LEAST.items()
        )
        return x.with_sizes([outputs, channels // groups, *sizes])

    def kind_alone(self) -> OwnKind | None:
        """`conv_weight_grad`; none of more dimensions than its attributes have room for."""
        if len(int_values(self.sizes)) > CONV_DIMS:
            return None
        return "conv_weight_grad", {"groups": self.groups, **window_attrs(self)}


def _channels(what: str, info: TensorInfo, groups: int) -> int:
    count = info.sizes[1]
    assert isinstance(count, int)
    if count % groups:
        raise VerifyException(f"{count} {what} channels do not split into {groups} groups")
    return count
