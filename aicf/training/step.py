"""`TrainStep`: a compiled training step as users hold it, with its losses, its state and its checkpoints.

The step is one captured program: `step(x, y)` puts the batch in place and replays it. No step waits for its loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from aicf.compilation.compiled import CompiledModel
from aicf.compilation.reading import read_step
from aicf.compilation.weight_arrays import read_weights
from aicf.compilation.writing import save_step
from aicf.dialects.step_names import OWN, RATE, STEP, TARGET
from aicf.errors import ArtifactError, InputMismatch, quoted
from aicf.inspection.explain import Explanation, ValueExplanation
from aicf.runtime.graph_exec import GraphExec, check_runs
from aicf.runtime.plateau import DTYPES, PlateauRule
from aicf.runtime.ports import reject_unknown
from aicf.runtime.tensors import Array, describe_array, numpy_dtype
from aicf.support.whole_numbers import is_whole
from aicf.training.checkpoint import check_tensors, read_checkpoint, write_checkpoint
from aicf.training.history import HISTORY, LENGTH, RING, history_problem, read_ring


class StepLoss:
    """The loss of a step that was asked for; `float()` waits for it.

    Args:
        step: Whose it is.
        number: Of the step, counted from 1.
    """

    def __init__(self, step: TrainStep, number: int) -> None:
        self._step = step
        self.number = number

    def __float__(self) -> float:
        return self._step.loss_of(self.number)

    def __repr__(self) -> str:
        return f"StepLoss(step {self.number})"


def _number_of(state: Mapping[str, Array]) -> int:
    """The number of steps that a state has been trained for.

    Raises:
        InputMismatch: they are less than none.
    """
    number = int(state[STEP])
    if number < 0:
        raise InputMismatch(f"'{STEP}' is {number} in the state; a training step counts from 0")
    return number


def _one_number(value: object) -> float | None:
    """One number, or an array of one; None for others, and for what is too large for a float."""
    if isinstance(value, np.ndarray | np.generic) and cast(Array, value).size == 1:
        value = cast(Array, value).item()
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _rate(lr: object, dtype: np.dtype[Any]) -> Array:
    """A learning rate, [].

    Raises:
        InputMismatch: it is not one finite number, or too large for `dtype`.
    """
    number = _one_number(lr)
    with np.errstate(over="ignore"):
        rate = np.asarray(np.nan if number is None else number, dtype)
    if not np.isfinite(rate):
        raise InputMismatch(f"the learning rate is one finite number ({dtype}), got {quoted(lr)}")
    return rate


def _metric(metric: object) -> float:
    """A metric, which may be NaN or infinite. Raises InputMismatch for what is not one number."""
    number = float(metric) if isinstance(metric, StepLoss) else _one_number(metric)
    if number is None:
        raise InputMismatch(f"the metric is {quoted(metric)}; give one number that a float holds")
    return number


def _check_labels(logits: Sequence[int | str], labels: Sequence[int]) -> None:
    """Raises InputMismatch for labels of a prediction whose last dimension has the classes, where dimension 1 must."""
    if _fits(labels, (logits[0], *logits[2:])) or not _fits(labels, logits[:-1]):
        return
    rank = len(logits)
    order = [0, rank - 1, *range(1, rank - 1)]
    raise InputMismatch(
        f"target '{TARGET}' has the shape {_shape(labels)}, and the prediction {_shape(logits)} has its classes in "
        f"dimension 1, as in PyTorch; if they are in the last one, let the model give graph.transpose(prediction, "
        f"{order}), or reshape it to rank 2 and the labels to rank 1"
    )


def _fits(shape: Sequence[int], sizes: Sequence[int | str]) -> bool:
    """Whether a shape has these sizes, of which symbolic ones may be anything."""
    return len(shape) == len(sizes) and all(
        isinstance(size, str) or size == found for found, size in zip(shape, sizes, strict=True)
    )


def _shape(sizes: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


class TrainStep:
    """A compiled training step with its state. For one thread at a time.

    Args:
        executable: The compiled step, of `aicf.train_step`.
        history: Losses of the last steps before its state, [steps].
    """

    def __init__(self, executable: CompiledModel, history: Array | None = None) -> None:
        assert executable.record.trained is not None
        self.executable = executable
        self._trained = executable.record.trained
        self._inputs = [spec.name for spec in executable.inputs]
        self._by_sizes: dict[tuple[int, ...], GraphExec] = {}
        self._current: GraphExec | None = None
        self._count = _number_of(executable.weights)
        self._remember(np.empty(0) if history is None else history)
        self._is_stepping = False

    # Stepping

    def __call__(self, *args: Any, **feeds: Any) -> StepLoss:
        """One step on a batch: the model's inputs in order and then the target `y`, or any of them by name.

        The arrays are copied, so they may change at once. Parameters and state cannot be fed.

        Raises:
            InputMismatch: an input is missing, unknown, or has another shape or dtype.
        """
        batch = self._named(args, feeds)
        if self._trained.logits:
            _check_labels(self._trained.logits, getattr(batch[TARGET], "shape", ()))
        self._current = self._exec_for(batch)
        self._current.fill(batch)
        return self.replay()

    def replay(self, n: int = 1) -> StepLoss:
        """`n` more steps on the batch that was given last; the loss of the last of them.

        Raises:
            InputMismatch: no batch was given yet, or `n` is no whole number of at least 1.
        """
        check_runs(n)
        if self._current is None:
            raise InputMismatch(
                f"there is no batch to step on again; call step({', '.join(self._inputs)}) first"
            )
        while n > 0:
            if self._pending == LENGTH or self._is_stepping:
                self._drain()
            steps = min(n, LENGTH - self._pending)
            self._is_stepping = (
                True  # to the end, unless an interruption leaves the count to the program's own
            )
            self._count += steps
            self._current.replay(steps)
            self._is_stepping = False
            n -= steps
        return StepLoss(self, self._count)

    def synchronize(self) -> None:
        """Waits for the steps in flight."""
        if self._current is not None:
            self._current.synchronize()

    def _named(self, args: Sequence[Any], feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The batch by name."""
        if len(args) > len(self._inputs):
            raise InputMismatch(
                f"expected {len(self._inputs)} inputs ({', '.join(self._inputs)}), got {len(args)}"
            )
        batch = dict(zip(self._inputs, args, strict=False))
        for name in feeds:
            if name in self.executable.weights:
                raise InputMismatch(
                    f"'{name}' is no input: a feed replaces inputs only; load_state_dict() changes parameters and state"
                )
            if name in batch:
                raise InputMismatch(f"input '{name}' is given by position and by name; give it once")
        reject_unknown(feeds, self._inputs, "input")
        batch.update(feeds)
        if missing := [name for name in self._inputs if name not in batch]:
            raise InputMismatch(f"missing input{'s' if len(missing) > 1 else ''} {', '.join(missing)}")
        return batch

    def _exec_for(self, batch: Mapping[str, Any]) -> GraphExec:
        """The program for the sizes of the batch."""
        if not self.executable.plan.dims:
            sizes: dict[str, int] = {}
        else:
            sizes = self.executable.dims_of(*(batch[name] for name in self._inputs))
        key = tuple(sizes.values())
        if key not in self._by_sizes:
            self._by_sizes[key] = self.executable.attach(**sizes)
        return self._by_sizes[key]

    # Losses

    @property
    def steps(self) -> int:
        """Steps done, those before a checkpoint that was loaded included. Waits for all of them."""
        self._drain()
        return self._count

    def losses(self) -> Array:
        """The losses of all steps, [steps], those before a checkpoint that was loaded included. Waits for them.

        So are those before an artifact of `save_program`. `load_state_dict` begins a new history.
        """
        self._drain()
        return np.array(self._losses, self.executable.weights[RING].dtype)

    def loss_of(self, number: int) -> float:
        """The loss of step `number`, counted from 1. Waits for it.

        Raises:
            InputMismatch: there was no such step, or its loss was before a state that was loaded without its history.
        """
        self._drain()
        if not is_whole(number, least=1):
            raise InputMismatch(f"{quoted(number)} is no number of a step; steps are counted from 1")
        if number > self._count and (bad := self.bad_step) is not None:
            raise InputMismatch(
                f"step {bad} was not finite: nothing changed since, so step {quoted(number)} has no loss; "
                "load_state_dict() a state to go on"
            )
        if not self._first < number <= self._count:
            raise InputMismatch(
                f"there is no loss of step {quoted(number)}; known are {self._first + 1} to {self._count}"
            )
        return self._losses[number - self._first - 1]

    @property
    def bad_step(self) -> int | None:
        """With `check_finite`, the first step whose loss or gradients were not all finite; None if all were.

        The state is as it was before that step, until `load_state_dict`. Waits for all steps."""
        return self.executable.bad_step

    @property
    def _pending(self) -> int:
        """Steps whose losses only the ring has."""
        return self._count - self._first - len(self._losses)

    def _drain(self) -> None:
        """Takes the losses out of the ring, which waits for all steps; those held back are not counted."""
        if self._pending:
            state = self.executable.state(RING, STEP)
            first, self._count = self._count - self._pending + 1, int(state[STEP])
            self._losses += read_ring(state[RING], first, self._count).tolist()
        self._is_stepping = False

    # State

    def state_dict(self) -> dict[str, Array]:
        """Copies of everything that a resumed training needs, by PyTorch's names: parameters (`fc1.weight`), states of
        the optimizer (`fc1.weight.exp_avg`) and of the model, and the counter `step`."""
        changed, weights = self.executable.state(), self.executable.weights
        return {
            name: changed[name] if name in changed else np.array(array)
            for name, array in weights.items()
            if not name.startswith(OWN)
        }

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> None:
        """Takes a state as `state_dict` gives it; steps go on from there, bit by bit as they would have.

        Raises:
            InputMismatch: a tensor is missing, unknown, or of another shape or dtype, or one that never changes is
                another one, or the number of the step is negative; nothing changes then.
        """
        arrays = read_weights(state)
        ours = self.state_dict()
        check_tensors(arrays, ours)
        number = _number_of(arrays)
        mutable = self.executable.plan.mutable
        for name in ours:
            if name not in mutable and arrays[name].tobytes() != ours[name].tobytes():
                raise InputMismatch(
                    f"'{name}' is frozen, and has other values here; build the step with these weights"
                )
        own = {name: np.zeros_like(self.executable.weights[name]) for name in mutable if name.startswith(OWN)}
        self.executable.set_state({**own, **{name: arrays[name] for name in ours if name in mutable}})
        self._first = self._count = number
        self._losses.clear()

    def weights(self) -> dict[str, Array]:
        """Copies of the parameters and states of the model, such as `aicf.compile` takes them for inference."""
        return {name: array for name, array in self.state_dict().items() if name not in self._trained.added}

    def save(self, path: str | Path) -> None:
        """Writes a checkpoint: `state_dict` and the losses so far, as a safetensors file.

        A process that is killed leaves the old file whole.

        Raises:
            ArtifactError: the file cannot be written.
        """
        write_checkpoint(path, {**self.state_dict(), HISTORY: self.losses()}, self._trained.ops)

    def load(self, path: str | Path) -> None:
        """Goes on from a checkpoint.

        Raises:
            ArtifactError: the file cannot be read or is no checkpoint.
            InputMismatch: it is of another model or optimizer; names the first difference. Nothing changes then.
        """
        state = read_checkpoint(path, self._trained.ops)
        history = state.pop(HISTORY, np.empty(0))
        if problem := history_problem(history, state.get(STEP)):
            raise InputMismatch(f"the checkpoint contradicts itself: {problem}; take another one")
        self.load_state_dict(state)
        self._remember(history)

    def save_program(self, path: str | Path) -> None:
        """Writes the compiled step as it is now, program, state and losses, as an artifact that `aicf.load_step` takes.

        Raises:
            ArtifactError: the file cannot be written.
        """
        save_step(self.executable, path, {HISTORY: self.losses()})

    def _remember(self, history: Array) -> None:
        """Takes the losses of the last steps, [steps]; they may be fewer than the steps that were done."""
        self._losses: list[float] = history.tolist()
        self._first = self._count - len(self._losses)

    def set_learning_rate(self, lr: float) -> None:
        """The rate from the next step on, of an optimizer with `lr=aicf.schedules.FromHost(...)` or `Plateau(...)`.

        Raises:
            InputMismatch: the program computes the rate itself, or `lr` is no finite number in the rate's type.
        """
        if RATE not in self._trained.added:
            raise InputMismatch(
                "the step computes its learning rate; build it with lr=aicf.schedules.FromHost(...)"
            )
        self.executable.set_state({RATE: _rate(lr, self.executable.weights[RATE].dtype)})

    def report_metric(self, metric: float | Array | np.generic | StepLoss) -> float:
        """What `lr=aicf.schedules.Plateau(...)` follows: one metric, as of `step(metric)` of PyTorch's schedulers.

        It is reported at the end of an epoch, or whenever else it is measured. Waits for the steps in flight.

        Args:
            metric: One number, an array of one, or a `StepLoss`. NaN is no improvement.

        Returns:
            The rate from the next step on.

        Raises:
            InputMismatch: the step has another schedule, or the metric is not one number.
        """
        rule = self._trained.plateau
        if rule is None:
            raise InputMismatch(
                "the learning rate of the step follows no metric; build it with lr=aicf.schedules.Plateau(...)"
            )
        after = rule.after(self.executable.state(*DTYPES), _metric(metric))
        self.executable.set_state(after)
        return float(after[RATE])

    # What it is made of

    def explain(self, value: str | None = None) -> Explanation | ValueExplanation:
        """See `CompiledModel.explain`."""
        return self.executable.explain(value)

    def ir(self, stage: str) -> str:
        """See `CompiledModel.ir`."""
        return self.executable.ir(stage)

    def memory(self) -> dict[str, int]:
        """See `Executable.memory`."""
        return self.executable.memory()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {spec}" for spec in self.executable.inputs)
        return f"TrainStep({inputs}; step {self._count})"


