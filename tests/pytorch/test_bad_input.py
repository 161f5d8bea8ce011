"""What the backend does not do: each says so in one line, or is left to PyTorch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed

import aicf.pytorch
from aicf.errors import AicfError
from tests.support.pytorch_backend import assert_same, compiled, gradients, random

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore:Sparse:UserWarning"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
    # TorchDynamo makes an instance of the class of a function.
    pytest.mark.filterwarnings("ignore:.*Function.> should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning"),
]


def test_control_flow_on_elements() -> None:
    def run(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    ours = compiled(run, fullgraph=False)
    for x in (torch.ones(3), -torch.ones(3)):
        assert_same(ours(x), run(x))
    assert "graph break (1): Data-dependent branching" in str(aicf.pytorch.report())


def test_an_item() -> None:
    ours = compiled(lambda x: x * x.max().item(), fullgraph=False)
    for seed in range(3):
        x = random(4, seed=seed)
        assert_same(ours(x), x * x.max().item())
    assert list(aicf.pytorch.report().breaks.values()) == [1]


def test_sizes_that_follow_from_elements() -> None:
    ours = compiled(lambda x: x[x > 0] * 2, fullgraph=False)
    assert_same(ours(random(8)), random(8)[random(8) > 0] * 2)


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 5


def test_a_function_with_a_gradient_of_its_own() -> None:
    x = random(4).requires_grad_()
    found = compiled(lambda x: _Twice.apply(x).sin())(x)
    assert_same(found, (x * 2).sin(), 1e-9)
    found.sum().backward()
    assert_same(x.grad, 5 * (2 * x).cos().detach(), 1e-9)


def test_a_leaf_is_not_written() -> None:
    x = random(4).requires_grad_()
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        compiled(lambda x: x.mul_(2))(x)


def _refused(run: Any, *args: Any, **named: Any) -> str:
    """The one line that AICF gives, by way of TorchDynamo if it comes before the first call."""
    with pytest.raises((BackendCompilerFailed, AicfError)) as caught:
        compiled(run, **named)(*args)
    inner: Any = getattr(caught.value, "inner_exception", caught.value)
    assert isinstance(inner, AicfError)
    assert "\n" not in str(inner)
    return str(inner)


def test_an_op_without_a_counterpart() -> None:
    message = _refused(lambda x: torch.geqrf(x + 1)[0], random(3, 3))
    assert message.startswith(__file__.rpartition("/tests/")[2].join(["tests/", ":"]))
    assert "op aten.geqrf.default is not supported (node 'geqrf')" in message
    assert "options={'fallback': 'eager'}" in message


def test_an_op_in_a_module() -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            """QR."""
            return torch.geqrf(x)[1]

    message = _refused(nn.Sequential(nn.Linear(3, 3), Own()).double().requires_grad_(False), random(3, 3))
    assert "module '1'" in message


def test_a_complex_tensor() -> None:
    message = _refused(lambda x: x * 2, torch.ones(3, dtype=torch.complex64))
    assert "complex64" in message


def test_ops_that_nothing_but_pytorch_has_in_eager_mode() -> None:
    def run(x: Tensor) -> Tensor:
        return torch.geqrf((x * 2).tanh())[0].sum(0) + x[0]

    ours = compiled(run, fallback="eager")
    assert_same(ours(random(3, 3)), run(random(3, 3)), 1e-9)
    report = aicf.pytorch.report()
    assert [ops for ops in report.eager.values()] == [("aten.geqrf.default (node 'geqrf')",)]
    assert "in eager mode aten.geqrf.default" in str(report)
    assert len(report.executables) >= 2


class _Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """A result of an op that only PyTorch has."""
        turned = self.layer(x)
        return torch.linalg.inv(turned @ turned.t() + torch.eye(4)).tanh()


def test_training_with_ops_in_eager_mode() -> None:
    model, x = _Mixed(), random(4, 4, dtype=torch.float32)
    found = compiled(model, fallback="eager")(x)
    found.sum().backward()
    gradient = model.layer.weight.grad
    model.zero_grad()
    expected = model(x)
    expected.sum().backward()
    assert_same(found, expected, 1e-3)
    assert_same(gradient, model.layer.weight.grad, 1e-2)
    report = aicf.pytorch.report(model)
    assert any("linalg" in op for ops in report.eager.values() for op in ops)
    assert report.executables


def test_a_complex_tensor_in_eager_mode() -> None:
    x = random(4)
    ours = compiled(lambda x: torch.fft.fft(x * 2).abs() + 1, fallback="eager")
    assert_same(ours(x), torch.fft.fft(x * 2).abs() + 1, 1e-9)


def test_an_argument_without_a_counterpart_in_eager_mode() -> None:
    def run(x: Tensor) -> Tensor:
        return torch.polygamma(3, x * 2) + 1

    x = random(4).abs() + 1
    assert "the derivative of order 3" in _refused(run, x)
    torch._dynamo.reset()
    assert_same(compiled(run, fallback="eager")(x), run(x), 1e-9)
    assert "the derivative of order 3" in str(aicf.pytorch.report())


def test_an_unknown_option() -> None:
    message = _refused(lambda x: x * 2, random(3), polcy="fast")
    assert "there is no option 'polcy'; did you mean 'policy'?" in message.lower()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("fallback", "no"),
        ("threads", 0),
        ("max_programs", 0),
        ("memory_budget", 2),
        ("static_outputs", 1),
        ("seed", -1),
    ],
)
def test_a_value_that_is_not_legal(option: str, value: Any) -> None:
    message = _refused(lambda x: x * 2, random(3), **{option: value})
    assert option in message


def test_an_unknown_target() -> None:
    assert "unknown backend 'x'" in _refused(lambda x: x * 2, random(3), target="x")


def test_a_tensor_without_elements_in_memory() -> None:
    """Of the device `meta`."""
    message = _refused(lambda x: x * 2, torch.ones(3, device="meta"))
    assert "meta" in message


def test_a_tensor_on_another_device_than_the_model() -> None:
    model = nn.Linear(3, 3)
    with pytest.raises(Exception, match="(?s)meta.*cpu|cpu.*meta"):
        compiled(model)(torch.ones(2, 3, device="meta"))


def test_a_sparse_tensor() -> None:
    x = torch.eye(3).to_sparse()
    try:
        found = compiled(lambda x, y: torch.sparse.mm(x, y) * 2, fullgraph=False)(x, torch.ones(3, 3))
    except BackendCompilerFailed as error:
        assert "\n" not in str(error.inner_exception)
        assert "to_dense()" in str(error.inner_exception)
    else:
        assert_same(found, torch.full((3, 3), 2.0))


def test_a_nested_tensor() -> None:
    x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    message = _refused(lambda x: x * 2, x)
    assert "nested tensor" in message
    assert ".values()" in message


def test_a_quantized_tensor() -> None:
    x = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    found = compiled(lambda x: x.dequantize() * 2, fullgraph=False)
    try:
        assert_same(found(x), torch.full((3,), 2.0), 1e-5)
    except BackendCompilerFailed as error:
        assert "\n" not in str(error.inner_exception)


class _Unfinished(nn.Module):
    """Statistics, and then perhaps an op without a counterpart."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.is_finished = nn.Linear(4, 4), nn.BatchNorm1d(4), False

    def forward(self, x: Tensor) -> Tensor:
        """See above."""
        y = self.norm(self.layer(x))
        return y if self.is_finished else torch.geqrf(y)[0]


