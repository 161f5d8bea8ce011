"""What compiling gives: plans, native code and initial weights, immutable, called like a function.

It chooses the program of a call by an exact lookup in the plan's dispatch table, and lends each call a
`GraphExec`. It compiles nothing and decides nothing.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from aicf.backends.native import DeviceCode, LoadedCode, NativeCode
from aicf.backends.registry import load_device, load_native
from aicf.dialects.step_names import BAD_STEP
from aicf.errors import InputMismatch
from aicf.runtime import ranges
from aicf.runtime.addressed import Addressed
from aicf.runtime.capture_plan import CapturePlan, ModulePlan
from aicf.runtime.graph import Bind
from aicf.runtime.graph_exec import GraphExec
from aicf.runtime.lifecycle import register
from aicf.runtime.on_device.array import tensor_of
from aicf.runtime.on_device.store import DeviceStore
from aicf.runtime.on_device.weights import DeviceWeights
from aicf.runtime.on_host.store import HostStore
from aicf.runtime.ports import reject_unknown
from aicf.runtime.state import State
from aicf.runtime.store import CommonKey, Store
from aicf.runtime.tensors import Array, describe
from aicf.runtime.weak_members import WeakMembers
from aicf.runtime.weights import bind_derived, bind_weights
from aicf.support.arguments import mapping_from


@dataclass(frozen=True)
class TensorSpec:
    """An input or output as users see it: a symbolic size is its name, or `?` if it has none of its own."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def __str__(self) -> str:
        return describe(self.shape, self.dtype)


