"""From what a session is asked for to its engine. Artifacts and compiled models are opened without the compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from aicf.compiled import CompiledModel, load
from aicf.errors import PolicyError
from aicf.inference.devices import check_device
from aicf.inference.engines.base import GIVEN, Engine, Made
from aicf.inference.engines.fixed import FixedEngine
from aicf.inference.report import Report
from aicf.inference.usage import Meter

if TYPE_CHECKING:
    from aicf.extensions import Extension
    from aicf.policies.policy import Policy
    from aicf.sources import Dims, Model, Tuning, Values
    from aicf.weight_arrays import Weights

ARTIFACT = ".aicf"


@dataclass(frozen=True)
class Asked:
    """What a session was asked for; see `InferenceSession`."""

    model: Model | CompiledModel
    weights: Weights | None
    device: str | None
    engine: str | None
    policy: Policy | None
    cache_dir: Path | None
    dims: Dims | None
    values: Values | None
    threads: int | None
    tuning: Tuning | None
    strict: bool = False
    passes: Sequence[Extension] = ()
    training: bool = False


def open_engine(asked: Asked, report: Report) -> Engine:
    """The engine of a session. Raises as `InferenceSession`."""
    model = asked.model
    if isinstance(model, CompiledModel):
        _reject_options(asked, "weights")
        return _fixed(asked, Made(model, GIVEN, "the compiled model that was given", 0.0, None))
    if isinstance(model, str | Path) and Path(model).suffix == ARTIFACT:
        _reject_options(asked)
        return _fixed(asked, _loaded(asked, Path(model)))
    from aicf.inference.engines.compiling import open_model

    return open_model(asked, report)


def _loaded(asked: Asked, path: Path) -> Made:
    from aicf.weight_arrays import read_weights

    started, meter = perf_counter(), Meter()
    with meter.open():
        executable = load(path, weights=None if asked.weights is None else read_weights(asked.weights))
    return Made(executable, GIVEN, f"loaded {path}", perf_counter() - started, meter)


def _fixed(asked: Asked, made: Made) -> Engine:
    plan = made.executable.plan
    check_device(asked.device, asked.engine, plan.backend, plan.arch)
    return FixedEngine(made)


def _reject_options(asked: Asked, *more: str) -> None:
    """Raises PolicyError for an option that only a compile could follow: none is ignored."""
    given = {
        **_stated(asked.policy),
        "strict": asked.strict,
        "passes": bool(asked.passes),
        **{
            name: getattr(asked, name) is not None
            for name in ("cache_dir", "dims", "values", "threads", "tuning", *more)
        },
        "training": asked.training,
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
    }
