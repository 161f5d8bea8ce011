"""What a session was asked for, as engines read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from aicf.engines.limits import Limits

if TYPE_CHECKING:
    from aicf.compilation.compiled import CompiledModel
    from aicf.compilation.extensions import Extension
    from aicf.compilation.sources import Dims, Model, Tuning, Values
    from aicf.compilation.weight_arrays import Weights
    from aicf.policies.policy import Policy


@dataclass(frozen=True)
class Request:
    """See `InferenceSession`; `limits` are what the policy says of sessions."""

    model: Model | CompiledModel
    weights: Weights | None = None
    device: str | None = None
    target: str | None = None
    policy: Policy | None = None
    cache_dir: Path | None = None
    dims: Dims | None = None
    values: Values | None = None
    threads: int | None = None
    tuning: Tuning | None = None
    strict: bool = False
    passes: Sequence[Extension] = ()
    training: bool = False
    limits: Limits = field(default_factory=Limits)

    def stated(self) -> Iterator[str]:
        """Names of the arguments that say something, and of fields of the policy that do; model and device apart."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            is_stated = (
                value is not None and value is not False and (entry.name != "passes" or len(value) > 0)
            )
            if is_stated and entry.name not in _NOT_OPTIONS:
                yield entry.name
        if self.policy is not None:
            yield from self.policy.stated()


_NOT_OPTIONS = ("model", "device", "policy", "limits")
OPTIONS = frozenset(entry.name for entry in fields(Request)) - {*_NOT_OPTIONS}
"""The arguments that an engine may follow, fields of policies apart."""
