"""A program on memory that others own: every argument, result and weight is an address that comes with each run.

This is how a framework that allocates its own tensors runs a program: nothing is copied, checked or kept alive here.
Who calls it answers for the addresses: of the shape, element type and order that the program has at its boundary, alive
until the run is over, and no result on the memory of anything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Addressed(Protocol):
    """One program, for one run at a time."""

    @property
    def names(self) -> Sequence[str]:
        """What `run` takes addresses of, in order: inputs, outputs, parameters and states of the program."""
        ...

    @property
    def packs(self) -> Sequence[str]:
        """The parameters that `prepare` reads: where one of them changes, its packed copies are no longer true."""
        ...

    def prepare(self, addresses: Mapping[str, int], stream: int = 0) -> None:
        """Packs parameters again, given by name: where one has changed since, or lies elsewhere."""
        ...

    def run(self, addresses: Sequence[int], stream: int = 0) -> None:
        """Runs the program on the tensors at these addresses, in the order of `names`.

        On a device the run is queued on `stream`, a handle of its driver; on the host it is over on return.
        """
        ...

    def queue(self, addresses: Sequence[int], stream: int) -> None:
        """As `run`, instruction by instruction: on a stream that is being captured they become part of its graph.

        What they use beside the memory of others stays as long as this object.
        """
        ...

    def release(self) -> None:
        """Gives back memory and code; the next run takes them again, and packs what `prepare` was given last."""
        ...
