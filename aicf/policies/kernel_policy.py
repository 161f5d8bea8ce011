"""`KernelPolicy`: what a user wants of fusion, kernels, records, layouts, rounding and determinism, as plain data.

It says what runs; how that is executed is in `execution_policy`. A policy narrows or pins what passes would choose; it
holds no code and chooses nothing itself. It travels in a policy file (`policy`), and as the module attribute
`aicf.policy`. Names of kernels are checked against the target by `check_kernels`, those of libraries by
`check_libraries`, ids by `check_kernel_keys` and `check_groups`, where the program is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from aicf.dialects.kinds import FAMILIES, KINDS, family_of
from aicf.errors import PolicyError
from aicf.policies.fields import (
    AUTO,
    Reader,
    boolean,
    check_names,
    choice,
    integer,
    json_value,
    map_of,
    string,
    string_lists,
    strings,
    suggest,
    switches,
)
from aicf.policies.section import Section

EXPECTED_US = "expected_us"
BATCH_INVARIANT = "batch_invariant"
DETERMINISM = ("bitwise", BATCH_INVARIANT, "any")
ROUNDING = ("fused", "strict")
MEASUREMENTS = ("cold", "warm")
ATTENTION, MATH = "attention", "math"
"""A family, and the name in it that asks for the ops one by one, in no kernel of their own."""
ROW_MAJOR = "row_major"
CHANNELS_LAST = "channels_last"
PITCHED = "pitched"
LAYOUTS = (ROW_MAJOR, CHANNELS_LAST, PITCHED)
EVERY_VALUE = "*"
"""Key of `layouts` that speaks of all values which have no key of their own."""


@dataclass(frozen=True)
class Fusion:
    """Which fusing passes may form groups of several ops, or have groups write into what others make.

    Args:
        attention: Two products with a softmax between them.
        gated: Two products of one left operand whose results meet.
        horizontal: Products of one left operand side by side.
        prologue: A row program before a product.
        norm: A row program after a product.
        epilogue: Pointwise ops after a product.
        elementwise: Pointwise ops and row reductions.
        multi_output: Groups of those that read one value, or each other's, with several results.
        concat: Parts of a concatenation, written where they belong by what computes them.
    """

    attention: bool = True
    gated: bool = True
    horizontal: bool = True
    prologue: bool = True
    norm: bool = True
    epilogue: bool = True
    elementwise: bool = True
    multi_output: bool = True
    concat: bool = True


def is_meant(wanted: str | None, library: str) -> bool:
    """Whether a policy's name of a library means this one: `flash` means `flash_v2` and `flash_v3` too."""
    return wanted is not None and (library == wanted or library.startswith(f"{wanted}_v"))


