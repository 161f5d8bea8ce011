"""The tuning table: how long each kernel took for each piece of work, measured on one device, as plain data.

`aicf tune` writes it and `select-kernels` reads it, at compile time only. It holds no code and chooses nothing. A row
says what was measured (the work and the kernel with the entries of its record that vary), how long it took, and what
only the device could tell, such as the bytes of a library's algorithm. Nothing here knows passes or backends.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from aicf.errors import ArtifactError, PolicyError
from aicf.support.arguments import path_from, text_from
from aicf.support.dataclass_json import from_json_value, parse_json, to_json_value
from aicf.support.files import reason_of, write_whole

FORMAT = "aicf.tuning"
VERSION = 1
ALIGNMENT = 256
"""Bytes; larger alignments of an operand make no difference to any kernel."""


@dataclass(frozen=True)
class Header:
    """Where the measurements hold.

    Args:
        backend, arch: Of the target.
        threads: Of the target.
        device: What the device is called.
        driver: Version of its driver, empty if it has none.
        libraries: Versions of the libraries whose kernels were measured.
        toolchain: Versions of the packages that made the code; for the record, no pass compares them.
    """

    backend: str
    arch: str
    threads: int
    device: str
    driver: str
    libraries: dict[str, object]
    toolchain: dict[str, object]


@dataclass(frozen=True)
class OperandKey:
    """What of an operand or result decides how long a kernel takes.

    Args:
        role: `param` (never written, so it may be prepared or read early), `const` (likewise, known when compiled) or
            `data`.
        dtype: Element type name.
        shape: Logical sizes.
        strides: Elements between neighbours.
        align: Bytes its first element is known to be aligned to, at most `ALIGNMENT`.
    """

    role: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    align: int


@dataclass(frozen=True)
class WorkloadKey:
    """A piece of work without its name: two groups with equal keys take equally long.

    Args:
        kind: Opcode name.
        attrs: Attributes of the kind.
        body: Digest of the meaning.
        operands, results: As a kernel sees them.
    """

    kind: str
    attrs: dict[str, object]
    body: str
    operands: tuple[OperandKey, ...]
    results: tuple[OperandKey, ...]

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits that stand for the key, in the ledger and in the table."""
        return text_digest(json.dumps(to_json_value(self), sort_keys=True, separators=(",", ":")))


@dataclass(frozen=True)
class Timing:
    """Microseconds of one run: the median, and the distance between the quartiles."""

    median_us: float
    spread_us: float


@dataclass(frozen=True)
class Row:
    """One kernel, in one variant, on one piece of work.

    Args:
        kernel, version: Which kernel.
        spec: The entries of its record that tell this variant from the others it offers.
        record: Entries of its record that only the device can give.
        cold: With nothing of its operands in the device's cache.
        warm: Repeated on the same operands.
    """

    kernel: str
    version: int
    spec: dict[str, object]
    record: dict[str, object]
    cold: Timing
    warm: Timing

    @property
    def variant(self) -> str:
        """The variant in words, empty if the kernel has only one."""
        return _words(self.spec)

    @property
    def label(self) -> str:
        """Kernel and variant."""
        return f"{self.kernel} {self.variant}".strip()

    def timing(self, measurements: str) -> Timing:
        """The `cold` or the `warm` one."""
        return self.warm if measurements == "warm" else self.cold


@dataclass(frozen=True)
class Failure:
    """One kernel, in one variant, that could not be measured on a piece of work, and the reason."""

    kernel: str
    version: int
    spec: dict[str, object]
    reason: str

    @property
    def label(self) -> str:
        """Kernel and variant."""
        return f"{self.kernel} {_words(self.spec)}".strip()


def _words(spec: Mapping[str, object]) -> str:
    return " ".join(f"{key}={str(value).replace(' ', '')}" for key, value in spec.items())


@dataclass(frozen=True)
class MeasuredWorkload:
    """What was found of one piece of work, variant by variant; `key` is the digest of `work`."""

    key: str
    work: WorkloadKey
    rows: tuple[Row, ...]
    failed: tuple[Failure, ...] = ()

    def merged(self, newer: MeasuredWorkload) -> MeasuredWorkload:
        """With what `newer` found: of a variant that both have, and of all variants of a kernel that has changed, only
        the newer result stays."""
        results = {_identity(result): result for result in (*newer.rows, *newer.failed)}
        versions = {result.kernel: result.version for result in results.values()}
        for result in (*self.rows, *self.failed):
            if versions.get(result.kernel, result.version) == result.version:
                results.setdefault(_identity(result), result)
        rows = tuple(result for result in results.values() if isinstance(result, Row))
        failed = tuple(result for result in results.values() if isinstance(result, Failure))
        return MeasuredWorkload(self.key, self.work, rows, failed)


def _identity(result: Row | Failure) -> tuple[str, str]:
    return result.kernel, _json(result.spec)


