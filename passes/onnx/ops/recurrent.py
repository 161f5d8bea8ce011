"""ONNX's recurrent layers: RNN, GRU and LSTM. The number of steps is static, and each is written out, but for those of
a long LSTM without extras, which are one op.

All that does not depend on the state is one product over all steps; a step adds the product of its state to a slice
of it. Weights stand gate by gate in the order that ONNX gives them: LSTM input, output, forget, cell; GRU update,
reset, hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor_info
from aicf.passes.onnx.ops.activations import softsign
from aicf.passes.onnx.ops.base import Node, Result, row

_X, _W, _R, _B, _LENGTHS, _FIRST_H, _FIRST_C, _PEEPHOLES = range(8)
"""The operands' numbers; only an LSTM has the last two."""

_LONG = 4
"""Steps from which a layer is one op where there is one."""

MAX_WRITTEN_STEPS = 4096
"""Most steps that are written out one by one, each a dozen ops: as many as iterations of a Loop."""

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""For each direction whether it goes from the last step to the first."""


# Activations


Activation: TypeAlias = "Callable[[Node, SSAValue, float, float], SSAValue]"
"""From a node, x, alpha and beta to the activation of x."""


@dataclass(frozen=True)
class _Function:
    """An activation that the attribute ``activations`` can name.

    Args:
        write: Writes it.
        alpha: Its default; None if it has no alpha.
        beta: Its default; None if it has no beta.
    """

    write: Activation
    alpha: float | None = None
    beta: float | None = None


def _thresholded_relu(node: Node, x: SSAValue, alpha: float, beta: float) -> SSAValue:
    passes = node.add(logical.CompareOp("ge", x, node.splat(alpha, x)), "passes")
    return node.apply(logical.SelectOp, passes, x, node.splat(0.0, x))


def _scaled_tanh(node: Node, x: SSAValue, alpha: float, beta: float) -> SSAValue:
    return node.apply(logical.MulOp, node.apply(logical.TanhOp, node.apply(logical.MulOp, x, beta)), alpha)


_FUNCTIONS = {
    "relu": _Function(lambda node, x, alpha, beta: node.apply(logical.ReluOp, x)),
    "tanh": _Function(lambda node, x, alpha, beta: node.apply(logical.TanhOp, x)),
    "sigmoid": _Function(lambda node, x, alpha, beta: node.apply(logical.SigmoidOp, x)),
    "affine": _Function(
        lambda node, x, alpha, beta: node.apply(logical.AddOp, node.apply(logical.MulOp, x, alpha), beta),
        1.0,
        0.0,
    ),
    "leakyrelu": _Function(
        lambda node, x, alpha, beta: node.apply(logical.LeakyReluOp, x, negative_slope=alpha), 0.01
    ),
    "thresholdedrelu": _Function(_thresholded_relu, 1.0),
    "scaledtanh": _Function(_scaled_tanh, 1.0, 1.0),
    "hardsigmoid": _Function(
        lambda node, x, alpha, beta: node.apply(logical.HardSigmoidOp, x, alpha=alpha, beta=beta), 0.2, 0.5
    ),
    "elu": _Function(lambda node, x, alpha, beta: node.apply(logical.EluOp, x, alpha=alpha), 1.0),
    "softsign": _Function(lambda node, x, alpha, beta: softsign(node, x)),
    "softplus": _Function(lambda node, x, alpha, beta: node.apply(logical.SoftplusOp, x)),
}
"""By name, in small letters."""

_OF_GATES = 2
"""How many activations, at most, are of gates: these are clipped, that of an LSTM's c is not, as in ONNX Runtime."""


def _activations(
    node: Node, defaults: Sequence[str], directions: int
) -> list[list[Callable[[SSAValue], SSAValue]]]:
    """The activations of each direction; alphas and betas are used up in the order of the functions that take one."""
    names = node.attributes.strings("activations", [*defaults] * directions)
    if len(names) != len(defaults) * directions:
        raise node.invalid(f"activations are {names}; a direction has {len(defaults)}")
    alphas, betas = (iter(node.attributes.floats(f"activation_{which}", [])) for which in ("alpha", "beta"))
    functions = [
        _activation(node, name, alphas, betas, clipped=number % len(defaults) < _OF_GATES)
        for number, name in enumerate(names)
    ]
    return [functions[start : start + len(defaults)] for start in range(0, len(functions), len(defaults))]


