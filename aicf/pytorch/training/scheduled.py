"""Updates of parameters whose options change from step to step, as `OneCycleLR` cycles the momentum.

Such options are inputs of the program. What follows from them and from the number of the step, such as Adam's bias
corrections, is computed on the host in float64, as PyTorch does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from aicf.errors import InvalidIR
from aicf.frontends.builder import Graph, Value
from aicf.training.optimizers import SGD, Adam, AdamW, Operands, Optimizer


def form_of(update: Optimizer) -> tuple[object, ...]:
    """What of a rule stays an attribute of the program: its class, its states, and what is no number."""
    flags = update.nesterov if isinstance(update, SGD) else update.eps if isinstance(update, Adam) else None
    return (type(update), update.states, flags)


def numbers_of(update: Optimizer, rate: float, step: int) -> tuple[float, ...]:
    """The inputs of one step, in the order in which `scheduled_update` reads them.

    Args:
        update: The rule with its options in this step.
        rate: The learning rate.
        step: 1 for the first.
    """
    if isinstance(update, SGD):
        keep, take = (0.0, 1.0) if step == 1 else (update.momentum, 1.0 - update.dampening)
        return (update.weight_decay, keep, take, update.momentum, rate)
    if isinstance(update, Adam):
        beta1, beta2 = update.betas
        decay = 1.0 - rate * update.weight_decay if isinstance(update, AdamW) else update.weight_decay
        size, root = rate / (1.0 - beta1**step), sqrt(1.0 - beta2**step)
        return (decay, beta1, 1.0 - beta1, beta2, 1.0 - beta2, size, root)
    raise InvalidIR(
        f"options of {type(update).__name__} cannot change from step to step; keep them as they are"
    )


def scheduled_update(graph: Graph, update: Optimizer, of: Operands, numbers: Sequence[Value]) -> list[Value]:
    """The parameter and its states after the step.

    Args:
        graph: Gets the ops.
        update: The rule; of its options only `form_of` is read.
        of: The parameter, its gradient and its states.
        numbers: See `numbers_of`, in the parameter's element type.
    """
    if isinstance(update, SGD):
        return _sgd(graph, update, of, numbers)
    assert isinstance(update, Adam)
    return _adam(graph, update, of, numbers)


def _sgd(graph: Graph, update: SGD, of: Operands, numbers: Sequence[Value]) -> list[Value]:
    decay, keep, take, momentum, rate = numbers
    gradient = graph.add(of.gradient, graph.mul(decay, of.parameter))
    if not of.states:
        return [graph.sub(of.parameter, graph.mul(rate, gradient))]
    buffer = graph.add(graph.mul(keep, of.states[0]), graph.mul(take, gradient))
    direction = graph.add(gradient, graph.mul(momentum, buffer)) if update.nesterov else buffer
    return [graph.sub(of.parameter, graph.mul(rate, direction)), buffer]


def _adam(graph: Graph, update: Adam, of: Operands, numbers: Sequence[Value]) -> list[Value]:
    decay, beta1, rest1, beta2, rest2, size, root = numbers
    parameter, gradient = of.parameter, of.gradient
    if isinstance(update, AdamW):
        parameter = graph.mul(decay, parameter)
    else:
        gradient = graph.add(gradient, graph.mul(decay, parameter))
    first = graph.add(graph.mul(beta1, of.states[0]), graph.mul(rest1, gradient))
    second = graph.add(graph.mul(beta2, of.states[1]), graph.mul(rest2, graph.mul(gradient, gradient)))
    states = [first, second]
    if update.amsgrad:
        states.append(graph.max(of.states[2], second))
    scale = graph.add(graph.div(graph.sqrt(states[-1]), root), update.eps)
    return [graph.sub(parameter, graph.div(graph.mul(size, first), scale)), *states]
