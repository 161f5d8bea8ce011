"""`AccuracyGoal`: how much accuracy a lowered model may lose, as plain data."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from aicf.errors import PolicyError, quoted

TOP1, ERROR = "top1", "error"
METRICS = (TOP1, ERROR)
"""`top1`: the share of samples whose label is lost. `error`: the largest relative error of an output."""

_EXAMPLE = "as in {metric: top1, loss: 0.5 %}"
_PERCENT = re.compile(r"\s*([0-9.eE+-]+)\s*(%?)\s*")


@dataclass(frozen=True)
class AccuracyGoal:
    """What calibration keeps.

    Args:
        metric: One of `METRICS`.
        loss: The most that may be lost, as a share: 0.005 is 0.5 %.

    Raises:
        PolicyError: a value is not legal; the message begins with its path, `keep.loss`.
    """

    SCHEMA: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {
            "metric": {"enum": list(METRICS)},
            "loss": {"type": ["number", "string"], "description": "A share, 0.005, or a text, '0.5 %'."},
        },
        "additionalProperties": False,
    }
    """What `of` reads from a file, or nothing, as JSON Schema."""

    metric: str
    loss: float

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise PolicyError(f"keep.metric: {quoted(self.metric)} is not known; legal: {', '.join(METRICS)}")
        if not (math.isfinite(self.loss) and 0 <= self.loss <= 1):
            raise PolicyError(f"keep.loss: {self.loss} is no share; give 0 to 1, or a text such as '0.5 %'")

    def __str__(self) -> str:
        return f"{self.metric}={self.loss * 100:g}%"

    @classmethod
    def of(cls, value: object) -> AccuracyGoal:
        """Reads `{"metric": "top1", "loss": 0.005}`, whose loss may be the text `0.5 %`, or the text `top1=0.5%`.

        Raises:
            PolicyError: it is neither.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            metric, sign, loss = value.partition("=")
            if not sign:
                raise PolicyError(f"keep: {quoted(value)} has no '='; write a metric and a loss, top1=0.5%")
            return cls(metric.strip(), _share(loss))
        if not isinstance(value, Mapping):
            raise PolicyError(f"keep: {quoted(value)} is no goal; give a metric and a loss, {_EXAMPLE}")
        entries = cast("Mapping[object, object]", value)
        if set(entries) != {"metric", "loss"}:
            given = ", ".join(map(str, entries)) or "nothing"
            raise PolicyError(f"keep: it has a metric and a loss, {_EXAMPLE}; got {given}")
        return cls(cast(str, entries["metric"]), _share(entries["loss"]))

    def to_json_value(self) -> dict[str, object]:
        """What `of` reads."""
        return {"metric": self.metric, "loss": self.loss}


def _share(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    try:
        number = float(found.group(1)) if found else math.nan
    except ValueError:
        number = math.nan
    if found is None or math.isnan(number):
        raise PolicyError(f"keep.loss: {quoted(value)} is no share; give 0 to 1, or a text such as '0.5 %'")
    return number / 100 if found.group(2) else number
