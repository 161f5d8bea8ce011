"""The entries of a program: one loop over its instructions as data, so that depth adds no code.

    for (i = first; i < last; ++i) {
        row = rows + starts[i];
        if (row[0] & 1 && i != first) barrier();
        switch (row[0] >> 1) { case 0: f0(pointer(row + 1), pointer(row + 3), ..., tid, nthreads, functions); ... }
    }

A row has a word for function and barrier, two for each operand (its pointer in the table, and bytes past it), and then
the numbers that the function reads. ``ENTRY`` runs all rows, ``ENTRY_profile`` one of them, or
none if its number is -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from aicf.backends.base import BufferRef
from aicf.backends.cpu.codegen.ir_builder import I8, I64, PTR, VOID, Emitter, Value
from aicf.backends.cpu.runtime.loader import PROFILE_SUFFIX
from aicf.backends.cpu.target import CpuLevel


@dataclass(frozen=True)
class Called:
    """A call of an instruction's function.

    Args:
        function: Of data pointers, thread, threads, function pointers, and of its numbers if it reads some.
        operands: Where the data pointers come from.
        numbers: What it reads, as bits.
        is_serial: Whether thread 0 alone runs it.
        meets: Whether all threads meet before it.
    """

    function: Any
    operands: Sequence[BufferRef]
    numbers: Sequence[int]
    is_serial: bool
    meets: bool


class Entries:
    """Writes the entries of one program into a module.

    Args:
        module: Of its functions.
        level: Of the module.
        entry: The symbol.
        calls: In order.
        table_size: Data pointers in the table, which the function pointers follow.
        barrier: The function by which threads meet; None if they never do.
    """

    def __init__(
        self,
        module: Any,
        level: CpuLevel,
        entry: str,
        calls: Sequence[Called],
        table_size: int,
        barrier: Any,
    ) -> None:
        self._module, self._level, self._entry, self._calls = module, level, entry, calls
        self._table_size, self._barrier = table_size, barrier
        self._kinds = list({call.function.name: call for call in calls}.values())
        self._number = {kind.function.name: number for number, kind in enumerate(self._kinds)}

    def emit(self) -> None:
        """Adds ``ENTRY(tid, nthreads, table)`` and ``ENTRY_profile(launch, tid, nthreads, table)``."""
        run = self._loop()
        whole = ir.Function(self._module, ir.FunctionType(VOID, [I64, I64, PTR]), self._entry)
        em = Emitter(self._module, self._level, whole)
        em.b.call(run, [em.index(0), em.index(len(self._calls)), *whole.args])
        em.b.ret_void()
        signature = ir.FunctionType(VOID, [I64, I64, I64, PTR])
        one = ir.Function(self._module, signature, self._entry + PROFILE_SUFFIX)
        em = Emitter(self._module, self._level, one)
        launch, *rest = one.args
        is_none = em.b.icmp_signed(
            "<", launch, em.index(0)
        )  # the empty call, whose time is taken off the others
        first = em.b.select(is_none, em.index(0), launch)
        em.b.call(run, [first, em.b.add(launch, em.index(1)), *rest])
        em.b.ret_void()

    def _loop(self) -> Any:
        """``void loop(first, last, tid, nthreads, table)``."""
        signature = ir.FunctionType(VOID, [I64, I64, I64, I64, PTR])
        function = ir.Function(self._module, signature, f"{self._entry}.loop")
        function.linkage = "internal"
        em = Emitter(self._module, self._level, function)
        first, last, tid, nthreads, table = function.args
        functions = em.b.gep(table, [em.index(self._table_size)], source_etype=PTR)
        starts, rows = self._data()
        begin = em.b.block
        head, body, following, done = (
            function.append_basic_block(name) for name in ("head", "row", "next", "done")
        )
        if all(call.is_serial for call in self._calls):  # the other threads have nothing to do
            em.b.cbranch(em.b.icmp_signed("==", tid, em.index(0)), head, done)
        else:
            em.b.branch(head)
        em.b.position_at_end(head)
        index = em.b.phi(I64)
        index.add_incoming(first, begin)
        em.b.cbranch(em.b.icmp_signed("<", index, last), body, done)
        em.b.position_at_end(body)
        row = _element(em, rows, em.b.load(_element(em, starts, index), typ=I64))
        word = em.b.load(row, typ=I64)
        if any(call.meets for call in self._calls):
            meets = em.b.and_(em.b.trunc(word, ir.IntType(1)), em.b.icmp_signed("!=", index, first))
            em.when(meets, lambda: em.b.call(self._barrier, [functions, nthreads]))
        choice = em.b.switch(em.b.ashr(word, em.index(1)), following)
        for number, kind in enumerate(self._kinds):
            block = function.append_basic_block("call")
            choice.add_case(em.index(number), block)
            em.b.position_at_end(block)
            self._call(em, kind, row, (tid, nthreads, functions), table)
            em.b.branch(following)
        em.b.position_at_end(following)
        index.add_incoming(em.b.add(index, em.index(1)), following)
        em.b.branch(head)
        em.b.position_at_end(done)
        em.b.ret_void()
        return function

    def _call(self, em: Emitter, kind: Called, row: Value, context: Sequence[Value], table: Value) -> None:
        """A call of the function of `kind` on what a row says."""

        def call() -> None:
            pointers = [self._pointer(em, row, table, index) for index in range(len(kind.operands))]
            numbers = [_element(em, row, em.index(1 + 2 * len(pointers)))] if kind.numbers else []
            em.b.call(kind.function, [*pointers, *context, *numbers])

        if kind.is_serial and not all(each.is_serial for each in self._calls):
            em.when(em.b.icmp_signed("==", context[0], em.index(0)), call)
        else:
            call()

    def _pointer(self, em: Emitter, row: Value, table: Value, index: int) -> Value:
        base, offset = (
            em.b.load(_element(em, row, em.index(1 + 2 * index + part)), typ=I64) for part in (0, 1)
        )
        pointer = em.b.load(em.b.gep(table, [base], source_etype=PTR), typ=PTR)
        return em.b.gep(pointer, [offset], source_etype=I8)

    def _data(self) -> tuple[Value, Value]:
        """Where each row starts, in words, and the rows."""
        starts: list[int] = []
        words: list[int] = []
        for call in self._calls:
            starts.append(len(words))
            words.append(2 * self._number[call.function.name] + call.meets)
            words += [word for ref in call.operands for word in (ref.base, ref.offset)]
            words += call.numbers
        return self._constants("starts", starts), self._constants("rows", words)

    def _constants(self, name: str, words: Sequence[int]) -> Value:
        type_ = ir.ArrayType(I64, len(words))
        found: Any = ir.GlobalVariable(self._module, type_, f"{self._entry}.{name}")
        found.initializer = ir.Constant(type_, list(words))
        found.global_constant, found.linkage = True, "internal"
        return found


def _element(em: Emitter, base: Value, index: Value) -> Value:
    return em.b.gep(base, [index], source_etype=I64)
