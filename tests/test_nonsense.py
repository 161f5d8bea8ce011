"""Whatever stands where something else is wanted: an AicfError of one line, or Python's own TypeError of a signature.

Each public entry point is a function of one argument, which gives the others what they want. What is legal by chance
may succeed.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any

import numpy as np
import pytest

import aicf
from aicf import losses, optimizers, schedules
from aicf.comparison import diff
from aicf.compilation import reading
from aicf.compilation.record import Options
from aicf.compilation.saved_program import read_saved_program
from aicf.frontends.builder import Graph
from aicf.policies.tuning_table import TuningTable
from aicf.runtime.profiler import Profiler
from aicf.tuning import cases, devices, measure, plan
from aicf.tuning.growing_table import GrowingTable

Nonsense = Mapping[str, object]
MOST = 700
"""Characters of a message."""


class Sulky:
    """Answers nothing that is asked of every object."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def _recursive() -> tuple[list[object], dict[str, object]]:
    items: list[object] = []
    items.append(items)
    entries: dict[str, object] = {}
    entries["kernels"] = entries
    return items, entries


def _deep() -> list[object]:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    return value


RECURSIVE_LIST, RECURSIVE_DICT = _recursive()
TEXTS: dict[str, str] = {
    "empty": "",
    "space": " ",
    "word": "nonsense",
    "NUL": "a\0b.mlir",
    "NUL onnx": "a\0b.onnx",
    "NUL artifact": "a\0b.aicf",
    "missing": "nowhere/at/all.mlir",
    "missing onnx": "nowhere.onnx",
    "missing json": "nowhere.json",
    "folder": "/",
    "folder.mlir": "FOLDER",
    "surrogate": "\ud800.mlir",
    "surrogate word": "a\ud800",
    "long": "A" * 200_000,
    "long words": "a b " * 50_000,
    "long path": "A/" * 100_000 + "m.mlir",
    "number": "-1",
    "nan": "nan",
    "equals": "N=,=;;",
    "object": "{}",
    "deep": "[" * 100_000,
    "deep object": '{"a":' * 100_000,
    "deep program": "func.func @f() {" * 5000,
    "lines": "a\nb\rc",
    "braces": "%s{}{0}",
}
VALUES: dict[str, object] = {
    **TEXTS,
    "None": None,
    "True": True,
    "zero": 0,
    "minus": -1,
    "float": 1.5,
    "not a number": float("nan"),
    "infinity": float("inf"),
    "2^63": 1 << 63,
    "digits": 10**5000,
    "complex": 1j,
    "bytes": b"nonsense",
    "NUL bytes": b"\0" * 9,
    "Path": Path("nowhere"),
    "NUL Path": Path("a\0b.mlir"),
    "list": [],
    "list of None": [None],
    "list of text": ["x", "\0"],
    "set": {1},
    "dict": {},
    "dict of None": {"x": None},
    "dict of numbers": {1: 2, None: 3},
    "dict of long": {"A" * 200_000: "B" * 200_000},
    "recursive list": RECURSIVE_LIST,
    "recursive dict": RECURSIVE_DICT,
    "deep list": _deep(),
    "dict of deep": {"kernels": _deep(), "N": _deep()},
    "object of none": object(),
    "sulky": Sulky(),
    "type": int,
    "function": len,
    "generator": (x for x in ()),
    "namespace": SimpleNamespace(),
    "array": np.full((2, 3), np.nan, np.float32),
    "no elements": np.zeros((0, 3), np.float32),
    "texts": np.array(["a", "b"]),
    "objects": np.array([None, {}], object),
    "records": np.zeros(2, [("a", "f4")]),
    "dates": np.zeros(2, "datetime64[s]"),
    "wrong byte order": np.zeros((2, 3), ">f4"),
    "memory": memoryview(b"abcdef"),
}

TEXT = """
func.func @f(%x : tensor<2x3xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<2x3xf32> {logical.name = "y"}) {
  %y = logical.relu %x : tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}
"""
X = np.ones((2, 3), np.float32)
PRODUCT = """
func.func @p(%x : tensor<2x3xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<2x2xf32> {logical.name = "y"}) {
  %w = logical.constant dense<1.0> : tensor<3x2xf32>
  %y = logical.matmul %x, %w : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
  func.return %y : tensor<2x2xf32>
}
"""


def _graph() -> Graph:
    graph = Graph("g")
    graph.output(graph.linear(graph.input("x", (2, 3)), graph.param("w", (4, 3))), "p")
    return graph


