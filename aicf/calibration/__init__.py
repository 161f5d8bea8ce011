"""Calibration: a policy that lowers a model's precision, from sample inputs, and what that costs.

`calibrate` does it: `samples` reads the inputs, `observe_products` and `observe_rounding` are passes that add what is
to be seen to the results of a program, `ranges`, `histograms` and `smoothing` turn that into numbers of a policy,
`switch_rounding` is the pass that makes one program in which each op is rounded or not, `search` finds the ops that
stay f32 with it, and `outputs` and `report` say what is lost.
"""

from aicf.calibration.calibrating import calibrate
from aicf.calibration.report import Calibration, Report

__all__ = ["Calibration", "Report", "calibrate"]
