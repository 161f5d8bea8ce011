"""Programs of `torch.export`: told by the name of their type, so that nobody has to import PyTorch who has none."""

from __future__ import annotations

from typing import Any, Protocol


class ExportedProgram(Protocol):
    """What is read of a `torch.export.ExportedProgram`."""

    @property
    def graph_signature(self) -> Any:
        """What its arguments and results are."""
        ...

    def run_decompositions(self, decomp_table: Any = None) -> Any:
        """The program without mutations, and without the ops of a table."""
        ...


def is_exported(model: object) -> bool:
    """Whether it is an `ExportedProgram`."""
    return type(model).__name__ == "ExportedProgram"
