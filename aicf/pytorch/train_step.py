"""`train_step`: a module, a loss and an optimizer of PyTorch as one program, on the memory that PyTorch has for them.

The forward part is traced by `torch.export` and differentiated here, or traced with its gradients by AOTAutograd;
`step_gradients` says when. Parameters, buffers and states of the optimizer
stay PyTorch's tensors, updated in place: `state_dict()`, checkpoints and averages of weights go on working, and a
scheduler changes rates without a new program.
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
    forms_of,
    in_one_line,
    restored,
    tensors_of,
)
from aicf.pytorch.step_gradients import Trace, chosen, note_in_ledger
from aicf.pytorch.step_program import StepProgram
from aicf.pytorch.step_report import ProgramReport, StepReport

LossFunction: TypeAlias = Callable[[Any, Any], Tensor]
LOGGER = logging.getLogger("aicf.pytorch")
_Made: TypeAlias = tuple[StepProgram, ProgramReport]


class TrainStep:
    """One step of training, made by `train_step`.

    Calling it with a batch updates the module's parameters and buffers and the optimizer's states in place, and gives
    the loss, a tensor of rank 0 that nothing waits for. Threads take turns. A copy, also one by `pickle`, has copies of
    the module and the optimizer, and compiles programs of its own.
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
        self._reports: dict[int, ProgramReport] = {}
        self._count: Tensor | None = None
        self._trained: Sequence[Tensor] = ()
        self._turn = threading.RLock()
        self._seeds = Seeds(options.seed, type(model).__name__)
        self._hook_into(optimizer)
        self.steps = self._told = steps_so_far(optimizer)

    def __call__(self, *batch: Any, **named: Any) -> Tensor:
        """One step.

        Args:
            batch: What the module takes, then the target, if there is a loss function.
            named: What the module takes by name.
        """
        values, spec = tree_flatten((batch, named))
        check_batch(values)
        with self._turn, torch.inference_mode(False):
            groups = groups_of(self.optimizer, self._names())
            form = (str(spec), *map(_form, values), *(group.key for group in groups), *self._modes())
            key = (*form, *forms_of(tensors_of(self.model)))
            program = self._programs.get(key)
            if program is None or program.trained is not self._trained:
                program = self._changed(key, program, lambda: self._made(batch, named, groups))
            if self._count is None:
                self._count = torch.full((), self.steps, dtype=torch.int64, device=program.device)
            loss = program.run(values, groups, self._count)
            self.steps += 1
            vars(self.optimizer)["_opt_called"] = True  # schedules warn where it is not
            return loss

    def _changed(self, key: Any, program: StepProgram | None, make: Callable[[], _Made]) -> StepProgram:
        """Another program than last time, made if need be; the least recently used one is the first."""
        with restored(self.optimizer):
            self._tell()
            program, report = (program, self._reports[id(program)]) if program else make()
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
        with self._turn:
            self._tell()
            return {"made_of": (self.model, self._loss, self.optimizer, self._options)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        TrainStep.__init__(self, *state["made_of"])

    @property
    def executables(self) -> list[CompiledModel]:
        """The programs so far, one for each form of a batch: their `explain()` says what they do."""
        return [program.executable for program in self._programs.values()]

    def report(self) -> StepReport:
        """What became of the step: its programs, and who took their gradients, with the reason."""
        return StepReport(type(self.model).__name__, self.steps, tuple(self._reports.values()))

    def _modes(self) -> tuple[object, ...]:
        """What a trace depends on beside the batch."""
        casts = [
            torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
            for kind in ("cpu", "cuda")
        ]
        return (self.model.training, *casts)

    def _names(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in self.model.named_parameters()}

    def _made(self, batch: tuple[Any, ...], named: dict[str, Any], groups: Sequence[Group]) -> _Made:
        start = time.perf_counter()
        check_model(self.model)
        parameters = [
            (name, parameter, group.update)
            for group in groups
            for name, parameter in zip(group.names, group.parameters, strict=True)
        ]

        def made(trace: Trace) -> StepProgram:
            names = {name for name, _, _ in parameters}
            model = trace(_WithLoss(self.model, self._loss), batch, named, type(self.model).__name__, names)
            check_trained(groups, [model.tensors[each] for each in model.trained])
            passed = {id(model.tensors[each]) for each in model.trained}
            states = {
                name: state_of(self.optimizer, each, update)
                for name, each, update in parameters
                if id(each) in passed
            }
            return StepProgram(model, groups, states, self._options, self._seeds)

        def tried(trace: Trace) -> StepProgram:
            with restored(self.optimizer):  # gradients that are taken otherwise may need fewer states
                return made(trace)

        with in_one_line():
            program, choice = chosen(self._options.gradients, tried)
        note_in_ledger(program.executable, choice)
        report = ProgramReport(
            _told_form(batch, named), choice, time.perf_counter() - start, program.origin, program.executable
        )
        LOGGER.info("%s", report)
        return program, report

    # The optimizer's own count of steps

    def _hook_into(self, optimizer: torch.optim.Optimizer) -> None:
        """Brings the optimizer's own counts up to date before anybody reads them, or makes a step without us."""
        optimizer.register_state_dict_pre_hook(lambda _: self._tell())
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)
        optimizer.register_load_state_dict_post_hook(lambda _: self._loaded())

    def _before(self, _: object, __: object, ___: object) -> None:
        self._tell()

    def _after(self, _: object, __: object, ___: object) -> None:
        self._ask()

    def _tell(self) -> None:
        if self._told != self.steps:
            for parameter in self._trained:
                if isinstance(count := self.optimizer.state.get(parameter, {}).get("step"), Tensor):
                    count.fill_(self.steps)
            self._told = self.steps

    def _ask(self) -> None:
        self.steps = self._told = steps_so_far(self.optimizer)
        self._trained = ()
        if self._count is not None:
            self._count.fill_(self.steps)

    def _loaded(self) -> None:
        """The optimizer has other states from now on, which the programs do not know."""
        self._programs.clear()
        self._reports.clear()
        self._ask()


def train_step(
    model: nn.Module,
    loss: LossFunction | None,
    optimizer: torch.optim.Optimizer,
    *,
    options: Mapping[str, Any] | None = None,
) -> TrainStep:
    """Makes one program of a module, its loss, their gradients and the optimizer.

    Args:
        model: In the mode that it is to be trained in.
        loss: Takes what the module gives and the target, as `torch.nn.functional.cross_entropy` does; None for a module
            that gives the loss itself, or an object with the attribute `loss`.
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
    """A module that gives the loss."""

    def __init__(self, model: nn.Module, loss: LossFunction | None) -> None:
        super().__init__()
        self.model = model
        self._loss = loss
        self.training = model.training

    def forward(self, *batch: Any, **named: Any) -> Tensor:
        """The loss of a batch."""
        if self._loss is not None:
            *given, target = batch
            return self._loss(self.model(*given, **named), target)
        result = self.model(*batch, **named)
        return cast(Tensor, result if isinstance(result, Tensor) else result.loss)


def _form(value: Any) -> object:
    """What a program is made for, of one value of a batch."""
    if isinstance(value, Tensor):
        return (tuple(value.shape), value.dtype, value.device, value.stride())
    return value


def _told_form(batch: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """A batch in words, by the shapes and element types of its tensors."""
    tensors = [value for value in tree_leaves((batch, dict(named))) if isinstance(value, Tensor)]
    return ", ".join(f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}" for each in tensors)
