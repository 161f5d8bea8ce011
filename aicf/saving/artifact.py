"""The container of a compiled model: named entries and a manifest in one file, checked as a whole before use.

``model.aicf`` is a zip archive that any zip tool can list: entries stored uncompressed, sorted, with one fixed time
stamp, so that equal contents give equal bytes. Each begins at a multiple of 64 bytes: large ones are not read but used
where they lie in the file, which is mapped into memory. ``manifest.json`` comes first, in this and every later version,
and holds the size and SHA-256 of every other entry; the archive comment holds the SHA-256 of everything else (manifest,
headers and directory). Every byte of the file is therefore under a hash. The hashes detect damage and editing, not a
forger: see the README.

What the entries mean is not known here: the compiler writes them and the runtime reads them. No pickle, no eval, and
no import of xDSL, NumPy or Numba.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import platform
import re
import struct
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, BinaryIO, cast

from aicf.errors import ArtifactError
from aicf.support.arguments import path_from
from aicf.support.files import write_whole
from aicf.support.installed import installed_version

FORMAT_NAME = "aicf"
FORMAT_VERSION = 2
MANIFEST = "manifest.json"

_RECOMPILE = "copy the file again or make it anew with `aicf compile`"
_ENTRY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@=+-]*(/[A-Za-z0-9_][A-Za-z0-9_.@=+-]*)*")
_MAX_NAME = 200
_MAX_MANIFEST = 64 << 20
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)
_SEAL_PREFIX = b"aicf sha256 "
_SEAL_SIZE = len(_SEAL_PREFIX) + 64
_END_RECORD_SIZE = 22
_LOCAL_HEADER = struct.Struct("<4sHHHHHIIIHH")
_LOCK = ("aicf", "xdsl", "numpy", "numba", "llvmlite", "numba-cuda")
_CHUNK = 1 << 22
_MAPPED_FROM = 1 << 20
"""Bytes of an entry that is mapped instead of read."""
_ALIGN = 64
_PADDING = struct.Struct("<HHH")
"""What an entry's header has more than its name: a field of Android's kind for alignment, whose size is made up."""
_PADDING_ID = 0xD935


@dataclass(frozen=True)
class Artifact:
    """A verified artifact.

    Attributes:
        path: The file it was read from, for messages.
        entries: Contents by entry name, the manifest not included. Large ones are views of the mapped file: replace
            it by another, as writing an artifact does, and do not write into it.
        manifest: The manifest as parsed JSON.
    """

    path: str
    entries: Mapping[str, bytes | memoryview]
    manifest: Mapping[str, Any]

    @property
    def toolchain(self) -> Mapping[str, str]:
        """Versions of what built it, by package name."""
        return self.manifest["toolchain"]

    @property
    def cpu_features(self) -> Sequence[str]:
        """CPU features that its native code needs; whether this machine has them is the backend's question."""
        return self.manifest["cpu_features"]

    def entry(self, name: str) -> bytes:
        """The contents of one entry.

        Raises:
            ArtifactError: There is none of that name.
        """
        return bytes(self.view(name))

    def view(self, name: str) -> bytes | memoryview:
        """The contents of one entry, without a copy. Raises as `entry`."""
        if name not in self.entries:
            held = ", ".join(self.entries) or "nothing"
            raise _error(self.path, f"has no entry {name!r} (it holds {held}); {_RECOMPILE}")
        return self.entries[name]

    def sha256(self, name: str) -> str:
        """The hash of one entry, which was found to be right. Raises as `entry`."""
        self.view(name)
        return self.manifest["entries"][name]["sha256"]

    def text(self, name: str) -> str:
        """An entry as UTF-8 text.

        Raises:
            ArtifactError: There is no such entry, or it is not UTF-8.
        """
        try:
            return self.entry(name).decode("utf-8")
        except UnicodeDecodeError:
            raise _error(self.path, f"entry {name!r} is not UTF-8 text; {_RECOMPILE}") from None


