"""`Certificate`: what was repeated, where, and the hashes of what went in and what came out, as plain data and a file.

All hashes are SHA-256. That of an array is of its element type, shape and bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aicf.errors import ArtifactError
from aicf.runtime.tensors import Array
from aicf.support.arguments import path_from
from aicf.support.dataclass_json import from_json_value, parse_json, to_json_value
from aicf.support.files import reason_of, write_whole

FORMAT = "aicf certificate 1"


@dataclass(frozen=True)
class Environment:
    """Where a program ran.

    Args:
        device: What its maker calls it; `capability` and `driver` are empty on a processor.
        system: Operating system and architecture.
        cpu: The processor.
        cpu_features: Those of the host that code may use, sorted.
        packages: Versions by name, Python's among them.
    """

    device: str
    capability: str
    driver: str
    system: str
    cpu: str
    cpu_features: tuple[str, ...]
    packages: dict[str, object]


@dataclass(frozen=True)
class ProgramRuns:
    """One program of the model, for some sizes.

    Args:
        program: Its symbol.
        sizes: Of the symbolic dimensions.
        inputs, outputs: Hashes by name; the state after a run counts as an output, `state NAME`.
    """

    program: str
    sizes: dict[str, object]
    inputs: dict[str, object]
    outputs: dict[str, object]


@dataclass(frozen=True)
class Certificate:
    """All runs of all programs of a model gave the same bits.

    Args:
        format: Of the file.
        model: Name.
        target: `backend:level`; `threads` run the program together.
        runs: Of each program in each process; all from the initial state.
        processes: How many.
        generator: What made the inputs, `numpy.random.PCG64`, or `given`; with its `seed`.
        emit, native, weights: Hashes of the final program, of its code, and of all weights.
        programs: What was repeated.
        environment: Where.
    """

    format: str
    model: str
    target: str
    threads: int
    runs: int
    processes: int
    generator: str
    seed: int
    emit: str
    native: str
    weights: str
    programs: tuple[ProgramRuns, ...]
    environment: Environment

    def differences(self, other: Certificate) -> list[str]:
        """What another certificate has other than this one: target, program, code, weights, inputs and outputs. Empty
        if the same was run, and gave the same. Where it ran is no difference, see `moved`."""
        return list(_differences(self, other))

    def moved(self, other: Certificate) -> list[str]:
        """In what the environment of another certificate is another one."""
        ours, theirs = self.environment, other.environment
        names = [name for name in vars(ours) if name not in ("cpu_features", "packages")]
        found = [
            f"{name}: {getattr(ours, name) or 'none'} -> {getattr(theirs, name) or 'none'}"
            for name in names
            if getattr(ours, name) != getattr(theirs, name)
        ]
        features = set(ours.cpu_features) ^ set(theirs.cpu_features)
        found += [f"cpu features: only one has {', '.join(sorted(features))}"] if features else []
        both = dict.fromkeys([*ours.packages, *theirs.packages])
        return found + [
            f"{name}: {ours.packages.get(name, 'none')} -> {theirs.packages.get(name, 'none')}"
            for name in both
            if ours.packages.get(name) != theirs.packages.get(name)
        ]

    def save(self, path: str | Path) -> None:
        """Writes it as JSON, whole or not at all. Raises ArtifactError if it cannot be written."""
        path = path_from(path, ArtifactError, "the path of a certificate")
        text = json.dumps(to_json_value(self), indent=2) + "\n"
        try:
            write_whole(path, lambda stream: stream.write(text.encode()))
        except OSError as error:
            raise ArtifactError(
                f"the certificate cannot be written: {reason_of(error)}; choose a path that can be written",
                location=str(path),
            ) from error

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Reads a file. Raises ArtifactError if it is no certificate."""
        path = path_from(path, ArtifactError, "the path of a certificate")
        try:
            found = from_json_value(cls, parse_json(path.read_bytes()), "certificate")
        except OSError as error:
            raise ArtifactError(
                f"the certificate cannot be read: {reason_of(error)}; check the path", location=str(path)
            ) from error
        except (ValueError, ArtifactError) as error:
            raise ArtifactError(
                f"no certificate: {error}; make one with aicf verify -o", location=str(path)
            ) from error
        if found.format != FORMAT:
            raise ArtifactError(
                f"format {found.format!r} is not known here; this release reads {FORMAT!r}",
                location=str(path),
            )
        return found


_WHAT = {
    "target": "the target",
    "threads": "the number of threads",
    "emit": "the program",
    "native": "its code",
    "weights": "its weights",
}


def _differences(ours: Certificate, theirs: Certificate) -> Iterator[str]:
    for name, what in _WHAT.items():
        a, b = str(getattr(ours, name)), str(getattr(theirs, name))
        if a != b:
            yield f"{what}: {_short(a)} -> {_short(b)}"
    others = {each.program: each for each in theirs.programs}
    for program in ours.programs:
        if (other := others.get(program.program)) is None:
            yield f"@{program.program}: only in the certificate"
            continue
        for kind, a, b in (
            ("input", program.inputs, other.inputs),
            ("output", program.outputs, other.outputs),
        ):
            for name in dict.fromkeys([*a, *b]):
                if a.get(name) != b.get(name):
                    yield f"{kind} '{name}' of @{program.program}: {_short(a.get(name))} -> {_short(b.get(name))}"


def _short(value: object) -> str:
    """The first letters of a hash, which are enough to tell two apart."""
    text = "none" if value is None else str(value)
    return f"{text[:12]}..." if len(text) == hashlib.sha256().digest_size * 2 else text


def array_hash(array: Array) -> str:
    """The hash of an array."""
    # The bytes in row-major order, whatever the strides.
    whole = np.ascontiguousarray(array)
    found = hashlib.sha256(f"{whole.dtype.name} {list(array.shape)}\n".encode())
    found.update(whole.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def weights_hash(arrays: Mapping[str, Array]) -> str:
    """One hash of arrays by name."""
    lines = (f"{name} {array_hash(array)}\n" for name, array in sorted(arrays.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