def _train(**given: Any) -> aicf.TrainStep:
    wanted: dict[str, Any] = {
        "model": _graph(),
        "loss": "mse",
        "optimizer": optimizers.SGD(0.1),
        "target": "reference",
    }
    return aicf.train_step(**{**wanted, **given})


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """What methods are called on."""
    folder = tmp_path_factory.mktemp("nonsense")
    (folder / "folder.mlir").mkdir()
    rate = schedules.Plateau(0.1)
    exe, step = aicf.compile(TEXT, target="reference"), _train(optimizer=optimizers.SGD(rate))
    exe.save(folder / "m.aicf")
    step.save_program(folder / "step.aicf")
    step(X, np.ones((2, 4), np.float32))
    session = aicf.InferenceSession(TEXT, device="reference")
    session.run({"x": X})
    saved = folder / "m.aicf"
    return SimpleNamespace(
        folder=folder,
        exe=exe,
        step=step,
        session=session,
        saved=saved,
        saved_program=read_saved_program(saved),
    )


Entry = Callable[[SimpleNamespace, Any], object]


def _option(function: Callable[..., object], name: str, *first: object, **others: object) -> Entry:
    return lambda things, value: function(*first, **{**others, name: value})


def _method(owner: str, name: str, argument: str | None = None, **others: object) -> Entry:
    """A method of one of the things, its first argument or the one called so."""
    if argument is None:
        return lambda things, value: getattr(getattr(things, owner), name)(value, **others)
    return lambda things, value: getattr(getattr(things, owner), name)(**{**others, argument: value})


def _parameters(function: Callable[..., object]) -> list[str]:
    return list(inspect.signature(function).parameters)


def _entries() -> Iterator[tuple[str, Entry]]:
    for name in _parameters(aicf.compile):
        base: dict[str, object] = {"model": TEXT, "target": "reference"}
        yield f"compile {name}", _option(aicf.compile, name, **base)
    for name in _parameters(aicf.calibrate):
        base = {"model": PRODUCT, "samples": [X], "target": "reference"}
        option = _option(aicf.calibrate, name, **base)
        if name == "step":
            yield "calibrate step", lambda things, value, option=option: option(things, _no_function(value))
        else:
            yield f"calibrate {name}", option
    for name in _parameters(aicf.InferenceSession):
        yield (
            f"InferenceSession {name}",
            _option(aicf.InferenceSession, name, **{"model": TEXT, "device": "reference"}),
        )
    for name in _parameters(aicf.train_step):
        yield f"train_step {name}", lambda _, value, name=name: _train(**{name: value})
    yield "load path", lambda _, value: aicf.load(value)
    yield "load native", lambda things, value: aicf.load(things.saved, native=value)
    yield "load weights", lambda things, value: aicf.load(things.saved, weights=value)
    yield "load_step path", lambda _, value: aicf.load_step(value)
    yield "load_step native", lambda things, value: aicf.load_step(things.folder / "step.aicf", value)
    yield "reading.explain path", lambda _, value: reading.explain(value)
    yield "reading.explain value", lambda things, value: reading.explain(things.saved, value)
    yield "reading.why_not", lambda things, value: reading.explain_why_not(things.saved, value, value)
    yield from _of_executables()
    yield from _of_sessions()
    yield from _of_steps()
    yield from _of_training_parts()
    yield from _of_policies()
    yield from _of_comparisons()
    yield from _of_tuning()


def _of_executables() -> Iterator[tuple[str, Entry]]:
    for name in (
        "__call__",
        "run",
        "bind",
        "dims_of",
        "state",
        "set_state",
        "ir",
        "explain",
        "instantiate",
        "attach",
    ):
        yield f"exe.{name}", _method("exe", name)
    yield "exe.__call__ x", _method("exe", "__call__", "x")
    yield "exe.__call__ two", lambda things, value: things.exe(X, value)
    yield "exe.__call__ z", _method("exe", "__call__", "z")
    yield "exe.run x", lambda things, value: things.exe.run({"x": value})
    yield "exe.run out", lambda things, value: things.exe.run({"x": X}, out=value)
    yield "exe.run out y", lambda things, value: things.exe.run({"x": X}, out={"y": value})
    yield "exe.bind x", _method("exe", "bind", "x")
    yield "exe.bind y", _method("exe", "bind", "y", x=X)
    yield "exe.instantiate N", _method("exe", "instantiate", "N")
    yield "exe.why_not", lambda things, value: things.exe.why_not(value, "relu")
    yield "exe.save", lambda things, value: things.exe.save(_inside(things, value))
    yield "graph_exec.bind", lambda things, value: things.exe.bind(x=X).bind(value)
    yield "graph_exec.fill", lambda things, value: things.exe.bind(x=X).fill(value)
    yield "graph_exec.fill x", lambda things, value: things.exe.bind(x=X).fill({"x": value})
    yield "graph_exec item", lambda things, value: things.exe.bind(x=X)[value]
    yield "graph_exec.replay", lambda things, value: things.exe.bind(x=X).replay(_few(value))
    yield "Profiler", lambda _, value: Profiler(value)
    yield "Profiler.measure", lambda things, value: Profiler(things.exe).measure(value)
    yield "Profiler repeats", lambda things, value: Profiler(things.exe).measure(X, repeats=_few(value))