def toolchain_lock() -> dict[str, str]:
    """Versions of Python and of the packages that take part in a compile, for the manifest."""
    lock = {"python": platform.python_version()}
    for package in _LOCK:
        try:
            lock[package] = installed_version(package)
        except PackageNotFoundError:
            # AICF itself, run from a clone that is not installed.
            lock[package] = "not installed"
    return lock


def digest(data: bytes | memoryview) -> str:
    """The hash that identifies contents: SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def write(path: str | Path, entries: Mapping[str, bytes | memoryview], manifest: Mapping[str, Any]) -> None:
    """Write an artifact, whole or not at all.

    Args:
        path: The file to make or replace.
        entries: Contents by name; names are relative paths of letters, digits and ``_.@=+-``.
        manifest: JSON values, with at least ``toolchain`` (versions by package) and ``cpu_features`` (names).
            ``format`` and ``entries`` are added here.

    Raises:
        ArtifactError: The file cannot be written.
        ValueError: An entry name or the manifest is not legal (an error of the caller).
    """
    path = path_from(path, ArtifactError, "the artifact's path")
    for name in entries:
        if not _legal_name(name) or name == MANIFEST:
            raise ValueError(f"illegal artifact entry name {name!r}")
    table = {name: {"sha256": digest(data), "size": len(data)} for name, data in sorted(entries.items())}
    document = {
        **manifest,
        "format": {"name": FORMAT_NAME, "version": FORMAT_VERSION},
        "entries": table,
    }
    if problem := _manifest_problem(document):
        raise ValueError(f"artifact manifest: {problem}")
    text = json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n"

    def save(stream: BinaryIO) -> None:
        _write_archive(stream, text.encode(), entries)

    try:
        write_whole(path, save)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ArtifactError(
            f"cannot write the artifact: {reason}; choose a path that can be written", location=str(path)
        ) from error


def _write_archive(stream: BinaryIO, manifest: bytes, entries: Mapping[str, bytes | memoryview]) -> None:
    layout: list[tuple[int, int]] = []
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, data in [(MANIFEST, manifest), *sorted(entries.items())]:
            info = zipfile.ZipInfo(name, _TIMESTAMP)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            info.extra = _padding(stream.tell() + _LOCAL_HEADER.size + len(name))
            archive.writestr(info, data)
            end = stream.tell()
            layout.append((end - len(data), end))
        archive.comment = _SEAL_PREFIX + b"0" * 64
    end = stream.seek(0, 2)
    seal = _seal(stream, layout[1:], end - _SEAL_SIZE)
    stream.seek(end - 64)
    stream.write(seal.encode())


def _padding(position: int) -> bytes:
    """What stands between the end of an entry's name, at ``position``, and its data."""
    fill = -(position + _PADDING.size) % _ALIGN
    return _PADDING.pack(_PADDING_ID, _PADDING.size - 4 + fill, _ALIGN) + bytes(fill)


def _seal(stream: BinaryIO, data_spans: Sequence[tuple[int, int]], end: int) -> str:
    """SHA-256 of the bytes up to ``end`` that lie in none of the spans (which are in order)."""
    hasher = hashlib.sha256()
    position = 0
    for start, stop in [*data_spans, (end, end)]:
        stream.seek(position)
        remaining = start - position
        while remaining > 0:
            chunk = stream.read(min(remaining, _CHUNK))
            if not chunk:
                break
            hasher.update(chunk)
            remaining -= len(chunk)
        position = stop
    return hasher.hexdigest()


def read(path: str | Path) -> Artifact:
    """Read an artifact and verify all of it.

    Raises:
        ArtifactError: It cannot be read, or it is foreign, truncated, corrupt, edited, or of a newer format; the
            message says which, and the way out.
    """
    path = path_from(path, ArtifactError, "the artifact's path")
    name = str(path)
    try:
        with open(path, "rb") as stream:
            return _read_stream(stream, name)
    except OSError as error:
        reason = error.strerror or str(error)
        raise _error(name, f"cannot be read: {reason}; check the path") from error


