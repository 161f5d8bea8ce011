"""`ExecutionPolicy`: how a program is executed, as plain data: streams, order, memory, overwriting, prepared weights.

Nothing here changes what is computed: which kernels run, in which groups and with which rounding is in
`kernel_policy`. Like that it holds no code, chooses nothing, and travels in a policy file and as a module attribute,
`aicf.execution`. Names of programs are checked by `check_programs`, where they are known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from aicf.errors import PolicyError
from aicf.policies.fields import Reader, boolean, choice, integer, map_of, one_of, suggest
from aicf.policies.section import Section

MEMORY = ("shared", "separate")
ORDERS = ("reuse", "text")
BINDINGS = ("direct", "staged")
KEEP, RECOMPUTE = "keep", "recompute"
SAVES = (KEEP, RECOMPUTE)


@dataclass(frozen=True)
class ExecutionPolicy(Section):
    """Wishes about how a program is executed; the default leaves every choice to the passes.

    Args:
        version: Of this format.
        streams: Most streams that `schedule` may use; 0 leaves their number to the predicted times.
        streams_of: The same for single programs, by symbol.
        bindings: Input or output to `direct` (its kernels use the caller's memory) or `staged` (it is copied from or to
            memory of the program); one that is not named is staged only where a kernel embeds its address.
        inplace: Whether a result may overwrite an operand, or the state it updates, where that is proved safe.
        memory: `shared` lets slots that are never alive together share bytes; `separate` gives each its own, so that
            every intermediate can still be looked at after a run.
        order: Whether instructions may be moved for `reuse` of what is still in a cache, or stay in `text` order.
        prepared_weights: Whether kernels may have weights packed ahead, in `@prepare`.
        saves: By the id of a `logical.save` of a training step, whether its value is to `keep` its memory until the
            backward part reads it, or to `recompute` there.

    Raises:
        PolicyError: a value is not legal; the message names its path and lists what is.
    """

    READERS: ClassVar[Mapping[str, Reader]] = {
        "version": integer,
        "streams": integer,
        "streams_of": map_of(integer),
        "bindings": map_of(choice(BINDINGS)),
        "inplace": boolean,
        "memory": choice(MEMORY),
        "order": choice(ORDERS),
        "prepared_weights": boolean,
        "saves": map_of(choice(SAVES)),
    }
    BOUNDS: ClassVar[tuple[str, ...]] = ("inplace", "memory", "order", "prepared_weights", "saves")

    streams: int = 0
    streams_of: Mapping[str, int] = field(default_factory=dict[str, int])
    bindings: Mapping[str, str] = field(default_factory=dict[str, str])
    inplace: bool = True
    memory: str = "shared"
    order: str = "reuse"
    prepared_weights: bool = True
    saves: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("memory", self.memory, MEMORY)
        one_of("order", self.order, ORDERS)
        for name, binding in self.bindings.items():
            one_of(f"bindings.{name}", binding, BINDINGS)
        for name, way in self.saves.items():
            one_of(f"saves.{name}", way, SAVES)
        counts = {
            "streams": self.streams,
            **{f"streams_of.{k}": count for k, count in self.streams_of.items()},
        }
        for path, count in counts.items():
            if count < 0:
                raise PolicyError(f"{path}: must be at least 0, got {count}")

    def streams_for(self, program: str) -> int:
        """Most streams of a program; 0 if that is left open."""
        return self.streams_of.get(program, self.streams)

    def check_programs(self, programs: Collection[str]) -> None:
        """Raises PolicyError, naming the path, for a key of `streams_of` that is no program."""
        for name in self.streams_of:
            if name not in programs:
                raise PolicyError(
                    f"streams_of.{name}: no program has that name; {suggest(name, programs, 'it has')}"
                )

    def check_bindings(self, names: Collection[str]) -> None:
        """Raises PolicyError, naming the path, for a key of `bindings` that is no input or output."""
        for name in self.bindings:
            if name not in names:
                hint = suggest(name, names, "it has")
                raise PolicyError(f"bindings.{name}: no input or output has that name; {hint}")

    def check_saves(self, names: Collection[str]) -> None:
        """Raises PolicyError, naming the path, for a key of `saves` that is no save."""
        for name in self.saves:
            if name not in names:
                raise PolicyError(f"saves.{name}: no save has that id; {suggest(name, names, 'it has')}")
