"""ATen's recurrent layers and cells.

An LSTM is one op for each layer and direction. Others are written out step by step, which only so many steps allow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, row

_MOST_STEPS = 512
"""Steps that are written out one by one; more of them take too long to compile."""
_LSTM_PARTS = (0, 3, 1, 2)
"""Gates in the order of logical.lstm, by their number in PyTorch's."""


@dataclass(frozen=True)
class _Layer:
    """The weights of one layer in one direction; the biases are both there or not."""

    by_input: Value
    by_state: Value
    input_bias: Value | None
    state_bias: Value | None


_Run = Callable[[Writer, Value, _Layer, Sequence[Value], bool], tuple[Value, list[Value]]]
"""Input [S, B, I], weights, first states [B, H], and whether time runs backward; returns outputs and last states."""


# LSTM


def _rearranged(writer: Writer, value: Value) -> Value:
    """The gates of a weight or bias in the order of logical.lstm."""
    size = writer.sizes(value)[0] // 4
    parts = [writer.part(value, 0, gate * size, (gate + 1) * size) for gate in _LSTM_PARTS]
    return writer.graph.concat(parts, 0)


def _lstm_bias(writer: Writer, layer: _Layer) -> Value | None:
    if layer.input_bias is None or layer.state_bias is None:
        return None
    return _rearranged(writer, writer.widened(layer.input_bias) + writer.widened(layer.state_bias))


def _run_lstm(
    writer: Writer, x: Value, layer: _Layer, states: Sequence[Value], backward: bool
) -> tuple[Value, list[Value]]:
    graph = writer.graph
    by_input, by_state = (_rearranged(writer, writer.widened(w)) for w in (layer.by_input, layer.by_state))
    projected = graph.linear(x, by_input, _lstm_bias(writer, layer))
    first = graph.concat([writer.insert(state, 0) for state in states], 0)
    every = graph.lstm(projected, by_state, first, reverse=backward)
    _, steps, *_ = writer.sizes(every)
    last = writer.part(every, 1, 0, 1) if backward else writer.part(every, 1, steps - 1, steps)
    return writer.drop(writer.part(every, 0, 0, 1), 0), [
        writer.drop(writer.drop(writer.part(last, 0, number, number + 1), 0), 0) for number in range(2)
    ]


# Cells that are written out


_Cell = Callable[[Writer, Value, Value, Value], Value]
"""Takes the gates' terms of input and state, [B, gates * H] each, and the state; returns the next state."""


def _gru_cell(writer: Writer, by_input: Value, by_state: Value, state: Value) -> Value:
    """z * h + (1 - z) * n, n being tanh of what is new, of which r lets the state through."""
    graph, size = writer.graph, writer.sizes(state)[1]
    reset, update, new = (
        [writer.part(value, 1, gate * size, (gate + 1) * size) for value in (by_input, by_state)]
        for gate in range(3)
    )
    passed = graph.sigmoid(reset[0] + reset[1])
    kept = graph.sigmoid(update[0] + update[1])
    found = graph.tanh(new[0] + passed * new[1])
    return (state - found) * kept + found


def _tanh_cell(writer: Writer, by_input: Value, by_state: Value, state: Value) -> Value:
    del state
    return writer.graph.tanh(by_input + by_state)


def _relu_cell(writer: Writer, by_input: Value, by_state: Value, state: Value) -> Value:
    del state
    return writer.graph.relu(by_input + by_state)


def _lstm_step(writer: Writer, gates: Value, cell: Value) -> tuple[Value, Value]:
    """The next state and cell, of gates in PyTorch's order."""
    graph, size = writer.graph, writer.sizes(cell)[1]
    enter, keep, new, leave = (writer.part(gates, 1, gate * size, (gate + 1) * size) for gate in range(4))
    after = graph.sigmoid(keep) * cell + graph.sigmoid(enter) * graph.tanh(new)
    return graph.sigmoid(leave) * graph.tanh(after), after


def _linear(writer: Writer, x: Value, weight: Value, bias: Value | None) -> Value:
    """x @ weight.T + bias in the wide type."""
    wide = None if bias is None else writer.widened(bias)
    return writer.graph.linear(writer.widened(x), writer.widened(weight), wide)


def _step_by_step(cell: _Cell) -> _Run:
    def run(
        writer: Writer, x: Value, layer: _Layer, states: Sequence[Value], backward: bool
    ) -> tuple[Value, list[Value]]:
        count = writer.sizes(x)[0]
        if count > _MOST_STEPS:
            writer.unsupported(
                f"{count} steps, of at most {_MOST_STEPS}", "use shorter sequences, or an LSTM"
            )
        projected = _linear(writer, x, layer.by_input, layer.input_bias)
        (state,) = states
        outputs: list[Value] = []
        for step in reversed(range(count)) if backward else range(count):
            part = writer.drop(writer.part(projected, 0, step, step + 1), 0)
            state = cell(writer, part, _linear(writer, state, layer.by_state, layer.state_bias), state)
            outputs.append(state)
        return writer.graph.stack(outputs[::-1] if backward else outputs, 0), [state]

    return run