def test_nothing_is_lost_where_a_graph_is_refused() -> None:
    model, x = _Unfinished().double().train(), random(6, 4)
    theirs = copy.deepcopy(model)
    ours = compiled(model)
    for _ in range(2):  # and it is refused again
        with torch.no_grad(), pytest.raises((BackendCompilerFailed, AicfError), match="aten.geqrf"):
            ours(x)
        assert_same(model.state_dict(), theirs.state_dict())
    with torch.no_grad():
        assert_same(model(x), theirs(x))  # eager mode works
    model.is_finished = theirs.is_finished = True
    ours(x).square().sum().backward()
    theirs(x).square().sum().backward()
    assert_same(gradients(model), gradients(theirs), 1e-9)
    assert_same(model.state_dict(), theirs.state_dict(), 1e-9)


@pytest.mark.parametrize("has_gradients", [True, False])
def test_nothing_is_lost_where_a_call_is_wrong(has_gradients: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8)).double().train()
    theirs, x = copy.deepcopy(model), random(6, 4)
    ours = compiled(model)
    with torch.set_grad_enabled(has_gradients):
        for wrong in (random(6, 5), random(6, 4).float(), random(6, 4).to("meta")):
            with pytest.raises((RuntimeError, AicfError)):
                ours(wrong)
            assert_same(model.state_dict(), theirs.state_dict())
        assert_same(ours(x), theirs(x), 1e-9)
    assert_same(model.state_dict(), theirs.state_dict(), 1e-9)


def test_a_module_without_data_is_filled_again() -> None:
    model, x = nn.Linear(4, 4), random(2, 4, dtype=torch.float32)
    ours, state = compiled(model), copy.deepcopy(model.state_dict())
    with torch.no_grad():
        expected = ours(x)
        model.to("meta")
        with pytest.raises(Exception, match="(?s)meta.*cpu|cpu.*meta"):
            ours(x)
        model.to_empty(device="cpu")
        model.load_state_dict(state)
        assert_same(ours(x), expected)