@dataclass(frozen=True)
class TuningTable:
    """Measurements of one device.

    Raises:
        PolicyError: the format or version is another, or a key is not that of its work.
    """

    header: Header
    works: tuple[MeasuredWorkload, ...] = ()
    format: str = FORMAT
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise PolicyError(f"format: '{self.format}' is no tuning table; it has '{FORMAT}'")
        if self.version != VERSION:
            raise PolicyError(
                f"version: {self.version} is not known here, this release reads {VERSION}; {remeasure(self.header)}"
            )
        for measured in self.works:
            if measured.key != measured.work.digest:
                raise PolicyError(
                    f"works: the key '{measured.key}' is not that of its work, which is '{measured.work.digest}'; "
                    f"{remeasure(self.header)}"
                )

    @cached_property
    def _by_key(self) -> dict[str, MeasuredWorkload]:
        return {measured.key: measured for measured in self.works}

    def find(self, work: WorkloadKey) -> MeasuredWorkload | None:
        """What was measured of a piece of work, None if nothing was."""
        return self._by_key.get(work.digest)

    def only(self, keys: Collection[str]) -> TuningTable:
        """The table without the works that are not named."""
        return TuningTable(self.header, tuple(entry for entry in self.works if entry.key in keys))

    def with_works(self, works: Sequence[MeasuredWorkload]) -> TuningTable:
        """The table with what `works` found added, see `MeasuredWorkload.merged`; sorted."""
        merged = dict(self._by_key)
        for entry in works:
            older = merged.get(entry.key)
            merged[entry.key] = entry if older is None else older.merged(entry)
        return TuningTable(self.header, tuple(sorted((_sorted(e) for e in merged.values()), key=_order)))

    # Text

    def to_json(self) -> str:
        """JSON that diffs well: a line for the description of each work, and one for each row."""
        blocks = [_work_text(entry) for entry in self.works]
        works = "[\n" + ",\n".join(blocks) + "\n ]" if blocks else "[]"
        lines = [
            f' "format": {_json(self.format)}',
            f' "version": {self.version}',
            f' "header": {_json(to_json_value(self.header))}',
            f' "works": {works}',
        ]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    def to_line(self) -> str:
        """JSON on one line."""
        fields = ("format", "version", "header", "works")
        values = {name: to_json_value(getattr(self, name)) for name in fields}
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str, where: str = "tuning table") -> TuningTable:
        """Reads JSON.

        Raises:
            PolicyError: it is no table; `where` and the path inside are named.
        """
        try:
            value = parse_json(text_from(text, PolicyError, where))
        except ValueError as error:
            raise PolicyError(f"{where}: no JSON: {error}") from None
        try:
            return from_json_value(cls, value, "tuning table")
        except (ArtifactError, PolicyError) as error:
            raise PolicyError(f"{where}: {error.message}") from None

    @classmethod
    def load(cls, path: Path) -> TuningTable:
        """Reads a file. Raises PolicyError if that fails."""
        path = path_from(path, PolicyError, "the tuning table's path")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PolicyError(
                f"the tuning table cannot be read: {reason_of(error)}; `aicf tune MODEL -o {path}` writes one",
                location=str(path),
            ) from None
        return cls.from_text(text, str(path))

    def save(self, path: Path) -> None:
        """Writes a file, whole or not at all. Raises PolicyError if that fails."""
        try:
            write_whole(path, lambda stream: stream.write(self.to_json().encode()))
        except OSError as error:
            raise PolicyError(
                f"cannot write the tuning table: {reason_of(error)}; choose a path that can be written",
                location=str(path),
            ) from None


def text_digest(text: str) -> str:
    """16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def resolve_tuning(text: str) -> TuningTable:
    """The table a user means: inline JSON, or the path of a file. Raises PolicyError if it is neither."""
    return TuningTable.from_text(text) if text.lstrip().startswith("{") else TuningTable.load(Path(text))


def remeasure(header: Header) -> str:
    """How to get a table that fits."""
    threads = f" --threads {header.threads}" if header.threads > 1 else ""
    target = f"{header.backend}:{header.arch}"
    return f"measure again on the device: aicf tune MODEL --target {target}{threads} -o tuning.json"


def check_header(header: Header, backend: str, arch: str, threads: int, libraries: Mapping[str, str]) -> None:
    """Raises PolicyError, which says how to measure again, if measurements do not hold for a target.

    Args:
        backend, arch, threads: Of the target.
        libraries: Versions that the target lists; what it does not list may be as measured.
    """
    wanted = dataclasses.replace(header, backend=backend, arch=arch, threads=threads)
    facts = [("target", f"{header.backend}:{header.arch}", f"{backend}:{arch}")]
    facts += [("threads", str(header.threads), str(threads))]
    facts += [
        (f"library {name}", str(header.libraries[name]), version)
        for name, version in libraries.items()
        if name in header.libraries
    ]
    for what, measured, expected in facts:
        if measured != expected:
            raise PolicyError(
                f"tuning: the table was measured on {header.device} with {what} {measured}, this program is for "
                f"{what} {expected}; {remeasure(wanted)}"
            )


def _order(entry: MeasuredWorkload) -> tuple[str, str]:
    return entry.work.kind, entry.key


def _sorted(entry: MeasuredWorkload) -> MeasuredWorkload:
    rows = sorted(entry.rows, key=lambda row: (row.cold.median_us, row.kernel, _json(row.spec)))
    return MeasuredWorkload(entry.key, entry.work, tuple(rows), tuple(sorted(entry.failed, key=_identity)))


def _work_text(entry: MeasuredWorkload) -> str:
    head = f'"key": {_json(entry.key)}, "work": {_json(to_json_value(entry.work))}'
    return f'  {{{head}, "rows": {_lines(entry.rows)}, "failed": {_lines(entry.failed)}}}'


def _lines(results: Sequence[Row | Failure]) -> str:
    lines = ",\n".join(f"   {_json(to_json_value(result))}" for result in results)
    return f"[\n{lines}]" if lines else "[]"


def _json(value: object) -> str:
    return json.dumps(value)