def _activation(
    node: Node, name: str, alphas: Iterator[float], betas: Iterator[float], *, clipped: bool
) -> Callable[[SSAValue], SSAValue]:
    function = _FUNCTIONS.get(name.lower())
    if function is None:
        raise node.invalid(f"activation {name} is unknown; use one of {', '.join(_FUNCTIONS)}")
    alpha, beta = (
        0.0 if default is None else next(given, default)
        for given, default in ((alphas, function.alpha), (betas, function.beta))
    )
    limit = node.attributes.float("clip", 0.0) if clipped else 0.0

    def write(x: SSAValue) -> SSAValue:
        bounded = node.apply(logical.ClampOp, x, min=-limit, max=limit) if limit else x
        return function.write(node, bounded, alpha, beta)

    return write


# What all three have in common


@dataclass(frozen=True)
class _Direction:
    """One direction of a layer.

    Args:
        node: The layer.
        number: 0, or 1 for the second of two.
        activations: In the order of the attribute.
    """

    node: Node
    number: int
    activations: Sequence[Callable[[SSAValue], SSAValue]]

    @property
    def hidden(self) -> int:
        """The size of the state."""
        return self.node.shape(_R)[2]

    def of(self, index: int) -> SSAValue:
        """What an operand, whose first dimension is that of directions, has for this one."""
        node, (directions, *rest) = self.node, self.node.shape(index)
        starts = [self.number, *[0] * len(rest)]
        own = node.operand(index) if directions == 1 else node.slice(node.operand(index), starts, (1, *rest))
        return node.reshape(own, rest, "direction")

    def vector(self, index: int, gate: int) -> SSAValue | None:
        """Part ``gate`` of a vector of biases or peepholes; None if there are none."""
        if not self.node.has(index):
            return None
        return self.node.slice(self.of(index), [gate * self.hidden], [self.hidden], suffix="part")

    def first_state(self, index: int, batch: int) -> SSAValue:
        """[batch, hidden] of what is given, or zeros."""
        node = self.node
        if not node.has(index):
            return node.full(0.0, (batch, self.hidden), node.element(_X))
        if not node.attributes.int("layout", 0):
            return self.of(index)
        directions = node.shape(index)[1]
        own = node.operand(index)
        if directions > 1:
            own = node.slice(own, (0, self.number, 0), (batch, 1, self.hidden), suffix="first")
        return node.reshape(own, (batch, self.hidden), "first")


State: TypeAlias = tuple[SSAValue, ...]
"""h, and of an LSTM c: [batch, hidden] each."""

Step: TypeAlias = "Callable[[SSAValue, State], State]"
"""From what a step has of the input, [batch, gates * hidden], and the state to the next state."""


@dataclass(frozen=True)
class _Cell:
    """What tells one kind of layer from another.

    Args:
        gates: How many there are.
        activations: Their defaults.
        states: The operands with the first states.
        recurrent_bias: The gates whose recurrent bias is added with that of the input.
        step: Makes the step of a direction.
    """

    gates: int
    activations: tuple[str, ...]
    states: tuple[int, ...]
    recurrent_bias: Callable[[Node], Sequence[bool]]
    step: Callable[[_Direction], Step]


def _layer(node: Node, cell: _Cell) -> Result:
    directions = _DIRECTIONS.get(node.attributes.string("direction", "forward"))
    if directions is None:
        raise node.invalid(
            f"direction is {node.attributes.string('direction', '')}; use one of {', '.join(_DIRECTIONS)}"
        )
    _check(node, cell, len(directions))
    batch_first = node.attributes.flag("layout")
    x = node.transpose(node.operand(_X), (1, 0, 2), "steps_first") if batch_first else node.operand(_X)
    functions = _activations(node, cell.activations, len(directions))
    runs = [
        _run(_Direction(node, number, functions[number]), cell, x, backward)
        for number, backward in enumerate(directions)
    ]
    outputs = node.concat([outputs for outputs, _ in runs], 1, "directions")
    states = [
        node.concat([state[index] for _, state in runs], 0, "last") for index in range(len(cell.states))
    ]
    if batch_first:
        outputs = node.transpose(outputs, (2, 0, 1, 3), "batch_first")
        states = [node.transpose(state, (1, 0, 2), "batch_first") for state in states]
    return [outputs, *states][: node.outputs]


