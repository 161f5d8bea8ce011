"""`KernelPolicy`: what a user wants of fusion, kernels, determinism and streams, as plain data.

A policy narrows or pins what passes would choose; it holds no code and chooses nothing itself. It travels as JSON or
YAML, and as the module attribute `aicf.policy`. Names of kernels are checked against the target by `check_kernels`,
ids by `check_kernel_keys` and `check_groups`, where the program is known.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml
from xdsl.dialects.builtin import ArrayAttr, BoolAttr, DictionaryAttr, IntegerAttr, StringAttr, i1, i64
from xdsl.ir import Attribute

from aicf.dialects.kinds import KIND_IDS
from aicf.errors import PolicyError

VERSION = 1
DETERMINISM = ("bitwise", "any")
ROUNDING = ("fused", "strict")
MEASUREMENTS = ("cold", "warm")
AUTO = "auto"
"""Spelling of the default policy where it is asked for by name."""

_MAX_LISTED = 24


@dataclass(frozen=True)
class Fusion:
    """Which fusing passes may form groups of several ops.

    Args:
        attention: Two products with a softmax between them.
        gated: Two products of one left operand whose results meet.
        horizontal: Products of one left operand side by side.
        prologue: A row program in front of a product.
        norm: A row program behind a product.
        epilogue: Pointwise ops behind a product.
        elementwise: Pointwise ops and row reductions.
    """

    attention: bool = True
    gated: bool = True
    horizontal: bool = True
    prologue: bool = True
    norm: bool = True
    epilogue: bool = True
    elementwise: bool = True


@dataclass(frozen=True)
class KernelPolicy:
    """Wishes about how a program runs; the default leaves every choice to the passes.

    Args:
        version: Of this format.
        determinism: `bitwise` admits only kernels that give the same bits always, `any` all kernels.
        rounding: `fused` lets a fused intermediate stay in the accumulation type, `strict` rounds it to its own.
        fusion: Which fusions are allowed.
        kernels: Group id, or kind for all groups of it, to kernel id; an id goes before a kind. Fusions of that id or
            kind are formed whatever they are predicted to cost.
        forbid: Kernel ids that are never chosen.
        groups: Ids of ops that form one group each; a list of one keeps that op alone.
        streams: Most streams that `schedule` may use; 0 leaves their number to the predicted times.
        measurements: Which times of a tuning table count: `cold`, with nothing in the device's cache, or `warm`.

    Raises:
        PolicyError: a value is not legal; the message names its path and lists what is.
    """

    version: int = VERSION
    determinism: str = "bitwise"
    rounding: str = "fused"
    fusion: Fusion = Fusion()
    kernels: Mapping[str, str] = field(default_factory=dict[str, str])
    forbid: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    streams: int = 0
    measurements: str = "cold"

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise PolicyError(f"version: {self.version} is not known here; this release reads {VERSION}")
        _one_of("determinism", self.determinism, DETERMINISM)
        _one_of("rounding", self.rounding, ROUNDING)
        _one_of("measurements", self.measurements, MEASUREMENTS)
        if self.streams < 0:
            raise PolicyError(f"streams: must be at least 0, got {self.streams}")
        self._check_groups()

    def _check_groups(self) -> None:
        places: dict[str, int] = {}
        for place, ids in enumerate(self.groups):
            if not ids:
                raise PolicyError(f"groups[{place}]: is empty; list op ids, or drop it")
            for id_ in ids:
                if id_ in places:
                    raise PolicyError(
                        f"groups[{place}]: '{id_}' is in groups[{places[id_]}] already; name it once"
                    )
                places[id_] = place

    # What only the program or the target can tell

    def check_kernels(self, legal: Collection[str], backend: str) -> None:
        """Raises PolicyError, naming the path, for a kernel id that is not among `legal`, those of `backend`."""
        for path, kernel in self._kernel_paths():
            if kernel not in legal:
                hint = _suggest(kernel, legal, "legal")
                raise PolicyError(f"{path}: backend '{backend}' has no kernel '{kernel}'; {hint}")
        for path, kernel in self._kernel_paths():
            if path.startswith("kernels.") and kernel in self.forbid:
                raise PolicyError(f"{path}: '{kernel}' is in forbid too; drop it from one of them")

    def check_kernel_keys(self, groups: Collection[str]) -> None:
        """Raises PolicyError, naming the path, for a key of `kernels` that is neither a group's id nor a kind."""
        known = [*groups, *KIND_IDS]
        for key in self.kernels:
            if key not in known:
                raise PolicyError(
                    f"kernels.{key}: no group or kind has that name; {_suggest(key, known, 'it has')}"
                )

    def check_groups(self, ops: Collection[str]) -> None:
        """Raises PolicyError, naming the path, for an id in `groups` that is no op's."""
        for place, ids in enumerate(self.groups):
            for id_ in ids:
                if id_ not in ops:
                    raise PolicyError(
                        f"groups[{place}]: no op has the id '{id_}'; {_suggest(id_, ops, 'it has')}"
                    )

    def _kernel_paths(self) -> Iterable[tuple[str, str]]:
        yield from ((f"kernels.{key}", kernel) for key, kernel in self.kernels.items())
        yield from ((f"forbid[{place}]", kernel) for place, kernel in enumerate(self.forbid))

    # Plain values and text

    def to_plain(self) -> dict[str, Any]:
        """JSON values with every field, in a fixed order."""
        return {
            **{entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)},
            "fusion": dataclasses.asdict(self.fusion),
            "kernels": dict(sorted(self.kernels.items())),
            "forbid": list(self.forbid),
            "groups": [list(ids) for ids in self.groups],
        }

    @classmethod
    def from_plain(cls, value: object) -> KernelPolicy:
        """Reads plain values; missing fields have their defaults. Raises PolicyError naming the path."""
        entries = _entries("policy", value, list(_READERS))
        return cls(**{name: _READERS[name](name, entry) for name, entry in entries.items()})

    def to_json(self) -> str:
        """The policy as indented JSON."""
        return json.dumps(self.to_plain(), indent=2) + "\n"

    def to_yaml(self) -> str:
        """The policy as YAML."""
        return yaml.safe_dump(self.to_plain(), sort_keys=False)

    @classmethod
    def from_text(cls, text: str, where: str = "policy") -> KernelPolicy:
        """Reads JSON or YAML.

        Raises:
            PolicyError: the text is neither, or a value is not legal; `where` is named.
        """
        try:
            value = _parse(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise PolicyError(f"{where}: neither JSON nor YAML: {error}") from error
        return cls.from_plain({} if value is None else value)

    @classmethod
    def load(cls, path: Path) -> KernelPolicy:
        """Reads a `.json`, `.yaml` or `.yml` file. Raises PolicyError if that fails."""
        _suffix_of(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyError(f"policy file '{path}' cannot be read: {error}") from error
        try:
            return cls.from_text(text)
        except PolicyError as error:
            raise PolicyError(f"{path}: {error.message}") from error

    def save(self, path: Path) -> None:
        """Writes `.json`, `.yaml` or `.yml`. Raises PolicyError if that fails."""
        text = self.to_json() if _suffix_of(path) == ".json" else self.to_yaml()
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise PolicyError(f"policy file '{path}' cannot be written: {error}") from error

    # The module attribute

    def to_attr(self) -> DictionaryAttr:
        """The attribute `aicf.policy`; `from_attr` gives an equal policy back."""
        attribute = _to_attr(self.to_plain())
        assert isinstance(attribute, DictionaryAttr)
        return attribute

    @classmethod
    def from_attr(cls, attribute: DictionaryAttr) -> KernelPolicy:
        """Reads the attribute. Raises PolicyError naming the path of what is not legal."""
        return cls.from_plain(_from_attr("policy", attribute))


def resolve_policy(text: str) -> KernelPolicy:
    """The policy a user means: `auto` (the default policy), an inline JSON object, or the path of a file.

    Raises:
        PolicyError: it is none of these, or not legal.
    """
    if text == AUTO:
        return KernelPolicy()
    if text.lstrip().startswith("{"):
        return KernelPolicy.from_text(text)
    return KernelPolicy.load(Path(text))


def _parse(text: str) -> object:
    try:
        return cast(object, json.loads(text))
    except ValueError:
        return cast(object, yaml.safe_load(text))


def _suffix_of(path: Path) -> str:
    if path.suffix not in (".json", ".yaml", ".yml"):
        raise PolicyError(f"policy '{path}': give '{AUTO}', inline JSON, or a .json, .yaml or .yml file")
    return path.suffix


# Reading plain values: one reader per field


def _suggest(name: str, legal: Collection[str], intro: str) -> str:
    close = difflib.get_close_matches(name, legal, n=3)
    hint = f"did you mean {' or '.join(repr(match) for match in close)}? " if close else ""
    if len(legal) <= _MAX_LISTED or not close:
        shown = sorted(legal)[:_MAX_LISTED]
        more = f", and {len(legal) - len(shown)} more" if len(legal) > len(shown) else ""
        hint += f"{intro}: {', '.join(shown) or 'none'}{more}"
    return hint.strip()


def _one_of(path: str, value: str, legal: Sequence[str]) -> None:
    if value not in legal:
        raise PolicyError(f"{path}: '{value}' is not legal; {_suggest(value, legal, 'legal')}")


def _expect(path: str, holds: bool, wanted: str, value: object) -> None:
    if not holds:
        raise PolicyError(f"{path}: expected {wanted}, got {json.dumps(value, default=str)}")


def _entries(path: str, value: object, legal: Sequence[str]) -> dict[str, object]:
    _expect(path, isinstance(value, dict), "an object", value)
    entries = cast(dict[object, object], value)
    for name in entries:
        if name not in legal:
            where = f"{name}" if path == "policy" else f"{path}.{name}"
            raise PolicyError(f"{where}: unknown field; {_suggest(str(name), legal, 'legal')}")
    return cast(dict[str, object], entries)


def _integer(path: str, value: object) -> int:
    _expect(path, isinstance(value, int) and not isinstance(value, bool), "an integer", value)
    return cast(int, value)


def _boolean(path: str, value: object) -> bool:
    _expect(path, isinstance(value, bool), "true or false", value)
    return cast(bool, value)


def _string(path: str, value: object) -> str:
    _expect(path, isinstance(value, str), "a string", value)
    return cast(str, value)


def _list(path: str, value: object) -> list[object]:
    _expect(path, isinstance(value, list), "a list", value)
    return cast(list[object], value)


def _strings(path: str, value: object) -> tuple[str, ...]:
    return tuple(_string(f"{path}[{place}]", item) for place, item in enumerate(_list(path, value)))


def _string_map(path: str, value: object) -> dict[str, str]:
    _expect(path, isinstance(value, dict), "an object", value)
    entries = cast(dict[object, object], value)
    return {_string(path, key): _string(f"{path}.{key}", item) for key, item in entries.items()}


def _groups(path: str, value: object) -> tuple[tuple[str, ...], ...]:
    return tuple(_strings(f"{path}[{place}]", ids) for place, ids in enumerate(_list(path, value)))


def _fusion(path: str, value: object) -> Fusion:
    entries = _entries(path, value, [entry.name for entry in dataclasses.fields(Fusion)])
    return Fusion(**{name: _boolean(f"{path}.{name}", entry) for name, entry in entries.items()})


_READERS: Mapping[str, Callable[[str, object], Any]] = {
    "version": _integer,
    "determinism": _string,
    "rounding": _string,
    "fusion": _fusion,
    "kernels": _string_map,
    "forbid": _strings,
    "groups": _groups,
    "streams": _integer,
    "measurements": _string,
}


# Plain values as attributes


def _to_attr(value: object) -> Attribute:
    match value:
        case bool():
            return BoolAttr.from_bool(value)
        case int():
            return IntegerAttr(value, i64)
        case str():
            return StringAttr(value)
        case list():
            return ArrayAttr([_to_attr(item) for item in cast(list[object], value)])
        case _:
            assert isinstance(value, dict)
            return DictionaryAttr(
                {key: _to_attr(item) for key, item in cast(dict[str, object], value).items()}
            )


def _from_attr(path: str, attribute: Attribute) -> object:
    match attribute:
        case IntegerAttr() if attribute.type in (i1, i64):
            return bool(attribute.value.data) if attribute.type == i1 else attribute.value.data
        case StringAttr():
            return attribute.data
        case ArrayAttr():
            return [_from_attr(f"{path}[{place}]", item) for place, item in enumerate(attribute.data)]
        case DictionaryAttr():
            return {key: _from_attr(f"{path}.{key}", item) for key, item in attribute.data.items()}
        case _:
            raise PolicyError(
                f"{path}: {attribute} is no policy value; use strings, bools, i64, lists, objects"
            )
