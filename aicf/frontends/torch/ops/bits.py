"""ATen ops on the bits of integers, and on truth values."""

from __future__ import annotations

from collections.abc import Mapping

from aicf.frontends.builder import Graph, Value
from aicf.frontends.torch.ops.base import Operand
from aicf.frontends.torch.ops.elementwise import operator

_OPERATORS: Mapping[str, tuple[str, ...]] = {
    "and_": (
        "bitwise_and.Tensor",
        "bitwise_and.Scalar",
        "bitwise_and.Scalar_Tensor",
        "__and__.Tensor",
        "__and__.Scalar",
    ),
    "or_": (
        "bitwise_or.Tensor",
        "bitwise_or.Scalar",
        "bitwise_or.Scalar_Tensor",
        "__or__.Tensor",
        "__or__.Scalar",
    ),
    "xor": (
        "bitwise_xor.Tensor",
        "bitwise_xor.Scalar",
        "bitwise_xor.Scalar_Tensor",
        "__xor__.Tensor",
        "__xor__.Scalar",
    ),
    "shift_left": (
        *(
            "bitwise_left_shift.Tensor",
            "bitwise_left_shift.Tensor_Scalar",
            "bitwise_left_shift.Scalar_Tensor",
        ),
        *("__lshift__.Tensor", "__lshift__.Scalar"),
    ),
    "shift_right": (
        *(
            "bitwise_right_shift.Tensor",
            "bitwise_right_shift.Tensor_Scalar",
            "bitwise_right_shift.Scalar_Tensor",
        ),
        *("__rshift__.Tensor", "__rshift__.Scalar"),
    ),
}
"""The builder's method, and the ops that it is one for one."""


def _enter(method: str, overloads: tuple[str, ...]) -> None:
    @operator(*overloads)
    def _operator(graph: Graph, lhs: Operand, rhs: Operand) -> Value:
        return getattr(graph, method)(lhs, rhs)


for _method, _overloads in _OPERATORS.items():
    _enter(_method, _overloads)


@operator("bitwise_not.default")
def _not(graph: Graph, x: Value) -> Value:
    """All bits turned over."""
    return graph.not_(x)