def _of_sessions() -> Iterator[tuple[str, Entry]]:
    for name in ("run", "bind", "warm_up", "profile", "state", "set_state"):
        yield f"session.{name}", _method("session", name)
    yield "session.run x", lambda things, value: things.session.run({"x": value})
    yield "session.run list", lambda things, value: things.session.run([value])
    yield "session.run outputs", lambda things, value: things.session.run({"x": X}, value)
    yield "session.run out", lambda things, value: things.session.run({"x": X}, out=value)
    yield "session.warm_up feeds", _method("session", "warm_up", "feeds")
    yield "session.profile repeats", lambda things, value: things.session.profile({"x": X}, _few(value))
    yield "binding x", _method("session", "bind", "x")


def _of_steps() -> Iterator[tuple[str, Entry]]:
    names = (
        "__call__",
        "loss_of",
        "load_state_dict",
        "load",
        "set_learning_rate",
        "report_metric",
        "explain",
        "ir",
    )
    for name in names:
        yield f"step.{name}", _method("step", name)
    yield "step.__call__ x", _method("step", "__call__", "x", y=X)
    yield "step.replay", lambda things, value: things.step.replay(_few(value))
    yield "step.save", lambda things, value: things.step.save(_inside(things, value))
    yield "step.save_program", lambda things, value: things.step.save_program(_inside(things, value))


_SCHEDULES: Mapping[type[schedules.Schedule], Mapping[str, Any]] = {
    schedules.Constant: {},
    schedules.Linear: {"total": 5},
    schedules.Cosine: {"total": 5},
    schedules.Step: {"step_size": 2},
    schedules.MultiStep: {"milestones": [2]},
    schedules.OneCycle: {"total": 9},
    schedules.FromHost: {},
    schedules.Plateau: {},
}
"""Every schedule, and what it does not do without."""


def _of_training_parts() -> Iterator[tuple[str, Entry]]:
    for kind in (optimizers.SGD, optimizers.Adam, optimizers.AdamW):
        for name in _parameters(kind):
            yield (
                f"{kind.__name__} {name}",
                lambda _, value, kind=kind, name=name: _train(optimizer=kind(**{"lr": 0.1, name: value})),
            )
    for kind, needs in _SCHEDULES.items():
        for name in _parameters(kind):
            rate = {"lr": 0.1, **needs}
            yield (
                f"{kind.__name__} {name}",
                lambda _, value, kind=kind, name=name, rate=rate: _train(
                    optimizer=optimizers.SGD(kind(**{**rate, name: value}))
                ),
            )
    for name in losses.__all__:
        kind = getattr(losses, name)
        for parameter in _parameters(kind) if isinstance(kind, type) and not inspect.isabstract(kind) else ():
            yield (
                f"{name} {parameter}",
                lambda _, value, kind=kind, parameter=parameter: _train(loss=kind(**{parameter: value})),
            )


def _of_policies() -> Iterator[tuple[str, Entry]]:
    for kind in (aicf.Policy, aicf.KernelPolicy, aicf.ExecutionPolicy, aicf.PrecisionPolicy):
        for name in _parameters(kind):
            yield (
                f"{kind.__name__} {name}",
                lambda _, value, kind=kind, name=name: aicf.compile(
                    TEXT, target="reference", policy=kind(**{name: value})
                ),
            )
            if kind is not aicf.Policy:
                yield (
                    f"{kind.__name__} {name} in plain",
                    lambda _, value, kind=kind, name=name: kind.from_json_value({name: value}),
                )
        yield f"{kind.__name__}.from_json_value", lambda _, value, kind=kind: kind.from_json_value(value)
    yield "Policy.from_text", lambda _, value: aicf.Policy.from_text(value)
    yield "Policy.load", lambda _, value: aicf.Policy.load(value)
    yield "Policy.save", lambda things, value: aicf.Policy().save(_inside(things, value))
    yield "TuningTable.from_text", lambda _, value: TuningTable.from_text(value)
    yield "TuningTable.load", lambda _, value: TuningTable.load(value)


def _of_comparisons() -> Iterator[tuple[str, Entry]]:
    yield "read_saved_program", lambda _, value: read_saved_program(value)
    yield "diff.compare before", lambda things, value: diff.compare(value, things.saved_program)
    yield "diff.compare after", lambda things, value: diff.compare(things.saved_program, value)


