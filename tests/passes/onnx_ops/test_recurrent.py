"""ONNX's RNN, GRU and LSTM, told in float64 one sample and one gate at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import aicf
from aicf.errors import InvalidIR
from tests.support.onnx_models import Array, expect, one_node

RNG = np.random.default_rng(19)
STEPS, BATCH, SIZE, HIDDEN = 3, 3, 5, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

Function = Callable[[Array], Array]

DEFAULTS: dict[str, Sequence[Function]] = {
    "RNN": [np.tanh],
    "GRU": [lambda x: 1 / (1 + np.exp(-x)), np.tanh],
    "LSTM": [lambda x: 1 / (1 + np.exp(-x)), np.tanh, np.tanh],
}


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


class Layer:
    """One layer with random weights, and what it gives."""

    def __init__(self, op: str, directions: Sequence[bool], **options: Any) -> None:
        """`directions` say which go backwards; `options` are the node's attributes and which operands there are."""
        self.op, self.directions = op, directions
        self.lengths: Array | None = options.pop("lengths", None)
        self.functions: Sequence[Function] = options.pop("functions", DEFAULTS[op])
        count, rows = len(directions), GATES[op] * HIDDEN
        self.steps: int = options.pop("steps", STEPS)
        self.x = normal(self.steps, BATCH, SIZE)
        self.w, self.r = normal(count, rows, SIZE) / 2, normal(count, rows, HIDDEN) / 2
        self.b = normal(count, 2 * rows) if options.pop("bias", True) else None
        states = 2 if op == "LSTM" else 1
        self.first = (
            [normal(count, BATCH, HIDDEN) for _ in range(states)] if options.pop("states", False) else None
        )
        self.peepholes = normal(count, 3 * HIDDEN) if options.pop("peepholes", False) else None
        self.attributes: dict[str, Any] = options

    @property
    def inputs(self) -> list[Array | None]:
        """The operands of the node."""
        first = self.first or [None, None]
        x = self.x
        if self.attributes.get("layout"):
            x = x.transpose(1, 0, 2)
            first = [None if state is None else state.transpose(1, 0, 2) for state in first]
        lstm = [first[1], self.peepholes] if self.op == "LSTM" else []
        return [x, self.w, self.r, self.b, self.lengths, first[0], *lstm]

    def expected(self) -> list[Array]:
        """Y and the last states."""
        count, states = len(self.directions), 2 if self.op == "LSTM" else 1
        y = np.zeros((self.steps, count, BATCH, HIDDEN))
        last = np.zeros((states, count, BATCH, HIDDEN))
        for direction, backward in enumerate(self.directions):
            for sample in range(BATCH):
                steps = range(self.steps if self.lengths is None else int(self.lengths[sample]))
                state = [np.zeros(HIDDEN)] * states
                if self.first is not None and steps:
                    state = [each[direction, sample].astype(np.float64) for each in self.first]
                for step in reversed(steps) if backward else steps:
                    state = self.step(direction, self.x[step, sample].astype(np.float64), state)
                    y[step, direction, sample] = state[0]
                last[:, direction, sample] = state
        if self.attributes.get("layout"):
            return [
                y.transpose(2, 0, 1, 3).astype(np.float32),
                *last.transpose(0, 2, 1, 3).astype(np.float32),
            ]
        return [y.astype(np.float32), *last.astype(np.float32)]

    def step(self, direction: int, x: Array, state: list[Array]) -> list[Array]:
        """The next state of one sample."""
        w, r = (np.split(each[direction].astype(np.float64), GATES[self.op]) for each in (self.w, self.r))
        biases = (
            np.zeros((2 * GATES[self.op], HIDDEN))
            if self.b is None
            else self.b[direction].reshape(-1, HIDDEN)
        )
        wb, rb = np.split(biases.astype(np.float64), 2)
        limit = self.attributes.get("clip", np.inf)
        h = state[0]

        def gate(function: int, number: int, seen: Array, extra: Array | float = 0.0) -> Array:
            whole = w[number] @ x + wb[number] + r[number] @ seen + rb[number] + extra
            return self.functions[function](np.clip(whole, -limit, limit))

        if self.op == "RNN":
            return [gate(0, 0, h)]
        if self.op == "GRU":
            update, reset = gate(0, 0, h), gate(0, 1, h)
            if self.attributes.get("linear_before_reset"):
                inner = w[2] @ x + wb[2] + reset * (r[2] @ h + rb[2])
                new = self.functions[1](np.clip(inner, -limit, limit))
            else:
                new = gate(1, 2, reset * h)
            return [(1 - update) * new + update * h]
        c = state[1]
        holes = (
            np.zeros((3, HIDDEN)) if self.peepholes is None else self.peepholes[direction].reshape(3, HIDDEN)
        )
        entering = gate(0, 0, h, holes[0] * c)
        kept = 1 - entering if self.attributes.get("input_forget") else gate(0, 2, h, holes[2] * c)
        after = kept * c + entering * gate(1, 3, h)
        return [gate(0, 1, h, holes[1] * after) * self.functions[2](after), after]


