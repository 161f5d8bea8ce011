"""`ExecutionPolicy`: how a program is executed, as plain data: streams, order, memory, overwriting, prepared weights.

Nothing here changes what is computed: which kernels run, in which groups and with which rounding is in
`kernel_policy`. Like that it holds no code, chooses nothing, and travels in a policy file and as a module attribute,
`aicf.execution`. Names of programs are checked by `check_programs`, where they are known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from xdsl.dialects.builtin import DictionaryAttr

from aicf.errors import PolicyError
from aicf.policies.fields import Reader, boolean, check_names, choice, count, integer, map_of
from aicf.policies.section import Section

MEMORY = ("shared", "separate")
ORDERS = ("reuse", "text")
BINDINGS = ("direct", "staged")
KEEP, RECOMPUTE = "keep", "recompute"
SAVES = (KEEP, RECOMPUTE)
COMPILE, REFUSE = "compile", "refuse"
NEW_SHAPES = (COMPILE, REFUSE)


@dataclass(frozen=True)
class ExecutionPolicy(Section):
    """How a program is executed; the default leaves every choice to the passes.

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
        new_shapes: What an inference session does for sizes that it has no program for: `compile` one, or `refuse` the
            call. This and what follows are a session's own, and no compile takes them.
        max_programs: Most programs made on first use that a session keeps; the least recently used goes first. 0 sets
            no bound.
        max_bytes: Most bytes that the programs of a session may hold while they are idle: arenas, prepared weights and
            state, on a device also weights. 0 sets no bound.

    Raises:
        PolicyError: a value is not legal; the message names its path and lists what is.
    """

    READERS: ClassVar[Mapping[str, Reader]] = {
        "version": integer,
        "streams": count,
        "streams_of": map_of(count),
        "bindings": map_of(choice(BINDINGS)),
        "inplace": boolean,
        "memory": choice(MEMORY),
        "order": choice(ORDERS),
        "prepared_weights": boolean,
        "saves": map_of(choice(SAVES)),
        "new_shapes": choice(NEW_SHAPES),
        "max_programs": count,
        "max_bytes": count,
    }
    SECTION: ClassVar[str] = "execution"
    OF_SESSIONS: ClassVar[tuple[str, ...]] = ("new_shapes", "max_programs", "max_bytes")
    BOUNDS: ClassVar[tuple[str, ...]] = ("inplace", "memory", "order", "prepared_weights", "saves")

    streams: int = 0
    streams_of: Mapping[str, int] = field(default_factory=dict[str, int])
    bindings: Mapping[str, str] = field(default_factory=dict[str, str])
    inplace: bool = True
    memory: str = "shared"
    order: str = "reuse"
    prepared_weights: bool = True
    saves: Mapping[str, str] = field(default_factory=dict[str, str])
    new_shapes: str = COMPILE
    max_programs: int = 0
    max_bytes: int = 0

    def to_attr(self) -> DictionaryAttr:
        """The module attribute, without what only a session follows; `from_attr` gives the rest back."""
        stated = super().to_attr().data
        return DictionaryAttr({name: value for name, value in stated.items() if name not in self.OF_SESSIONS})

    def for_compile(self) -> ExecutionPolicy:
        """The policy without what only a session follows."""
        default = ExecutionPolicy()
        return replace(self, **{name: getattr(default, name) for name in self.OF_SESSIONS})

    def check_compile(self) -> None:
        """Raises PolicyError, naming the field, for what only a session follows."""
        default = ExecutionPolicy()
        for name in self.OF_SESSIONS:
            if getattr(self, name) != getattr(default, name):
                raise PolicyError(
                    f"{name}: a compile makes what it is asked for; give this to an InferenceSession"
                )

    def streams_for(self, program: str) -> int:
        """Most streams of a program; 0 if that is left open."""
        return self.streams_of.get(program, self.streams)

    def check_programs(self, programs: Collection[str]) -> None:
        """Raises PolicyError, naming the path, for a key of `streams_of` that is no program."""
        check_names("streams_of", self.streams_of, programs, "program has that name")

    def check_bindings(self, names: Collection[str]) -> None:
        """Raises PolicyError, naming the path, for a key of `bindings` that is no input or output."""
        check_names("bindings", self.bindings, names, "input or output has that name")

    def check_saves(self, names: Collection[str]) -> None:
        """Raises PolicyError, naming the path, for a key of `saves` that is no save."""
        check_names("saves", self.saves, names, "save has that id")
