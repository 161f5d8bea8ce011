"""The text of dense values, ``dense<...>`` without its type, so that every element reads back with its bits.

xDSL writes an element through a Python float, which changes the payload of some NaNs, and takes elements that compare
equal for a splat. The reader is ``logical_ops.constant.parse_literal``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.dialects.builtin import AnyFloat, DenseIntOrFPElementsAttr
from xdsl.printer import Printer

from aicf.dialects.types import tensor_info

_MAX_LISTED = 100
"""More elements are written as the hexadecimal string of their bytes, as xDSL does."""


def print_dense(printer: Printer, value: DenseIntOrFPElementsAttr) -> None:
    """Write ``dense<...>``: decimal numbers, the bits of what is no finite number, one element for a splat.

    Raises:
        VerifyException: the type of the value is no static tensor of the element table.
    """
    type_ = value.get_element_type()
    if not isinstance(type_, AnyFloat):
        value.print_without_type(printer)
        return
    info = tensor_info(value.type)
    raw = value.data.data
    words = np.frombuffer(raw, f"<u{info.element.bytes}").tolist()
    with np.errstate(invalid="ignore"):  # a signalling NaN
        numbers = np.frombuffer(raw, info.element.dtype).astype(np.float64).tolist()
    width = 2 * info.element.bytes

    def element(index: int) -> None:
        if np.isfinite(numbers[index]):
            printer.print_float(numbers[index], type_)
        else:
            printer.print_string(f"0x{words[index]:0{width}x}")

    printer.print_string("dense")
    with printer.in_angle_brackets():
        if len(set(words)) == 1:
            element(0)
        elif len(words) > _MAX_LISTED:
            printer.print_string(f'"0x{raw.hex().upper()}"')
        else:
            _print_nested(printer, range(len(words)), info.shape, element)


def _print_nested(
    printer: Printer, indices: Sequence[int], shape: Sequence[int], element: Callable[[int], None]
) -> None:
    if not shape:
        element(indices[0])
        return
    step = len(indices) // shape[0]
    rows = [indices[start : start + step] for start in range(0, len(indices), step)]
    with printer.in_square_brackets():
        printer.print_list(rows, lambda row: _print_nested(printer, row, shape[1:], element))