BOTH, FORWARD, REVERSE = (False, True), (False,), (True,)
NAMES = {BOTH: "bidirectional", FORWARD: "forward", REVERSE: "reverse"}
LENGTHS = np.array([3, 0, 2], np.int32)

CASES: list[tuple[str, tuple[bool, ...], dict[str, Any]]] = [
    ("RNN", FORWARD, {"bias": False}),
    ("RNN", BOTH, {"lengths": LENGTHS, "states": True, "clip": 0.5}),
    ("RNN", REVERSE, {"layout": 1, "states": True}),
    ("GRU", FORWARD, {}),
    ("GRU", BOTH, {"lengths": LENGTHS, "states": True, "linear_before_reset": 1}),
    ("GRU", REVERSE, {"bias": False, "linear_before_reset": 1, "layout": 1, "clip": 0.4}),
    ("GRU", BOTH, {"layout": 1, "states": True}),
    ("LSTM", FORWARD, {"bias": False}),
    ("LSTM", BOTH, {"lengths": LENGTHS, "states": True, "peepholes": True}),
    ("LSTM", REVERSE, {"layout": 1, "states": True, "clip": 0.3, "peepholes": True}),
    ("LSTM", FORWARD, {"input_forget": 1, "peepholes": True}),
    ("LSTM", BOTH, {"layout": 1, "states": True}),
    # So long that it is one op, and with lengths again a step at a time.
    ("LSTM", BOTH, {"steps": 20, "states": True}),
    ("LSTM", REVERSE, {"steps": 17, "bias": False, "layout": 1}),
    ("LSTM", FORWARD, {"steps": 16, "lengths": LENGTHS}),
]


@pytest.mark.parametrize(("op", "directions", "options"), CASES)
def test_layer(op: str, directions: tuple[bool, ...], options: dict[str, Any]) -> None:
    layer = Layer(op, directions, **options)
    expected = layer.expected()
    expect(
        op,
        layer.inputs,
        len(expected),
        expected=expected,
        direction=NAMES[directions],
        hidden_size=HIDDEN,
        **layer.attributes,
    )


# A name, its function with the numbers that the node is given, and these: alpha, beta.
ACTIVATIONS: list[tuple[str, Function, list[float], list[float]]] = [
    ("Relu", lambda x: np.maximum(x, 0), [], []),
    ("Affine", lambda x: 0.3 * x + 0.2, [0.3], [0.2]),
    ("LeakyRelu", lambda x: np.where(x > 0, x, 0.01 * x), [], []),
    ("ThresholdedRelu", lambda x: np.where(x >= 0.4, x, 0), [0.4], []),
    ("ScaledTanh", lambda x: 0.7 * np.tanh(0.6 * x), [0.7], [0.6]),
    ("HardSigmoid", lambda x: np.clip(0.2 * x + 0.5, 0, 1), [], []),
    ("Elu", lambda x: np.where(x > 0, x, 0.5 * np.expm1(x)), [0.5], []),
    ("Softsign", lambda x: x / (1 + np.abs(x)), [], []),
    ("softplus", lambda x: np.logaddexp(0, x), [], []),
]


@pytest.mark.parametrize(
    ("name", "function", "alpha", "beta"), ACTIVATIONS, ids=lambda value: str(value)[:15]
)
def test_activation(name: str, function: Function, alpha: list[float], beta: list[float]) -> None:
    layer = Layer("RNN", FORWARD, functions=[function])
    numbers = {"activation_alpha": alpha, "activation_beta": beta}
    given = {key: value for key, value in numbers.items() if value}
    options: dict[str, Any] = {"hidden_size": HIDDEN, "targets": ["reference"], **given}
    expect("RNN", layer.inputs, 2, expected=layer.expected(), activations=[name], **options)


def test_alphas_go_to_the_functions_that_take_one() -> None:
    functions = [
        lambda x: np.where(x > 0, x, 0.3 * x),
        np.tanh,
        lambda x: np.where(x > 0, x, 0.6 * np.expm1(x)),
    ]
    layer = Layer("LSTM", FORWARD, functions=functions)
    expect(
        "LSTM",
        layer.inputs,
        3,
        expected=layer.expected(),
        hidden_size=HIDDEN,
        targets=["reference"],
        activations=["LeakyRelu", "Tanh", "Elu"],
        activation_alpha=[0.3, 0.6],
        rtol=1e-4,
    )


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"activations": ["Sine"]}, "activation Sine is unknown; use one of relu, tanh, sigmoid"),
        ({"direction": "sideways"}, "direction is sideways; use one of forward, reverse, bidirectional"),
        ({"direction": "bidirectional"}, "operand 1 is 1x6x5xf32; for 2 directions of 6 it is 2x6x5"),
    ],
)
def test_what_is_wrong_is_said(attributes: dict[str, Any], message: str) -> None:
    model = one_node("RNN", Layer("RNN", FORWARD).inputs, **attributes)
    with pytest.raises(InvalidIR, match=message):
        aicf.compile(model)
