"""See `addressed`: a program on host memory of others."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence

from aicf.backends.native import LoadedCode
from aicf.errors import PlanError
from aicf.runtime.capture_plan import ARENA, CapturePlan, ModulePlan
from aicf.runtime.consts import read_const
from aicf.runtime.memory import allocate
from aicf.runtime.on_host.metas import written_metas
from aicf.runtime.tensors import Array, address
from aicf.runtime.threads import bind_entry

GIVEN = ("input", "output", "param", "state")
"""Roles of what comes with each run."""


class _Table:
    """The pointer table of one plan, with what is the same for all runs: its arena, its constants and its code.

    Args:
        plan: The plan.
        threads: Threads that enter it.
        code: Its code.
        derived: Prepared weights by name.
    """

    def __init__(
        self, plan: CapturePlan, threads: int, code: LoadedCode, derived: Mapping[str, Array]
    ) -> None:
        functions = list(code.function_addresses())
        self._code = code
        self._arena = allocate(plan.arena_bytes, plan.arena_align)
        self.pointers = (ctypes.c_void_p * (plan.table_size + len(functions)))()
        self.pointers[ARENA] = address(self._arena)
        self.pointers[plan.table_size :] = functions
        self.index: dict[str, int] = {}
        self._fixed: list[Array] = []
        for index, bind in enumerate(plan.graph.binds, ARENA + 1):
            if bind.role in GIVEN:
                self.index[bind.name] = index
                continue
            array = derived[bind.name] if bind.role == "derived" else read_const(bind)
            self._fixed.append(array)
            self.pointers[index] = address(array)
        self.run = bind_entry(code.entry(plan.entry), threads, ctypes.addressof(self.pointers))


class HostAddressed:
    """See `Addressed`.

    Args:
        plan: The plans of the module.
        program: The one that runs.
        code: Gives the loaded code, loading it if need be.
        derived: Gives the prepared weights by name, which programs of the same weights may share.

    Raises:
        PlanError: the program has values that the executable maintains, which have no address.
    """

    def __init__(
        self,
        plan: ModulePlan,
        program: CapturePlan,
        code: Callable[[], LoadedCode],
        derived: Callable[[], Mapping[str, Array]],
    ) -> None:
        metas = [bind.name for bind in program.graph.binds if bind.role == "meta"]
        if metas or written_metas(program):
            raise PlanError(
                f"@{program.name}: the executable maintains {', '.join(metas) or 'some values'}; make them inputs"
            )
        self._plan, self._program, self._code, self._derived = plan, program, code, derived
        self.names = tuple(bind.name for bind in program.graph.binds if bind.role in GIVEN)
        prepare = plan.prepare
        self.packs = tuple(
            bind.name for bind in (() if prepare is None else prepare.graph.binds) if bind.role == "param"
        )
        self._packed: Mapping[str, int] | None = None
        self._table: _Table | None = None
        self._slots: tuple[int, ...] = ()
        self._given: Sequence[int] = ()

    def prepare(self, addresses: Mapping[str, int], stream: int = 0) -> None:
        """See `Addressed`."""
        if self._plan.prepare is None:
            return
        self._packed = dict(addresses)
        table = _Table(self._plan.prepare, self._plan.threads, self._code(), self._derived())
        for name in self.packs:
            table.pointers[table.index[name]] = addresses[name]
        table.run()

    def run(self, addresses: Sequence[int], stream: int = 0) -> None:
        """See `Addressed`."""
        table = self._table or self._acquire()
        if addresses != self._given:
            pointers = table.pointers
            for slot, old, new in zip(self._slots, self._given, addresses):  # noqa: B905  # the caller counted
                if old != new:
                    pointers[slot] = new
            self._given = addresses
        table.run()

    def queue(self, addresses: Sequence[int], stream: int) -> None:
        """See `Addressed`; nothing captures a program of the host."""
        self.run(addresses, stream)

    def release(self) -> None:
        """See `Addressed`."""
        self._table = None

    def _acquire(self) -> _Table:
        if self._packed is not None:
            self.prepare(self._packed)
        self._table = table = _Table(self._program, self._plan.threads, self._code(), self._derived())
        self._slots = tuple(table.index[name] for name in self.names)
        self._given = (-1,) * len(self._slots)
        return table
