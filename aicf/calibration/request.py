"""What is asked of calibration, checked: arguments, and what the policy says where an argument is left out."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.errors import PolicyError, did_you_mean, quoted
from aicf.policies.accuracy_goal import AccuracyGoal
from aicf.policies.policy import Policy
from aicf.policies.precision_policy import (
    ASYMMETRIC,
    EIGHT_BITS,
    ENTROPY,
    F32,
    FLOATS,
    INT8,
    METHODS,
    MINMAX,
    NONE,
    SYMMETRIC,
    UNCHANGED,
    PrecisionPolicy,
)
from aicf.support.arguments import flag_from, text_from


@dataclass(frozen=True)
class Request:
    """What to do.

    Args:
        base: The policy that the result is added to; of its precision section, `ops` holds.
        to: `int8`, `fp8`, `bf16` or `f16`.
        rest: What ops other than products become: `f32`, or `bf16` or `f16` where `to` is of 8 bits.
        method: One of `METHODS`.
        percentile: Of the values that a range holds, for the method of that name.
        activations: `asymmetric` or `symmetric`.
        smooth: Strength of smoothing, 0 (off) to 1.
        correct_bias: Whether products get corrections.
        goal: How much accuracy may be lost; None if that is not asked.
    """

    base: Policy
    to: str
    rest: str
    method: str
    percentile: float
    activations: str
    smooth: float
    correct_bias: bool
    goal: AccuracyGoal | None

    @property
    def has_integers(self) -> bool:
        """Whether an op may become integers."""
        return INT8 in self._precisions

    @property
    def has_ranges(self) -> bool:
        """Whether an op may become one of 8 bits, whose numbers follow from ranges."""
        return not self._precisions.isdisjoint(EIGHT_BITS)

    @property
    def _precisions(self) -> set[str]:
        return {self.to, *self.base.precision.ops.values()}


def request_of(
    base: Policy,
    to: str | None,
    method: str | None,
    percentile: float,
    activations: str | None,
    smooth: float,
    correct_bias: bool,
    keep: object,
    rest: str | None = None,
) -> Request:
    """Reads the arguments of `calibrate`. Raises PolicyError for one that is not legal, or has no effect."""
    own = base.precision
    for name, value in (("to", to), ("rest", rest), ("method", method), ("activations", activations)):
        if value is not None:
            text_from(value, PolicyError, name)
    wanted = to or (INT8 if own.to == UNCHANGED else own.to)
    _check_choice("to", wanted, (*EIGHT_BITS, *FLOATS))
    if rest is not None:
        _check_choice("rest", rest, (F32, *FLOATS))
    request = Request(
        base,
        wanted,
        rest or (own.rest if wanted in EIGHT_BITS else F32),
        method or (MINMAX if own.method == NONE else own.method),
        _number("percentile", percentile, 50, 100),
        activations or own.activations,
        _number("smooth", smooth, 0, 1),
        flag_from(correct_bias, PolicyError, "correct_bias"),
        own.goal if keep is None else AccuracyGoal.of(keep),
    )
    _check_choice("method", request.method, METHODS)
    _check_choice("activations", request.activations, (ASYMMETRIC, SYMMETRIC))
    given = {
        "method": method is not None,
        "smooth": bool(request.smooth),
        "correct_bias": request.correct_bias,
    }
    if not request.has_ranges and (idle := [name for name, is_given in given.items() if is_given]):
        raise PolicyError(
            f"{idle[0]}: only numbers of 8 bits have ranges, and the model becomes {wanted}; leave it out"
        )
    if not request.has_integers and request.method == ENTROPY:
        raise PolicyError(
            f"method: {ENTROPY} is about integers, and the model becomes {wanted}; use minmax or percentile"
        )
    return request


def start_of(request: Request) -> PrecisionPolicy:
    """The section that calibration fills in: nothing of an older calibration but the precision of single ops."""
    return PrecisionPolicy(
        to=request.to, rest=request.rest, ops=request.base.precision.ops, activations=request.activations
    )


def _check_choice(name: str, value: str, legal: tuple[str, ...]) -> None:
    if value not in legal:
        close = did_you_mean(value, legal)
        raise PolicyError(
            f"{name}: {quoted(value)} is not legal; {close}{' ' if close else ''}legal: {', '.join(legal)}"
        )


def _number(name: str, value: object, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise PolicyError(f"{name}: {quoted(value)} is no number from {least} to {most}")
    return float(value)