def _check(node: Node, cell: _Cell, directions: int) -> None:
    """The shapes of the weights fit the attributes."""
    hidden = node.attributes.int("hidden_size", node.shape(_R)[-1])
    wanted = {
        _W: (directions, cell.gates * hidden, node.shape(_X)[-1]),
        _R: (directions, cell.gates * hidden, hidden),
        _B: (directions, 2 * cell.gates * hidden),
        _PEEPHOLES: (directions, 3 * hidden),
    }
    for index, sizes in wanted.items():
        if node.has(index) and node.shape(index) != sizes:
            raise node.invalid(
                f"operand {index} is {node.type(index)}; for {directions} directions of {hidden} it is "
                f"{'x'.join(map(str, sizes))}"
            )


def _run(direction: _Direction, cell: _Cell, x: SSAValue, backward: bool) -> tuple[SSAValue, list[SSAValue]]:
    """Outputs of all steps, [steps, 1, batch, hidden], and the last states, [1, batch, hidden]."""
    node, hidden = direction.node, direction.hidden
    steps, batch, _ = tensor_info(x.type).shape
    projected = _projected(direction, cell, x)
    if _is_one_loop(node, steps):
        return _loop(direction, projected, (steps, batch, hidden), backward)
    if steps > MAX_WRITTEN_STEPS:
        raise node.unsupported(
            f"it has {steps} steps (the sequence length of operand 0), which are written out one by one; at most "
            f"{MAX_WRITTEN_STEPS} are: run shorter sequences and carry the state, or use an LSTM without peepholes, "
            "clip or lengths, which is one loop"
        )
    state: State = tuple(direction.first_state(index, batch) for index in cell.states)
    step, valid = cell.step(direction), _validity(node, steps, batch, hidden)
    outputs: dict[int, SSAValue] = {}
    for number in reversed(range(steps)) if backward else range(steps):
        columns = tensor_info(projected.type).shape[1]
        own = node.slice(projected, (number * batch, 0), (batch, columns), suffix="step")
        after = step(own, state)
        output = after[0]
        if (inside := valid(number)) is not None:
            output = node.apply(logical.SelectOp, inside, output, node.splat(0.0, output), name="output")
            after = tuple(
                node.apply(logical.SelectOp, inside, new, old, name="kept")
                for new, old in zip(after, state, strict=True)
            )
        outputs[number], state = node.reshape(output, (1, 1, batch, hidden), "output"), after
    if (some := valid(0)) is not None:
        # What has no step has no last state either: 0, as in ONNX Runtime.
        state = tuple(
            node.apply(logical.SelectOp, some, value, node.splat(0.0, value), name="last") for value in state
        )
    joined = node.concat([outputs[number] for number in range(steps)], 0, "steps")
    return joined, [node.reshape(value, (1, batch, hidden), "state") for value in state]


def _is_one_loop(node: Node, steps: int) -> bool:
    """Whether ``logical.lstm`` says all of it, and there are so many steps that one op for each would be many."""
    is_supported = not (
        node.has(_PEEPHOLES) or node.attributes.int("input_forget", 0) or node.attributes.float("clip", 0.0)
    )
    usual = [name.lower() for name in node.attributes.strings("activations", [])]
    known = node.known(_LENGTHS)
    return (
        node.op_type == "LSTM"
        and steps >= _LONG
        and is_supported
        and usual in ([], ["sigmoid", "tanh", "tanh"], ["sigmoid", "tanh", "tanh"] * 2)
        and node.element(_X).name in ("f32", "f64")
        and (not node.has(_LENGTHS) or (known is not None and bool((known >= steps).all())))
    )


def _loop(
    direction: _Direction, projected: SSAValue, sizes: tuple[int, int, int], backward: bool
) -> tuple[SSAValue, list[SSAValue]]:
    """As :func:`_run`, in one op."""
    node, (steps, batch, hidden) = direction.node, sizes
    x = node.reshape(projected, (steps, batch, _LSTM.gates * hidden), "steps")
    first = node.concat(
        [
            node.reshape(direction.first_state(index, batch), (1, batch, hidden), "first")
            for index in _LSTM.states
        ],
        0,
        "first",
    )
    states = node.apply(logical.LstmOp, x, direction.of(_R), first, reverse=backward)
    last = 0 if backward else steps - 1
    rows = [
        node.slice(states, (number, last, 0, 0), (1, 1, batch, hidden), suffix="last") for number in range(2)
    ]
    outputs = node.slice(states, (0, 0, 0, 0), (1, steps, batch, hidden), suffix="outputs")
    return (
        node.reshape(outputs, (steps, 1, batch, hidden), "outputs"),
        [node.reshape(value, (1, batch, hidden), "state") for value in rows],
    )


