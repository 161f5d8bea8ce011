"""Options of `torch.compile(model, backend="aicf", options={...})` and `train_step`, and the policy in force."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from aicf.compilation.sources import Policy, Tuning, policy_text, tuning_text
from aicf.errors import ArtifactError, PolicyError, did_you_mean, quoted
from aicf.policies.policy import resolve_policy
from aicf.support.arguments import path_from
from aicf.support.whole_numbers import is_whole

MAX_PROGRAMS = 64
"""The default limit of programs that a graph keeps, one for each combination of its sizes."""
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""The modes that `torch.compile` has for Inductor."""


@dataclass(frozen=True)
class TorchOptions:
    """Options of the backend.

    Args:
        target: As in `aicf.compile`; None is the device of the inputs.
        policy: As in `aicf.compile`; None takes the one in force, see `policy`.
        tuning: As in `aicf.compile`.
        threads: Threads of programs on the CPU; None takes `torch.get_num_threads()`.
        fallback: What happens to ops without a counterpart: `error`, or `eager` to run them in PyTorch.
        static_outputs: Whether results that need no gradient are in memory of the program; the next call overwrites
            them.
        memory_budget: The fraction of the activation bytes that the forward part may save, 0 to 1; the rest is
            recomputed.
        cache_dir: Folder of compiled programs, shared by processes; None for no cache.
        max_programs: Programs that a graph keeps, one for each combination of its sizes; the least recently used one is
            evicted.
        seed: 0 or more: each graph has its own random stream. None takes seeds from PyTorch's generator.

    Raises:
        PolicyError: a value is not legal.
    """

    target: str | None = None
    policy: Policy | None = None
    tuning: Tuning | None = None
    threads: int | None = None
    fallback: Literal["error", "eager"] = "error"
    static_outputs: bool = False
    memory_budget: float = 1.0
    cache_dir: str | Path | None = None
    max_programs: int = MAX_PROGRAMS
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.fallback not in ("error", "eager"):
            raise PolicyError(f"fallback is {quoted(self.fallback)}; it is 'error' or 'eager'")
        if self.threads is not None and not is_whole(self.threads, least=1):
            raise PolicyError(f"threads is {quoted(self.threads)}; give a whole number of at least 1")
        if self.seed is not None and not (is_whole(self.seed, least=0) and self.seed < 1 << 63):
            raise PolicyError(f"seed is {quoted(self.seed)}; give a whole number from 0 to 2**63 - 1")
        if not is_whole(self.max_programs, least=1):
            raise PolicyError(
                f"max_programs is {quoted(self.max_programs)}; give a whole number of at least 1"
            )
        if not isinstance(cast(object, self.memory_budget), int | float) or not 0 <= self.memory_budget <= 1:
            raise PolicyError(f"memory_budget is {quoted(self.memory_budget)}; give a number from 0 to 1")
        if not isinstance(cast(object, self.static_outputs), bool):
            raise PolicyError(f"static_outputs is {quoted(self.static_outputs)}; give True or False")
        policy_text(self.policy)

    @property
    def policy_line(self) -> str:
        """The policy as inline JSON."""
        return policy_text(self.policy)

    @property
    def own_policy_line(self) -> str:
        """The same for one program, without `saves`, which `partition` has applied to the training graph."""
        if not self.policy_line:
            return ""
        policy = resolve_policy(self.policy_line)
        return replace(policy, execution=replace(policy.execution, saves={})).to_line()

    @property
    def tuning_line(self) -> str:
        """The tuning table as inline JSON."""
        return tuning_text(self.tuning)

    @property
    def folder(self) -> Path | None:
        """Of compiled programs."""
        return None if self.cache_dir is None else path_from(self.cache_dir, ArtifactError, "cache_dir")


GRADIENTS = ("auto", "aicf", "pytorch")


@dataclass(frozen=True)
class StepOptions(TorchOptions):
    """Options of `train_step`: those of the backend, who computes the gradients, and how long they may be.

    Args:
        gradients: `aicf` differentiates the ops of the forward part; an op without a rule is an error. `pytorch` lets
            AOTAutograd trace a joint graph. `auto` uses `aicf` and falls back to `pytorch`.
        clip_norm: The gradients together are made no longer than this, as `clip_grad_norm_` does; None leaves them.

    Raises:
        PolicyError: a value is not legal.
    """

    gradients: Literal["auto", "aicf", "pytorch"] = "auto"
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gradients not in GRADIENTS:
            raise PolicyError(f"gradients is {quoted(self.gradients)}; it is 'auto', 'aicf' or 'pytorch'")
        norm = cast(object, self.clip_norm)
        if norm is not None and not (isinstance(norm, int | float) and 0 < norm < float("inf")):
            raise PolicyError(f"clip_norm is {quoted(norm)}; give a number above 0")


_IN_FORCE: ContextVar[Policy | None] = ContextVar("aicf_pytorch_policy", default=None)


@contextmanager
def policy(chosen: Policy) -> Generator[None]:
    """Applies a policy to every model first called inside the block, unless its options have one.

    Raises:
        PolicyError: it is not legal.
    """
    policy_text(chosen)
    token = _IN_FORCE.set(chosen)
    try:
        yield
    finally:
        _IN_FORCE.reset(token)


_Options = TypeVar("_Options", bound=TorchOptions)


def read_options(options: Mapping[str, Any] | None) -> TorchOptions:
    """The options of one compile.

    Raises:
        PolicyError: a name is unknown, or a value is not legal.
    """
    return in_force(_read(TorchOptions, options))


def check_mode(mode: object) -> None:
    """Raises PolicyError if `torch.compile` has no such mode."""
    if mode is not None and mode not in MODES:
        raise PolicyError(f"mode is {quoted(mode)}; it is one of {', '.join(MODES)}, or leave it out")


def read_step_options(options: Mapping[str, Any] | None) -> StepOptions:
    """The options of one step, without the policy in force when it is compiled. Raises as `read_options`."""
    return _read(StepOptions, options)


def _read(kind: type[_Options], options: Mapping[str, Any] | None) -> _Options:
    known = [field.name for field in fields(kind)]
    for name in options or {}:
        if name not in known:
            hint = " ".join(filter(None, (did_you_mean(str(name), known), f"they are {', '.join(known)}")))
            raise PolicyError(f"options: there is no option {quoted(name)}; {hint}")
    return kind(**(options or {}))


def in_force(options: _Options) -> _Options:
    """The options of a compile, with the policy in force unless they have one of their own."""
    return options if options.policy is not None else replace(options, policy=_IN_FORCE.get())
