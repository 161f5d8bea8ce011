"""Where the compiled cases come from: a folder that `prepare` filled, or a compile on the spot.

A machine with a GPU need not have what compiles for it, and the machine that compiles need not have a GPU. Files hold
no weights: those follow from the case. Nor do they hold algorithms of cublasLt: the library that is there is asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import aicf
from aicf.backends.cuda.runtime.device import CudaDevice
from aicf.backends.cuda.runtime.device_program import DeviceModule, DeviceProgram, LibraryNode
from aicf.backends.cuda.runtime.library import library_of, module_of, offered
from aicf.backends.cuda.runtime.storage import read, stored
from aicf.compilation.compiled import CompiledModel
from aicf.compilation.record import Options
from aicf.dialects.json_values import json_value
from aicf.frontends.text import make_context
from aicf.policies.tuning_table import Header, MeasuredWorkload, Row, Timing, TuningTable
from aicf.tuning.candidates import Candidate, candidates, grouped
from tests.gpu.case_table.case import ROOT, TARGET, Case
from tests.gpu.cases import CASES

FOLDER = "AICF_GPU_ARTIFACTS"
"""Environment variable: the folder of artifacts; unset, cases are compiled when they are tested."""

DIGITS = "digits"
"""Name of the folder in it that holds what the digits demo made."""

_ALL = 100_000


def compiled(name: str) -> CompiledModel:
    """The case, compiled now."""
    case = CASES[name]
    program = case.make()
    tuning = None if case.variant is None else _table_of(case)
    options = {"policy": case.policy, "tuning": tuning, "name": name, **case.options}
    return aicf.compile(program.module, program.weights, case.target, **options)


def obtained(name: str) -> CompiledModel:
    """The case from the folder, if there is one, else compiled now; ready to run on this machine's GPU."""
    return changed(from_folder(name, name) or compiled(name), _with_algorithms)


def from_folder(file: str, case: str) -> CompiledModel | None:
    """What `prepare` wrote as `file`, with the weights of `case`; None without a folder."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return None
    return aicf.load(path_of(file, Path(folder)), weights=CASES[case].make().weights)


def digits_folder(own: Path) -> Path:
    """What the digits demo made for `TARGET`: in the folder of artifacts, else now in `own`."""
    folder = os.environ.get(FOLDER)
    if folder is not None:
        return Path(folder) / DIGITS
    make_digits(own)
    return own


def make_digits(build: Path) -> None:
    """Runs the digits demo for `TARGET`, which ends with the artifact where there is no GPU."""
    command = [sys.executable, ROOT / "examples" / "digits" / "demo.py", "--target", TARGET, "--build", build]
    subprocess.run(command, cwd=ROOT, env=environment(), check=True)


def environment() -> dict[str, str]:
    """For a process that imports what this one can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def path_of(name: str, folder: Path) -> Path:
    """The file of a case."""
    return folder / f"{name}.aicf"


def changed(model: CompiledModel, change: Callable[[DeviceProgram], DeviceProgram]) -> CompiledModel:
    """The model with its programs' code as `change` makes it."""
    module, _ = read(model.native.code)
    fresh = replace(module, programs=tuple(change(program) for program in module.programs))
    return with_module(model, fresh)


def with_module(model: CompiledModel, module: DeviceModule) -> CompiledModel:
    """The model with another module around its kernels."""
    _, cubins = read(model.native.code)
    section = b"".join(cubins[entry.symbol] for entry in module.cubins)
    native = replace(model.native, code=stored(module, section))
    return CompiledModel(model.record, model.plan, native, model.weights)


# A variant, by a table that has measured nothing else


def _table_of(case: Case) -> TuningTable:
    """A tuning table with one row: the variant that the case asks for."""
    policy = json.dumps(case.policy) if case.policy else ""
    module = grouped(case.make().module, Options(case.target, policy, "", 1), make_context(), _silent)
    found = next(each for each in candidates(module, _ALL) if _is_wanted(each, case))
    given = {name: json_value(found.record.record.data[name]) for name in _device_fields(found)}
    timing = Timing(1.0, 0.0)
    row = Row(found.kernel.id, found.kernel.version, found.spec, given, timing, timing)
    backend, _, arch = case.target.partition(":")
    header = Header(backend, arch, 1, "none: a test's choice", "", {}, {})
    return TuningTable(header).with_works([MeasuredWorkload(found.work.digest, found.work, (row,))])


def _silent(what: str) -> None:
    """Progress that nobody watches."""


def _device_fields(candidate: Candidate) -> tuple[str, ...]:
    return tuple(getattr(candidate.kernel, "device_fields", ()))


def _is_wanted(candidate: Candidate, case: Case) -> bool:
    assert case.variant is not None
    record = candidate.record.record.data
    return candidate.kernel.id == case.kernels[0] and all(
        name in record and json_value(record[name]) == value for name, value in case.variant.items()
    )


# Algorithms of the library


def _with_algorithms(program: DeviceProgram) -> DeviceProgram:
    """Each library call with the first algorithm that the library here offers for it."""
    return replace(program, libraries=tuple(_with_algorithm(node) for node in program.libraries))


def _with_algorithm(node: LibraryNode) -> LibraryNode:
    (offer,) = offered(CudaDevice(), node, 1)
    most = node.call["workspace_bytes"]
    assert offer.workspace_bytes <= cast(int, most)
    version = module_of(library_of(node.function)).version()
    # The plan has room for the most that may be asked for.
    return replace(node, version=version, call={**node.call, **offer.values, "workspace_bytes": most})
