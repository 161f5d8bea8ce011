"""What is a whole number where a caller gives one: Python takes `True` for 1, and NumPy's integers are no `int`."""

from __future__ import annotations

from numbers import Integral


def is_whole(value: object, least: int) -> bool:
    """Whether `value` is an integer, of Python or NumPy, of at least `least`; booleans are none."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least
