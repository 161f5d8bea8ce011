"""The programs of a session by the sizes they are for: found, made on first use, and dropped where limits say so.

Those given ahead stay as long as the session. Of those made on first use the least recently used goes first. Threads
that ask for one program at once wait for one of them to make it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias, cast

import numpy as np

from aicf.compilation.compiled import CompiledModel
from aicf.engines.interface import Bucket
from aicf.engines.limits import Limits
from aicf.engines.report import Report
from aicf.errors import InputMismatch, PolicyError, SessionClosed, ValueNeeded
from aicf.inference.counting import Counts
from aicf.inference.packing import common_bytes
from aicf.inference.placing import placed
from aicf.inference.program_sources.base import ProgramSource, SourcedProgram
from aicf.inference.usage import (
    FirstRun,
    Meter,
    ProgramMemory,
    predicted_bytes,
    program_bytes,
)
from aicf.inspection.explain import lower_bound_of
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.executable import TensorSpec
from aicf.runtime.tensors import Array, numpy_dtype

Key: TypeAlias = tuple[Any, ...]
"""Shapes of the inputs of a call, and the bytes of those whose values are followed."""


@dataclass(eq=False)
class Program:
    """One program of a session.

    Args:
        bucket: What it is made for.
        label: The same in words.
        executable: Shared by the programs that were given ahead.
        plan: Its own part of the executable's plan.
        is_ahead: Whether it was given ahead, and so stays.
        nbytes: What it holds alone while it is idle: arena, constants, state.
        meter: Counts what its executable requests; None if that was made elsewhere.
        first_run: What its first run requested; None before that.
        runs: Calls so far.
        used: The clock at the last one.
        takes: Indices of the model's inputs that are its own; None if all are.
        keys: Under which calls find it.
    """

    bucket: Bucket
    label: str
    executable: CompiledModel
    plan: CapturePlan
    origin: str
    is_ahead: bool
    nbytes: int
    meter: Meter | None
    first_run: FirstRun | None = None
    runs: int = 0
    used: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)
    outputs: tuple[str, ...] = ()
    counts: Counts = field(init=False)
    takes: tuple[int, ...] | None = None
    keys: set[Key] = field(default_factory=set[Key])

    def __post_init__(self) -> None:
        self.outputs = tuple(bind.name for bind in self.plan.graph.outputs)
        self.counts = Counts.read(self.plan.graph)

    @property
    def inputs(self) -> list[str]:
        """Names of its own inputs."""
        return [bind.name for bind in self.plan.graph.inputs]

    @property
    def sizes(self) -> dict[str, int]:
        """What its executable calls it by: sizes of those of its dimensions that were not settled before."""
        plan = self.executable.plan
        row = next(row for row in plan.rows if row.program == self.plan.name)
        return dict(zip(plan.dims, row.sizes, strict=True))

    @property
    def own_outputs(self) -> tuple[TensorSpec, ...]:
        """What it gives, in its own sizes."""
        binds = self.plan.graph.outputs
        return self.counts.visible([TensorSpec(bind.name, tuple(bind.shape), bind.dtype) for bind in binds])

    def zeros(self) -> dict[str, Array]:
        """Inputs of its own that are all zero, by name."""
        return {bind.name: np.zeros(bind.shape, numpy_dtype(bind.dtype)) for bind in self.plan.graph.inputs}

    def own(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """Those of the model's inputs that the program takes."""
        return arguments if self.takes is None else [arguments[index] for index in self.takes]

    def call(self, arguments: Sequence[Any], out: Any = None) -> dict[str, Array]:
        """Runs it once on inputs of the model; the outputs by name, as much of them as there is."""
        results = self.call_own(self.own(arguments), out)
        if not self.counts.names:
            return results
        return self.counts.taken(results, () if out is None else cast("Mapping[str, Any]", out))

    def call_own(self, arguments: Sequence[Any], out: Any = None) -> dict[str, Array]:
        """Runs it once on inputs of its own. The first call is counted."""
        if self.first_run is None and self.meter is not None and self.guard.acquire(blocking=False):
            try:
                if self.first_run is None:
                    with self.meter.first_run(self.executable, self.plan.name) as counted:
                        results = self._call(arguments, out)
                    self.first_run = counted
                    return results
            finally:
                self.guard.release()
        return self._call(arguments, out)

    def _call(self, arguments: Sequence[Any], out: Any) -> dict[str, Array]:
        if out is not None:
            return self.executable.run(dict(zip(self.inputs, arguments, strict=True)), out=out)
        results = self.executable(*arguments)
        if len(self.outputs) == 1:
            return {self.outputs[0]: results}
        return dict(zip(self.outputs, results, strict=True))

    @property
    def memory(self) -> ProgramMemory:
        """Predicted and requested bytes."""
        run = self.first_run or FirstRun(predicted_bytes(self.executable, self.plan.name, is_first=True))
        lower_bound = lower_bound_of(self.plan.name, self.executable.decisions)
        return ProgramMemory(self.label, self.plan.arena_bytes, lower_bound, run.predicted, run.requested)


