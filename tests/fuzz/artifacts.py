"""Damages artifacts, with hashes that fit the damage, and loads, explains and runs them.

    python -m tests.fuzz.artifacts --seed 0 --count 5000 [--native use|rebuild|both]

Legal outcomes: `refused`, an AicfError of one line; `right`, the results of the program; `its own`, results of the
weights or of the IR that the damage left, as an independent reader has them. The bytes of native code are trusted, and
so are those that it prepared of weights (see the README), so the first are damaged only where a hash catches it, and
results after damage to the second count as `trusted`. Everything else is a failure: another exception, a message of
several lines, an abort, 25 seconds of silence, a write outside of the caller's arrays, a wrong result.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import safetensors.numpy

import aicf
from aicf.backends.reference.backend import ReferenceBackend
from aicf.compilation import reading
from aicf.compilation.compiled import CompiledModel
from aicf.compilation.record import EMIT, LEDGER, LOCATIONS, LOGICAL, NATIVE, PLAN, PREPARED, TRAINED, WEIGHTS
from aicf.frontends.text import parse_module
from aicf.runtime.executable import Executable
from aicf.runtime.plan_from_ir import code_units, read_module, target_of
from aicf.saving import artifact
from tests.fuzz.damage import damaged_bytes, damaged_json, damaged_tensors, damaged_text
from tests.fuzz.guards import Guarded
from tests.fuzz.isolation import Limits, Verdict, isolated, report
from tests.fuzz.samples import Array, Arrays, Sample, make_samples

MODES = ("use", "rebuild")
REFUSED, RIGHT, OWN, TRUSTED = "refused", "right", "its own", "trusted"
GOOD = (REFUSED, RIGHT, OWN, TRUSTED)
MOST = 500
"""Characters of an error."""

_JSON = (PLAN, LEDGER, LOCATIONS, TRAINED)
_TENSORS = (WEIGHTS, PREPARED)
_TEXTS = (EMIT, LOGICAL)


@dataclass(frozen=True)
class _Forgery:
    """A damaged artifact: what was damaged, and how in a few words."""

    part: str
    path: Path


# Damage


def _forge(sample: Sample, samples: Sequence[Sample], path: Path, draw: random.Random) -> _Forgery:
    """Writes a damaged copy of an artifact."""
    file = artifact.read(sample.path)
    entries = {name: bytes(data) for name, data in file.entries.items()}
    manifest = {key: value for key, value in file.manifest.items() if key not in ("entries", "format")}
    part = draw.choices(
        [PLAN, *entries, "manifest", "foreign entry", "file"], [6, *[2] * len(entries), 2, 1, 1]
    )[0]
    if part in (NATIVE, "file"):
        path.write_bytes(damaged_bytes(sample.path.read_bytes(), draw))
        return _Forgery("file", path)
    if part == "manifest":
        _damage_manifest(manifest, entries, draw)
    elif part == "foreign entry":
        _exchange_entry(entries, samples, draw)
    elif part in _JSON:
        entries[part] = damaged_json(json.loads(entries[part]), draw).encode("utf-8", "surrogatepass")
    elif part in _TENSORS:
        entries[part] = damaged_tensors(entries[part], draw)
        if part == WEIGHTS and draw.random() < 0.5 and "prepared_for" in manifest:
            manifest["prepared_for"] = artifact.digest(entries[WEIGHTS])
            part = "weights and what is prepared of them"
    elif part in _TEXTS:
        entries[part] = damaged_text(entries[part].decode(), draw).encode("utf-8", "surrogatepass")
    _write(path, entries, manifest)
    return _Forgery(part, path)


def _damage_manifest(manifest: dict[str, object], entries: dict[str, bytes], draw: random.Random) -> None:
    text = damaged_json(copy.deepcopy(manifest), draw)
    try:
        damaged: object = json.loads(text, parse_constant=int)
    except (ValueError, RecursionError):
        return
    if isinstance(damaged, dict):
        manifest.clear()
        manifest.update(damaged)


def _exchange_entry(entries: dict[str, bytes], samples: Sequence[Sample], draw: random.Random) -> None:
    """An entry in the place of another one, or missing, or of another program."""
    name = draw.choice(sorted(entries.keys() - {NATIVE}))
    other = artifact.read(draw.choice(samples).path).entries
    match draw.randrange(3):
        case 0:
            del entries[name]
        case 1:
            entries[name] = bytes(other[name]) if name in other else b""
        case _:
            entries[name] = entries[draw.choice(sorted(entries))]


def _write(path: Path, entries: Mapping[str, bytes], manifest: Mapping[str, object]) -> None:
    """As `artifact.write`, which refuses to write what it would refuse to read."""
    try:
        artifact.write(path, entries, manifest)
    except (ValueError, KeyError, TypeError):
        checks = artifact._manifest_problem  # pyright: ignore[reportPrivateUsage]
        artifact._manifest_problem = lambda _: None  # pyright: ignore[reportPrivateUsage]
        try:
            artifact.write(path, entries, manifest)
        finally:
            artifact._manifest_problem = checks  # pyright: ignore[reportPrivateUsage]


# Judgement


class _Wrong(Exception):
    """A result or a buffer is not as it has to be."""


def trial(samples: Sequence[Sample], mode: str, folder: Path, seed: int) -> Verdict:
    """Damages one artifact, and says what came of it."""
    draw = random.Random(seed)
    native = mode if mode in MODES else draw.choice(MODES)
    able = [sample for sample in samples if sample.rebuilds or native == "use"]
    sample = draw.choice(able)
    forgery = _forge(sample, samples, folder / "forged.aicf", draw)
    what = f"{sample.name}, {forgery.part}, {native}"
    try:
        kind = _use(sample, forgery, native)
    except aicf.AicfError as error:
        text = str(error)
        if len(text) > MOST or not text.isprintable():
            return Verdict("message", f"{what}: {len(text)} characters: {text[:600]!r}")
        return Verdict(REFUSED, f"{what}: {text}")
    except _Wrong as error:
        return Verdict("wrong", f"{what}: {error}")
    except Exception as error:
        error.args = (f"{what}: {error}"[:600],)
        raise
    return Verdict(kind, what)


def _use(sample: Sample, forgery: _Forgery, native: str) -> str:
    """What a user does with an artifact. Raises AicfError, or _Wrong."""
    exe = aicf.load(forgery.path, native=native)  # pyright: ignore[reportArgumentType]
    _look_at(exe, forgery.path)
    if not sample.runs_here:
        return RIGHT
    found = [_call(exe, feed) for feed in sample.feeds]
    again = _replayed(exe, sample)
    if all(_agree(ours, theirs) for ours, theirs in zip(found, sample.expected, strict=True)):
        kind = RIGHT
    elif forgery.part in (PREPARED, "weights and what is prepared of them") and native == "use":
        kind = TRUSTED
    elif _agree_all(found, _independent(sample, forgery, native)):
        kind = OWN
    else:
        raise _Wrong(f"results {_shown(found)}, not {_shown(sample.expected)}")
    if again is not None and not _agree_all(again, found):
        raise _Wrong(f"a replay gives {_shown(again)}, a call {_shown(found)}")
    exe.save(forgery.path.with_name("saved.aicf"))
    aicf.load(forgery.path.with_name("saved.aicf"))
    return kind


def _look_at(exe: CompiledModel, path: Path) -> None:
    """Everything that says something about a program and does not run it."""
    texts = [exe.explain(), exe.summary(), reading.explain(path), exe.memory(), repr(exe), exe.ir("emit")]
    names = [node.name for program in exe.plan.programs for node in program.graph.nodes][:2]
    texts += [exe.explain(name) for name in names]
    if len(names) > 1:
        texts.append(exe.why_not(*names))
    assert all(str(text) for text in texts)


def _call(exe: Executable, feed: Arrays) -> dict[str, Array]:
    """One call on arrays with guards on both sides."""
    inputs = {name: Guarded(array.shape, array.dtype) for name, array in feed.items()}
    for name, array in feed.items():
        inputs[name].array[...] = array
    arrays = {name: guarded.array for name, guarded in inputs.items()}
    first = exe.run(arrays)
    if exe.is_stateful:
        return _checked(inputs, feed, first)
    outputs = {name: Guarded(array.shape, array.dtype) for name, array in first.items()}
    exe.run(arrays, out={name: guarded.array for name, guarded in outputs.items()})
    for name, guarded in outputs.items():
        if not guarded.is_intact():
            raise _Wrong(f"the canary of output {name} is overwritten")
        if guarded.array.tobytes() != first[name].tobytes():
            raise _Wrong(f"a second call gives another {name}")
    return _checked(inputs, feed, first)


def _checked(inputs: Mapping[str, Guarded], feed: Arrays, found: dict[str, Array]) -> dict[str, Array]:
    for name, guarded in inputs.items():
        if not guarded.is_intact() or guarded.array.tobytes() != feed[name].tobytes():
            raise _Wrong(f"input {name} or its canary is overwritten")
    return found


def _replayed(exe: CompiledModel, sample: Sample) -> list[dict[str, Array]] | None:
    """The same on a GraphExec for each call; None of a program with state."""
    if exe.is_stateful:
        return None
    found: list[dict[str, Array]] = []
    for feed in sample.feeds:
        graph_exec = exe.bind(feed)
        graph_exec.replay()
        found.append({spec.name: np.array(graph_exec[spec.name]) for spec in exe.outputs})
    return found


def _independent(sample: Sample, forgery: _Forgery, native: str) -> list[dict[str, Array]]:
    """What the damaged weights give with the whole program, or the damaged IR with the reference backend."""
    file = artifact.read(forgery.path)
    weights = dict(safetensors.numpy.load(file.entry(WEIGHTS)))
    if native == "rebuild":
        module = parse_module(file.text(EMIT), "emit")
        target = target_of(module)
        code = ReferenceBackend().build(module, code_units(module), target)
        plan = read_module(module)
        plan = type(plan)(**{**vars(plan), "backend": "reference", "threads": 1})
        return [_call(exe, feed) for exe in [Executable(plan, code, weights)] for feed in sample.feeds]
    exe = aicf.load(sample.path, weights=weights)
    return [_call(exe, feed) for feed in sample.feeds]


def _agree_all(found: Sequence[Arrays], expected: Sequence[Arrays]) -> bool:
    return all(_agree(ours, theirs) for ours, theirs in zip(found, expected, strict=True))


def _agree(found: Arrays, expected: Arrays) -> bool:
    """Whether all results of `expected` are there, close to those found in their precision."""
    if not expected.keys() <= found.keys():
        return False
    for name, wanted in expected.items():
        ours = found[name]
        tolerance = 30 * math.sqrt(float(np.finfo(ours.dtype).eps)) ** 1.5 if ours.dtype.kind == "f" else 0.0
        if ours.shape != wanted.shape:
            return False
        with np.errstate(all="ignore"):
            if not np.allclose(
                ours.astype(np.float64), wanted.astype(np.float64), tolerance, tolerance, equal_nan=True
            ):
                return False
    return True


def _shown(results: Sequence[Arrays]) -> str:
    return " | ".join(
        f"{name} {np.array2string(np.ravel(array)[:3], precision=4)}"
        for result in results
        for name, array in result.items()
    )


def fuzz(
    seeds: Sequence[int], mode: str, names: Sequence[str] = (), show: Callable[[str], None] = print
) -> int:
    """Runs trials and prints a report; 1 if one of them failed, else 0."""
    with tempfile.TemporaryDirectory() as folder:
        samples = make_samples(Path(folder), *([names] if names else []))
        outcomes = isolated(partial(trial, samples, mode, Path(folder)), seeds, Limits())
        return report(outcomes, GOOD, show=show)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1000, help="how many trials")
    parser.add_argument("--native", choices=(*MODES, "both"), default="both")
    parser.add_argument("--samples", nargs="*", default=(), help="names of programs; all if none is given")
    given = parser.parse_args()
    return fuzz(range(given.seed, given.seed + given.count), given.native, given.samples)


if __name__ == "__main__":
    raise SystemExit(main())
