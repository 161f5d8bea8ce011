"""How a token is chosen: the settings of a generation, as a program's inputs take them.

The program that chooses is built in `aicf.llm.token_state`, and what it draws with is `aicf.llm.draw`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

import numpy as np

from aicf.errors import InputMismatch, quoted
from aicf.runtime.tensors import Array
from aicf.support.whole_numbers import is_whole

SETTINGS: Mapping[str, str] = {
    "temperature": "f32",
    "top_k": "i64",
    "top_p": "f32",
    "min_p": "f32",
    "repetition_penalty": "f32",
    "seed": "i64",
}
"""Inputs of every program that chooses tokens, each of one element, with their types."""
_NUMBERS = {"f32": np.float32, "i64": np.int64}
_LARGEST = (1 << 63) - 1
_RANGES: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda value: value >= 0, "0 or more"),
    "top_p": (lambda value: 0 <= value <= 1, "0 to 1"),
    "min_p": (lambda value: 0 <= value <= 1, "0 to 1"),
    "repetition_penalty": (lambda value: value > 0, "above 0"),
}


@dataclass(frozen=True)
class Sampling:
    """Settings of a generation. The defaults take the likeliest token at each step.

    Logits are first penalised, then divided by the temperature; `top_k`, `top_p` and `min_p` then leave tokens out, in
    this order, and one of the others is drawn.

    Args:
        temperature: What logits are divided by; 0 takes the likeliest token after the penalty, whatever `top_k`,
            `top_p` and `min_p` say.
        top_k: How many of the likeliest tokens may be drawn; 0 for all. Equally likely ones stay or go together.
        top_p: The likeliest tokens that have this probability together may be drawn; 1 for all.
        min_p: Tokens may be drawn that are at least this likely, as a share of the likeliest one; 0 for all.
        repetition_penalty: What the logit of a token that came before is divided by if it is positive, else multiplied
            by (Keskar et al., CTRL, 2019); 1 for none.
        seed: Of the random numbers, which are those of Philox at the token's position: the same seed gives the same
            text again.

    Raises:
        InputMismatch: a setting is out of its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (is_allowed, allowed) in _RANGES.items():
            value = getattr(self, name)
            if not is_allowed(_rounded(value)):
                raise InputMismatch(f"{name} is {quoted(value)}; it is a number, {allowed}")
        for name in ("top_k", "seed"):
            value = getattr(self, name)
            if not is_whole(value, least=0) or value > _LARGEST:
                raise InputMismatch(f"{name} is {quoted(value)}; it is a whole number, 0 or more, below 2^63")

    def feeds(self) -> dict[str, Array]:
        """Values of the inputs `SETTINGS`. What leaves out tokens is off where the likeliest one is taken anyway."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if _rounded(self.temperature) == 0:
            values |= {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
        return {name: np.array([values[name]], _NUMBERS[dtype]) for name, dtype in SETTINGS.items()}


def sampling_of(settings: Mapping[str, Any]) -> Sampling:
    """Settings by name. Raises InputMismatch for one that there is none of, or that is out of its range."""
    try:
        return Sampling(**settings)
    except TypeError:
        unknown = next(name for name in settings if name not in Sampling.__dataclass_fields__)
        known = ", ".join(Sampling.__dataclass_fields__)
        raise InputMismatch(f"there is no setting {quoted(unknown)}; there are {known}") from None


def _rounded(value: object) -> float:
    """A number as the program takes it, in f32; NaN, which is in no range, for what is no finite f32 or no number."""
    if type(value) is bool or not isinstance(value, Real):
        return math.nan
    try:
        with np.errstate(over="ignore", under="ignore"):
            rounded = float(np.float32(float(value)))
    except OverflowError:  # an integer that has no float
        return math.nan
    return rounded if math.isfinite(rounded) else math.nan