@dataclass(frozen=True)
class KernelPolicy(Section):
    """Which kernels run; the default leaves every choice to the passes.

    Args:
        version: Of this format.
        determinism: `bitwise` admits only kernels that give the same bits always, `any` all kernels;
            `batch_invariant` asks in addition that the bits of a result element depend on nothing but the terms it is
            made of: those of a row not on other rows, nor on how many there are, whichever dimension is the batch.
        rounding: `fused` lets a fused intermediate stay in the accumulation type, `strict` rounds it to its own.
        tf32: Whether products may round f32 operands to TF32, which has 10 bits of mantissa, and add in f32, as tensor
            cores do.
        fusion: Which fusions are allowed.
        kernels: Group id, or kind for all groups of it, to kernel id; an id goes before a kind. Fusions of that id or
            kind are formed whatever they are predicted to cost.
        records: Group id to entries that the record of its kernel must have (a tile, a split), out of those that the
            kernel offers. `expected_us` among them is no entry but the time that the record was chosen for, measured or
            predicted: it stands in for the prediction.
        matmul, attention, conv: Whose kernels run the groups of a family: `auto`, or what kernels of the target call
            themselves (`Kernel.library`), such as `cublasLt`. A preference: another kernel runs what they cannot, and
            the ledger says why. A name without its version, such as `flash`, means each version. `attention: math`
            fuses none.
        forbid: Kernel ids that are never chosen.
        groups: Ids of ops that form one group each; a list of one keeps that op alone.
        layouts: Id of a group, or `*` for all that are not named, to how its results of three to five dimensions lie
            between it and its readers: `row_major`, or `channels_last` with the second dimension innermost. `*` asks
            where kernels take it. `pitched` has every row of a matrix of a product begin at a multiple of what kernels
            copy at once.
        measurements: Which times of a tuning table count: `cold`, with nothing in the device's cache, or `warm`.

    Raises:
        PolicyError: a value is not legal; the message names its path and lists what is.
    """

    READERS: ClassVar[Mapping[str, Reader]] = {
        "version": integer,
        "determinism": choice(DETERMINISM),
        "rounding": choice(ROUNDING),
        "tf32": boolean,
        "fusion": switches(Fusion),
        "kernels": map_of(string),
        "records": map_of(map_of(json_value)),
        "matmul": string,
        "attention": string,
        "conv": string,
        "forbid": strings,
        "groups": string_lists,
        "layouts": map_of(choice(LAYOUTS)),
        "measurements": choice(MEASUREMENTS),
    }
    SECTION: ClassVar[str] = "kernel"
    BOUNDS: ClassVar[tuple[str, ...]] = ("determinism", "rounding", "tf32")
    UNITED: ClassVar[tuple[str, ...]] = ("forbid", "groups")
    DISJOINT: ClassVar[tuple[str, ...]] = ("groups",)

    determinism: str = "bitwise"
    rounding: str = "fused"
    tf32: bool = False
    fusion: Fusion = Fusion()
    kernels: Mapping[str, str] = field(default_factory=dict[str, str])
    records: Mapping[str, Mapping[str, object]] = field(default_factory=dict[str, Mapping[str, object]])
    matmul: str = AUTO
    attention: str = AUTO
    conv: str = AUTO
    forbid: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    layouts: Mapping[str, str] = field(default_factory=dict[str, str])
    measurements: str = "cold"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_groups()
        self._check_forbidden()
        for id_ in self.records:
            self.expected_us(id_)

    def expected_us(self, id_: str) -> float | None:
        """The microseconds that `records` states for a group, if it does."""
        us = self.records.get(id_, {}).get(EXPECTED_US)
        if us is not None and (isinstance(us, bool) or not isinstance(us, int | float) or us < 0):
            raise PolicyError(f"records.{id_}.{EXPECTED_US}: expected microseconds, at least 0, got {us}")
        return us

    def library_for(self, kind: str) -> str | None:
        """The library that is to run a kind; None if that is left open."""
        family = family_of(kind)
        wanted = getattr(self, family) if family else AUTO
        return None if wanted == AUTO else wanted

    def forbids_fusion(self, switch: str) -> str | None:
        """The field that turns a fusion off; None if it is on."""
        if not getattr(self.fusion, switch):
            return f"fusion.{switch}"
        return f"{ATTENTION}: {MATH}" if switch == ATTENTION and self.attention == MATH else None

    def _check_groups(self) -> None:
        group_of: dict[str, int] = {}
        for index, ids in enumerate(self.groups):
            if not ids:
                raise PolicyError(f"groups[{index}]: is empty; list op ids, or drop it")
            for id_ in ids:
                if id_ in group_of:
                    raise PolicyError(
                        f"groups[{index}]: '{id_}' is in groups[{group_of[id_]}] already; name it once"
                    )
                group_of[id_] = index

    def _check_forbidden(self) -> None:
        for key, kernel in self.kernels.items():
            if kernel in self.forbid:
                index = self.forbid.index(kernel)
                raise PolicyError(
                    f"kernels.{key}: '{kernel}' is in forbid[{index}] too; drop it from one of them"
                )

    # What only the program or the target can tell

    def check_kernels(self, legal: Collection[str], backend: str) -> None:
        """Raises PolicyError, naming the path, for a kernel id that is not among `legal`, those of `backend`."""
        for path, kernel in self._kernel_paths():
            if kernel not in legal:
                hint = suggest(kernel, legal, "legal")
                raise PolicyError(f"{path}: backend '{backend}' has no kernel '{kernel}'; {hint}")

    def check_libraries(self, legal: Mapping[str, Collection[str]], backend: str) -> None:
        """Raises PolicyError for a name of a library that `backend` has not; `legal` has its names by family."""
        for family in FAMILIES:
            wanted: str = getattr(self, family)
            known = [AUTO, *legal.get(family, ()), *([MATH] if family == ATTENTION else [])]
            if not any(is_meant(wanted, name) for name in known):
                raise PolicyError(
                    f"{family}: backend '{backend}' has no library '{wanted}'; {suggest(wanted, known, 'legal')}"
                )

    def check_kernel_keys(self, groups: Collection[str]) -> None:
        """Raises PolicyError, naming the path, for a key of `kernels` that is neither a group's id nor a kind, and one
        of `records` that is no group's id."""
        for key in self.kernels:
            if key not in groups and key not in KINDS:
                hints = f"{suggest(key, groups, 'groups')}; {suggest(key, KINDS, 'kinds')}"
                raise PolicyError(f"kernels.{key}: no group or kind has that name; {hints}")
        check_names("records", self.records, groups, "group has that name")

    def check_layout_keys(self, groups: Collection[str]) -> None:
        """Raises PolicyError, naming the path, for a key of `layouts` that is no group whose results may lie in either
        layout."""
        for key in self.layouts:
            if key != EVERY_VALUE and key not in groups:
                raise PolicyError(
                    f"layouts.{key}: no group of that name has results that may lie either way; "
                    f"{suggest(key, groups, 'these have')}"
                )

    def check_pitch_keys(self, groups: Collection[str]) -> None:
        """Raises PolicyError, naming the path, for a key of `layouts` that is to be pitched and is no group whose rows
        may be apart."""
        for key, layout in self.layouts.items():
            if layout == PITCHED and key != EVERY_VALUE and key not in groups:
                raise PolicyError(
                    f"layouts.{key}: no group of that name has results whose rows may be pitched; "
                    f"{suggest(key, groups, 'these have')}"
                )

    def check_groups(self, ops: Collection[str], copies: Collection[str] = ()) -> None:
        """Raises PolicyError, naming the path, for an id in `groups` that is no op's, nor one of the `copies` of ops
        that a pass may make."""
        for index, ids in enumerate(self.groups):
            for id_ in ids:
                if id_ not in ops and id_ not in copies:
                    raise PolicyError(
                        f"groups[{index}]: no op has the id '{id_}'; {suggest(id_, ops, 'it has')}"
                    )

    def _kernel_paths(self) -> Iterable[tuple[str, str]]:
        yield from ((f"kernels.{key}", kernel) for key, kernel in self.kernels.items())
        yield from ((f"forbid[{index}]", kernel) for index, kernel in enumerate(self.forbid))
