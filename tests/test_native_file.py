"""A plan that is not the one that the code was made with is refused before any of the code runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.backends.native import NativeCode, ProgramNeeds
from aicf.compilation import reading
from aicf.compilation.record import LEDGER, LOCATIONS, NATIVE, PLAN, PREPARED
from aicf.frontends.builder import Graph
from aicf.saving import artifact, native_file
from tests.test_compiler import MLP, mlp_weights, normal

FEED = {rows: normal(rows, 64) for rows in (1, 4)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two programs, `@prepare` and two threads."""
    path = tmp_path_factory.mktemp("native") / "mlp.aicf"
    aicf.compile(MLP, mlp_weights(), "cpu", dims="N=1,4", threads=2).save(path)
    return path


def forge(saved: Path, path: Path, entries: dict[str, bytes], **manifest: object) -> Path:
    """A copy with other contents and hashes that fit them."""
    file = artifact.read(saved)
    kept = {key: value for key, value in file.manifest.items() if key not in ("entries", "format")}
    artifact.write(path, {**file.entries, **entries}, {**kept, **manifest})
    return path


def forged_plan(saved: Path, path: Path, damage: Callable[[Any], object]) -> Path:
    plan = json.loads(artifact.read(saved).entry(PLAN))
    damage(plan)
    return forge(saved, path, {PLAN: json.dumps(plan).encode()})


def _swap(rows: list[dict[str, Any]], field: str) -> None:
    rows[0][field], rows[1][field] = rows[1][field], rows[0][field]


def _bind(plan: Any, role: str) -> Any:
    return next(bind for bind in plan["programs"][1]["graph"]["binds"] if bind["role"] == role)


WAY_OUT = '; load it with native="rebuild", which makes both from emit.mlir'
OTHER = r"plan.json is not the plan that native.bin was made with \(entries 'aicf_\w+', .*\): its SHA-256 is "
DAMAGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "no arena": (
        lambda plan: plan["programs"][1].update(arena_bytes=0),
        r"plan.json and native.bin disagree: entry '(\w+)': the plan has arena_bytes 0, the code needs \d+",
    ),
    "an unknown entry": (
        lambda plan: plan["prepare"].update(entry="aicf_other"),
        "entry 'aicf_other' is in the plan and not in the code",
    ),
    "swapped entries": (
        lambda plan: _swap(plan["programs"], "entry"),
        r"the plan has arena_bytes \d+, the code needs \d+",
    ),
    "threads": (lambda plan: plan.update(threads=1), "the plan has threads 1, the code needs 2"),
    "more threads": (lambda plan: plan.update(threads=3), "the plan has threads 3, the code needs 2"),
    "a bind less": (
        lambda plan: plan["programs"][1]["graph"]["binds"].pop(),
        r"the plan|has an operand outside the pointer table",
    ),
    "an instruction less": (
        lambda plan: (plan["programs"][1]["graph"]["nodes"].pop(), plan["programs"][1]["launches"].pop()),
        r"the plan has instructions \d+, the code needs \d+",
    ),
    "a program less": (
        lambda plan: (plan["programs"].pop(), plan["rows"].pop()),
        r"entry 'aicf_\w+' is in the code and not in the plan",
    ),
    "no prepare": (
        lambda plan: plan.update(prepare=None),
        "entry 'aicf_prepare' is in the code and not in the plan",
    ),
    "other alignment": (lambda plan: plan["programs"][1].update(arena_align=4096), OTHER),
    "dispatch": (lambda plan: plan["rows"][0].update(sizes=[2]), OTHER),
    "updated": (lambda plan: _bind(plan, "output").update(align=4096), OTHER),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_plan(case: str, saved: Path, tmp_path: Path):
    damage, message = DAMAGES[case]
    path = forged_plan(saved, tmp_path / "forged.aicf", damage)
    for read in (aicf.load, reading.explain):
        with pytest.raises(aicf.ArtifactError, match=message) as caught:
            read(path)
        assert caught.value.location == str(path) and "\n" not in str(caught.value)
        assert str(caught.value).endswith(WAY_OUT)


@pytest.mark.parametrize("case", DAMAGES)
def test_the_way_out_of_a_damaged_plan(case: str, saved: Path, tmp_path: Path):
    """The plan, the code and what the code prepared are made again; none of the file's is read."""
    path = forged_plan(saved, tmp_path / "forged.aicf", DAMAGES[case][0])
    forge(path, path, {NATIVE: b"no code", PREPARED: b"no tensors", LEDGER: b"[]"})
    rebuilt, whole = aicf.load(path, native="rebuild"), aicf.load(saved)
    for feed in FEED.values():
        np.testing.assert_array_equal(rebuilt(feed), whole(feed))
    assert rebuilt.plan == whole.plan and rebuilt.decisions == whole.decisions
    rebuilt.save(path)
    assert aicf.load(path).plan == whole.plan