def _read_stream(stream: BinaryIO, path: str) -> Artifact:
    size = stream.seek(0, 2)
    stream.seek(0)
    if stream.read(4) != b"PK\x03\x04":
        what = "is empty" if size == 0 else "is not an AICF artifact"
        raise _error(path, f"{what}; make one with `{_compile_of(Path(path))}`")
    infos, directory = _read_directory(stream, path)
    if not infos or infos[0].filename != MANIFEST:  # a zip file of others, such as a program of PyTorch
        raise _foreign(path)
    spans = _check_layout(stream, path, infos, directory, size)
    manifest = _read_manifest(stream, path, spans)
    _check_seal(stream, path, spans, size)
    return Artifact(path, _read_entries(stream, path, manifest, spans), manifest)


def _compile_of(path: Path) -> str:
    """The command that makes the artifact `path`; of a model, the one that makes an artifact of it and keeps it."""
    if path.suffix == ".aicf":
        return f"aicf compile MODEL -o {path.name}"
    return f"aicf compile {path.name} -o {path.with_suffix('.aicf').name}"


def _read_directory(stream: BinaryIO, path: str) -> tuple[list[zipfile.ZipInfo], int]:
    """The entries in directory order and the offset of the directory."""
    try:
        with zipfile.ZipFile(stream) as archive:
            return archive.infolist(), archive.start_dir
    except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError, OverflowError, EOFError):
        raise _error(path, f"is truncated or corrupt: its directory cannot be read; {_RECOMPILE}") from None


def _check_layout(
    stream: BinaryIO, path: str, infos: Sequence[zipfile.ZipInfo], directory: int, size: int
) -> dict[str, tuple[int, int]]:
    """Start and end of each entry's data: stored, back to back, nothing before, between or after."""
    spans: dict[str, tuple[int, int]] = {}
    position = 0
    for info in infos:
        label = repr(info.filename[:_MAX_NAME])
        if info.filename in spans:
            raise _error(path, f"holds entry {label} twice; {_RECOMPILE}")
        if not _legal_name(info.filename):
            raise _error(path, f"holds an entry with an illegal name, {label}; {_RECOMPILE}")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits or info.compress_size != info.file_size:
            raise _error(
                path, f"entry {label} is compressed or encrypted, which no artifact is; {_RECOMPILE}"
            )
        stream.seek(position)
        header = stream.read(_LOCAL_HEADER.size)
        if info.header_offset != position or len(header) < _LOCAL_HEADER.size or header[:4] != b"PK\x03\x04":
            raise _error(path, f"is corrupt: entry {label} is not where it should be; {_RECOMPILE}")
        *_, name_size, extra_size = _LOCAL_HEADER.unpack(header)
        start = position + _LOCAL_HEADER.size + name_size + extra_size
        position = start + info.file_size
        spans[info.filename] = (start, position)
    if position != directory:
        raise _error(path, f"is corrupt: it holds bytes that belong to no entry; {_RECOMPILE}")
    return spans


def _foreign(path: str) -> ArtifactError:
    command = _compile_of(Path(path))
    return _error(path, f"is a zip file but not an AICF artifact; make one with `{command}`")