def _by_name(arrays: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return {} if arrays is None else mapping_from(arrays, InputMismatch, "what is bound")


class _Lane:
    """One program and the GraphExecs of it that no call is using.

    Args:
        plan: The program.
        new: Makes a GraphExec of it, on the given state.
    """

    def __init__(self, plan: CapturePlan, new: Callable[[State | None], GraphExec]) -> None:
        self.plan = plan
        self.new = new
        self.idle: deque[GraphExec] = deque()


class _Code:
    """The code of an executable, loaded at first use. Whoever uses it keeps it alive; it does not keep the executable.

    Args:
        backend: Backend name.
        native: The code.
        owner: Whom `runtime.shutdown` asks to give it back.
        ordinal: Number of the device.
    """

    def __init__(self, backend: str, native: NativeCode, owner: Executable, ordinal: int) -> None:
        self._backend = backend
        self._native = native
        self._ordinal = ordinal
        self._owner = weakref.ref(owner)
        self._lock = threading.Lock()
        self._loaded: LoadedCode | DeviceCode | None = None

    def on_host(self) -> LoadedCode:
        """Code of `NativeCode.memory` `host`."""
        return cast(LoadedCode, self._get(load_native))

    def on_device(self) -> DeviceCode:
        """Code of `NativeCode.memory` `device`."""
        return cast(DeviceCode, self._get(partial(load_device, ordinal=self._ordinal)))

    def release(self) -> None:
        """Forgets the code; the next use loads it again."""
        with self._lock:
            self._loaded = None

    def _get(self, load: Callable[[str, NativeCode], LoadedCode | DeviceCode]) -> LoadedCode | DeviceCode:
        with self._lock:
            if self._loaded is None:
                self._loaded = load(self._backend, self._native)
                if (owner := self._owner()) is not None:
                    register(owner)
            return self._loaded


class Executable:
    """A compiled model.

    Args:
        plan: Plans of all programs and the dispatch table.
        native: Their code.
        weights: Initial values of parameters, states and meta tensors by name. Parameters that no program
            updates are used where they are, so do not change them.
        derived: Prepared weights from an artifact's cache, or of another executable on the host; computed by
            `@prepare` if None.
        texts: IR text by stage name, for `ir`.
        on_device: What executables of the same model have on the device already; None shares with no other.
        ordinal: Number of the device that the programs run on, from 0; the processor has none but 0.

    Raises:
        InputMismatch: the weights do not fit the plan.
        ArtifactError: the plan or the cache contradicts itself.
    """

    def __init__(
        self,
        plan: ModulePlan,
        native: NativeCode,
        weights: Mapping[str, Array],
        *,
        derived: Mapping[str, Array] | None = None,
        texts: Mapping[str, str] | None = None,
        on_device: DeviceWeights | None = None,
        ordinal: int = 0,
    ) -> None:
        self.plan = plan
        self.native = native
        self.ordinal = ordinal
        self.weights: Mapping[str, Array] = bind_weights(plan.weights, weights)
        self._texts = dict(texts or {})
        cached = None if derived is None else bind_derived(plan.derived, derived)
        is_shared = cached is not None and all(
            np.may_share_memory(cached[name], given) for name, given in (derived or {}).items()
        )
        self._lock = threading.RLock()
        self._code = _Code(plan.backend, native, self, ordinal)
        self._store: Store = (
            HostStore(plan, self.weights, cached, self._code.on_host, shares_derived=is_shared)
            if native.memory == "host"
            else DeviceStore(
                plan,
                self.weights,
                cached,
                self._code.on_device,
                native.reserves,
                on_device or DeviceWeights(),
            )
        )
        self._lent: WeakMembers[GraphExec | Addressed] = WeakMembers()
        self._lanes = {
            program.name: _Lane(program, partial(self._store.instance, program)) for program in plan.programs
        }
        self._by_shapes = {
            tuple(bind.shape for bind in plan.by_name[row.program].graph.inputs): self._lanes[row.program]
            for row in plan.rows
        }
        self._only = next(iter(self._lanes.values())) if len(self._by_shapes) == 1 else None
        first = plan.by_name[plan.rows[0].program].graph
        self.inputs = tuple(self._spec(bind, index, "input") for index, bind in enumerate(first.inputs))
        self.outputs = tuple(self._spec(bind, index, "output") for index, bind in enumerate(first.outputs))
        self._input_names = [spec.name for spec in self.inputs]
        self._arity = len(self.inputs)
        self._state = self._store.new_state()

    # Calling

    def __call__(self, *args: Any, **feeds: Any) -> Any:
        """Runs the program once.

        Args:
            args: Inputs in order, or one dict by name; `feeds` gives them by keyword. NumPy arrays of the
                exact shape and dtype (any strides), or DLPack objects on the host.

        Returns:
            A fresh array if the program has one output, else a tuple in order of the outputs (empty if it
            only updates parameters or state).

        Raises:
            InputMismatch: an input is missing, unknown or of the wrong shape, dtype or rank.
        """
        if feeds or len(args) != self._arity or isinstance(args[0] if args else None, dict):
            args = self._positional(args, feeds)
        lane = self._only or self._choose(args)
        if self._state is None:
            results = _call(lane, args, None)
        else:
            with self._state.lock:
                results = _call(lane, args, self._state)
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, feeds: Mapping[str, Any], *, out: Any = None) -> dict[str, Array]:
        """Runs the program once on inputs by name and gives the outputs by name.

        Args:
            out: Arrays to write outputs into without a copy: by name, or one array if there is one output.

        Raises:
            InputMismatch: as calling; or an array in `out` has the wrong shape, dtype or strides, is
                read-only, or overlaps an input, a weight or another output.
        """
        args = self._positional((), mapping_from(feeds, InputMismatch, "feeds"))
        lane = self._only or self._choose(args)
        targets = self._out_by_name(out)
        if self._state is None:
            return self._run_into(lane, args, targets)
        with self._state.lock:
            return self._run_into(lane, args, targets)

    def bind(self, arrays: Mapping[str, Any] | None = None, **named: Any) -> GraphExec:
        """A GraphExec on the caller's memory: `replay()` reads the inputs and writes the outputs in place.

        Args:
            arrays, named: Inputs, and any of the outputs, by name. With several buckets all inputs, to choose
                one.

        It shares this executable's state, as calls do; `instantiate` gives one that does not.

        Raises:
            InputMismatch: as `GraphExec.bind`.
        """
        given = {**_by_name(arrays), **named}
        lane = self._only or self._choose(
            self._positional((), {k: v for k, v in given.items() if k in self._input_names})
        )
        graph_exec = self._lend(lane, self._state)
        graph_exec.bind(given)
        return graph_exec

    def instantiate(self, **dims: int) -> GraphExec:
        """A GraphExec with a state of its own, starting from the initial weights.

        Args:
            dims: Sizes of the symbolic dimensions, if there are several buckets.

        Raises:
            InputMismatch: no program was compiled for these sizes.
        """
        return self._lend(self._lane_for(dims), self._store.new_state())

    def attach(self, **dims: int) -> GraphExec:
        """As `instantiate`, on the state of this executable, which calls change too."""
        return self._lend(self._lane_for(dims), self._state)

    def addressed(self, **dims: int) -> Addressed:
        """A program on memory of others, who give the address of every tensor, weights and states too, at each run.

        Args:
            dims: As of `instantiate`.
        """
        made = self._store.addressed(self._lane_for(dims).plan)
        with self._lock:
            self._lent.add(made)
        return made

    def _lane_for(self, dims: Mapping[str, int]) -> _Lane:
        """The program for sizes of the symbolic dimensions. Raises InputMismatch if there is none."""
        reject_unknown(dims, self.plan.dims, "dimension")
        key = tuple(dims.get(name) for name in self.plan.dims)
        for row in self.plan.rows:
            if row.sizes == key or (not dims and len(self.plan.rows) == 1):
                return self._lanes[row.program]
        raise InputMismatch(f"no program for {_sizes(self.plan.dims, key)}; {self._buckets()}")

    def dims_of(self, *args: Any) -> dict[str, int]:
        """The sizes of the symbolic dimensions of a call with these inputs. Raises InputMismatch."""
        lane = self._only or self._choose(self._positional(args, {}))
        row = next(row for row in self.plan.rows if row.program == lane.plan.name)
        return dict(zip(self.plan.dims, row.sizes, strict=True))

    def _lend(self, lane: _Lane, state: State | None) -> GraphExec:
        graph_exec = lane.new(state)
        with self._lock:
            self._lent.add(graph_exec)
        return graph_exec

    def _run_into(self, lane: _Lane, args: Sequence[Any], out: Mapping[str, Any]) -> dict[str, Array]:
        idle = lane.idle
        graph_exec = idle.pop() if idle else lane.new(self._state)
        results = graph_exec.call_into(args, out)
        idle.append(graph_exec)
        return results

    def _out_by_name(self, out: Any) -> Mapping[str, Any]:
        if out is None:
            return {}
        if isinstance(out, Mapping):
            targets = cast(Mapping[str, Any], out)
            reject_unknown(targets, [spec.name for spec in self.outputs], "output")
            return targets
        if len(self.outputs) != 1:
            raise InputMismatch(f"there are {len(self.outputs)} outputs; give out= as a dict by name")
        return {self.outputs[0].name: out}

    # State

    @property
    def is_stateful(self) -> bool:
        """Whether calls change what later calls see; such calls take turns."""
        return self._state is not None

    def state(self, *names: str) -> dict[str, Array]:
        """Copies of the parameters and states that calls update: those of these names, by default all.

        Raises InputMismatch for a name that is none of them.
        """
        if self._state is None:
            reject_unknown(names, [], "state")
            return {}
        return self._state.snapshot(names or None)

    @property
    def bad_step(self) -> int | None:
        """The first step whose loss or gradients were not all finite; None if all were, or the program has no check.

        Nothing has been updated since: the state is as it was before that step. It stays so until `set_state` sets
        `aicf.bad_step` to 0. Waits for the steps in flight.
        """
        if BAD_STEP not in self.weights:
            return None
        return int(self.state(BAD_STEP)[BAD_STEP]) or None

    def set_state(self, values: Mapping[str, Any]) -> None:
        """Replaces updated parameters, states or meta tensors. Raises InputMismatch if one does not fit."""
        if self._state is None:
            raise InputMismatch(
                "the program updates nothing, so it has no state; weights are given when it is made"
            )
        self._state.assign(values)

    # What it is made of

    def ir(self, stage: str) -> str:
        """IR text of a stage. Raises InputMismatch for a stage that was not kept."""
        reject_unknown([stage], list(self._texts), "IR stage")
        return self._texts[stage]

    def work_by_source(self) -> Mapping[str, Mapping[str, float]]:
        """How much of the work of each instruction each op is that it stands for; empty where that is not known."""
        return {}

    def prepared(self) -> dict[str, Array]:
        """The derived binds as bytes, for an artifact's cache: u8[nbytes] by name."""
        return self._store.prepared()

    def common(self) -> Mapping[CommonKey, int]:
        """What executables of one model may have in common, by what tells that two have the same: bytes of prepared
        weights, on a device of all weights. Those on the host are used where they are, and belong to nobody here."""
        return self._store.common()

    def memory(self) -> dict[str, int]:
        """Bytes by use: `arena@program` of one GraphExec of each program, `weights`, `derived`, `state`.

        `peak@program` is the most that is requested from the host, or from the device, at once when that program runs
        first, one call at a time; `instance@program` what every further GraphExec of it requests. On the host both
        include the fresh arrays of a call's outputs. For a device also `io@program` (inputs and outputs),
        `descriptors@program` and `consts`. Known before anything is allocated.
        """
        return self._store.memory()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {spec}" for spec in self.inputs)
        outputs = ", ".join(f"{spec.name}: {spec}" for spec in self.outputs)
        return f"Executable({inputs} -> {outputs}; {self.plan.backend}:{self.plan.arch}, {self._buckets()})"

    # Code and shared memory, taken at first use and given back by `runtime.shutdown`

    def release(self) -> None:
        """Gives back arenas, code and prepared weights, not state; the next call takes them again."""
        with self._lock:
            for lane in self._lanes.values():
                # Calls in flight return their GraphExec to the old one, which goes with them.
                lane.idle = deque()
            lent = self._lent.all()
        with ExitStack() as parts:  # the last one first; what fails keeps none of the others
            parts.callback(self._code.release)
            parts.callback(self._store.release)
            if self._state is not None:
                parts.callback(self._state.release)
            for graph_exec in lent:
                parts.callback(graph_exec.release)

    # Which program runs

    def _positional(self, args: Sequence[Any], feeds: Mapping[str, Any]) -> tuple[Any, ...]:
        if len(args) == 1 and isinstance(args[0], dict) and not feeds:
            args, feeds = (), mapping_from(cast(object, args[0]), InputMismatch, "feeds")
        if len(args) > self._arity:
            raise InputMismatch(
                f"expected {self._arity} inputs ({', '.join(self._input_names)}), got {len(args)}"
            )
        by_position = dict(zip(self._input_names, args, strict=False))
        if twice := sorted(by_position.keys() & feeds.keys()):
            raise InputMismatch(f"input '{twice[0]}' is given by position and by name; give it once")
        given = {**by_position, **feeds}
        for name in given:
            if name in self.weights and name not in self._input_names:
                raise InputMismatch(
                    f"'{name}' is a weight, not an input; set_state() changes those that programs update"
                )
        reject_unknown(given, self._input_names, "input")
        if missing := [name for name in self._input_names if name not in given]:
            wanted = ", ".join(
                f"{name}: {spec}" for name, spec in zip(self._input_names, self.inputs, strict=True)
            )
            raise InputMismatch(
                f"missing input{'s' if len(missing) > 1 else ''} {', '.join(missing)}; it takes {wanted}"
            )
        return tuple(given[name] for name in self._input_names)

    def _choose(self, args: Sequence[Any]) -> _Lane:
        try:
            return self._by_shapes[tuple([array.shape for array in args])]
        except (KeyError, AttributeError, TypeError):
            return self._choose_slowly(args)

    def _choose_slowly(self, args: Sequence[Any]) -> _Lane:
        """For what is not a NumPy array or fits no bucket: finds the lane, or says what is wrong."""
        binds = next(iter(self._lanes.values())).plan.graph.inputs
        tensors = [tensor_of(value, bind) for value, bind in zip(args, binds, strict=True)]
        if (lane := self._by_shapes.get(tuple(shape for shape, _ in tensors))) is not None:
            return lane
        bound: dict[str, tuple[int, str]] = {}
        for spec, (shape, dtype) in zip(self.inputs, tensors, strict=True):
            self._check_sizes(spec, shape, dtype, bound)
        sizes = {name: size for name, (size, _) in bound.items()}
        key = tuple(sizes.get(name) for name in self.plan.dims)
        raise InputMismatch(
            f"no program for {_sizes(self.plan.dims, key)}; {self._buckets()}; compile for it too"
        )

    def _check_sizes(
        self, spec: TensorSpec, shape: tuple[int, ...], dtype: str, bound: dict[str, tuple[int, str]]
    ) -> None:
        """Binds the names in `spec` to the sizes of a tensor; raises InputMismatch for a contradiction."""
        fits = len(shape) == len(spec.shape) and all(
            isinstance(wanted, str) or wanted == size for wanted, size in zip(spec.shape, shape, strict=False)
        )
        if not fits:
            raise InputMismatch(
                f"input '{spec.name}': expected {spec}, got {describe(shape, dtype)}; {self._buckets()}"
            )
        for wanted, size in zip(spec.shape, shape, strict=True):
            if wanted not in self.plan.dims:
                continue
            known, where = bound.setdefault(str(wanted), (size, spec.name))
            if known != size:
                raise InputMismatch(
                    f"{wanted} is {known} in input '{where}', {size} in '{spec.name}'; {self._buckets()}"
                )

    def _buckets(self) -> str:
        if not self.plan.dims:
            return "one program, no symbolic dimension"
        listing = " | ".join(_sizes(self.plan.dims, row.sizes) for row in self.plan.rows)
        return f"compiled for {listing}"

    def _spec(self, bind: Bind, index: int, role: str) -> TensorSpec:
        """The tensor with the sizes that follow a dimension of the dispatch table under its name."""
        plans = [self.plan.by_name[row.program].graph for row in self.plan.rows]
        shapes = [(graph.inputs if role == "input" else graph.outputs)[index].shape for graph in plans]
        columns = {
            tuple(row.sizes[column] for row in self.plan.rows): name
            for column, name in enumerate(self.plan.dims)
        }
        sizes: list[int | str] = []
        for axis, size in enumerate(bind.shape):
            across = tuple(shape[axis] for shape in shapes)
            varies = len(set(across)) > 1
            sizes.append(columns.get(across, "?") if varies else size)
        return TensorSpec(bind.name, tuple(sizes), bind.dtype)


def _call(lane: _Lane, args: Sequence[Any], state: State | None) -> list[Array]:
    idle = lane.idle
    try:
        graph_exec = idle.pop()
    except IndexError:
        graph_exec = lane.new(state)
    try:
        if ranges.is_open():
            with ranges.named(lane.plan.name):
                return graph_exec.call(args)
        return graph_exec.call(args)
    finally:
        idle.append(graph_exec)


def _sizes(names: Sequence[str], sizes: Sequence[int | None]) -> str:
    pairs = zip(names, sizes, strict=True)
    return ", ".join(f"{name}={'?' if size is None else size}" for name, size in pairs) or "these sizes"
