"""Certificates: that a program gave the same bits in every run and process, and where.

`certificate` is what a file has, `environment` where it was made. `verifying` starts a process for each series of runs;
`repeating` is what that process does.
"""

from __future__ import annotations

from aicf.certificates.certificate import Certificate, Environment, ProgramRuns
from aicf.certificates.verifying import Verification, verify

__all__ = ["Certificate", "Environment", "ProgramRuns", "Verification", "verify"]
