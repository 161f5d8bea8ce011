"""Modules of PyTorch on a GPU: compiled, on other streams, inside captured graphs, and trained."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
import aicf.pytorch  # noqa: E402
from aicf.backends.cuda.runtime.driver import CudaDriver  # noqa: E402
from aicf.errors import CaptureError, InvalidIR, PolicyError  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    *(
        pytest.mark.filterwarnings(f"ignore:{kind}")
        for kind in (":DeprecationWarning", ":FutureWarning", ":UserWarning")
    ),
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def network() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 16)
    ).cuda()


def compiled(module: torch.nn.Module):
    return torch.compile(module, backend=aicf.pytorch.aicf_backend)


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_it_gives_what_eager_mode_gives(dtype: str) -> None:
    module = network().to(getattr(torch, dtype))
    x = torch.randn(8, 32, device="cuda", dtype=getattr(torch, dtype))
    called = compiled(module)
    limit = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}[dtype]
    with torch.inference_mode():
        assert error(called(x), copy.deepcopy(module).double()(x.double())) < limit
    with torch.no_grad():
        module[0].weight.mul_(0.5)
        assert error(called(x), copy.deepcopy(module).double()(x.double())) < limit


def _on_both_sides(x: torch.Tensor, scale: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x * scale,
        x.sum().cpu(),
        (x + 1).to("cpu") * 2,
        torch.full((3,), 1.0),
        torch.ones(2, device="cuda"),
        x[rows],
    )


def test_tensors_on_the_host_in_a_graph_of_the_gpu() -> None:
    called = torch.compile(_on_both_sides, backend=aicf.pytorch.aicf_backend)
    for number in range(3):
        arguments = (torch.randn(4, 8, device="cuda"), torch.tensor(number + 0.5), torch.tensor([number, 0]))
        for found, wanted in zip(called(*arguments), _on_both_sides(*arguments), strict=True):
            assert found.device == wanted.device
            torch.testing.assert_close(found, wanted)


def test_a_graph_without_arguments_creates_tensors_on_its_device() -> None:
    def run() -> tuple[torch.Tensor, ...]:
        return torch.full((3,), 2.5, device="cuda"), torch.arange(5, device="cuda") * 2

    for found, wanted in zip(torch.compile(run, backend=aicf.pytorch.aicf_backend)(), run(), strict=True):
        assert found.device == wanted.device
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("count", [9, 0])
def test_a_maximum_of_an_empty_bag(count: int) -> None:
    weight, indices = torch.randn(6, 3, device="cuda"), torch.randint(6, (count,), device="cuda")
    offsets = torch.tensor([0, 2, 2, 7], device="cuda").clamp(max=count)

    def run(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.ops.aten._embedding_bag(*tensors, False, 2)

    found = torch.compile(run, backend=aicf.pytorch.aicf_backend)(weight, indices, offsets)
    for mine, theirs in zip(found, run(weight, indices, offsets), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_gradients_through_a_copy_to_the_host() -> None:
    x = torch.randn(4, 8, device="cuda", requires_grad=True)
    weights = torch.randn(4, 8)
    found = torch.compile(lambda x: x.tanh().cpu() * 2, backend=aicf.pytorch.aicf_backend)(x)
    assert found.device.type == "cpu"
    (found * weights).sum().backward()
    wanted = 2 * weights.cuda() * (1 - x.detach().tanh().square())
    torch.testing.assert_close(x.grad, wanted)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_target_of_another_device(target: str) -> None:
    x = torch.randn(4, device="cpu" if target == "cuda" else "cuda")
    called = torch.compile(lambda x: x * 2, backend=aicf.pytorch.aicf_backend, options={"target": target})
    with pytest.raises(PolicyError, match=f"target is '{target}', and the tensors of the graph are on"):
        called(x)


class _Sent(torch.nn.Module):
    """Sends its input to the device of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See above."""
        return (self.layer(x.to(self.layer.weight.device)) * torch.tensor(0.5)).cpu()


def test_a_step_with_a_batch_and_a_loss_on_the_host() -> None:
    model = _Sent().cuda()
    theirs = copy.deepcopy(model)
    x, target = torch.randn(4, 8), torch.randn(4, 3)
    loss = torch.nn.functional.mse_loss
    step = aicf.pytorch.train_step(model, loss, torch.optim.SGD(model.parameters(), 0.1))
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    for _ in range(3):
        found = step(x, target)
        optimizer.zero_grad()
        wanted = loss(theirs(x), target)
        wanted.backward()
        optimizer.step()
        assert found.device == wanted.device
        torch.testing.assert_close(found, wanted.detach())
    for one, other in zip(model.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_module_that_moves_between_steps_with_its_states_on_the_host() -> None:
    model = _Sent()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    step = aicf.pytorch.train_step(model, torch.nn.functional.mse_loss, optimizer)
    batch = torch.randn(4, 8), torch.randn(4, 3)
    step(*batch)
    model.cuda()
    with pytest.raises(InvalidIR, match=r"is on cpu, and the step runs on cuda:0; move the module with"):
        step(*batch)


def test_results_may_be_kept() -> None:
    called, kept = compiled(network()), []
    with torch.no_grad():
        inputs = [torch.randn(4, 32, device="cuda") for _ in range(20)]
        kept = [called(x) for x in inputs]
        again = [called(x) for x in inputs]
    assert len({tensor.data_ptr() for tensor in kept}) == 20
    assert all(torch.equal(one, other) for one, other in zip(kept, again, strict=True))


def test_work_is_ordered_on_the_current_stream() -> None:
    module = network()
    called, stream = compiled(module), torch.cuda.Stream()
    with torch.no_grad():
        called(torch.randn(8, 32, device="cuda"))
        for _ in range(20):
            x = torch.zeros(8, 32, device="cuda")
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                torch.cuda._sleep(1_000_000)
                x.normal_()
                found = called(x) * 1
            torch.cuda.current_stream().wait_stream(stream)
            assert error(found, module(x)) < 1e-5


def test_a_call_on_known_addresses_calls_the_driver_for_the_launch_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, x = network(), torch.randn(8, 32, device="cuda")
    called = compiled(module)
    with torch.inference_mode():
        for _ in range(3):
            called(x)
        others: list[str] = []
        call = CudaDriver._call

        def noted(self: CudaDriver, name: str, *arguments: object) -> object:
            others.append(name)
            return call(self, name, *arguments)

        monkeypatch.setattr(CudaDriver, "_call", noted)
        for _ in range(3):
            called(x)
        assert others == []
        assert error(called(x), module(x)) < 1e-5


def test_inside_a_graph_of_the_caller() -> None:
    module = network()
    called = compiled(module)
    x = torch.randn(8, 32, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        called(x)
        with torch.cuda.graph(graph):
            found = called(x)
        for _ in range(5):
            x.normal_()
            graph.replay()
            assert error(found, module(x)) < 1e-5


def test_gradients_are_those_of_eager_mode() -> None:
    module = network()
    other = copy.deepcopy(module)
    x = torch.randn(8, 32, device="cuda")
    compiled(module)(x).square().mean().backward()
    other(x).square().mean().backward()
    for mine, theirs in zip(module.parameters(), other.parameters(), strict=True):
        assert error(mine.grad, theirs.grad) < 1e-4


def test_a_step_updates_what_pytorch_has() -> None:
    module = network()
    other = copy.deepcopy(module)
    mine, theirs = (torch.optim.AdamW(each.parameters(), lr=1e-2) for each in (module, other))
    step = aicf.pytorch.train_step(module, torch.nn.functional.cross_entropy, mine)
    for _ in range(5):
        x, y = torch.randn(8, 32, device="cuda"), torch.randint(0, 16, (8,), device="cuda")
        loss = step(x, y)
        wanted = torch.nn.functional.cross_entropy(other(x), y)
        theirs.zero_grad()
        wanted.backward()
        theirs.step()
        assert error(loss, wanted.detach()) < 1e-4
    for one, another in zip(module.parameters(), other.parameters(), strict=True):
        assert float((one - another).abs().max()) < 1e-4
    states = mine.state_dict()["state"][0], theirs.state_dict()["state"][0]
    assert float(states[0]["step"]) == float(states[1]["step"]) == 5
    assert error(states[0]["exp_avg"], states[1]["exp_avg"]) < 1e-3


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_dropout_inside_attention_is_the_same_in_both_parts(dtype: str) -> None:
    """Values of one say which weights are left; the derivative by the values is their sum over the queries."""
    kind = getattr(torch, dtype)
    q, k = (torch.randn(2, 4, 64, 32, device="cuda", dtype=kind) for _ in range(2))
    v = torch.eye(64, device="cuda", dtype=kind).expand(2, 4, 64, 64).contiguous().requires_grad_()

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    found = torch.compile(run, backend=aicf.pytorch.aicf_backend)(q, k, v)
    found.sum().backward()
    left = found.detach().double()
    whole = torch.softmax(q.double() @ k.double().mT / 32**0.5, -1)
    assert error(left[left != 0], 2.0 * whole[left != 0]) < 1e-2
    assert abs(float((left == 0).double().mean()) - 0.5) < 0.02  # 4 standard deviations are 0.011
    assert error(v.grad, left.sum(-2)[..., None].expand(2, 4, 64, 64)) < 1e-2


@pytest.mark.parametrize("gradients", ["aicf", "pytorch"])
def test_a_step_takes_gradients_of_either(gradients: str) -> None:
    module = network().double()
    theirs = copy.deepcopy(module)
    x, target = (torch.randn(8, size, device="cuda", dtype=torch.float64) for size in (32, 16))
    pairs = [(each, torch.optim.AdamW(each.parameters(), lr=1e-2)) for each in (module, theirs)]
    loss = torch.nn.functional.mse_loss
    step = aicf.pytorch.train_step(module, loss, pairs[0][1], options={"gradients": gradients})
    for _ in range(3):
        step(x, target)
        pairs[1][1].zero_grad()
        loss(theirs(x), target).backward()
        pairs[1][1].step()
    for found, wanted in zip(module.parameters(), theirs.parameters(), strict=True):
        assert error(found, wanted) < 1e-9


def test_a_step_inside_a_graph_of_the_caller() -> None:
    """Each replay is a step; what the host knows of the count follows, and a changed rate reaches later calls."""
    module = network()
    theirs = copy.deepcopy(module)
    x, target = torch.randn(8, 32, device="cuda"), torch.randn(8, 16, device="cuda")
    loss = torch.nn.functional.mse_loss
    mine, other = (torch.optim.AdamW(each.parameters(), lr=1e-2) for each in (module, theirs))
    step = aicf.pytorch.train_step(module, loss, mine)
    graph = torch.cuda.CUDAGraph()
    step(x, target)
    with torch.cuda.graph(graph):
        captured = step(x, target)
    losses = list[torch.Tensor]()
    for replayed in (True, True, False, True):
        if replayed:
            graph.replay()
        losses.append(captured.clone() if replayed else step(x, target))
        mine.param_groups[0]["lr"] = 2e-2
    found = []
    for number in range(5):
        other.param_groups[0]["lr"] = 2e-2 if number == 3 else 1e-2
        other.zero_grad()
        wanted = loss(theirs(x), target)
        found.append(wanted.detach())
        wanted.backward()
        other.step()
    assert all(error(one, another) < 1e-4 for one, another in zip(losses, found[1:], strict=True))
    for one, another in zip(module.parameters(), theirs.parameters(), strict=True):
        assert float((one - another).abs().max()) < 1e-4
    assert step.steps == 5
    assert float(mine.state_dict()["state"][0]["step"]) == 5


def test_a_step_that_a_graph_cannot_repeat_is_refused() -> None:
    module = network()
    x, target = torch.randn(8, 32, device="cuda"), torch.randn(8, 16, device="cuda")
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    step = aicf.pytorch.train_step(module, torch.nn.functional.mse_loss, optimizer)
    step(x, target)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), pytest.raises(CaptureError, match="make one step with such a batch before"):
        step(x[:4], target[:4])
    optimizer.param_groups[0]["betas"] = (0.8, 0.9)
    step(x, target)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), pytest.raises(CaptureError, match="group 0 change from step to step"):
        step(x, target)


@pytest.mark.parametrize("option", ["fused", "capturable", "foreach"])
def test_the_optimizer_goes_on_with_its_own_steps(option: str) -> None:
    """Fused and capturable ones have their counts on the device; packed weights follow a fused step."""
    module = network()
    theirs = copy.deepcopy(module)
    x, target = torch.randn(8, 32, device="cuda"), torch.randn(8, 16, device="cuda")
    loss = torch.nn.functional.mse_loss
    optimizers = [
        torch.optim.AdamW(each.parameters(), lr=1e-2, **{option: True}) for each in (module, theirs)
    ]
    step = aicf.pytorch.train_step(module, loss, optimizers[0])
    for number in range(6):
        for each, optimizer in zip((module, theirs), optimizers, strict=True):
            if each is module and number % 2 == 0:
                step(x, target)
                continue
            optimizer.zero_grad()
            loss(each(x), target).backward()
            optimizer.step()
    for found, wanted in zip(module.parameters(), theirs.parameters(), strict=True):
        assert float((found - wanted).abs().max()) < 1e-4
    state = optimizers[0].state_dict()["state"][0]
    assert float(state["step"]) == 6
    assert state["step"].is_cuda == (option != "foreach")
