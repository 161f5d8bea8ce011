"""What contradicts in the decisions about a convolution. Imports no code generator."""

from __future__ import annotations

from math import prod

from aicf.backends.cpu.families.conv.problem import ConvProblem
from aicf.backends.cpu.families.conv.schedule import ConvSpec
from aicf.backends.cpu.families.conv.winograd.matrices import TAPS
from aicf.backends.cpu.families.conv.winograd.schedule import WinogradProblem, check_winograd
from aicf.backends.cpu.families.gemm.units import DOT_LANES
from aicf.backends.cpu.target import SHORT_INTEGERS


def winograd_reason(problem: ConvProblem) -> str | None:
    """Why tiles of a convolution are not transformed; None if they can be."""
    if problem.taps != (TAPS, TAPS) or problem.strides != (1, 1) or problem.dilations != (1, 1):
        return "Winograd's products are of windows of 3 x 3, one next to the other"
    if problem.pairs:
        return "Winograd's products are of floats"
    if problem.groups != 1:
        return "Winograd's products are of all channels, in one group"
    if problem.widens:
        return f"Winograd's transforms read what sums are of, not {problem.element}"
    return None


def tiled(problem: ConvProblem) -> WinogradProblem:
    """What of a convolution decides how its tiles are transformed and multiplied."""
    p = problem
    return WinogradProblem(p.dtype, p.batch, p.channels, p.outputs, p.counts)


def check(spec: ConvSpec) -> str | None:
    """None if there is code for `spec`, else what contradicts."""
    p = spec.problem
    if spec.winograd is not None:
        return winograd_reason(p) or check_winograd(spec.winograd, spec.prepared)
    if p.widens and not spec.copies and not _reads_narrow(spec):
        return f"an input of {p.element} is widened in a copy of it"
    if p.quads and (reason := _quads_reason(spec)) is not None:
        return reason
    if spec.algorithm == "gemm" and not p.is_pointwise:
        return "a product needs windows of one element"
    if spec.algorithm == "gemm" and spec.product is not None:
        if spec.prepared != (spec.product.b_source == "packed"):
            return "a weight is packed ahead of time if it is the right operand of its product"
    elif spec.prepared and not spec.packs:
        return "its weight is not packed"
    if spec.algorithm == "depthwise" and p.channels != 1:
        return "depthwise is of one channel a group"
    if spec.algorithm == "depthwise" and spec.lanes_along == "channels":
        return _check_channels(spec)
    if spec.algorithm == "depthwise" and prod(p.taps) > MOST_PLANE_TAPS:
        return f"vectors of pixels have windows of {MOST_PLANE_TAPS} elements at most"
    if p.is_padded and not spec.copies:
        return "zeros around the input are in a copy of it"
    if p.pairs and not spec.copies and spec.algorithm == "direct":
        return "pairs of channels are in a copy of the input"
    if min(spec.tile_pixels, spec.tile_vectors, spec.block_rows, spec.threads) < 1:
        return "tiles, blocks and threads are 1 at least"
    if spec.algorithm == "direct" and spec.lanes_along == "pixels" and spec.tile_pixels > spec.lanes:
        return "a tile has more pixels than a vector lanes"
    if spec.algorithm == "depthwise" and spec.block_rows != p.counts[0]:
        return "depthwise is one block of all rows"
    if spec.block_rows < p.counts[0] and spec.algorithm == "direct" and spec.block_rows % spec.tile_rows:
        return "blocks are of whole tiles"
    if spec.partition == "rows" and (spec.algorithm != "direct" or p.groups > 1):
        return "threads share rows of a direct convolution of one group, or of vectors of channels"
    return None


def _reads_narrow(spec: ConvSpec) -> bool:
    """Whether elements that are narrower than sums are read where they lie."""
    p = spec.problem
    if p.quads:
        return True
    is_depthwise = spec.algorithm == "depthwise" and spec.lanes_along == "channels"
    return is_depthwise and p.element in SHORT_INTEGERS


def _quads_reason(spec: ConvSpec) -> str | None:
    """Why there is no code for units of four channels."""
    p = spec.problem
    if spec.algorithm != "direct" or p.weight_element != "i8" or p.element not in ("u8", "i8"):
        return "quads are of a direct convolution of 8-bit integers whose weight is i8"
    if spec.lanes not in DOT_LANES:
        return f"quads are multiplied in vectors of {', '.join(map(str, DOT_LANES))} sums"
    if not spec.copies and (p.x_strides[1] != 1 or p.channels % 4):
        return "quads that are read where they lie are of neighbouring channels, a multiple of 4 of them"
    return None


MOST_TAPS = 64
"""Most elements of a window whose products are written out one after the other for vectors of channels."""
MOST_PLANE_TAPS = 1024
"""The same for vectors of pixels. A depthwise convolution of larger windows is a direct one, in loops over them."""


def _check_channels(spec: ConvSpec) -> str | None:
    """The same for vectors of channels of a depthwise convolution."""
    p = spec.problem
    if p.outputs != 1 or p.x_strides[1] != 1:
        return "vectors of channels are of one output for each, which lie side by side in the input"
    if prod(p.taps) > MOST_TAPS:
        return f"vectors of channels have windows of {MOST_TAPS} elements at most"
    if spec.copies:
        return "vectors of channels are read where they lie"
    if min(spec.tile_pixels, spec.tile_vectors, spec.threads) < 1:
        return "tiles, blocks and threads are 1 at least"
    return None
