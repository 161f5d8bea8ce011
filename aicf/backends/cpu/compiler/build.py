"""One LLVM module per program module: a function per distinct instruction, and one entry per program that calls them.

``void ENTRY(i64 tid, i64 nthreads, void** table)`` runs a program; ``ENTRY_profile(i64 launch, ...)`` runs one of its
instructions. Pointers and functions come only through the table, so the object has no undefined symbols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from llvmlite import ir

from aicf.backends.base import BufferRef, CodeUnit, Launch
from aicf.backends.common.record import naming
from aicf.backends.cpu.codegen.barrier import emit_barrier_function
from aicf.backends.cpu.codegen.call import Call, operand_count, thread_count
from aicf.backends.cpu.codegen.ir_builder import I8, I64, PTR, VOID, Emitter, Number, Value
from aicf.backends.cpu.codegen.subnormals import emit_flushed
from aicf.backends.cpu.compiler.module import compile_module, new_module
from aicf.backends.cpu.compiler.shared_functions import function_keys, global_numbers
from aicf.backends.cpu.families.cpu_kernel import CpuKernel
from aicf.backends.cpu.runtime.loader import BARRIER, PROFILE_SUFFIX, YIELD
from aicf.backends.cpu.target import CpuLevel
from aicf.backends.registry import get_kernels
from aicf.errors import PlanError


@dataclass(frozen=True)
class _Called:
    """The function of an instruction, and the address of the numbers that it reads, if it reads some."""

    function: Any
    numbers: Value | None = None


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
        self.tables: dict[tuple[Number, ...], Value] = {}
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
            called = [self._function(launch) for launch in unit.launches]
            self._entry(unit, called)
            self._profile_entry(unit, called)
        return compile_module(self.module, self.level), self.functions

    # Instructions.

    def _function(self, launch: Launch) -> _Called:
        """The function of an instruction; those that are equal but for buffers and numbers share one."""
        key, numbers = self.keys[id(launch)]
        function = self._compiled_function(launch, key, numbers)
        if not numbers:
            return _Called(function)
        if numbers not in self.tables:
            self.tables[numbers] = global_numbers(self.module, numbers)
        return _Called(function, self.tables[numbers])

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

    # Entries.

    def _entry(self, unit: CodeUnit, called: Sequence[_Called]) -> None:
        function = ir.Function(self.module, ir.FunctionType(VOID, [I64, I64, PTR]), unit.entry)
        em = Emitter(self.module, self.level, function)
        tid, nthreads, table = function.args
        if all(_threads(launch) == 1 for launch in unit.launches):
            em.when(
                em.b.icmp_signed("==", tid, em.index(0)),
                lambda: self._calls(em, unit, called, function.args),
            )
            em.b.ret_void()
            return
        pending: dict[str, bool] = {}
        for launch, target in zip(unit.launches, called, strict=True):
            serial = _threads(launch) == 1
            # Two serial instructions run in thread 0, in order; any other dependence needs a meeting point.
            if any(not (serial and pending[name]) for name in launch.waits_for if name in pending):
                em.b.call(self.barrier, [self._function_table(em, unit, table), nthreads])
                pending = {}
            pending[launch.name] = serial
            if serial:
                first = em.b.icmp_signed("==", tid, em.index(0))
                em.when(
                    first,
                    lambda launch=launch, target=target: self._call(em, unit, launch, target, function.args),
                )
            else:
                self._call(em, unit, launch, target, function.args)
        em.b.ret_void()

    def _calls(self, em: Emitter, unit: CodeUnit, called: Sequence[_Called], args: Sequence[Value]) -> None:
        """All launches in order, in one thread."""
        for launch, target in zip(unit.launches, called, strict=True):
            self._call(em, unit, launch, target, args)

    def _profile_entry(self, unit: CodeUnit, called: Sequence[_Called]) -> None:
        signature = ir.FunctionType(VOID, [I64, I64, I64, PTR])
        function = ir.Function(self.module, signature, unit.entry + PROFILE_SUFFIX)
        em = Emitter(self.module, self.level, function)
        number, tid, nthreads, table = function.args
        done = function.append_basic_block("done")
        choice = em.b.switch(number, done)
        for index, (launch, target) in enumerate(zip(unit.launches, called, strict=True)):
            block = function.append_basic_block("launch")
            choice.add_case(em.index(index), block)
            em.b.position_at_end(block)
            if _threads(launch) == 1:
                first = em.b.icmp_signed("==", tid, em.index(0))
                em.when(
                    first,
                    lambda launch=launch, target=target: self._call(
                        em, unit, launch, target, (tid, nthreads, table)
                    ),
                )
            else:
                self._call(em, unit, launch, target, (tid, nthreads, table))
            em.b.branch(done)
        em.b.position_at_end(done)
        em.b.ret_void()

    def _function_table(self, em: Emitter, unit: CodeUnit, table: Value) -> Value:
        return em.b.gep(table, [em.index(unit.table_size)], source_etype=PTR)

    def _call(
        self, em: Emitter, unit: CodeUnit, launch: Launch, target: _Called, args: Sequence[Value]
    ) -> None:
        tid, nthreads, table = args
        pointers = [self._pointer(em, table, ref) for ref in (*launch.ins, *launch.outs, *launch.ws)]
        given = [] if target.numbers is None else [target.numbers]
        arguments = [*pointers, tid, nthreads, self._function_table(em, unit, table), *given]
        em.b.call(target.function, arguments)

    def _pointer(self, em: Emitter, table: Value, ref: BufferRef) -> Value:
        base = em.b.load(em.b.gep(table, [em.index(ref.base)], source_etype=PTR), typ=PTR)
        return em.b.gep(base, [em.index(ref.offset)], source_etype=I8) if ref.offset else base
