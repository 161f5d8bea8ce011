"""Which group a thread has, as text: its number, and the image, channel and results that the number stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aicf.backends.cuda.compiler.specializer import Snippet


def counting_type(groups: int) -> str:
    """The type in which so many groups are counted."""
    return "i32" if groups < 1 << 31 else "i64"


def number_snippet(number: str, slots: int) -> Snippet:
    """Parameter slot, in the block: the number of a group, where a block has `slots` of them."""
    block = f"{number}({number}(cuda.blockIdx.x) * {slots})"
    return Snippet(("slot",), (), f"{number}({block} + {number}(slot))")


def place_snippet(
    number: str, order: str, sizes: Mapping[str, int], vector: int, moved: Sequence[str] = ()
) -> Snippet:
    """Parameter number: the image, the first channel and the coordinates of a group.

    Args:
        number: The type of the number.
        order, sizes: Names of digits of the number, the fastest first, and how many values each has: n, c, d, h and w.
        vector: Channels of a group.
        moved: Statements that change coordinates.
    """
    lines = ["rest = number"]
    outermost = next((name for name in reversed(order) if sizes[name] > 1), order[-1])
    for name in order:
        if sizes[name] == 1:
            lines.append(f"{name} = i32(0)")
        elif name == outermost:
            lines.append(f"{name} = i32(rest)")
        else:
            lines += _divided(number, name, sizes[name])
    lines += [*moved, f"c = i32(c * {vector})"]
    return Snippet(("number",), tuple(lines), "(n, c, d, h, w)")


def _divided(number: str, name: str, size: int) -> list[str]:
    """Splits `rest`, which is not negative."""
    if number == "i64":
        return [f"{name} = i32(rest % {size})", f"rest = i64(rest // {size})"]
    pair = f"(u32(rest), u32({size}))"
    return [f"{name} = i32(remainder{pair})", f"rest = i32(quotient{pair})"]