@dataclass(eq=False)
class _Making:
    """The making of one program.

    A `with` holds its lock, so that an interruption of the maker, wherever it comes, lets the next thread make it.

    Args:
        turn: Held by the one that makes it.
        error: Why it failed, for those who waited.
    """

    turn: threading.Lock = field(default_factory=threading.Lock)
    error: Exception | None = None


class Programs:
    """The programs of a session.

    Args:
        source: Makes them.
        limits: What may be made, and how much of it is kept.
        report: Is told of everything.
    """

    def __init__(self, source: ProgramSource, limits: Limits, report: Report) -> None:
        self._source = source
        self._limits = limits
        self._report = report
        self._lock = threading.Lock()
        self._clock = count(1)
        self._by_key: dict[Key, Program] = {}
        self._by_bucket: dict[Bucket, Program] = {}
        self._making: dict[Bucket, _Making] = {}
        self._is_closed = False

    def add_ahead(self, found: SourcedProgram) -> None:
        """Takes the programs that were given ahead. Raises PolicyError if they exceed the limits."""
        self._report.warn(found.executable.decisions)
        for number, row in enumerate(found.executable.plan.rows):
            sizes = dict(zip(found.executable.plan.dims, row.sizes, strict=True))
            bucket = self._source.interface.bucket_named(sizes)
            self._keep(self._program(bucket, found, row.program, is_ahead=True, with_shared=number == 0))
        self._check_bytes(self.all, "with the programs given ahead")

    @property
    def all(self) -> tuple[Program, ...]:
        """The programs that are there, those given ahead first."""
        with self._lock:
            return tuple(self._by_bucket.values())

    def find(self, arguments: Sequence[Any]) -> Program:
        """The program of a call, made if need be.

        Raises:
            InputMismatch: the inputs do not fit the model, or there is no program for their sizes and none is made.
            SessionClosed: the session is closed.
        """
        key = self._key(arguments)
        program = None if key is None else self._by_key.get(key)
        if program is None:
            self.check_open()
            program = self._settle(arguments)
            self._remember(key, program)
        with self._lock:
            program.runs += 1
            program.used = next(self._clock)
            is_first = program.runs == 1
        self._report.picked(program.label, is_first=is_first)
        return program

    def _remember(self, key: Key | None, program: Program) -> None:
        """Lets calls like this one find the program at once, if it was not evicted in the meantime."""
        with self._lock:
            if key is not None and self._by_bucket.get(program.bucket) is program:
                program.keys.add(key)
                self._by_key[key] = program

    def _key(self, arguments: Sequence[Any]) -> Key | None:
        """What the program of a call is found under; None for what only a closer look can tell."""
        try:
            shapes = tuple([value.shape for value in arguments])
            if followed := self._source.interface.followed:
                return (
                    *shapes,
                    *[(arguments[index].dtype, arguments[index].tobytes()) for index in followed],
                )
            hash(shapes)
        except (AttributeError, TypeError):
            return None
        return shapes

    def _settle(self, arguments: Sequence[Any]) -> Program:
        """The program of a call that was not seen before. Inputs that it follows from are followed from now on."""
        interface = self._source.interface
        while True:
            bucket = self._source.bucket_of(arguments)
            try:
                return self.for_bucket(bucket)
            except ValueNeeded as error:
                if not interface.can_follow(error.inputs, bucket, arguments):
                    raise
                self._follow(error)

    def _follow(self, error: ValueNeeded) -> None:
        """Programs are made for the values of more inputs. Those made before are for none, and are found no more."""
        interface = self._source.interface
        with self._lock:
            before = interface.followed
            interface.follow(error.inputs)
            if interface.followed == before:
                return  # another thread had the same error
            self._by_key.clear()
        names = " and ".join(map(repr, error.inputs))
        self._report.add(
            logging.INFO, "followed", "", f"programs are made for the value of {names}: {error.message}"
        )

    def for_bucket(self, bucket: Bucket) -> Program:
        """The program of a bucket, made if need be. Raises as `find`, and ValueNeeded."""
        while True:
            with self._lock:
                self.check_open()
                if (known := self._by_bucket.get(bucket)) is not None:
                    return known
                making = self._making.setdefault(bucket, _Making())
            with making.turn:
                if making.error is not None:
                    raise making.error
                # It is not there any more if another thread made the program, or was interrupted.
                if self._making.get(bucket) is making:
                    return self._make(making, bucket)

    def _make(self, making: _Making, bucket: Bucket) -> Program:
        """Makes a program, also for those who wait for it. What fails is tried again at the next call."""
        try:
            return self._load_or_compile(bucket)
        except Exception as error:
            making.error = error
            raise
        finally:
            with self._lock:
                del self._making[bucket]

    def _load_or_compile(self, bucket: Bucket) -> Program:
        label = self._source.interface.label(bucket)
        refusal = self._source.refusal(bucket)
        if refusal is None and not self._limits.makes:
            refusal = "the execution policy says new_shapes: refuse; give these sizes in dims= too"
        if refusal is not None:
            have = " | ".join(program.label for program in self.all) or "no sizes"
            raise InputMismatch(f"no program for {label}; made for {have}; {refusal}")
        found = self._source.make(bucket)
        self._report.warn(found.executable.decisions)
        name = found.executable.plan.rows[0].program
        program = self._program(bucket, found, name, is_ahead=False, with_shared=True)
        self._check_bytes(
            [*(each for each in self.all if each.is_ahead), program], f"with the program for {label}"
        )
        self._keep(program)
        self._report.add(
            logging.INFO,
            found.origin,
            label,
            found.detail,
            found.seconds,
            f"\n  {placed(found.executable, program.plan)}",
        )
        self._evict(program)
        return program

    def _program(
        self, bucket: Bucket, found: SourcedProgram, name: str, *, is_ahead: bool, with_shared: bool
    ) -> Program:
        executable, label = found.executable, self._source.interface.label(bucket)
        plan = executable.plan.by_name[name]
        nbytes = program_bytes(executable, name, with_shared=with_shared)
        names = self._source.interface.input_names
        own = tuple(names.index(bind.name) for bind in plan.graph.inputs)
        takes = None if len(own) == len(names) else own
        meter = found.meter
        return Program(bucket, label, executable, plan, found.origin, is_ahead, nbytes, meter, takes=takes)

    def _keep(self, program: Program) -> None:
        with self._lock:
            self.check_open()
            self._by_bucket[program.bucket] = program
            program.used = next(self._clock)

    # Limits

    def _check_bytes(self, programs: Sequence[Program], what: str) -> None:
        """Raises PolicyError if these programs alone exceed the limit of bytes."""
        needed, limit = _held(programs), self._limits.max_bytes
        if limit and needed > limit:
            raise PolicyError(
                f"max_bytes: {what} the session holds {needed:,} bytes, and the limit is {limit:,}; raise it, or use "
                "smaller dims"
            )

    def _evict(self, newest: Program) -> None:
        """Drops the least recently used of what was made on first use, as long as a limit is exceeded."""
        while (evicted := self._drop_one(newest)) is not None:
            program, why, nbytes = evicted
            program.executable.release()
            self._report.add(logging.INFO, "evicted", program.label, f"{why}; {nbytes:,} bytes given back")

    def _drop_one(self, newest: Program) -> tuple[Program, str, int] | None:
        """Forgets a program, if a limit is exceeded: the program, why, and the bytes that others do not hold too."""
        limits = self._limits
        with self._lock:
            programs = list(self._by_bucket.values())
            loose = [program for program in programs if not program.is_ahead]
            held = _held(programs)
            if limits.max_programs and len(loose) > limits.max_programs:
                why = f"max_programs is {limits.max_programs}"
            elif limits.max_bytes and held > limits.max_bytes:
                why = f"max_bytes is {limits.max_bytes:,}, programs hold {held:,}"
            else:
                return None
            oldest = min((program for program in loose if program is not newest), key=lambda each: each.used)
            del self._by_bucket[oldest.bucket]
            for key in oldest.keys:
                self._by_key.pop(key, None)
            return oldest, why, held - _held(self._by_bucket.values())

    # The end

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def close(self) -> None:
        """Drops all programs; calls in flight end as ever."""
        with self._lock:
            self._is_closed = True
            programs = list(self._by_bucket.values())
            self._by_bucket.clear()
            self._by_key.clear()
        for executable in {id(program.executable): program.executable for program in programs}.values():
            executable.release()

    def check_open(self) -> None:
        """Raises SessionClosed after `close`."""
        if self._is_closed:
            raise SessionClosed(
                f"the session of '{self._source.model}' is closed; make a new InferenceSession"
            )


def _held(programs: Iterable[Program]) -> int:
    """Bytes that programs hold while they are idle; what several share counts once."""
    listed = list(programs)
    return sum(program.nbytes for program in listed) + common_bytes(each.executable for each in listed)
