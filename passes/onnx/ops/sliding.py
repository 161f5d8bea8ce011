"""Windows as ONNX says them: kernel shape, strides, dilations, and padding that may follow from the sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aicf.passes.onnx.ops.base import Node


@dataclass(frozen=True)
class Sliding:
    """How a window slides; one value for each spatial dimension in every list."""

    sizes: list[int]
    strides: list[int]
    dilations: list[int]
    low: list[int]
    high: list[int]

    @property
    def steps(self) -> dict[str, Any]:
        """All but the sizes, as properties of a convolution."""
        return {name: values for name, values in vars(self).items() if name != "sizes"}


def sliding(node: Node, spatial: Sequence[int], sizes: Sequence[int] | None = None) -> Sliding:
    """The windows of a node over spatial dimensions of these sizes.

    Args:
        sizes: The kernel shape where the attribute ``kernel_shape`` is left out.

    Raises:
        InvalidIR: a list of another length, no kernel shape, or negative padding.
    """
    attributes, rank = node.attributes, len(spatial)
    kernel = attributes.ints("kernel_shape", None) or sizes
    if kernel is None:
        raise node.invalid("attribute kernel_shape is missing; it is a list of integers")
    strides = attributes.ints("strides", [1] * rank)
    dilations = attributes.ints("dilations", [1] * rank)
    for name, values in (("kernel_shape", kernel), ("strides", strides), ("dilations", dilations)):
        if len(values) != rank or min(values, default=1) < 1:
            raise node.invalid(f"{name} {list(values)} is no list of {rank} numbers of at least 1")
    extents = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    low, high = _padding(node, spatial, extents, strides)
    return Sliding(list(kernel), strides, dilations, low, high)


def _padding(
    node: Node, spatial: Sequence[int], extents: Sequence[int], strides: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What ``pads`` says, or what makes the count of windows the size over the stride, rounded up."""
    rank = len(spatial)
    match node.attributes.string("auto_pad", "NOTSET"):
        case "NOTSET":
            return explicit_padding(node, rank)
        case "VALID":
            return [0] * rank, [0] * rank
        case "SAME_UPPER" | "SAME_LOWER" as mode:
            totals = [
                max((-(-size // stride) - 1) * stride + extent - size, 0)
                for size, extent, stride in zip(spatial, extents, strides, strict=True)
            ]
            smaller, larger = [total // 2 for total in totals], [total - total // 2 for total in totals]
            return (smaller, larger) if mode == "SAME_UPPER" else (larger, smaller)
        case other:
            raise node.invalid(f"auto_pad is {other}; it is NOTSET, VALID, SAME_UPPER or SAME_LOWER")


def explicit_padding(node: Node, rank: int) -> tuple[list[int], list[int]]:
    """The attribute ``pads``: before each spatial dimension, then after each."""
    pads = node.attributes.ints("pads", [0] * (2 * rank))
    if len(pads) != 2 * rank or min(pads, default=0) < 0:
        raise node.invalid(f"pads {pads} is no list of {2 * rank} numbers of at least 0")
    return pads[:rank], pads[rank:]