def _projected(direction: _Direction, cell: _Cell, x: SSAValue) -> SSAValue:
    """What all steps have of the input: [steps * batch, gates * hidden]."""
    node = direction.node
    steps, batch, size = tensor_info(x.type).shape
    rows = node.reshape(x, (steps * batch, size), "rows")
    weight = direction.of(_W)
    if not node.has(_B):
        return node.apply(logical.LinearOp, rows, weight, name="input")
    return node.apply(logical.LinearOp, rows, weight, _joint_bias(direction, cell), name="input")


def _joint_bias(direction: _Direction, cell: _Cell) -> SSAValue:
    """The bias of the input, with the recurrent one of those gates that may have it early."""
    node, both, size = direction.node, direction.of(_B), cell.gates * direction.hidden
    early = cell.recurrent_bias(node)
    own = node.slice(both, [0], [size], suffix="input_bias")
    other = node.slice(both, [size], [early.count(True) * direction.hidden], suffix="recurrent_bias")
    if not all(early):
        # The gates that wait are the last ones.
        missing = size - tensor_info(other.type).shape[0]
        other = node.concat([other, node.full(0.0, (missing,), node.element(_B))], 0, "recurrent_bias")
    return node.apply(logical.AddOp, own, other, name="bias")


def _validity(node: Node, steps: int, batch: int, hidden: int) -> Callable[[int], SSAValue | None]:
    """From a step to where it is inside of its sequence, [batch, hidden]; None if it is everywhere."""
    known = node.known(_LENGTHS)
    if not node.has(_LENGTHS) or (known is not None and bool((known >= steps).all())):
        return lambda step: None
    spread = node.broadcast(node.operand(_LENGTHS), [0], (batch, hidden), "lengths")
    return lambda step: node.add(logical.CompareOp("gt", spread, node.splat(step, spread)), "inside")


def _gate(node: Node, gates: SSAValue, number: int, hidden: int) -> SSAValue:
    """One of the gates that lie side by side."""
    batch = tensor_info(gates.type).shape[0]
    return node.slice(gates, (0, number * hidden), (batch, hidden), suffix="gate")


def _recurrent(node: Node, state: SSAValue, weight: SSAValue) -> SSAValue:
    """state @ weight'."""
    return node.apply(logical.MatmulOp, state, weight, transpose_b=True, name="recurrent")


# The three


def _rnn_step(direction: _Direction) -> Step:
    """h' = f(input + h @ R')."""
    node, weight, (activation,) = direction.node, direction.of(_R), direction.activations

    def step(x: SSAValue, state: State) -> State:
        return (activation(node.apply(logical.AddOp, x, _recurrent(node, state[0], weight))),)

    return step


def _lstm_step(direction: _Direction) -> Step:
    """c' = f * c + i * g(cell), h' = o * h(c'); the gates see c through the peepholes."""
    node, hidden = direction.node, direction.hidden
    weight, (f, g, h) = direction.of(_R), direction.activations
    peepholes = [direction.vector(_PEEPHOLES, gate) for gate in range(3)]
    coupled = node.attributes.flag("input_forget")

    def gate(gates: SSAValue, number: int, cell: SSAValue) -> SSAValue:
        x, peephole = _gate(node, gates, number, hidden), peepholes[number]
        if peephole is not None:
            x = node.apply(logical.AddOp, x, node.elementwise(logical.MulOp, peephole, cell))
        return f(x)

    def step(x: SSAValue, state: State) -> State:
        before, cell = state
        gates = node.apply(logical.AddOp, x, _recurrent(node, before, weight), name="gates")
        entering = gate(gates, 0, cell)
        kept = node.apply(logical.SubOp, node.splat(1.0, cell), entering) if coupled else gate(gates, 2, cell)
        new = g(_gate(node, gates, 3, hidden))
        after = node.apply(
            logical.AddOp,
            node.apply(logical.MulOp, kept, cell),
            node.apply(logical.MulOp, entering, new),
            name="cell",
        )
        return node.apply(logical.MulOp, gate(gates, 1, after), h(after), name="hidden"), after

    return step


