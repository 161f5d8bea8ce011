"""Units: how many neighbouring terms of K one operation multiplies and adds up, and where that is possible.

| terms | A | B | sums | operation |
|---|---|---|---|---|
| 1 | any type | any type | any type | multiply-add |
| 2 | i8, u8, i16 | i8, u8, i16 | i32 | of pairs of i16, which every level has or writes out |
| 2 | bf16 | bf16 | f32 | of pairs of bf16, with the feature avx512bf16 |
| 4 | i8, u8 | i8 | i32 | of four u8 and four i8, with the feature avx512vnni |

The last two read units of A where they lie, so a row of A has to be contiguous. An i8 of A is read as u8, 128 larger:
panels of B start with -128 times the sums of their columns. Imports no code generator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicf.backends.cpu.target import SHORT_INTEGERS

if TYPE_CHECKING:
    from aicf.backends.cpu.families.gemm.schedule import GemmProblem

QUADS_FEATURE, BF16_FEATURE = "avx512vnni", "avx512bf16"
SHIFT = 128
"""From an i8 to the u8 that has its bits but the first."""
DOT_LANES = (4, 8, 16)
"""Lanes of the vectors that dot products have instructions for."""


def terms_by_type(problem: GemmProblem) -> int:
    """Terms of a unit by element types alone, on any level."""
    short = problem.a_element in SHORT_INTEGERS and problem.b_element in SHORT_INTEGERS
    return 2 if short and problem.dtype == "i32" and not problem.makes_rows else 1


def legal_terms(problem: GemmProblem) -> tuple[int, ...]:
    """Terms that units may have on some level, those by type alone first."""
    own = terms_by_type(problem)
    if problem.makes_rows or problem.a_strides[1] != 1:
        return (own,)
    types = problem.a_element, problem.b_element
    if own == 2 and types in (("u8", "i8"), ("i8", "i8")):
        return (2, 4)
    return (1, 2) if types == ("bf16", "bf16") and problem.dtype == "f32" else (own,)


def terms_of_level(problem: GemmProblem, features: tuple[str, ...], rounding: str) -> tuple[int, ...]:
    """Those of `legal_terms` that a level with these features has operations for."""
    return tuple(
        terms
        for terms in legal_terms(problem)
        if terms == terms_by_type(problem) or units_reason(problem, terms, features, rounding) is None
    )


def units_reason(problem: GemmProblem, terms: int, features: tuple[str, ...], rounding: str) -> str | None:
    """Why a level with these features does not multiply units of so many terms; None if it does."""
    if terms == terms_by_type(problem):
        return None
    needed = QUADS_FEATURE if terms == 4 else BF16_FEATURE
    if needed not in features:
        return f"its units of {terms} terms of K need {needed}, which the target is without"
    if terms == 2 and rounding == "strict":
        return "pairs of bf16 are added up with subnormal numbers as 0, and the policy wants strict rounding (rounding)"
    return None
