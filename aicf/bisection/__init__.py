"""Bisection: which decisions make one compiled program slower than another, or wrong.

`bisecting` puts it together: `changes` says what two programs decide differently, `candidates` compiles programs that
take some decisions from each, `checks` say of a candidate whether it is good or bad, and `delta_debugging` picks the
candidates.
"""

from __future__ import annotations

from aicf.bisection.bisecting import Bisection, bisect
from aicf.bisection.checks import Check, Verdict
from aicf.bisection.delta_debugging import Outcome
from aicf.bisection.script import Script
from aicf.bisection.slower import Slower
from aicf.bisection.wrong import Wrong

__all__ = ["Bisection", "Check", "Outcome", "Script", "Slower", "Verdict", "Wrong", "bisect"]
