"""The artifact container: deterministic, whole or absent, and nothing but ArtifactError on whatever it is fed."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import pickle
import stat
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aicf.errors import ArtifactError
from aicf.saving import artifact

ENTRIES = {"emit.mlir": b"builtin.module {}\n", "native/cpu.o": bytes(range(256)) * 3, "empty": b""}
MANIFEST = {
    "toolchain": {"python": "3.11.7", "numba": "0.68.1"},
    "cpu_features": ["avx2", "fma"],
    "target": "cpu",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "m.aicf"
    artifact.write(target, ENTRIES, MANIFEST)
    return target


def refuse(path: Path, match: str) -> None:
    with pytest.raises(ArtifactError, match=match) as caught:
        artifact.read(path)
    assert caught.value.location == str(path)
    assert "\n" not in str(caught.value)


def test_roundtrip(path: Path):
    loaded = artifact.read(path)
    assert loaded.entries == ENTRIES
    assert loaded.cpu_features == ["avx2", "fma"]
    assert loaded.toolchain["numba"] == "0.68.1"
    assert loaded.manifest["target"] == "cpu"
    assert loaded.text("emit.mlir") == "builtin.module {}\n"


def test_equal_contents_give_equal_bytes(path: Path, tmp_path: Path):
    other = tmp_path / "other.aicf"
    artifact.write(other, dict(reversed(ENTRIES.items())), dict(reversed(MANIFEST.items())))
    assert other.read_bytes() == path.read_bytes()


def test_any_zip_tool_lists_it(path: Path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["manifest.json", "emit.mlir", "empty", "native/cpu.o"]


def test_absent_entry_names_what_is_there(path: Path):
    with pytest.raises(
        ArtifactError, match=r"has no entry 'weights' \(it holds emit.mlir, empty, native/cpu.o\)"
    ):
        artifact.read(path).entry("weights")


def test_entry_that_is_not_text(path: Path):
    with pytest.raises(ArtifactError, match="entry 'native/cpu.o' is not UTF-8 text"):
        artifact.read(path).text("native/cpu.o")


def test_toolchain_lock_names_python_and_the_compiler():
    lock = artifact.toolchain_lock()
    assert {"python", "aicf", "xdsl", "numba", "llvmlite"} <= lock.keys()
    assert all(isinstance(value, str) for value in lock.values())


# Writing


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a//b", "a/../b", ".hidden", "", "a\\b", "manifest.json", "ä", "a" * 201]
)
def test_illegal_entry_names_are_refused_when_writing(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match="illegal artifact entry name"):
        artifact.write(tmp_path / "m.aicf", {name: b""}, MANIFEST)


@pytest.mark.parametrize("field", ["toolchain", "cpu_features"])
def test_a_manifest_field_is_required(tmp_path: Path, field: str):
    manifest = {key: value for key, value in MANIFEST.items() if key != field}
    with pytest.raises(ValueError, match=field):
        artifact.write(tmp_path / "m.aicf", ENTRIES, manifest)


def test_missing_folder(tmp_path: Path):
    target = tmp_path / "no" / "m.aicf"
    with pytest.raises(
        ArtifactError, match="cannot write the artifact: No such file or directory; choose a path"
    ):
        artifact.write(target, ENTRIES, MANIFEST)


def test_a_folder_is_not_a_target(tmp_path: Path):
    with pytest.raises(ArtifactError, match="cannot write the artifact: Is a directory"):
        artifact.write(tmp_path, ENTRIES, MANIFEST)
    assert list(tmp_path.parent.glob(".*.tmp")) == []


def test_full_disk_leaves_the_old_file_and_no_litter(path: Path, monkeypatch: pytest.MonkeyPatch):
    before = path.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ArtifactError, match="cannot write the artifact: No space left on device"):
        artifact.write(path, {"other": b"x"}, MANIFEST)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["m.aicf"]


def test_interrupt_leaves_the_old_file_and_no_litter(path: Path, monkeypatch: pytest.MonkeyPatch):
    before = path.read_bytes()

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        artifact.write(path, {"other": b"x"}, MANIFEST)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["m.aicf"]


def test_permissions_are_those_of_any_new_file(path: Path):
    baseline = path.with_name("plain")
    baseline.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(baseline.stat().st_mode)


def test_a_link_stays_a_link(path: Path):
    link = path.with_name("link.aicf")
    link.symlink_to(path)
    artifact.write(link, {"other": b"x"}, MANIFEST)
    assert link.is_symlink()
    assert artifact.read(path).entries == {"other": b"x"}


# Reading what is not an artifact


def test_absent_file(tmp_path: Path):
    refuse(tmp_path / "none.aicf", "cannot be read: No such file or directory; check the path")


def test_folder(tmp_path: Path):
    refuse(tmp_path, "cannot be read: Is a directory")


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "is empty; make one with `aicf compile"),
        (b"\x7fELF and so on", "is not an AICF artifact; make one with `aicf compile"),
        (pickle.dumps({"a": 1}), "is not an AICF artifact"),
        (b"PK\x03\x04", "is truncated or corrupt"),
    ],
)
def test_foreign_file(tmp_path: Path, data: bytes, match: str):
    path = tmp_path / "m.aicf"
    path.write_bytes(data)
    refuse(path, match)


def test_foreign_zip(tmp_path: Path):
    path = tmp_path / "m.aicf"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<x/>")
    refuse(path, "is a zip file but not an AICF artifact; make one with `aicf compile MODEL -o m.aicf`")


def test_a_compressed_zip_of_others(tmp_path: Path):
    path = tmp_path / "model.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data/weights", bytes(100))
    refuse(
        path, "is a zip file but not an AICF artifact; make one with `aicf compile model.pt2 -o model.aicf`"
    )


def test_every_truncation_is_found(path: Path):
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        refuse(path, "truncated|is empty|is not an AICF artifact|damaged")


def test_every_changed_byte_is_found(path: Path):
    data = bytearray(path.read_bytes())
    for position in range(len(data)):
        data[position] ^= 0x41
        path.write_bytes(data)
        refuse(path, "the artifact ")
        data[position] ^= 0x41


@pytest.mark.parametrize("extra", [b"\0", b"PK\x05\x06", b"x" * 70000])
def test_appended_bytes_are_found(path: Path, extra: bytes):
    path.write_bytes(path.read_bytes() + extra)
    refuse(path, "damaged|corrupt")


# Artifacts made by hand: sealed correctly, so that each check below is the one that answers


def forge(path: Path, change: Callable[[dict[str, Any], list[tuple[zipfile.ZipInfo, bytes]]], None]) -> None:
    """Write an artifact whose manifest and entries ``change`` edited, with a correct seal."""
    with zipfile.ZipFile(path) as archive:
        contents = [(info, archive.read(info)) for info in archive.infolist()]
    manifest = json.loads(contents[0][1])
    rest = contents[1:]
    change(manifest, rest)
    stream = io.BytesIO()
    spans: list[tuple[int, int]] = []
    with zipfile.ZipFile(stream, "w") as archive, pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # duplicate names, on purpose
        for info, data in [(contents[0][0], json.dumps(manifest).encode()), *rest]:
            archive.writestr(info, data)
            spans.append((stream.tell() - info.compress_size, stream.tell()))
        archive.comment = b"aicf sha256 " + b"0" * 64
    raw = bytearray(stream.getvalue())
    outside, position = b"", 0
    for start, stop in [*spans[1:], (len(raw) - 76, len(raw) - 76)]:
        outside += raw[position:start]
        position = stop
    raw[-64:] = hashlib.sha256(outside).hexdigest().encode()
    path.write_bytes(raw)


def set_version(number: object):
    def change(manifest: dict[str, Any], _: object) -> None:
        manifest["format"]["version"] = number

    return change


def entry(name: str, **fields: Any) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def describe(data: bytes) -> dict[str, object]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


FORGERIES: dict[str, tuple[Callable[[dict[str, Any], list[tuple[zipfile.ZipInfo, bytes]]], object], str]] = {
    "newer": (set_version(3), r"has format version 3, and this AICF reads up to 2; upgrade AICF or compile"),
    "older": (set_version(1), "has format version 1, and this AICF reads 2; compile the model again"),
    "version zero": (set_version(0), "format version '0' does not exist"),
    "version true": (set_version(True), "format version 'True' does not exist"),
    "version text": (set_version("2"), "format version '2' does not exist"),
    "no format": (lambda manifest, _: manifest.pop("format"), "is a zip file but not an AICF artifact"),
    "no toolchain": (lambda manifest, _: manifest.pop("toolchain"), "'toolchain' must map package names"),
    "features": (
        lambda manifest, _: manifest.update(cpu_features=[1]),
        "'cpu_features' must be a list of names",
    ),
    "no entries": (lambda manifest, _: manifest.update(entries=[]), "'entries' must map"),
    "row": (
        lambda manifest, _: manifest["entries"].update(empty=1),
        "entry 'empty' must have a size and a sha256",
    ),
    "missing": (lambda _, rest: rest.pop(), "lacks entry 'native/cpu.o', which its manifest lists"),
    "extra": (
        lambda _, rest: rest.append((entry("evil"), b"x")),
        "holds entry 'evil', which its manifest does not list",
    ),
    "duplicate": (lambda _, rest: rest.append((entry("empty"), b"")), "holds entry 'empty' twice"),
    "wrong size": (
        lambda manifest, _: manifest["entries"]["empty"].update(size=1),
        "entry 'empty' fails its hash",
    ),
    "path up": (
        lambda manifest, rest: (
            rest.append((entry("../evil"), b"x")),
            manifest["entries"].update({"../evil": describe(b"x")}),
        ),
        "an entry with an illegal name, '../evil'",
    ),
    "absolute path": (lambda _, rest: rest.append((entry("/etc/passwd"), b"x")), "illegal name"),
    "compressed": (
        lambda _, rest: rest.append((entry("bomb", compress_type=zipfile.ZIP_DEFLATED), bytes(1 << 20))),
        "entry 'bomb' is compressed or encrypted",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_artifact(path: Path, name: str):
    change, match = FORGERIES[name]
    forge(path, change)
    refuse(path, match)


def test_the_forge_itself_makes_good_artifacts(path: Path):
    forge(path, lambda manifest, rest: None)
    assert artifact.read(path).entries == ENTRIES


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"{", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"a": NaN}', "is not JSON"),
        (b'{"a": 1, "a": 2}', "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"format": 1}', "is a zip file but not an AICF artifact"),
        (b'{"format": {"name": "aicf", "version": ' + b"9" * 5000 + b"}}", "is not JSON"),
    ],
)
def test_manifest_that_is_not_one(tmp_path: Path, text: bytes, match: str):
    path = tmp_path / "m.aicf"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", text)
    refuse(path, match)


# Fuzz


def read_bytes(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.aicf"
        path.write_bytes(data)
        artifact.read(path)


def sample() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.aicf"
        artifact.write(path, ENTRIES, MANIFEST)
        return path.read_bytes()


SAMPLE = sample()
FUZZ = settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])


@FUZZ
@given(st.binary(max_size=200), st.sampled_from([b"", b"PK\x03\x04", SAMPLE[:200]]))
def test_random_bytes(data: bytes, prefix: bytes):
    with pytest.raises(ArtifactError):
        read_bytes(prefix + data)


@FUZZ
@given(
    st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=8),
    st.integers(0, len(SAMPLE)),
    st.integers(0, len(SAMPLE)),
)
@example([(0, SAMPLE[0])], 0, 0)
def test_damaged_bytes(changes: list[tuple[int, int]], cut_from: int, cut_to: int):
    data = bytearray(SAMPLE)
    for position, value in changes:
        data[position] = value
    del data[min(cut_from, cut_to) : max(cut_from, cut_to)]
    if bytes(data) == SAMPLE:
        read_bytes(bytes(data))
        return
    with pytest.raises(ArtifactError):
        read_bytes(bytes(data))


@FUZZ
@given(st.binary(max_size=len(SAMPLE)), st.integers(0, len(SAMPLE) - 1))
def test_overwritten_directory(data: bytes, position: int):
    changed = SAMPLE[:position] + data + SAMPLE[position + len(data) :]
    if changed != SAMPLE:
        with pytest.raises(ArtifactError):
            read_bytes(changed)


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z0-9_]{1,8}(/[a-z0-9_.]{0,3}[a-z]){0,2}", fullmatch=True).filter(
            lambda name: not any(part.startswith(".") for part in name.split("/"))
        ),
        st.binary(max_size=300),
        max_size=6,
    )
)
def test_any_contents_come_back(entries: dict[str, bytes]):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.aicf"
        artifact.write(path, entries, MANIFEST)
        assert artifact.read(path).entries == entries


# Large entries


@pytest.fixture
def large(tmp_path: Path) -> tuple[Path, bytes]:
    """An artifact with an entry that is mapped, and that entry."""
    data = os.urandom(artifact._MAPPED_FROM + 5)  # pyright: ignore[reportPrivateUsage]
    target = tmp_path / "large.aicf"
    artifact.write(target, {**ENTRIES, "weights": data}, MANIFEST)
    return target, data


def test_a_large_entry_is_a_view_of_the_file(large: tuple[Path, bytes]):
    path, data = large
    entries = artifact.read(path).entries
    view = entries["weights"]
    assert isinstance(view, memoryview) and view.readonly and view == data
    assert all(isinstance(entries[name], bytes) and entries[name] == ENTRIES[name] for name in ENTRIES)
    path.unlink()  # the mapping outlives the name
    assert bytes(view) == data


def test_a_large_entry_is_checked_too(large: tuple[Path, bytes]):
    path, data = large
    whole = path.read_bytes()
    middle = whole.index(data) + len(data) // 2
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    refuse(path, "was damaged or edited: entry 'weights' fails its hash")


def test_every_entry_begins_at_a_cache_line(large: tuple[Path, bytes]):
    path, data = large
    whole = path.read_bytes()
    assert whole.index(data) % 64 == 0
    for name in ("emit.mlir", "native/cpu.o"):
        assert whole.index(ENTRIES[name]) % 64 == 0
