"""Divisions of several numbers by one, as text: as exact as those of IEEE, for a third of the instructions.

The inverse of the divisor is computed once. A quotient from it is off by two units in the last place at most; each of
two steps adds what is missing, the remainder times the inverse. Remainders are exact as long as no exponent is at the
end of its range. Where one may be, the division of IEEE is taken: for a divisor far from 1, and for a vector with a
number that is large, or so small that its remainder is no number of f32; 0 is among those.
"""

from __future__ import annotations

from collections.abc import Sequence

_DIVISORS = (2.0**-20, 2.0**20)
_DIVIDENDS = (2.0**-100, 2.0**100)
"""Quotients are normal numbers then, and so are remainders of 2^-47 times a dividend."""


def by_one_number(dividends: Sequence[str], divisor: str, prefix: str, lines: list[str]) -> list[str]:
    """Names of the quotients of numbers of f32; adds what it takes to `lines`.

    Args:
        prefix: Of the names that are made here.
    """
    inverse, near = f"{prefix}inverse", f"{prefix}near"
    quotients = [f"{prefix}q{lane}" for lane in range(len(dividends))]
    lines.append(f"{inverse} = cuda.libdevice.fdiv_rn(f32(1.0), {divisor})")
    lines.append(f"{near} = {_is_within(f'cuda.libdevice.fabsf({divisor})', _DIVISORS)}")
    sizes = [f"cuda.libdevice.fabsf({name})" for name in dividends]
    least, most = (_folded(f"cuda.libdevice.{how}", sizes) for how in ("fminf", "fmaxf"))
    lines.append(f"{prefix}least = {least}")
    lines.append(f"{prefix}most = {most}")
    low, high = _DIVIDENDS
    lines.append(f"if {near} and {prefix}least >= f32({low!r}) and {prefix}most <= f32({high!r}):")
    for quotient, dividend in zip(quotients, dividends, strict=True):
        lines.append(f"    {quotient} = {dividend} * {inverse}")
        for _ in range(2):
            remainder = f"cuda.fma(-{divisor}, {quotient}, {dividend})"
            lines.append(f"    {quotient} = cuda.fma({remainder}, {inverse}, {quotient})")
    lines.append("else:")
    lines += [
        f"    {quotient} = cuda.libdevice.fdiv_rn({dividend}, {divisor})"
        for quotient, dividend in zip(quotients, dividends, strict=True)
    ]
    return quotients


def _is_within(size: str, bounds: tuple[float, float]) -> str:
    low, high = bounds
    return f"({size} >= f32({low!r})) and ({size} <= f32({high!r}))"


def _folded(function: str, values: Sequence[str]) -> str:
    """Pairwise."""
    found = list(values)
    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=False)
        found = [f"{function}({a}, {b})" for a, b in pairs] + found[len(found) // 2 * 2 :]
    return found[0]