def _of_tuning() -> Iterator[tuple[str, Entry]]:
    options = Options("cpu", "", "", 1)

    def quiet(text: str) -> None: ...

    @cache
    def prepared() -> cases.Prepared:
        return plan.prepare(TEXT, options, 1, quiet)

    @cache
    def device() -> measure.Device:
        return devices.open_device(prepared().setting)

    def grown(older: Any = None) -> GrowingTable:
        return GrowingTable(measure.header_of(prepared().setting, device()), older)

    def tuned(things: SimpleNamespace, **given: Any) -> object:
        return aicf.tune(**{"model": TEXT, "output": things.folder / "tuning.json", "variants": 1, **given})

    yield "prepare model", lambda _, value: plan.prepare(value, options, 1, quiet)
    yield "prepare options", lambda _, value: plan.prepare(TEXT, value, 1, quiet)
    yield "prepare variants", lambda _, value: plan.prepare(TEXT, options, value, quiet)
    yield "prepare step", lambda _, value: plan.prepare(TEXT, options, 1, _no_function(value))
    yield "cases.save prepared", lambda things, value: cases.save(value, things.folder / "cases")
    yield "cases.save folder", lambda things, value: cases.save(prepared(), _inside(things, value))
    yield "cases.load", lambda _, value: cases.load(value)
    yield "check_device", lambda _, value: devices.check_device(value)
    yield "open_device", lambda _, value: devices.open_device(value)
    yield "measure prepared", lambda _, value: measure.measure(value, device(), quiet, grown())
    yield "measure device", lambda _, value: measure.measure(prepared(), value, quiet, grown())
    yield "measure table", lambda _, value: measure.measure(prepared(), device(), quiet, value)
    yield "measure older", lambda _, value: grown(value)
    yield "tune model", lambda things, value: tuned(things, model=value)
    yield "tune output", lambda things, value: tuned(things, output=_inside(things, value))
    yield "tune variants", lambda things, value: tuned(things, variants=value)
    yield "tune time", lambda things, value: tuned(things, search=True, time=value)
    yield "tune replace", lambda things, value: tuned(things, replace=value)


SLOW = (
    "compile name",
    "compile training",
    "InferenceSession",
    "train_step",
    "SGD",
    "Adam",
    "Constant",
    "Linear",
    "Cosine",
    "Step",
    "MultiStep",
    "OneCycle",
    "FromHost",
    "Plateau",
    "BCE",
    "Cross",
    "Huber",
    "MSE",
)
"""Entries that compile a program or build a training step of what is legal."""
SOME = (
    "empty",
    "NUL",
    "surrogate",
    "None",
    "minus",
    "digits",
    "complex",
    "bytes",
    "list of None",
    "dict of numbers",
)
"""What these get of the values."""
ALSO = ("recursive list", "deep list", "sulky", "type", "array", "objects", "not a number")


def _values(entry: str) -> Nonsense:
    if not entry.startswith(SLOW):
        return VALUES
    return {name: VALUES[name] for name in (*SOME, *ALSO)}


def _few(value: Any) -> Any:
    """No number that would take long."""
    return 3 if isinstance(value, int) and value > 1000 else value


def _no_function(value: Any) -> Any:
    """Nothing that can be called: what it raises is not for us to catch."""
    return None if callable(value) else value


def _inside(things: SimpleNamespace, value: Any) -> Any:
    """A path in a folder of the test's, where it is one."""
    if isinstance(value, str) and value not in ("", "/"):
        return os.path.join(str(things.folder), "out", value)
    return "/" if isinstance(value, Path) and "\0" not in str(value) else value


ENTRIES = dict(_entries())


def _of(things: SimpleNamespace, value: object) -> object:
    return str(things.folder / "folder.mlir") if isinstance(value, str) and value == "FOLDER" else value


def problem_of(call: Callable[[], object]) -> str | None:
    """What is wrong with how a call ends."""
    try:
        call()
    except aicf.AicfError as error:
        text = str(error)
        if not text.isprintable() or len(error.message) > MOST or len(error.location or "") > MOST:
            return f"a message of {len(text)} characters: {text[:200]!r}"
    except TypeError as error:
        if "/tests/" not in _frames(error)[-1].tb_frame.f_code.co_filename:
            return _foreign(error)
    except Exception as error:
        return _foreign(error)
    return None


def _foreign(error: BaseException) -> str:
    last = [f"{Path(each.tb_frame.f_code.co_filename).name}:{each.tb_lineno}" for each in _frames(error)[-3:]]
    return f"{type(error).__name__}: {str(error)[:100]!r} at {' '.join(last)}"


def _frames(error: BaseException) -> list[TracebackType]:
    found: list[TracebackType] = []
    trace = error.__traceback__
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found


@pytest.mark.parametrize("entry", ENTRIES)
def test_nonsense_is_one_line(entry: str, things: SimpleNamespace, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(things.folder)
    found = {
        name: problem
        for name, value in _values(entry).items()
        if (problem := problem_of(lambda value=value: ENTRIES[entry](things, _of(things, value))))
    }
    assert not found, "\n".join(f"{name}: {problem}" for name, problem in found.items())
