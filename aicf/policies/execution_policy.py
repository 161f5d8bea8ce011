"""`ExecutionPolicy`: how a program is executed, as plain data: streams, memory, overwriting, prepared weights.

Nothing here changes what is computed: which kernels run, in which groups and with which rounding is in
`kernel_policy`. Like that it holds no code, chooses nothing, and travels in a policy file and as a module attribute,
`aicf.execution`. Names of programs are checked by `check_programs`, where they are known.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import DictionaryAttr

from aicf.errors import PolicyError
from aicf.policies import fields
from aicf.policies.fields import Reader, boolean, choice, integer, map_of, one_of, suggest

VERSION = 1
MEMORY = ("shared", "separate")
BINDINGS = ("direct", "staged")


@dataclass(frozen=True)
class ExecutionPolicy:
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
        prepared_weights: Whether kernels may have weights packed ahead, in `@prepare`.

    Raises:
        PolicyError: a value is not legal; the message names its path and lists what is.
    """

    version: int = VERSION
    streams: int = 0
    streams_of: Mapping[str, int] = field(default_factory=dict[str, int])
    bindings: Mapping[str, str] = field(default_factory=dict[str, str])
    inplace: bool = True
    memory: str = "shared"
    prepared_weights: bool = True

    def __post_init__(self) -> None:
        fields.check_version(self.version, VERSION)
        one_of("memory", self.memory, MEMORY)
        for name, binding in self.bindings.items():
            one_of(f"bindings.{name}", binding, BINDINGS)
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

    def bounds(self) -> dict[str, Any]:
        """The fields that differ from the default and still say something of a program in which all is decided."""
        default = ExecutionPolicy()
        kept = {name: getattr(self, name) for name in ("inplace", "memory", "prepared_weights")}
        return {name: value for name, value in kept.items() if value != getattr(default, name)}

    def to_plain(self) -> dict[str, Any]:
        """JSON values with every field, in a fixed order."""
        return {
            **{entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)},
            "streams_of": dict(sorted(self.streams_of.items())),
            "bindings": dict(sorted(self.bindings.items())),
        }

    @classmethod
    def from_plain(cls, value: object) -> ExecutionPolicy:
        """Reads plain values; missing fields have their defaults. Raises PolicyError naming the path."""
        return cls(**fields.read_fields(READERS, value))

    def to_attr(self) -> DictionaryAttr:
        """The attribute `aicf.execution`; `from_attr` gives an equal policy back."""
        attribute = fields.to_attr(self.to_plain())
        assert isinstance(attribute, DictionaryAttr)
        return attribute

    @classmethod
    def from_attr(cls, attribute: DictionaryAttr) -> ExecutionPolicy:
        """Reads the attribute. Raises PolicyError naming the path of what is not legal."""
        return cls.from_plain(fields.from_attr("policy", attribute))


READERS: Mapping[str, Reader] = {
    "version": integer,
    "streams": integer,
    "streams_of": map_of(integer),
    "bindings": map_of(choice(BINDINGS)),
    "inplace": boolean,
    "memory": choice(MEMORY),
    "prepared_weights": boolean,
}
