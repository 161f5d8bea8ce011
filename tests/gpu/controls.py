"""Programs with a defect that a checker must report: otherwise its silence about the cases says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from unittest.mock import patch

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler import build
from aicf.backends.cuda.compiler.launches import Emit, KernelLaunch, LibraryCall
from aicf.backends.cuda.runtime.device_program import DeviceProgram
from aicf.compilation.compiled import CompiledModel
from tests.gpu.artifacts import changed, compiled, from_folder, obtained

BARRIER = "cuda.syncthreads()"


@dataclass(frozen=True)
class Control:
    """A case with a defect.

    Args:
        case: Its name.
        report: How the checker's report begins.
    """

    case: str
    report: str


ASTRAY, UNORDERED = "control-astray", "control-unordered"
CONTROLS = {
    ASTRAY: Control("encoder-f16", "Invalid __global__"),
    UNORDERED: Control("simt-product-f32", "Error: Race reported"),
}
"""By name: a kernel that touches memory that is nobody's, and one without its barriers."""

CHECKED_BY = {"memcheck": ASTRAY, "racecheck": UNORDERED}
"""What each tool of compute-sanitizer must report."""


def obtained_control(name: str) -> CompiledModel:
    """The control, ready to run on this machine's GPU."""
    case = CONTROLS[name].case
    if name == ASTRAY:
        return changed(obtained(case), astray)
    return from_folder(name, case) or compiled_without_barriers(case)


def astray(device_program: DeviceProgram) -> DeviceProgram:
    """A program, whose second kernel gets addresses where there is no memory."""
    kernels = list(device_program.kernels)
    away = tuple(replace(address, offset=1 << 46) for address in kernels[1].addresses)
    kernels[1] = replace(kernels[1], addresses=away)
    return replace(device_program, kernels=tuple(kernels))


def compiled_without_barriers(name: str) -> CompiledModel:
    """The case, whose kernels do not wait for the other threads of their blocks."""
    with patch.object(build, "emitter", _emitter_without_barriers):
        return compiled(name)


_emitter = build.emitter


def _emitter_without_barriers(kernel: str) -> Emit:
    def emit(launch: Launch) -> Sequence[KernelLaunch | LibraryCall]:
        return [_without_barrier(part) for part in _emitter(kernel)(launch)]

    return emit


def _without_barrier(part: KernelLaunch | LibraryCall) -> KernelLaunch | LibraryCall:
    assert isinstance(part, KernelLaunch) and BARRIER in part.code.source
    return replace(part, code=replace(part.code, source=part.code.source.replace(BARRIER, "pass")))
