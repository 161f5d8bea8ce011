"""`calibrate`: from a model and sample inputs to a policy that lowers its precision."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from aicf.calibration.integers import observe
from aicf.calibration.lowered import Lowered, lowered_ops
from aicf.calibration.outputs import Comparison, Labels, Reference
from aicf.calibration.probe import Probe
from aicf.calibration.programs import Programs
from aicf.calibration.reading import read_programs
from aicf.calibration.report import Calibration, OpAccuracy, Report, Top1
from aicf.calibration.request import Request, request_of, start_of
from aicf.calibration.samples import Samples
from aicf.calibration.search import kept_in_f32, ranked
from aicf.calibration.summary import accuracy_of, notes_of
from aicf.compilation.extensions import Passes, flattened
from aicf.compilation.record import Options
from aicf.compilation.sources import (
    Dims,
    Model,
    Tuning,
    Values,
    dims_text,
    policy_text,
    tuning_text,
    values_text,
)
from aicf.compilation.sources import Policy as PolicyLike
from aicf.compilation.weight_arrays import Weights
from aicf.errors import InputMismatch, PolicyError, quoted
from aicf.policies.accuracy_goal import TOP1, AccuracyGoal
from aicf.policies.policy import Policy, resolve_policy
from aicf.policies.precision_policy import F32, PrecisionPolicy
from aicf.support.arguments import check_function, flag_from, text_from
from aicf.support.progress import Step, progress


def calibrate(
    model: Model,
    samples: Samples,
    *,
    to: Literal["int8", "fp8", "bf16", "f16"] | None = None,
    rest: Literal["f32", "bf16", "f16"] | None = None,
    method: Literal["minmax", "percentile", "entropy"] | None = None,
    percentile: float = 99.99,
    activations: Literal["asymmetric", "symmetric"] | None = None,
    smooth: float = 0.0,
    correct_bias: bool = False,
    keep: object = None,
    labels: ArrayLike | str | Path | None = None,
    weights: Weights | None = None,
    target: str | None = None,
    dims: Dims | None = None,
    values: Values | None = None,
    policy: PolicyLike | None = None,
    tuning: Tuning | None = None,
    threads: int = 1,
    strict: bool = False,
    passes: Passes = (),
    training: bool = False,
    step: Step | None = None,
) -> Calibration:
    """Finds out how to lower the precision of a model, and what that costs.

    Args:
        model: As of `aicf.compile`; one function without state.
        samples: Inputs like those that the model will see, see `aicf.calibration.samples.Samples`; a hundred do.
        to: What f32 becomes. By default what `policy` says, else `int8`.
        rest: What ops become that are no products, where products become `int8` or `fp8`; by default they stay f32.
        method: How ranges of integers follow from the values seen: all of them (`minmax`, the default), all but the
            outermost (`percentile`), or as many as lose the least information (`entropy`).
        percentile: How many of the values a range holds, in percent.
        activations: Integers of operands that depend on inputs: u8 with a zero point (`asymmetric`), or i8.
        smooth: How much of the spread of the channels of operands is moved into the weights, 0 (none) to 1; 0.5 is
            usual.
        correct_bias: Whether the mean of what rounding takes away from each output channel of a product is added.
        keep: How much accuracy may be lost, `{"metric": "top1", "loss": 0.005}` or `"top1=0.5%"`, or `error=1%` for
            the largest relative error of an output. Ops stay f32 until that holds.
        labels: The right label of each sample, for `top1`, or the path of an `.npy` file of them. Without them a label
            is right if it is that of f32.
        weights, target, dims, values, tuning, threads, strict, passes, training: As of `aicf.compile`. Without `dims`
            the sizes of the samples are taken.
        policy: What else the compile is to follow. Of its precision section, `to`, `rest`, `ops`, `activations`,
            `method` and `keep` hold where no argument says otherwise.
        step: Is told what is being done. None shows it on a terminal.

    Raises:
        PolicyError: an argument is not legal, or the program is no model that can be lowered.
        InputMismatch: there is no sample, one does not fit the model or is not finite, or labels do not fit them.
        InvalidIR, UnsupportedOp: as `aicf.compile`.
    """
    base = Policy() if policy is None else resolve_policy(policy_text(policy) or "auto")
    request = request_of(base, to, method, percentile, activations, smooth, correct_bias, keep, rest)
    own = flattened(passes)
    if target is not None:
        text_from(target, PolicyError, "target")
    if step is not None:
        check_function(step, PolicyError, "what is told of progress")
    options = Options(
        target or "",
        "",
        dims_text(dims),
        threads,
        tuning_text(tuning),
        values=values_text(values),
        strict=flag_from(strict, PolicyError, "strict"),
        training=flag_from(training, PolicyError, "training"),
    )
    right = None if labels is None else _labels(labels)
    with progress("calibrating") if step is None else nullcontext(step) as told:
        programs = read_programs(model, weights, samples, options, own, told)
        return _Calibrating(programs, request, right).run()


def _labels(labels: ArrayLike | str | Path) -> Labels:
    if isinstance(labels, str | Path):
        labels = _read_labels(Path(labels))
    try:
        found = np.asarray(labels)
    except (ValueError, TypeError, OverflowError):
        found = np.empty(0)
    if found.dtype.kind not in "iu":
        raise PolicyError(
            f"labels: {quoted(labels)} are no integers; give the number of the right class of each sample"
        )
    return found.reshape(-1).astype(np.int64)


def _read_labels(path: Path) -> ArrayLike:
    try:
        found: object = np.load(path, allow_pickle=False)
        if not isinstance(found, np.ndarray):
            raise ValueError("it has several arrays")
        return cast("Labels", found)
    except (OSError, ValueError, EOFError) as error:
        raise InputMismatch(
            f"cannot read the labels: {str(error).splitlines()[0]}; write them with numpy.save(path, labels)",
            location=str(path),
        ) from error


@dataclass
class _Calibrating:
    programs: Programs
    request: Request
    labels: Labels | None

    def run(self) -> Calibration:
        """All of it."""
        section = start_of(self.request)
        if self.request.has_ranges:
            section, outputs = observe(self.programs, self.request, section)
        else:
            outputs = list(self.programs.runs(self.programs.compile(Policy()), "f32"))
        reference = Reference(outputs, self.labels)
        compared, lowered = self._measured(section, reference)
        if not lowered.ops:
            raise PolicyError(
                f"calibrate: no op of the model becomes {self.request.to}; it has no product of f32 that depends on an "
                "input, or the policy lists all of them"
            )
        probe = Probe(self.programs, section, lowered.ops, reference)
        ops = [self._alone(name, precision, probe, lowered) for name, precision in lowered.ops.items()]
        probed = probe.compare(lowered.ops, "all ops")
        kept: list[str] = []
        if self.request.goal is not None:
            _check_goal(self.request.goal, compared)
            kept, section, compared, others = self._search(section, compared, probe, ops, reference, lowered)
            lowered = replace(lowered, others=others.others)
        return self._result(section, compared, probed, reference, _with_reasons(ops, kept), lowered)

    def _measured(self, section: PrecisionPolicy, reference: Reference) -> tuple[Comparison, Lowered]:
        """The program that a section compiles to, against f32."""
        program = self.programs.compile(replace(self.request.base, precision=section))
        return reference.compare(self.programs.runs(program, "lowered")), lowered_ops(program.decisions)

    def _alone(self, name: str, precision: str, probe: Probe, lowered: Lowered) -> OpAccuracy:
        error = probe.compare([name], f"{name} alone").error
        return OpAccuracy(name, precision, error, lowered.saved_us.get(name))

    def _search(
        self,
        section: PrecisionPolicy,
        compared: Comparison,
        probe: Probe,
        ops: Sequence[OpAccuracy],
        reference: Reference,
        lowered: Lowered,
    ) -> tuple[list[str], PrecisionPolicy, Comparison, Lowered]:
        """Lets ops be f32 until the compiled program keeps what was asked. The switches only say which to try."""
        goal = self.request.goal
        assert goal is not None
        if _loss(goal, compared, reference) <= goal.loss:
            return [], section, compared, lowered
        order = ranked(ops)
        kept = kept_in_f32(
            order, lambda on: _loss(goal, probe.compare(on, "searching"), reference), goal.loss
        )
        while True:
            tried = replace(section, ops={**section.ops, **dict.fromkeys(kept, F32)})
            compared, lowered = self._measured(tried, reference)
            rest = [name for name in order if name not in kept]
            if _loss(goal, compared, reference) <= goal.loss or not rest:
                return kept, tried, compared, lowered
            kept.append(rest[0])

    def _result(
        self,
        section: PrecisionPolicy,
        compared: Comparison,
        probed: Comparison,
        reference: Reference,
        ops: Sequence[OpAccuracy],
        lowered: Lowered,
    ) -> Calibration:
        top1 = reference.top1
        kept = {each.op for each in ops if each.stays is not None}
        others = {
            why: tuple(name for name in names if name not in kept) for why, names in lowered.others.items()
        }
        report = Report(
            to=self.request.to,
            rest=self.request.rest,
            method=self.request.method if self.request.has_ranges else "",
            samples=self.programs.samples.count,
            outputs=compared.outputs,
            ops=tuple(ops),
            others={why: names for why, names in others.items() if names},
            top1=None if top1 is None or compared.top1 is None else Top1(top1, compared.top1),
            goal=None if self.request.goal is None else str(self.request.goal),
            probe_error=probed.error,
            notes=notes_of(reference, ops),
        )
        section = replace(section, accuracy=accuracy_of(report))
        return Calibration(replace(self.request.base, precision=section), report)


def _with_reasons(ops: Sequence[OpAccuracy], kept: Sequence[str]) -> list[OpAccuracy]:
    return [
        replace(each, stays=f"{each.precision} alone changes the outputs by {each.relative_error:.2%}")
        if each.op in kept
        else each
        for each in ops
    ]


def _check_goal(goal: AccuracyGoal, compared: Comparison) -> None:
    if goal.metric == TOP1 and compared.agreement is None:
        raise PolicyError("keep.metric: no output of the model has labels; keep an error, error=1%")


def _loss(goal: AccuracyGoal, compared: Comparison, reference: Reference) -> float:
    if goal.metric != TOP1:
        return compared.error
    if compared.top1 is not None and reference.top1 is not None:
        return reference.top1 - compared.top1
    return 1.0 - (compared.agreement or 0.0)
