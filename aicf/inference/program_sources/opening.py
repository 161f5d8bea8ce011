"""From the request of a session to the source of its programs. What is compiled opens without the compiler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from aicf.compilation.compiled import CompiledModel
from aicf.compilation.reading import load
from aicf.engines.report import Report
from aicf.engines.request import Request
from aicf.errors import PolicyError
from aicf.inference.devices import check_device, ordinal_of
from aicf.inference.program_sources.base import GIVEN, ProgramSource, SourcedProgram
from aicf.inference.program_sources.fixed import FixedPrograms
from aicf.inference.usage import Meter

if TYPE_CHECKING:
    from aicf.policies.policy import Policy

ARTIFACT = ".aicf"


def open_source(request: Request, report: Report) -> ProgramSource:
    """The source of the programs of a session. Raises as `InferenceSession`."""
    model = request.model
    if isinstance(model, CompiledModel):
        _reject_options(request, "weights")
        return _fixed(request, SourcedProgram(model, GIVEN, "the compiled model that was given", 0.0, None))
    if isinstance(model, str | Path) and Path(model).suffix == ARTIFACT:
        _reject_options(request)
        return _fixed(request, _loaded(request, Path(model)))
    from aicf.inference.program_sources.compiling import open_model

    return open_model(request, report)


def _loaded(request: Request, path: Path) -> SourcedProgram:
    from aicf.compilation.weight_arrays import read_weights

    started, meter = perf_counter(), Meter()
    with meter.open():
        executable = load(path, weights=None if request.weights is None else read_weights(request.weights))
    return SourcedProgram(executable, GIVEN, f"loaded {path}", perf_counter() - started, meter)


def _fixed(request: Request, made: SourcedProgram) -> ProgramSource:
    plan = made.executable.plan
    check_device(request.device, request.target, plan.backend, plan.arch)
    if ordinal := ordinal_of(request.device):
        made = replace(made, executable=made.executable.placed(ordinal))
    return FixedPrograms(made)


def _reject_options(request: Request, *more: str) -> None:
    """Raises PolicyError for an option that only a compile could follow: none is ignored."""
    given = {
        **_stated(request.policy),
        "strict": request.strict,
        "passes": bool(request.passes),
        **{
            name: getattr(request, name) is not None
            for name in ("cache_dir", "dims", "values", "threads", "tuning", *more)
        },
        "training": request.training,
    }
    if wrong := [name for name, is_given in given.items() if is_given]:
        raise PolicyError(
            f"{wrong[0]}= has no effect on a compiled model, in which all is decided; leave it out, or compile again"
        )


def _stated(policy: Policy | None) -> dict[str, bool]:
    """Which sections say something that a compile follows."""
    if policy is None:
        return {}
    default = type(policy)()
    return {
        "kernel_policy": policy.kernel != default.kernel,
        "exec_policy": policy.execution.for_compile() != default.execution,
        "precision_policy": policy.precision != default.precision,
    }
