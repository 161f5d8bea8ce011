"""The call of a library as a record states it: plain values, which the runtime captures and heuristics are asked about.

No code generator is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALGORITHM, LIBRARY, WORKSPACE = "algorithm", "library", "workspace_bytes"
"""Entries of a record that only a device gives: the algorithm, the version of the library, and the workspace."""


@dataclass(frozen=True)
class LibraryFunction:
    """A function of a library.

    Args:
        name: As in `LibraryNode.function`.
        entries: Those of a record that are its call, beside the algorithm and its workspace.
    """

    name: str
    entries: tuple[str, ...]

    def call(self, record: Mapping[str, object], operands: Sequence[str]) -> dict[str, object]:
        """The call of a record, whose addresses are those of `operands`."""
        copied = (*self.entries, ALGORITHM, WORKSPACE)
        return {**{name: record[name] for name in copied}, "operands": list(operands)}
