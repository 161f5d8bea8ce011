"""The rule of `ReduceLROnPlateau`: which learning rate the steps after a metric take.

A step holds the state of the rule in metas that its program does not update; the host applies the rule and writes them.
Nothing here needs a compiler, so a step that was loaded from an artifact follows its rule too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from aicf.dialects.step_names import RATE
from aicf.runtime.tensors import Array
from aicf.support.whole_numbers import is_whole

BEST, BAD, COOLDOWN = f"{RATE}.best", f"{RATE}.num_bad_epochs", f"{RATE}.cooldown_counter"
"""Metas with the state of the rule beside the rate, by the names that PyTorch's scheduler has for them."""
DTYPES: Mapping[str, Literal["f64", "i64"]] = {RATE: "f64", BEST: "f64", BAD: "i64", COOLDOWN: "i64"}
"""Element types of these metas. The rate is in f64, as in PyTorch: it is rounded once, to the type of a parameter."""

_MOST = (1 << 63) - 1
"""The largest count that an i64 holds."""
_MODES, _THRESHOLD_MODES = ("min", "max"), ("rel", "abs")


@dataclass(frozen=True)
class PlateauRule:
    """The options of `torch.optim.lr_scheduler.ReduceLROnPlateau`, see `aicf.schedules.Plateau`."""

    mode: str
    factor: float
    patience: int
    threshold: float
    threshold_mode: str
    cooldown: int
    min_lr: float
    eps: float

    def problem(self) -> str | None:
        """What is wrong with the options, in the words of a user; None if they are legal."""
        if self.mode not in _MODES:
            return f"mode is {self.mode!r}; it is min or max"
        if self.threshold_mode not in _THRESHOLD_MODES:
            return f"threshold_mode is {self.threshold_mode!r}; it is rel or abs"
        if not 0 <= self.factor < 1:
            return f"factor is {self.factor}; it is 0 or more, and less than 1"
        for name, count in (("patience", self.patience), ("cooldown", self.cooldown)):
            if not is_whole(count, least=0) or count > _MOST:
                return f"{name} is {count}; it is a whole number from 0 to {_MOST}"
        for name, number in (("min_lr", self.min_lr), ("eps", self.eps)):
            if not 0 <= number < math.inf:
                return f"{name} is {number}; it is a finite number, 0 or more"
        if not math.isfinite(self.threshold):
            return f"threshold is {self.threshold}; it is a finite number"
        if self.threshold >= 1 and self.mode == "min" and self.threshold_mode == "rel":
            return f"threshold is {self.threshold}, of which no metric is better by mode 'min'; make it less than 1"
        return None

    def start(self, rate: float) -> dict[str, Array]:
        """First values of the metas: the rate, and nothing seen yet."""
        worst = math.inf if self.mode == "min" else -math.inf
        return _arrays(rate, worst, 0, 0)

    def after(self, state: Mapping[str, Array], metric: float) -> dict[str, Array]:
        """The metas after a metric; NaN is no improvement.

        Args:
            state: The metas before it.
        """
        rate, best = float(state[RATE]), float(state[BEST])
        bad, cooldown = int(state[BAD]), int(state[COOLDOWN])
        if self._is_better(metric, best):
            best, bad = metric, 0
        else:
            bad += 1
        if cooldown > 0:
            cooldown, bad = cooldown - 1, 0
        if bad > self.patience:
            rate, bad, cooldown = self._reduced(rate), 0, self.cooldown
        return _arrays(rate, best, bad, cooldown)

    def _is_better(self, metric: float, best: float) -> bool:
        sign = -1.0 if self.mode == "min" else 1.0
        bound = (
            best * (1.0 + sign * self.threshold)
            if self.threshold_mode == "rel"
            else best + sign * self.threshold
        )
        return metric < bound if self.mode == "min" else metric > bound

    def _reduced(self, rate: float) -> float:
        """The next lower rate; the same where the difference would be `eps` or less."""
        lower = max(rate * self.factor, self.min_lr)
        return lower if rate - lower > self.eps else rate


def _arrays(rate: float, best: float, bad: int, cooldown: int) -> dict[str, Array]:
    return {
        RATE: np.asarray(rate, np.float64),
        BEST: np.asarray(best, np.float64),
        BAD: np.asarray(bad, np.int64),
        COOLDOWN: np.asarray(cooldown, np.int64),
    }
