"""`train_step`: a module, a loss and an optimizer of PyTorch as one program, on PyTorch's memory.

The forward part is traced by `torch.export` and differentiated by AICF, or traced with its gradients by AOTAutograd;
`step_gradients` decides. Parameters, buffers and optimizer states stay PyTorch's tensors and are updated in place:
`state_dict()`, checkpoints and weight averaging keep working, and a scheduler changes rates without a new program.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves

from aicf.compiled import CompiledModel
from aicf.pytorch.optimizers import Group, groups_of, state_of, steps_so_far
from aicf.pytorch.options import StepOptions, read_step_options
from aicf.pytorch.seeds import Seeds
from aicf.pytorch.step_checks import (
    check_batch,
    check_counts,
    check_model,
    check_trained,
    in_one_line,
    restored,
    signature_of,
    tensors_of,
)
from aicf.pytorch.step_gradients import Trace, compile_with_gradients, note_in_ledger
from aicf.pytorch.step_program import StepProgram
from aicf.pytorch.step_report import StepProgramReport, StepReport

LossFunction: TypeAlias = Callable[[Any, Any], Tensor]
LOGGER = logging.getLogger("aicf.pytorch")
_Compiled: TypeAlias = tuple[StepProgram, StepProgramReport]


class TrainStep:
    """One training step, the result of `train_step`.

    Calling it with a batch updates the module's parameters and buffers and the optimizer's states in place, and returns
    the loss, a tensor of rank 0, without waiting for the device. Calls of several threads are serialized. A copy, also
    through `pickle`, has copies of the module and the optimizer, and compiles its own programs.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: LossFunction | None,
        optimizer: torch.optim.Optimizer,
        options: StepOptions,
    ) -> None:
        self.model, self.optimizer, self._loss, self._options = model, optimizer, loss, options
        self._programs: dict[Any, StepProgram] = {}
        self._reports: dict[int, StepProgramReport] = {}
        self._count: Tensor | None = None
        self._trained: Sequence[Tensor] = ()
        self._lock = threading.RLock()
        self._seeds = Seeds(options.seed, type(model).__name__)
        self._hook_into(optimizer)
        self.steps = self._reported_steps = steps_so_far(optimizer)

    def __call__(self, *batch: Any, **named: Any) -> Tensor:
        """One step.

        Args:
            batch: The module's positional arguments, then the target if there is a loss function.
            named: The module's keyword arguments.
        """
        values, spec = tree_flatten((batch, named))
        check_batch(values)
        with self._lock, torch.inference_mode(False):
            groups = groups_of(self.optimizer, self._names())
            signature = (
                str(spec),
                *map(_signature, values),
                *(group.key for group in groups),
                *self._modes(),
            )
            key = (*signature, *signature_of(tensors_of(self.model)))
            program = self._programs.get(key)
            if program is None or program.trained is not self._trained:
                program = self._switch(key, program, lambda: self._compile(batch, named, groups))
            if self._count is None:
                self._count = torch.full((), self.steps, dtype=torch.int64, device=program.device)
            loss = program.run(values, groups, self._count)
            self.steps += 1
            vars(self.optimizer)["_opt_called"] = True  # schedules warn where it is not
            return loss

    def _switch(
        self, key: Any, program: StepProgram | None, compile_program: Callable[[], _Compiled]
    ) -> StepProgram:
        """Makes a program the current one, compiling it if need be, and evicts the least recently used one."""
        with restored(self.optimizer):
            self._write_step_counts()
            program, report = (program, self._reports[id(program)]) if program else compile_program()
            check_counts(self.optimizer, program.trained, self.steps)
        self._reports[id(program)] = report
        self._programs.pop(key, None)
        self._programs[key] = program
        if len(self._programs) > self._options.max_programs:
            oldest = next(iter(self._programs))
            del self._reports[id(self._programs.pop(oldest))]
        self._trained = program.trained
        return program

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            self._write_step_counts()
            return {"arguments": (self.model, self._loss, self.optimizer, self._options)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        TrainStep.__init__(self, *state["arguments"])

    @property
    def executables(self) -> list[CompiledModel]:
        """The programs in memory, one for each signature of a batch, with `explain()`."""
        return [program.executable for program in self._programs.values()]

    def report(self) -> StepReport:
        """The programs, who computed their gradients, and why."""
        return StepReport(type(self.model).__name__, self.steps, tuple(self._reports.values()))

    def _modes(self) -> tuple[object, ...]:
        """State that a trace depends on besides the batch."""
        casts = [
            torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
            for kind in ("cpu", "cuda")
        ]
        return (self.model.training, *casts)

    def _names(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in self.model.named_parameters()}

    def _compile(self, batch: tuple[Any, ...], named: dict[str, Any], groups: Sequence[Group]) -> _Compiled:
        start = time.perf_counter()
        check_model(self.model)
        parameters = [
            (name, parameter, group.update)
            for group in groups
            for name, parameter in zip(group.names, group.parameters, strict=True)
        ]

        def compile_traced(trace: Trace) -> StepProgram:
            names = {name for name, _, _ in parameters}
            model = trace(_WithLoss(self.model, self._loss), batch, named, type(self.model).__name__, names)
            check_trained(groups, [model.tensors[each] for each in model.trained])
            trained = {id(model.tensors[each]) for each in model.trained}
            states = {
                name: state_of(self.optimizer, each, update)
                for name, each, update in parameters
                if id(each) in trained
            }
            return StepProgram(model, groups, states, self._options, self._seeds)

        def compile_or_restore(trace: Trace) -> StepProgram:
            with restored(self.optimizer):  # the other source of gradients may need fewer states
                return compile_traced(trace)

        with in_one_line():
            program, choice = compile_with_gradients(self._options.gradients, compile_or_restore)
        note_in_ledger(program.executable, choice)
        seconds = time.perf_counter() - start
        report = StepProgramReport(
            _describe_batch(batch, named), choice, seconds, program.origin, program.executable
        )
        LOGGER.info("%s", report)
        return program, report

    # The optimizer's own step counts

    def _hook_into(self, optimizer: torch.optim.Optimizer) -> None:
        """Keeps the optimizer's step counts right when its state is read, and when its own `step` is called."""
        optimizer.register_state_dict_pre_hook(lambda _: self._write_step_counts())
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)
        optimizer.register_load_state_dict_post_hook(lambda _: self._loaded())

    def _before(self, _: object, __: object, ___: object) -> None:
        self._write_step_counts()

    def _after(self, _: object, __: object, ___: object) -> None:
        self._read_step_counts()

    def _write_step_counts(self) -> None:
        if self._reported_steps != self.steps:
            for parameter in self._trained:
                if isinstance(count := self.optimizer.state.get(parameter, {}).get("step"), Tensor):
                    count.fill_(self.steps)
            self._reported_steps = self.steps

    def _read_step_counts(self) -> None:
        self.steps = self._reported_steps = steps_so_far(self.optimizer)
        self._trained = ()
        if self._count is not None:
            self._count.fill_(self.steps)

    def _loaded(self) -> None:
        """Drops all programs: they refer to states that the optimizer no longer has."""
        self._programs.clear()
        self._reports.clear()
        self._read_step_counts()


