"""What an engine cannot follow is an error before it is asked: nothing that a caller gives is ignored."""

from __future__ import annotations

import dataclasses

from aicf.engines.base import Engine
from aicf.engines.request import Request
from aicf.errors import PolicyError


def refuse_unfollowed(engine: Engine, request: Request) -> None:
    """Raises PolicyError for the first thing that is asked for and that the engine does not follow."""
    follows = engine.follows
    if follows is None:
        return
    wrong = next((name for name in request.stated() if name not in follows), None)
    if wrong is None:
        return
    section = _section_of(wrong)
    what = f"{wrong}=" if section is None else f"the {section} policy's {wrong}"
    fields = ", ".join(sorted(name for name in follows if _section_of(name) is not None)) or "none"
    raise PolicyError(
        f"engine '{engine.name}' decides for itself and cannot follow {what}; leave it out, or use engine='aicf' "
        f"(fields of policies that it follows: {fields})"
    )


def _section_of(name: str) -> str | None:
    """The section of the policy that has a field; None if none has."""
    from aicf.policies.policy import Policy  # it imports xDSL, which serving an artifact does not

    for section in Policy().sections:
        if any(entry.name == name for entry in dataclasses.fields(section)):
            return section.SECTION
    return None
