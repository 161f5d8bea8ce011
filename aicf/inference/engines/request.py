"""What a session was asked for, as its engines read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aicf.compiled import CompiledModel

if TYPE_CHECKING:
    from aicf.extensions import Extension
    from aicf.policies.policy import Policy
    from aicf.sources import Dims, Model, Tuning, Values
    from aicf.weight_arrays import Weights


@dataclass(frozen=True)
class Request:
    """See `InferenceSession`."""

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