def native_of(saved: Path, **fields: Any) -> bytes:
    """`native.bin` with other fields, for the plan that it was made with."""
    native, plan = native_file.read(artifact.read(saved).entry(NATIVE))
    return native_file.to_bytes(replace(native, **fields), plan)


CODES: dict[str, tuple[dict[str, Any], str]] = {
    "function": ({"functions": ("system",)}, "native code asks for an unknown function 'system'"),
    "memory": ({"memory": "moon"}, "native.bin does not say where its code runs"),
    "reserves": (
        {"memory": "device", "reserves": {"aicf_x": -1}},
        "native.bin does not say where its code runs",
    ),
    "no code": ({"code": b""}, "native code cannot be loaded"),
    "no programs": ({"programs": ()}, "is in the plan and not in the code"),
}


@pytest.mark.parametrize("case", CODES)
def test_damaged_code(case: str, saved: Path, tmp_path: Path):
    fields, message = CODES[case]
    path = forge(saved, tmp_path / "forged.aicf", {NATIVE: native_of(saved, **fields)})
    with pytest.raises(aicf.ArtifactError, match=re.escape(message)):
        aicf.load(path)


def test_code_for_no_level(saved: Path, tmp_path: Path):
    path = forge(saved, tmp_path / "forged.aicf", {NATIVE: native_of(saved, features=())}, cpu_features=[])
    with pytest.raises(aicf.ArtifactError, match="native code does not say which cpu level it needs"):
        aicf.load(path)


HEADERS = {
    "no length": b"AICFCODE",
    "no JSON": b"AICFCODE" + (2).to_bytes(8, "little") + b"{]",
    "deep": b"AICFCODE" + (200_000).to_bytes(8, "little") + b"[" * 200_000,
    "too long": b"AICFCODE" + b"\xff" * 8 + b"{}",
    "fields": b"AICFCODE" + (2).to_bytes(8, "little") + b"{}",
}


@pytest.mark.parametrize("case", HEADERS)
def test_damaged_headers(case: str):
    with pytest.raises(aicf.ArtifactError, match="native.bin"):
        native_file.read(HEADERS[case])


def test_what_is_written_is_read():
    needs = (ProgramNeeds("aicf_a", 2, 3, (64, 0, 12)),)
    native = NativeCode(b"code", ("cpu:generic",), ("f",), "device", {"aicf_a": 128}, needs)
    data = native_file.to_bytes(native, "ab12")
    assert native_file.read(memoryview(data)) == (native, "ab12")
    assert len(data) % 64 == len(native.code)


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a", "reference"])
def test_what_code_needs_is_what_its_plan_has(target: str, tmp_path: Path):
    """The bytes that instructions reach are those of the plan, and the arena's slots lie inside of it."""
    graph = Graph("sums")
    x = graph.input("x", [5, 33])
    graph.output(graph.softmax(x @ graph.param("w", (33, 7))), "y")
    exe = aicf.compile(graph, {"w": normal(33, 7)}, target)
    plans = {plan.entry: plan for plan in (*exe.plan.programs, *filter(None, [exe.plan.prepare]))}
    assert {needs.entry for needs in exe.native.programs} == set(plans)
    for needs in exe.native.programs:
        plan = plans[needs.entry]
        ends = [p.offset for launch in plan.launches for p in (*launch.outs, *launch.ws) if p.base == 0]
        assert needs.nbytes[1:] == tuple(bind.nbytes for bind in plan.graph.binds)
        assert needs.nbytes[0] <= plan.arena_bytes and all(end < needs.nbytes[0] for end in ends)
    exe.save(tmp_path / "m.aicf")
    assert reading.explain(tmp_path / "m.aicf")


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1}', '{"a": null}', "[]", "[" * 100_000])
def test_damaged_locations(text: str, saved: Path, tmp_path: Path):
    path = forge(saved, tmp_path / "forged.aicf", {LOCATIONS: text.encode()})
    with pytest.raises(aicf.ArtifactError, match="locations"):
        aicf.load(path)


def test_a_decision_about_nothing(saved: Path, tmp_path: Path):
    ledger = json.loads(artifact.read(saved).entry(LEDGER))
    ledger[0]["subjects"] = []
    path = forge(saved, tmp_path / "forged.aicf", {LEDGER: json.dumps(ledger).encode()})
    with pytest.raises(aicf.ArtifactError, match="has a decision about nothing"):
        aicf.load(path)
