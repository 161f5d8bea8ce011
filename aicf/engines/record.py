"""What identifies what an engine runs: which engine, which version, what it was asked for, and hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

_SHOWN = 16
"""Characters of a hash in text; JSON has all of them."""


@dataclass(frozen=True)
class Fingerprint:
    """All that determines a plan. Two runs with equal fingerprints are meant to get the same plan.

    Args:
        engine, version: Of the engine; a plan of another version is never loaded.
        target: What runs it, in the engine's words: a level, a provider, a device with its driver.
        options: What the engine was asked for, in its own words, by name.
        model: SHA-256 of the model, with the files of its weights.
        sizes: Of the symbolic dimensions, for a plan that is for these alone.
    """

    engine: str
    version: str
    target: str
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    model: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def key(self) -> str:
        """SHA-256 of all of it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class EngineRecord:
    """What a session runs on, and how much of that can be known.

    Args:
        fingerprint: Of what runs, sizes apart.
        plans: By label of the sizes, SHA-256 of each plan that the engine made; empty if it gives none out.
        is_opaque: Whether the engine decides inside, without a record. Those of AICF are in the placement, in
            `explain` and in the artifact.
        is_verified: Whether the adapter was tested where such an engine runs.
        notes: What the engine does that the caller did not ask for.
        because: Why this engine, if it was left open.
    """

    fingerprint: Fingerprint
    plans: Mapping[str, str] = field(default_factory=dict[str, str])
    is_opaque: bool = True
    is_verified: bool = True
    notes: tuple[str, ...] = ()
    because: str = ""

    def __str__(self) -> str:
        own = self.fingerprint
        asked = ", ".join(f"{name}={value}" for name, value in own.options.items()) or "nothing more"
        lines = [
            f"engine {own.engine} {own.version} on {own.target}{'' if self.is_verified else ' (unverified)'}; "
            f"asked for: {asked}"
        ]
        lines += [f"chosen because {self.because}"] if self.because else []
        lines += [f"model sha256 {own.model[:_SHOWN]}"] if own.model else []
        lines += [f"plan for {label} sha256 {plan[:_SHOWN]}" for label, plan in self.plans.items()]
        lines += self.notes
        lines += ["what it decides inside is not known (opaque)"] if self.is_opaque else []
        return "\n  ".join(lines)
