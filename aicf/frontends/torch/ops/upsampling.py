"""ATen ops that resize images by interpolation, and their gradients.

One table has them all: a name, the taps of its kernel and the number of dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Lower, Writer, is_float, row, wide
from aicf.frontends.torch.ops.interpolation import (
    Along,
    Taps,
    cubic,
    linear,
    nearest,
    nearest_exact,
    resized,
    smooth_cubic,
    smooth_lanczos,
    smooth_linear,
)

Kernel = Callable[[Along], Taps]

_NEAREST: dict[str, tuple[Kernel, int]] = {
    f"{prefix}{rank}d": (kernel, rank)
    for prefix, kernel in (("upsample_nearest", nearest), ("_upsample_nearest_exact", nearest_exact))
    for rank in (1, 2, 3)
}
"""Ops without `align_corners`."""
_WEIGHTED: dict[str, tuple[Kernel, int]] = {
    "upsample_linear1d": (linear, 1),
    "upsample_bilinear2d": (linear, 2),
    "upsample_trilinear3d": (linear, 3),
    "upsample_bicubic2d": (cubic, 2),
    "_upsample_bilinear2d_aa": (smooth_linear, 2),
    "_upsample_bicubic2d_aa": (smooth_cubic, 2),
    "_upsample_lanczos2d_aa": (smooth_lanczos, 2),
}


def _alongs(
    sizes: Sequence[int],
    wanted: Sequence[int],
    factors: Sequence[float | None],
    align: bool,
    dtype: str,
    is_weighted: bool,
) -> list[Along]:
    """How each of the last dimensions is resized. One that keeps its size may still be moved, by a stated factor.

    PyTorch works out the weights of bytes in f64.
    """
    rank = len(wanted)
    exact = wide(dtype) if is_float(dtype) or not is_weighted else "f64"
    factors = [*factors, *[None] * rank][:rank]
    return [
        Along(size, target, factor or None, align, exact)
        for size, target, factor in zip(sizes[-rank:], wanted, factors, strict=True)
    ]


def _rows_of(name: str, kernel: Kernel, rank: int, has_align: bool) -> None:
    """Enters the rows of an op: by sizes and factors, by a list of factors, and the gradients."""

    def resize(writer: Writer, x: Value, wanted: Sequence[int], *how: Any) -> Value:
        """Interpolates the last dimensions to other sizes."""
        align, factors = (how[0], how[1:]) if has_align else (False, how)
        alongs = _alongs(writer.sizes(x), wanted, factors, align, x.dtype, has_align)
        return writer.result(resized(writer, x, alongs, kernel))

    def resize_by(writer: Writer, x: Value, wanted: Sequence[int] | None, *how: Any) -> Value:
        """Interpolates the last dimensions to other sizes, or by factors."""
        align, factors = (how[0], how[1]) if has_align else (False, how[0])
        given = factors if wanted is None else None
        alongs = _alongs(writer.sizes(x), writer.shape[-rank:], given or [], align, x.dtype, has_align)
        return writer.result(resized(writer, x, alongs, kernel))

    def pass_back(
        writer: Writer, grad: Value, wanted: Sequence[int], sizes: Sequence[int], *how: Any
    ) -> Value:
        """The gradients of the elements that interpolation reads."""
        align, factors = (how[0], how[1:]) if has_align else (False, how)
        alongs = _alongs(sizes, wanted, factors, align, grad.dtype, has_align)
        return writer.result(resized(writer, grad, alongs, kernel, back=True))

    for overload, lower in _overloads(name, resize, resize_by, pass_back):
        row(overload)(lower)


def _overloads(name: str, resize: Lower, resize_by: Lower, back: Lower) -> list[tuple[str, Lower]]:
    return [(f"{name}.default", resize), (f"{name}.vec", resize_by), (f"{name}_backward.default", back)]


for _name, (_kernel, _rank) in _NEAREST.items():
    _rows_of(_name, _kernel, _rank, False)
for _name, (_kernel, _rank) in _WEIGHTED.items():
    _rows_of(_name, _kernel, _rank, True)