def _read_manifest(stream: BinaryIO, path: str, spans: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    start, end = spans[MANIFEST]
    if end - start > _MAX_MANIFEST:
        raise _error(path, f"is corrupt: its manifest takes {end - start} bytes; {_RECOMPILE}")
    manifest = _parse_manifest(_read_span(stream, start, end), path)
    form = manifest.get("format")
    if not isinstance(form, dict) or cast(dict[str, Any], form).get("name") != FORMAT_NAME:
        raise _foreign(path)
    number = cast(dict[str, Any], form).get("version")
    if type(number) is int and number > FORMAT_VERSION:
        raise _error(
            path,
            f"has format version {number}, and this AICF reads up to {FORMAT_VERSION}; "
            "upgrade AICF or compile the model with this version",
        )
    if type(number) is int and 0 < number < FORMAT_VERSION:
        raise _error(
            path,
            f"has format version {number}, and this AICF reads {FORMAT_VERSION}; compile the model again",
        )
    problem = _manifest_problem(manifest)
    if type(number) is not int or number != FORMAT_VERSION:
        problem = f"format version {str(number)[:_MAX_NAME]!r} does not exist"
    if problem:
        raise _error(path, f"is corrupt: manifest: {problem}; {_RECOMPILE}")
    return manifest


def _parse_manifest(data: bytes, path: str) -> dict[str, Any]:
    try:
        manifest = json.loads(
            data.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_no_constant
        )
    except (ValueError, RecursionError):
        raise _error(path, f"is corrupt: its manifest is not JSON; {_RECOMPILE}") from None
    if not isinstance(manifest, dict):
        raise _error(path, f"is corrupt: its manifest is not a JSON object; {_RECOMPILE}")
    return cast(dict[str, Any], manifest)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("duplicate key")
    return dict(pairs)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _manifest_problem(manifest: Mapping[str, Any]) -> str | None:
    """What is wrong with the fields that this layer defines, or None."""
    toolchain, features, entries = (manifest.get(key) for key in ("toolchain", "cpu_features", "entries"))
    if not _is_string_table(toolchain):
        return "'toolchain' must map package names to versions"
    if not isinstance(features, list) or not all(isinstance(name, str) for name in cast(list[Any], features)):
        return "'cpu_features' must be a list of names"
    if not isinstance(entries, dict):
        return "'entries' must map entry names to size and sha256"
    for name, row in cast(dict[str, Any], entries).items():
        if not isinstance(row, dict) or cast(dict[str, Any], row).keys() != {"sha256", "size"}:
            return f"entry {name[:_MAX_NAME]!r} must have a size and a sha256"
    return None


def _is_string_table(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return all(isinstance(item, str) for item in cast(dict[str, Any], value).values())


def _check_seal(stream: BinaryIO, path: str, spans: Mapping[str, tuple[int, int]], size: int) -> None:
    stream.seek(max(0, size - _SEAL_SIZE))
    data_spans = [span for name, span in spans.items() if name != MANIFEST]
    expected = _SEAL_PREFIX + _seal(stream, data_spans, size - _SEAL_SIZE).encode()
    stream.seek(max(0, size - _SEAL_SIZE))
    if stream.read() != expected:
        raise _error(path, f"was damaged or edited: its manifest or directory fails its hash; {_RECOMPILE}")


def _read_entries(
    stream: BinaryIO, path: str, manifest: Mapping[str, Any], spans: Mapping[str, tuple[int, int]]
) -> dict[str, bytes | memoryview]:
    table: Mapping[str, Mapping[str, Any]] = manifest["entries"]
    if missing := sorted(table.keys() - spans.keys()):
        raise _error(path, f"lacks entry {missing[0]!r}, which its manifest lists; {_RECOMPILE}")
    if extra := sorted(spans.keys() - table.keys() - {MANIFEST}):
        raise _error(path, f"holds entry {extra[0]!r}, which its manifest does not list; {_RECOMPILE}")
    entries = {name: _entry(stream, *spans[name]) for name in sorted(table)}
    with ThreadPoolExecutor(
        2
    ) as pool:  # weights and prepared weights are the large ones; hashing holds no lock
        hashes = pool.map(digest, entries.values())
    for (name, data), found in zip(entries.items(), hashes, strict=True):
        if len(data) != table[name]["size"] or found != table[name]["sha256"]:
            raise _error(path, f"was damaged or edited: entry {name!r} fails its hash; {_RECOMPILE}")
    return entries


def _entry(stream: BinaryIO, start: int, end: int) -> bytes | memoryview:
    """An entry's data; if it is large, as a view of the file."""
    if end - start < _MAPPED_FROM:
        return _read_span(stream, start, end)
    mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    return memoryview(mapped)[start:end]


def _read_span(stream: BinaryIO, start: int, end: int) -> bytes:
    stream.seek(start)
    return stream.read(end - start)


def _legal_name(name: str) -> bool:
    return len(name) <= _MAX_NAME and _ENTRY_NAME.fullmatch(name) is not None


def _error(path: str, problem: str) -> ArtifactError:
    return ArtifactError(f"the artifact {problem}", location=path)
