"""ATen's recurrent layers against eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.torch_single_ops import assert_op, op_program

pytestmark = pytest.mark.peers

aten = torch.ops.aten
_GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def _random(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(sum(sizes)), dtype=torch.float64)


def _params(gates: int, layers: int, directions: int, biased: bool) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for layer in range(layers):
        for _ in range(directions):
            inputs = 4 if layer == 0 else 5 * directions
            found += [_random(gates * 5, inputs) * 0.5, _random(gates * 5, 5) * 0.5]
            found += [_random(gates * 5), _random(gates * 5) + 1] if biased else []
    return found


def _states(name: str, layers: int) -> torch.Tensor | list[torch.Tensor]:
    state = _random(layers, 2, 5)
    return [state, state.flip(1)] if name == "lstm" else state


@pytest.mark.parametrize("name", list(_GATES))
@pytest.mark.parametrize(("layers", "directions"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_layers(name: str, layers: int, directions: int, biased: bool, batch_first: bool) -> None:
    x = _random(2, 3, 4) if batch_first else _random(3, 2, 4)
    params = _params(_GATES[name], layers, directions, biased)
    arguments = (_states(name, layers * directions), params, biased, layers, 0.0, False, directions == 2)
    types = [torch.float64, torch.float16]
    assert_op(getattr(aten, name).input, x, *arguments, batch_first, types=types)


def test_an_lstm_is_one_op() -> None:
    params: Any = _params(4, 1, 1, True)
    states = [_random(1, 2, 5)] * 2
    program, _ = op_program(
        aten.lstm.input, _random(50, 2, 4), states, params, True, 1, 0.0, False, False, False
    )
    assert program.module is not None
    assert str(program.module).count("logical.lstm") == 1


@pytest.mark.parametrize("name", list(_GATES))
def test_cells(name: str) -> None:
    x, state, params = _random(2, 4), _random(2, 5), _params(_GATES[name], 1, 1, True)
    given = [state, state.flip(1)] if name == "lstm" else state
    assert_op(getattr(aten, f"{name}_cell").default, x, given, *params)
    assert_op(getattr(aten, f"{name}_cell").default, x, given, *params[:2])


@pytest.mark.parametrize("backward", [True, False])
def test_the_layer_of_a_library(backward: bool) -> None:
    x, params, state = _random(3, 2, 4), _params(4, 1, 1, True), _random(1, 2, 5)
    rest: Any = (state, state.flip(1), backward, [], 2, 5, 1, True, False, False, False)

    def like(*_: object) -> list[torch.Tensor]:
        given = x.flip(0) if backward else x
        y, *last = aten.lstm.input(given, [state, state.flip(1)], params, True, 1, 0.0, False, False, False)
        return [y.flip(0) if backward else y, *last, torch.zeros(0)]

    assert_op(aten.mkldnn_rnn_layer.default, x, *params, *rest, types=[torch.float32], like=like)
