"""Executables on the fake driver: each instruction of a program is one kernel, which the reference interpreter runs."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from aicf.backends.cuda.runtime.device_program import (
    FORMAT,
    Address,
    Dependency,
    DeviceModule,
    DeviceProgram,
    KernelNode,
    StoredCubin,
)
from aicf.backends.cuda.runtime.loader import reserves
from aicf.backends.cuda.runtime.storage import stored
from aicf.backends.native import NativeCode, ProgramNeeds
from aicf.backends.reference.backend import ReferenceBackend
from aicf.backends.reference.loader import ReferenceCode
from aicf.backends.reference.loader import load_native as load_reference
from aicf.runtime import Executable, ModulePlan
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.graph import Bind
from aicf.runtime.plan_from_ir import code_units, program_needs, read_module, target_of
from tests.backends.cuda.fake_driver import FakeDriver, Kernel
from tests.runtime.support import module_of


def device_executable(
    driver: FakeDriver,
    text: str,
    weights: Mapping[str, np.ndarray],
    *,
    staged: Collection[str] = (),
    **options: Any,
) -> Executable:
    """The program of `text` as cuda code for `driver`, with the inputs and outputs in `staged` bound so."""
    read, reference, needs = _parts(text)
    plan = replace(_bound(read, staged), backend="cuda", arch="sm_90a")
    native = replace(native_code(driver, plan, reference), programs=needs)
    return Executable(plan, native, weights, **options)


@cache
def _parts(text: str) -> tuple[ModulePlan, ReferenceCode, tuple[ProgramNeeds, ...]]:
    """What executables of a program have in common, which none of them changes: tests make dozens of the same text."""
    module = module_of(text)
    reference = load_reference(ReferenceBackend().build(module, code_units(module), target_of(module)))
    return read_module(module), reference, program_needs(module)


def _bound(plan: ModulePlan, staged: Collection[str]) -> ModulePlan:
    """The plan with its inputs and outputs as those of programs for cuda: staged, or direct at multiples of 16."""

    def bound(bind: Bind) -> Bind:
        if bind.role not in ("input", "output"):
            return bind
        is_staged = bind.name in staged
        return replace(bind, binding="staged" if is_staged else "direct", align=None if is_staged else 16)

    programs = tuple(
        replace(each, graph=replace(each.graph, binds=tuple(map(bound, each.graph.binds))))
        for each in plan.programs
    )
    return replace(plan, programs=programs)


def native_code(driver: FakeDriver, plan: ModulePlan, reference: ReferenceCode) -> NativeCode:
    """Cuda code of all programs of `plan`; what its kernels do is given to `driver`."""
    plans = [*plan.programs, *([] if plan.prepare is None else [plan.prepare])]
    for program in plans:
        for launch in range(len(program.launches)):
            driver.kernels[symbol_of(program, launch)] = _kernel(reference, program, launch)
    return cuda_code([_device_program(program) for program in plans])


def cuda_code(programs: Sequence[DeviceProgram], **changes: Any) -> NativeCode:
    """Stored code of hand-made programs, with an empty image for each symbol."""
    symbols = sorted({kernel.symbol for program in programs for kernel in program.kernels})
    section, table = b"", list[StoredCubin]()
    for symbol in symbols:
        image = symbol.encode()
        digest = hashlib.sha256(image).hexdigest()
        table.append(StoredCubin(symbol, len(section), len(image), digest, 32, 0, 0))
        section += image
    module = DeviceModule(FORMAT, "sm_90a", tuple(programs), tuple(table), {}, 13000)
    module = replace(module, **changes)
    return NativeCode(stored(module, section), ("cuda-sm_90a",), memory="device", reserves=reserves(module))


def symbol_of(program: CapturePlan, launch: int) -> str:
    """The kernel of one instruction."""
    return f"{program.entry}_{launch}"


def _device_program(plan: CapturePlan) -> DeviceProgram:
    """One node per instruction, which takes the whole pointer table; edges as the plan has them."""
    numbers = {node.name: number for number, node in enumerate(plan.graph.nodes)}
    table = tuple(Address(index, 0) for index in range(plan.table_size))
    kernels = tuple(
        KernelNode(
            node.name,
            symbol_of(plan, number),
            (1, 1, 1),
            (32, 1, 1),
            (1, 1, 1),
            0,
            table,
            (),
            (),
            "a" * plan.table_size,
            tuple(Dependency(numbers[edge.source], edge.kind == "programmatic") for edge in node.after),
        )
        for number, node in enumerate(plan.graph.nodes)
    )
    return DeviceProgram(plan.entry, plan.table_size, kernels, (), "k" * len(kernels))


def _kernel(reference: ReferenceCode, plan: CapturePlan, launch: int) -> Kernel:
    def run(pointers: list[int]) -> None:
        table = (ctypes.c_void_p * len(pointers))(*pointers)
        reference.profile_entry(plan.entry).bind(launch, 0, 1, ctypes.addressof(table))()

    return run
