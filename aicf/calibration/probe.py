"""The program with a switch for each op: what rounding costs, measured without another compile."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from aicf.calibration.outputs import Comparison, Reference
from aicf.calibration.programs import Programs
from aicf.calibration.switch_rounding import SWITCHES, SwitchRoundingPass, listing, switched_ops
from aicf.compilation.extensions import at
from aicf.policies.policy import Policy
from aicf.policies.precision_policy import PrecisionPolicy


class Probe:
    """Runs the model with any of its ops rounded.

    Args:
        programs: Of the model.
        section: What the numbers are.
        ops: Those that are lowered, with their precision.
        reference: The outputs of f32.
    """

    def __init__(
        self, programs: Programs, section: PrecisionPolicy, ops: Mapping[str, str], reference: Reference
    ) -> None:
        listed = listing(section, ops)
        self._programs, self._reference = programs, reference
        self._names = switched_ops(listed)
        self._program = programs.compile(Policy(precision=listed), *at("static", SwitchRoundingPass()))

    def compare(self, rounded: Collection[str], what: str) -> Comparison:
        """The outputs with these ops rounded, against f32; `what` says what it is run for."""
        switches = np.array([name in rounded for name in self._names])
        return self._reference.compare(self._programs.runs(self._program, what, {SWITCHES: switches}))
