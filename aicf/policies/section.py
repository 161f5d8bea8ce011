"""What the sections of a policy share: plain values, the module attribute, and what is left when all is decided."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from xdsl.dialects.builtin import DictionaryAttr

from aicf.dialects.json_values import attribute_of
from aicf.errors import PolicyError, quoted
from aicf.policies import fields
from aicf.policies.fields import Reader
from aicf.policies.merging import Names, check_disjoint, merged, patched, united
from aicf.policies.policy_file import read_text, write_value
from aicf.policies.policy_text import parse
from aicf.policies.validation import Dims, validator

VERSION = 1
"""Of the format of policies."""


@dataclasses.dataclass(frozen=True)
class Section:
    """A data class whose fields all have defaults.

    Attributes:
        SECTION: Its name in a policy file.
        READERS: Of every field, what checks and reads its plain value.
        BOUNDS: The fields that still say something of a program in which all is decided: what its results may be and
            where they may lie. The others are spent by then.
        UNITED: The lists that `merge` puts together item by item.
        DISJOINT: Those of them whose items are lists that have no name in common.
    """

    SECTION: ClassVar[str]
    READERS: ClassVar[Mapping[str, Reader]]
    BOUNDS: ClassVar[tuple[str, ...]]
    UNITED: ClassVar[tuple[str, ...]] = ()
    DISJOINT: ClassVar[tuple[str, ...]] = ()

    version: int = VERSION

    def __post_init__(self) -> None:
        for name in self.READERS:
            fields.read_field(self.READERS, name, _json_value(getattr(self, name)))
        fields.check_version(self.version, VERSION)

    @classmethod
    def auto(cls) -> Self:
        """The default policy, which leaves every choice to the passes."""
        return cls()

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a `.json`, `.yaml` or `.yml` file with this section, or with its fields.

        Raises PolicyError if that fails, or the file has another section.
        """
        value = parse(read_text(path), str(path))
        try:
            return cls.from_json_value(cls._own_value(value))
        except PolicyError as error:
            raise PolicyError(f"{path}: {error.message}") from error

    @classmethod
    def _own_value(cls, value: object) -> object:
        """The section in the plain value of a file; the value itself if it has no sections."""
        value = fields.without_schema(value)
        if not isinstance(value, dict) or cls.SECTION not in value:
            return {} if value is None else cast("object", value)
        sections = cast("dict[str, object]", value)
        if others := [name for name, entry in sections.items() if entry and name != cls.SECTION]:
            raise PolicyError(f"it also has '{others[0]}'; read all of it with aicf.Policy.load")
        own = sections[cls.SECTION]
        return {} if own is None else own

    def save(self, path: str | Path, comment: str = "") -> None:
        """Writes a policy file with this section alone, as `Policy.save` does. Raises PolicyError if that fails."""
        write_value(path, {self.SECTION: self.to_json_value()}, comment)

    def with_(self, **changes: object) -> Self:
        """A copy with some fields changed, each as it may stand in a file or as the class has it.

        Of a field with entries (`kernels`, `fusion`) only the entries given change. None takes a field or an entry back
        to its default: `policy.with_(tf32=True, kernels={"fc1": "cpu.gemm_avx2", "fc2": None})`.

        Raises:
            PolicyError: a field is unknown, or a value not legal.
        """
        fields.entries("policy", dict(changes), list(self.READERS))
        given = {name: _json_value(value) for name, value in changes.items()}
        return self.from_json_value(patched(self.to_json_value(), given))

    def merge(self, other: Self, names: Names = ("the first policy", "the second policy")) -> Self:
        """All that either policy says. A field at its default says nothing; lists such as `groups` are put together.

        Args:
            names: What errors call this policy and the other one, such as the names of their files.

        Raises:
            PolicyError: the two contradict each other; the message names the field and both policies.
        """
        if not isinstance(cast("object", other), type(self)):
            raise PolicyError(f"{self.SECTION}: expected a {type(self).__name__}, got {quoted(other)}")
        a, b, default = (each.to_json_value() for each in (self, other, type(self)()))
        for name in self.DISJOINT:
            check_disjoint(name, a[name], b[name], names)
        for name in self.UNITED:
            a[name] = b[name] = united(a[name], b[name])
        value = merged(a, b, default, names)
        try:
            return self.from_json_value(value)
        except PolicyError as error:
            raise PolicyError(f"{names[0]} and {names[1]} together: {error.message}") from error

    def validate(
        self,
        model: object,
        target: str | None = None,
        *,
        dims: Dims | None = None,
        threads: int = 1,
        training: bool = False,
    ) -> None:
        """Checks the policy against a model and a target, see `Policy.validate`."""
        validator()(self, model, target, dims=dims, threads=threads, training=training)

    def to_json_value(self) -> dict[str, Any]:
        """JSON values with every field, in a fixed order."""
        return {entry.name: _json_value(getattr(self, entry.name)) for entry in dataclasses.fields(self)}

    @classmethod
    def from_json_value(cls, value: object) -> Self:
        """Reads plain values; missing fields have their defaults. Raises PolicyError naming the path."""
        return cls(**fields.read_fields(cls.READERS, value))

    def to_attr(self) -> DictionaryAttr:
        """The module attribute; `from_attr` gives an equal policy back."""
        attribute = attribute_of(self.to_json_value())
        assert isinstance(attribute, DictionaryAttr)
        return attribute

    @classmethod
    def from_attr(cls, attribute: DictionaryAttr) -> Self:
        """Reads the attribute. Raises PolicyError naming the path of what is not legal."""
        return cls.from_json_value(fields.from_attr("policy", attribute))

    def bounds(self) -> dict[str, Any]:
        """The fields among `BOUNDS` that differ from the default."""
        default = type(self)()
        kept = {name: getattr(self, name) for name in self.BOUNDS}
        return {name: value for name, value in kept.items() if value != getattr(default, name)}


def _json_value(value: object) -> object:
    """A field as JSON values, the entries of an object by name."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value)
        return {
            name: _item(entry) for name, entry in sorted(entries.items(), key=lambda entry: str(entry[0]))
        }
    return _item(value)


def _item(value: object) -> object:
    """The same for what a field holds, in the order it has."""
    match value:
        case tuple():
            return [_item(item) for item in cast("tuple[object, ...]", value)]
        case Mapping():
            return dict(cast("Mapping[str, object]", value))
        case _:
            return value