def train_step(
    model: nn.Module,
    loss: LossFunction | None,
    optimizer: torch.optim.Optimizer,
    *,
    options: Mapping[str, Any] | None = None,
) -> TrainStep:
    """Compiles a module, its loss, their gradients and the optimizer to one program.

    Args:
        model: In the mode in which it is to be trained.
        loss: Takes the module's output and the target, as `torch.nn.functional.cross_entropy` does; None for a module
            that returns the loss, or an object with an attribute `loss`.
        optimizer: `torch.optim.SGD`, `Adam` or `AdamW`, on parameters of the module.
        options: See `aicf.pytorch.StepOptions`.

    Raises:
        InvalidIR: the optimizer is of another class or has an option without a counterpart.
        PolicyError: an option is not legal.
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile wrapped
    groups_of(optimizer, {id(parameter): name for name, parameter in model.named_parameters()})
    return TrainStep(model, loss, optimizer, read_step_options(options))


class _WithLoss(nn.Module):
    """A module that returns the loss of another module."""

    def __init__(self, model: nn.Module, loss: LossFunction | None) -> None:
        super().__init__()
        self.model = model
        self._loss = loss
        self.training = model.training

    def forward(self, *batch: Any, **named: Any) -> Tensor:
        """The loss of a batch."""
        if self._loss is not None:
            *inputs, target = batch
            return self._loss(self.model(*inputs, **named), target)
        result = self.model(*batch, **named)
        return cast(Tensor, result if isinstance(result, Tensor) else result.loss)


def _signature(value: Any) -> object:
    """The facts about a value of a batch that a program is valid for."""
    if isinstance(value, Tensor):
        return (tuple(value.shape), value.dtype, value.device, value.stride())
    return value


def _describe_batch(batch: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """The element types and shapes of the tensors of a batch."""
    tensors = [value for value in tree_leaves((batch, dict(named))) if isinstance(value, Tensor)]
    return ", ".join(f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}" for each in tensors)