def _gru_step(direction: _Direction) -> Step:
    """h' = (1 - z) * n + z * h; n sees the state times the reset gate, before or after its product."""
    node, hidden = direction.node, direction.hidden
    f, g = direction.activations
    hidden_gate = _linear_hidden_gate if _is_linear_before_reset(node) else _hidden_gate
    joint = hidden_gate(direction)

    def step(x: SSAValue, state: State) -> State:
        (before,) = state
        gates, candidate = joint(x, before)
        update, reset = (f(_gate(node, gates, number, hidden)) for number in range(2))
        new = g(candidate(reset))
        other = node.apply(logical.SubOp, node.splat(1.0, update), update, name="other")
        after = node.apply(
            logical.AddOp,
            node.apply(logical.MulOp, other, new),
            node.apply(logical.MulOp, update, before),
            name="hidden",
        )
        return (after,)

    return step


_Joint: TypeAlias = "Callable[[SSAValue, SSAValue], tuple[SSAValue, Callable[[SSAValue], SSAValue]]]"
"""From the input and the state to update and reset gate side by side, and from the reset to the hidden gate."""


def _hidden_gate(direction: _Direction) -> _Joint:
    """input + (r * h) @ Rh'."""
    node, hidden = direction.node, direction.hidden
    whole = direction.of(_R)
    weight = node.slice(whole, (0, 0), (2 * hidden, hidden), suffix="gate_weight")
    own = node.slice(whole, (2 * hidden, 0), (hidden, hidden), suffix="hidden_weight")

    def joint(x: SSAValue, before: SSAValue) -> tuple[SSAValue, Callable[[SSAValue], SSAValue]]:
        batch = tensor_info(x.type).shape[0]
        first = node.slice(x, (0, 0), (batch, 2 * hidden), suffix="gate_input")
        gates = node.apply(logical.AddOp, first, _recurrent(node, before, weight), name="gates")

        def candidate(reset: SSAValue) -> SSAValue:
            seen = _recurrent(node, node.apply(logical.MulOp, reset, before, name="reset"), own)
            return node.apply(logical.AddOp, _gate(node, x, 2, hidden), seen, name="candidate")

        return gates, candidate

    return joint


def _linear_hidden_gate(direction: _Direction) -> _Joint:
    """input + r * (h @ Rh' + Rbh)."""
    node, hidden = direction.node, direction.hidden
    weight, bias = direction.of(_R), direction.vector(_B, 5)

    def joint(x: SSAValue, before: SSAValue) -> tuple[SSAValue, Callable[[SSAValue], SSAValue]]:
        product = _recurrent(node, before, weight)
        batch = tensor_info(x.type).shape[0]
        first, other = (
            node.slice(value, (0, 0), (batch, 2 * hidden), suffix="gate_part") for value in (x, product)
        )

        def candidate(reset: SSAValue) -> SSAValue:
            seen = _gate(node, product, 2, hidden)
            if bias is not None:
                seen = node.elementwise(logical.AddOp, seen, bias)
            return node.apply(
                logical.AddOp,
                _gate(node, x, 2, hidden),
                node.apply(logical.MulOp, reset, seen),
                name="candidate",
            )

        return node.apply(logical.AddOp, first, other, name="gates"), candidate

    return joint


def _is_linear_before_reset(node: Node) -> bool:
    return node.attributes.flag("linear_before_reset")


_RNN = _Cell(1, ("Tanh",), (_FIRST_H,), lambda node: [True], _rnn_step)
_GRU = _Cell(
    3,
    ("Sigmoid", "Tanh"),
    (_FIRST_H,),
    lambda node: [True, True, not _is_linear_before_reset(node)],
    _gru_step,
)
_LSTM = _Cell(4, ("Sigmoid", "Tanh", "Tanh"), (_FIRST_H, _FIRST_C), lambda node: [True] * 4, _lstm_step)


@row("RNN", since=7)
def _rnn(node: Node) -> Result:
    """h' = f(x @ W' + Wb + h @ R' + Rb)."""
    return _layer(node, _RNN)


@row("GRU", since=7)
def _gru(node: Node) -> Result:
    """Gated recurrent units (Cho et al., 2014)."""
    return _layer(node, _GRU)


@row("LSTM", since=7)
def _lstm(node: Node) -> Result:
    """Long short-term memory (Hochreiter and Schmidhuber, 1997), with peepholes."""
    return _layer(node, _LSTM)
