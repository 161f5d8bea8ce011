"""An executable on host memory: weights where they are, prepared weights beside them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from aicf.backends.native import LoadedCode
from aicf.runtime.capture_plan import CapturePlan, ModulePlan
from aicf.runtime.deferred_weights import in_memory, joined
from aicf.runtime.memory import allocate, requested
from aicf.runtime.on_host.addressed import HostAddressed
from aicf.runtime.on_host.exec import HostGraphExec, HostProgram
from aicf.runtime.state import State
from aicf.runtime.store import DERIVED, CommonKey
from aicf.runtime.tensors import Array, address


class HostStore:
    """See `Store`.

    Args:
        plan: Plans of all programs.
        weights: Initial values by name; those that no program updates are used where they are.
        derived: Prepared weights from a cache; computed by `@prepare` if None.
        shares_derived: Whether those are another executable's, so that they are not requested for this one.
        code: Gives the loaded code, loading it if need be.
    """

    def __init__(
        self,
        plan: ModulePlan,
        weights: Mapping[str, Array],
        derived: Mapping[str, Array] | None,
        code: Callable[[], LoadedCode],
        *,
        shares_derived: bool = False,
    ) -> None:
        self._plan = plan
        self._weights = weights
        self._cached = derived
        self._shares_derived = shares_derived
        self._code = code
        self._lock = threading.RLock()
        self._shared: Mapping[str, Array] | None = None
        self._programs = {program.name: self._program(program) for program in plan.programs}
        if plan.prepare is not None:
            self._arrays()

    def instance(self, plan: CapturePlan, state: State | None) -> HostGraphExec:
        """See `Store`."""
        return HostGraphExec(self._programs[plan.name], state)

    def addressed(self, plan: CapturePlan) -> HostAddressed:
        """See `Store`."""
        return HostAddressed(self._plan, plan, self._code, self.prepared)

    def new_state(self) -> State | None:
        """See `Store`."""
        names = self._plan.mutable
        return State({name: self._weights[name] for name in names}) if names else None

    def prepared(self) -> dict[str, Array]:
        """See `Store`."""
        shared = self._arrays()
        return {bind.name: shared[bind.name] for bind in self._plan.derived}

    def memory(self) -> dict[str, int]:
        """See `Store`."""
        sizes: dict[str, int] = {}
        for name, program in self._programs.items():
            sizes[f"arena@{name}"] = program.plan.arena_bytes
            sizes[f"instance@{name}"] = program.instance_bytes
            sizes[f"peak@{name}"] = self._shared_bytes + max(program.instance_bytes, self._prepare_bytes)
        return {
            **sizes,
            "weights": sum(array.nbytes for array in in_memory(self._weights).values()),
            "derived": sum(bind.nbytes for bind in self._plan.derived),
            "state": sum(self._weights[name].nbytes for name in self._plan.mutable),
        }

    def release(self) -> None:
        """See `Store`."""
        with self._lock:
            self._shared = None

    def common(self) -> Mapping[CommonKey, int]:
        """See `Store`: the prepared weights."""
        return {(DERIVED, address(array)): array.nbytes for array in self.prepared().values()}

    @property
    def _shared_bytes(self) -> int:
        """What is requested once: prepared weights, constants, and the state."""
        derived = [] if self._shares_derived else [bind.nbytes for bind in self._plan.derived]
        state = [self._weights[name].nbytes for name in self._plan.mutable]
        consts = [program.const_bytes for program in self._programs.values()]
        return sum(map(requested, (*derived, *state))) + sum(consts)

    @property
    def _prepare_bytes(self) -> int:
        """What making the prepared weights takes for a while."""
        if self._plan.prepare is None or self._cached is not None:
            return 0
        program = self._program(self._plan.prepare)
        return program.const_bytes + program.instance_bytes

    def _program(self, plan: CapturePlan) -> HostProgram:
        return HostProgram(plan, self._plan.threads, self._code, self._arrays)

    def _arrays(self) -> Mapping[str, Array]:
        """Read-only weights and derived binds by name."""
        with self._lock:
            if self._shared is None:
                derived = self._prepare() if self._cached is None else self._cached
                self._shared = joined(self._weights, derived)
            return self._shared

    def _prepare(self) -> dict[str, Array]:
        """Runs `@prepare` on the weights."""
        if self._plan.prepare is None:
            return {}
        derived = {bind.name: allocate(bind.nbytes) for bind in self._plan.derived}
        arrays = {**self._weights, **derived}
        HostGraphExec(
            HostProgram(self._plan.prepare, self._plan.threads, self._code, lambda: arrays)
        ).replay()
        return derived