# Layers


def _layers(
    writer: Writer,
    run: _Run,
    x: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    count: int,
    bidirectional: bool,
    batch_first: bool,
) -> list[Value | None]:
    """All layers, of which each takes the outputs of the one before, in both directions if there are two."""
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if len(params) != each * directions * count:
        writer.unsupported("a projection of the states", "leave proj_size out")
    x = writer.widened(writer.permute(x, [1, 0, 2]) if batch_first else x)
    found: list[list[Value]] = [[] for _ in states]
    for number in range(count):
        outputs: list[Value] = []
        for direction in range(directions):
            at = number * directions + direction
            weights = [*params[at * each : (at + 1) * each], None, None]
            assert weights[0] is not None and weights[1] is not None
            layer = _Layer(weights[0], weights[1], weights[2], weights[3])
            first = [writer.widened(writer.drop(writer.part(s, 0, at, at + 1), 0)) for s in states]
            output, last = run(writer, x, layer, first, direction == 1)
            outputs.append(output)
            for kept, state in zip(found, last, strict=True):
                kept.append(state)
        x = outputs[0] if directions == 1 else writer.graph.concat(outputs, 2)
    y = writer.permute(x, [1, 0, 2]) if batch_first else x
    return [
        writer.result(y),
        *(writer.result(writer.graph.stack(kept, 0), number) for number, kept in enumerate(found, 1)),
    ]


def _refuse_dropout(writer: Writer, rate: float, train: bool) -> None:
    if rate and train:
        writer.unsupported(f"dropout between layers, at a rate of {rate}", "set it to 0, or call .eval()")


@row("lstm.input")
def _lstm(
    writer: Writer,
    x: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    count: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Value | None]:
    """Outputs of the last layer, and the last states and cells of all."""
    _refuse_dropout(writer, dropout, train)
    return _layers(writer, _run_lstm, x, states, params, has_biases, count, bidirectional, batch_first)


def _single_state_row(name: str, cell: _Cell) -> None:
    @row(name)
    def _recurrent(
        writer: Writer,
        x: Value,
        state: Value,
        params: Sequence[Value],
        has_biases: bool,
        count: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[Value | None]:
        """Outputs of the last layer, and the last states of all."""
        _refuse_dropout(writer, dropout, train)
        run = _step_by_step(cell)
        return _layers(writer, run, x, [state], params, has_biases, count, bidirectional, batch_first)


for _name, _cell in (("gru", _gru_cell), ("rnn_tanh", _tanh_cell), ("rnn_relu", _relu_cell)):
    _single_state_row(f"{_name}.input", _cell)


@row("mkldnn_rnn_layer.default")
def _mkldnn_layer(
    writer: Writer,
    x: Value,
    by_input: Value,
    by_state: Value,
    input_bias: Value,
    state_bias: Value,
    state: Value,
    cell: Value,
    backward: bool,
    batch_sizes: Sequence[int],
    mode: int,
    size: int,
    count: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> list[Value | None]:
    """One layer of an LSTM in one direction, under the name of a library."""
    reserved = 3 in writer.used and writer.results[3].count
    if mode != 2 or count != 1 or bidirectional or batch_first or batch_sizes or reserved:
        writer.unsupported("another layer than one of an LSTM in one direction", "call torch.nn.LSTM")
    layer = _Layer(by_input, by_state, input_bias if has_biases else None, state_bias if has_biases else None)
    rows = [writer.sizes(x)[1], size]
    first = [writer.widened(writer.reshape(value, rows)) for value in (state, cell)]
    y, last = _run_lstm(writer, writer.widened(x), layer, first, backward)
    states = [
        writer.result(writer.reshape(value, writer.results[number].shape), number)
        for number, value in enumerate(last, 1)
    ]
    return [writer.result(y), *states, None]


# One step


@row("lstm_cell.default")
def _lstm_cell(
    writer: Writer,
    x: Value,
    states: Sequence[Value],
    by_input: Value,
    by_state: Value,
    input_bias: Value | None = None,
    state_bias: Value | None = None,
) -> list[Value | None]:
    """The next state and cell."""
    state, cell = states
    gates = _linear(writer, x, by_input, input_bias) + _linear(writer, state, by_state, state_bias)
    return [
        writer.result(value, number)
        for number, value in enumerate(_lstm_step(writer, gates, writer.widened(cell)))
    ]


def _cell_row(name: str, cell: _Cell) -> None:
    @row(name)
    def _one_step(
        writer: Writer,
        x: Value,
        state: Value,
        by_input: Value,
        by_state: Value,
        input_bias: Value | None = None,
        state_bias: Value | None = None,
    ) -> Value:
        """The next state."""
        part = _linear(writer, x, by_input, input_bias)
        known = _linear(writer, state, by_state, state_bias)
        return writer.result(cell(writer, part, known, writer.widened(state)))


for _name, _cell in (("gru", _gru_cell), ("rnn_tanh", _tanh_cell), ("rnn_relu", _relu_cell)):
    _cell_row(f"{_name}_cell.default", _cell)