def load_step(path: str | Path, native: Literal["use", "rebuild"] = "use") -> TrainStep:
    """The training step in an artifact, with its losses; it goes on bit by bit as the one that was saved would have.

    Needs no compiler, with `native="use"`.

    Args:
        path: The `.aicf` file: of `TrainStep.save_program`, or of `CompiledModel.save`, which begins with the first
            weights unless it was told otherwise.
        native: As of `aicf.load`.

    Raises:
        ArtifactError: the file holds no training step.
        Others as `aicf.load`.
    """
    executable, kept = read_step(path, native)
    trained = executable.record.trained
    if trained is None:
        raise ArtifactError(
            "the artifact is of no training step, aicf.load() takes it; TrainStep.save_program() writes one",
            location=str(path),
        )
    if missing := [name for name in (STEP, RING, *trained.added) if name not in executable.weights]:
        raise ArtifactError(
            f"the artifact contradicts itself: its program keeps no '{missing[0]}'", location=str(path)
        )
    if problem := None if trained.plateau is None else _plateau_problem(trained.plateau, executable):
        raise ArtifactError(f"the artifact contradicts itself: {problem}", location=str(path))
    history = kept.get(HISTORY, np.empty(0))
    if problem := history_problem(history, executable.weights[STEP]):
        raise ArtifactError(f"the artifact contradicts itself: {problem}", location=str(path))
    return TrainStep(executable, history)


def _plateau_problem(rule: PlateauRule, executable: CompiledModel) -> str | None:
    """Why a program cannot follow the rule that an artifact has for it; None if it can."""
    for name, dtype in DTYPES.items():
        found = executable.weights.get(name)
        if name not in executable.plan.mutable or found is None:
            return f"its program keeps no '{name}'"
        if found.shape != () or found.dtype != numpy_dtype(dtype):
            return f"'{name}' is {describe_array(found)} in its program, a plateau schedule has one {dtype}"
    return rule.problem()
