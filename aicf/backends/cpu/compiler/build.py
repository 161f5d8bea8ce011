"""One LLVM module per program module: a function per distinct instruction, and one entry per program that calls them.

``void ENTRY(i64 tid, i64 nthreads, void** table)`` runs a program; ``ENTRY_profile(i64 launch, ...)`` runs one of its
instructions (`entries`). Pointers and functions come only through the table, so the object has no undefined symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from llvmlite import ir

from aicf.backends.base import CodeUnit, Launch
from aicf.backends.common.record import naming
from aicf.backends.cpu.codegen.barrier import emit_barrier_function
from aicf.backends.cpu.codegen.call import Call, operand_count, thread_count
from aicf.backends.cpu.codegen.ir_builder import I64, PTR, VOID, Emitter, Number
from aicf.backends.cpu.codegen.subnormals import emit_flushed
from aicf.backends.cpu.compiler.entries import Called, Entries
from aicf.backends.cpu.compiler.module import compile_module, new_module
from aicf.backends.cpu.compiler.shared_functions import bits_of, function_keys
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.runtime.loader import BARRIER, YIELD
from aicf.backends.cpu.target import CpuLevel
from aicf.backends.registry import get_kernels
from aicf.errors import PlanError


def build_object(name: str, units: Sequence[CodeUnit], level: CpuLevel) -> tuple[bytes, tuple[str, ...]]:
    """Object code of all units, and the names of the functions that follow the data pointers in every table."""
    return _Module(name, units, level).build()


def _threads(launch: Launch) -> int:
    with naming(launch.name):
        return thread_count(launch)


class _Module:
    def __init__(self, name: str, units: Sequence[CodeUnit], level: CpuLevel) -> None:
        self.units = units
        self.kernels = cast("Mapping[str, CpuKernel[Any]]", get_kernels("cpu"))
        self.level = level
        self.module = new_module(name, level)
        self.functions = self._table_functions()
        self.compiled: dict[str, Any] = {}
        launches = [launch for unit in units for launch in unit.launches]
        self.keys = function_keys([(launch, self.kernel(launch).reads_body) for launch in launches])
        self.barrier: Any = None
        if BARRIER in self.functions:
            yield_at = self.functions.index(YIELD) - self.functions.index(BARRIER)
            self.barrier = emit_barrier_function(self.module, level, yield_at)

    def _table_functions(self) -> tuple[str, ...]:
        launches = [launch for unit in self.units for launch in unit.launches]
        names = [BARRIER, YIELD] if any(_threads(launch) > 1 for launch in launches) else []
        called = (self.kernel(launch).library_function(launch) for launch in launches)
        libraries = {name for name in called if name is not None}
        return (*names, *sorted(libraries))

    def kernel(self, launch: Launch) -> CpuKernel[Any]:
        """The kernel of an instruction. Raises PlanError if this backend has none of that name."""
        if (kernel := self.kernels.get(launch.kernel)) is None:
            raise PlanError(
                f"instruction '{launch.name}': kernel '{launch.kernel}' is not one of cpu's "
                f"({', '.join(self.kernels)}): run select-kernels for this target"
            )
        return kernel

    def build(self) -> tuple[bytes, tuple[str, ...]]:
        for unit in self.units:
            Entries(
                self.module, self.level, unit.entry, self._calls(unit), unit.table_size, self.barrier
            ).emit()
        return compile_module(self.module, self.level), self.functions

    def _calls(self, unit: CodeUnit) -> list[Called]:
        """The instructions of a program in order, with where its threads have to meet."""
        calls: list[Called] = []
        pending: dict[str, bool] = {}
        for launch in unit.launches:
            serial = _threads(launch) == 1
            # Two serial instructions run in thread 0, in order; any other dependence needs a meeting point.
            meets = any(not (serial and pending[name]) for name in launch.waits_for if name in pending)
            if meets:
                pending = {}
            pending[launch.name] = serial
            calls.append(self._call(launch, serial, meets))
        return calls

    def _call(self, launch: Launch, serial: bool, meets: bool) -> Called:
        """The call of an instruction; those that are equal but for buffers and numbers share a function."""
        key, numbers = self.keys[id(launch)]
        function = self._compiled_function(launch, key, numbers)
        operands = (*launch.ins, *launch.outs, *launch.ws)
        return Called(function, operands, [bits_of(number) for number in numbers], serial, meets)

    def _compiled_function(self, launch: Launch, key: str, numbers: Sequence[Number]) -> Any:
        """The function by what it depends on; one that reads numbers has an argument more."""
        if key not in self.compiled:
            pointers, given = [PTR] * operand_count(launch), [PTR] if numbers else []
            signature = ir.FunctionType(VOID, [*pointers, I64, I64, PTR, *given])
            function = ir.Function(self.module, signature, f"instruction_{len(self.compiled)}")
            function.linkage = "internal"
            self._body(launch, function, numbers)
            self.compiled[key] = function
        return self.compiled[key]

    def _body(self, launch: Launch, function: Any, numbers: Sequence[Number]) -> None:
        kernel = self.kernel(launch)
        generator = import_module(kernel.code_generator)

        def emit(em: Emitter) -> None:
            if numbers:
                em.give_numbers(numbers, em.function.args[-1])
            generator.emit(em, launch, Call.of(launch, em.function.args, self.functions))

        em = Emitter(self.module, self.level, function)
        with naming(launch.name):
            if kernel.flushes_subnormals(launch.record):
                emit_flushed(em, emit)
            else:
                emit(em)
        em.b.ret_void()
