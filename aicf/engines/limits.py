"""What bounds the programs of a session. Policies, where it is written down, need xDSL, which serving does not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """See the fields of the same names of `ExecutionPolicy`; `makes` is whether programs are made for new shapes."""

    makes: bool = True
    max_programs: int = 0
    max_bytes: int = 0
