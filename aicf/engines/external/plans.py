"""The plans of a session by the sizes they are for: made ahead or on first use, and found by each call.

Sizes that `dims=` names have a plan each. Others share one plan, if the engine has plans for any sizes, else they have
one each, made on first use. The policy's `new_shapes: refuse` allows neither.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from time import perf_counter

from aicf.engines.external.adapter import ANY_SIZES, ExternalModel, Runner
from aicf.engines.external.errors import engine_errors
from aicf.engines.external.plan_folder import PlanFolder
from aicf.engines.interface import Bucket, Interface
from aicf.engines.limits import Limits
from aicf.engines.record import Fingerprint
from aicf.engines.report import Report
from aicf.errors import AicfError, InputMismatch, PolicyError, SessionClosed

ANY = Bucket(())
"""What a plan for any sizes is found under; also that of a model whose sizes are all fixed."""


class Plans:
    """The plans of one session.

    Args:
        model: Makes them.
        interface: Of the model.
        ahead: Sizes by dimension, as `dims=` gives them.
        limits: Whether plans are made for other sizes.
        folder: Keeps them; None keeps none.
        report: Is told of everything.

    Raises:
        PolicyError: `ahead` names a dimension that the model does not have.
    """

    def __init__(
        self,
        model: ExternalModel,
        interface: Interface,
        ahead: Mapping[str, Sequence[int]],
        limits: Limits,
        folder: PlanFolder | None,
        report: Report,
    ) -> None:
        self._model, self._interface, self._limits = model, interface, limits
        self._folder, self._report = folder, report
        self._lock = threading.Lock()
        self._runners: dict[Bucket, Runner] = {}
        self._hashes: dict[str, str] = {}
        self._is_closed = False
        if unknown := [name for name in ahead if name not in interface.dims]:
            listed = ", ".join(interface.dims) or "none"
            raise PolicyError(
                f"dims: the program has no symbolic dimension {unknown[0]}; its dimensions are: {listed}"
            )
        interface.given = {name: sizes[0] for name, sizes in ahead.items() if len(sizes) == 1}
        is_whole = bool(interface.dims) and all(name in ahead for name in interface.dims)
        combinations = product(*(ahead[name] for name in interface.dims)) if is_whole else ()
        self.ahead = tuple(Bucket(sizes) for sizes in combinations)

    def make_ahead(self) -> float:
        """Makes what can be made before a call; the seconds that it took."""
        started = perf_counter()
        wanted = self.ahead or ((ANY,) if self._model.runs_any_sizes or not self._interface.dims else ())
        for bucket in wanted:
            self._make(bucket)
        return perf_counter() - started

    @property
    def labels(self) -> list[str]:
        """What the plans that are there are for, in words."""
        with self._lock:
            return [self.label(bucket) for bucket in self._runners]

    @property
    def hashes(self) -> dict[str, str]:
        """By label, SHA-256 of the plans that the engine gave out."""
        with self._lock:
            return dict(self._hashes)

    def label(self, bucket: Bucket) -> str:
        """Sizes in words."""
        if bucket == ANY:
            return "any sizes" if self._interface.dims else "fixed sizes"
        return self._interface.label(bucket)

    def find(self, bucket: Bucket) -> Runner:
        """The plan for the sizes of a call, made if need be.

        Raises:
            InputMismatch: there is none, and none may be made.
            EngineError: the engine fails.
            SessionClosed: the session is closed.
        """
        self.check_open()
        found = self._runners.get(bucket)
        if found is None and self._allows(bucket):
            shared = ANY if self._model.runs_any_sizes or not self._interface.dims else bucket
            found = self._runners.get(shared) or self._make(shared)
        if found is None:
            have = " | ".join(map(self.label, self.ahead)) or "no sizes"
            raise InputMismatch(
                f"no plan for {self.label(bucket)}; made for {have}; the execution policy says new_shapes: refuse; "
                "give these sizes in dims= too"
            )
        return found

    def _allows(self, bucket: Bucket) -> bool:
        return self._limits.makes or bucket in self.ahead or not self._interface.dims

    def _make(self, bucket: Bucket) -> Runner:
        """Makes a plan, or takes it from the folder; one thread does, others wait. What fails is tried again later."""
        with self._lock:
            if (known := self._runners.get(bucket)) is not None:
                return known
            self.check_open()
            label, started = self.label(bucket), perf_counter()
            sizes = ANY_SIZES if bucket == ANY else dict(zip(self._interface.dims, bucket.sizes, strict=True))
            runner, what, detail = self._loaded_or_built(sizes, label)
            self._runners[bucket] = runner
        self._report.add(logging.INFO, what, label, detail, perf_counter() - started)
        return runner

    def _loaded_or_built(self, sizes: Mapping[str, int], label: str) -> tuple[Runner, str, str]:
        own, folder = replace(self._model.fingerprint, sizes=sizes), self._folder
        if folder is not None and (runner := self._loaded(folder, own, label)) is not None:
            return runner, "loaded", f"from {folder.path(own)}"
        with engine_errors(own.engine, f"made a plan for {label}"):
            runner = self._model.build(sizes)
            plan = None if folder is None else runner.plan()
        if folder is None or plan is None:
            return runner, "compiled", f"by {own.engine} {own.version} for {own.target}"
        self._hashes[label] = hashlib.sha256(plan).hexdigest()
        return (
            runner,
            "compiled",
            f"by {own.engine} {own.version} for {own.target}, {folder.save(own, label, plan)}",
        )

    def _loaded(self, folder: PlanFolder, own: Fingerprint, label: str) -> Runner | None:
        if (plan := folder.load(own, label)) is None:
            return None
        try:
            with engine_errors(own.engine, f"loaded a plan for {label}"):
                runner = self._model.load(plan, own.sizes)
        except AicfError as error:
            folder.reject(label, error.message)
            return None
        self._hashes[label] = hashlib.sha256(plan).hexdigest()
        return runner

    def close(self) -> None:
        """Drops all plans; calls in flight end as ever."""
        with self._lock:
            self._is_closed = True
            runners = list(self._runners.values())
            self._runners.clear()
        for runner in runners:
            runner.close()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def check_open(self) -> None:
        """Raises SessionClosed after `close`."""
        if self._is_closed:
            raise SessionClosed(
                f"the session of '{self._model.model.name}' is closed; make a new InferenceSession"
            )
