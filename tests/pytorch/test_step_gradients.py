"""Gradients of train_step: AICF's, or PyTorch's where AICF has no rule; values are eager mode's."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aicf.pytorch
from aicf.errors import AicfError, InvalidIR, PolicyError, UnsupportedOp
from tests.support.pytorch_backend import assert_same, random

pytestmark = [
    pytest.mark.peers,
    # torch.export copies what it traced, with a class that it deprecates itself.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning"),
]

Forward: TypeAlias = Callable[[nn.Module, Tensor], Tensor]


class _Reversed(torch.autograd.Function):
    """sin, which passes back the opposite of its operand."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Tensor:
        (x,) = ctx.saved_tensors
        return -grads[0] * x


class _Doubled(torch.autograd.Function):
    """Doubles its operand in place, and passes back seven times what it gets."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2.0)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Tensor:
        return grads[0] * 7


class _Determined(torch.autograd.Function):
    """The sum, which passes back a determinant: neither has a counterpart."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Tensor:
        (x,) = ctx.saved_tensors
        return grads[0] * torch.linalg.det(x.mT @ x) * x


class _Model(nn.Module):
    """Two layers and a loss of what is between them."""

    def __init__(self, middle: Forward) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.last = nn.Linear(8, 16).double(), nn.Linear(16, 16).double()
        self.middle = middle

    def forward(self, x: Tensor) -> Tensor:
        """A number that all weights have a part in."""
        return self.middle(self, self.last(self.first(x).tanh())).square().mean()


def _quantized(model: nn.Module, y: Tensor) -> Tensor:
    codes = torch.linspace(-1, 1, 5, dtype=y.dtype)
    nearest = codes[(y.unsqueeze(-1) - codes).abs().argmin(-1)]
    return y + (nearest - y).detach()


def _teacher(model: nn.Module, y: Tensor) -> Tensor:
    with torch.no_grad():
        target = y.exp() + 1
    return y * target


def _teacher_in_two_modes(model: nn.Module, y: Tensor) -> Tensor:
    with torch.no_grad():
        target = y.exp()
        with torch.enable_grad():
            other = y * 2
    return y * target + other


def _images(y: Tensor, size: int = 4) -> Tensor:
    return y.reshape(-1, 1, size, size)


def _sampled(model: nn.Module, y: Tensor) -> Tensor:
    grid = _images(y).expand(-1, 2, -1, -1).permute(0, 2, 3, 1).tanh()
    return F.grid_sample(_images(y), grid, align_corners=False)


def _sampled_nearest(model: nn.Module, y: Tensor) -> Tensor:
    grid = model.last(y).reshape(-1, 4, 2, 2).tanh()
    return F.grid_sample(_images(y.detach()), grid, mode="nearest", align_corners=False)


def _unpooled(model: nn.Module, y: Tensor) -> Tensor:
    """Windows overlap, so that several maxima fall on one place."""
    pooled, places = F.max_pool2d(_images(y), 2, 1, return_indices=True)
    return F.max_unpool2d(pooled, places, 2, 1)


def _hooked(model: nn.Module, y: Tensor) -> Tensor:
    y.register_hook(lambda grad: grad * 3)
    return y


def _rounded(model: nn.Module, y: Tensor) -> Tensor:
    return torch.round(y * 3)


def _unseeing(model: nn.Module, y: Tensor) -> Tensor:
    scores = y @ y.mT
    hidden = torch.eye(len(y), dtype=torch.bool)[:, :1].expand(-1, len(y))
    return torch.ops.aten._safe_softmax(scores.masked_fill(hidden, float("-inf")), -1) @ y


def _attending(
    model: nn.Module, y: Tensor, has_floats: bool = False, *, sees_nothing: bool = False
) -> Tensor:
    mask = torch.ones(6, 6, dtype=torch.bool).tril(-1)  # the first query sees nothing
    mask = mask & (not sees_nothing)
    bias = torch.where(mask, 0.5, float("-inf")).double() if has_floats else mask
    heads = y.reshape(1, 6, 2, 8).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads * 2, heads + 1, bias)


BY_AICF: dict[str, Forward] = {
    "cumsum": lambda _, y: y.cumsum(1),
    "cumprod": lambda _, y: y.cumprod(1),
    "logcumsumexp": lambda _, y: y.logcumsumexp(0),
    "cummax": lambda _, y: y.cummax(1)[0],
    "sort": lambda _, y: y.sort(1)[0] * torch.arange(16),
    "topk": lambda _, y: y.topk(3, 1)[0],
    "kthvalue": lambda _, y: y.kthvalue(4, 1)[0],
    "median": lambda _, y: y.median(1)[0],
    "max_pool3d": lambda _, y: F.max_pool3d(y.reshape(-1, 1, 4, 2, 2), 2, 1),
    "avg_pool3d": lambda _, y: F.avg_pool3d(y.reshape(-1, 1, 4, 2, 2), 2, 1),
    "adaptive pool": lambda _, y: F.adaptive_avg_pool2d(_images(y), 3),
    "grid_sample": _sampled,
    "bicubic": lambda _, y: F.interpolate(_images(y), size=7, mode="bicubic"),
    "cdist": lambda _, y: torch.cdist(y, y + 1),
    "scatter": lambda _, y: y.new_zeros(len(y), 4).scatter_add(1, torch.arange(16).expand(len(y), -1) % 4, y),
    "index_put": lambda _, y: y.index_put((torch.tensor([0, 0]),), y[:2] * 2, accumulate=True),
    "unfold": lambda _, y: F.unfold(_images(y), 2),
    "lgamma": lambda _, y: (y.square() + 0.5).lgamma(),
    "safe softmax": _unseeing,
    "attention that sees nothing": _attending,
    "attention with a mask of floats": lambda model, y: _attending(model, y, True),
    "attention in which none sees anything": lambda model, y: (
        y + _attending(model, y, sees_nothing=True).reshape(y.shape)
    ),
    "straight through": _quantized,
    "no_grad": _teacher,
    "enable_grad in no_grad": _teacher_in_two_modes,
}
"""What ours are right for; `detach` and `no_grad` are not in the ops of an exported graph by themselves."""

BY_PYTORCH: dict[str, tuple[Forward, str]] = {
    "function": (
        lambda _, y: _Reversed.apply(y),
        "torch.autograd.Function '_Reversed' has its own backward",
    ),
    "in place": (
        lambda _, y: _Doubled.apply(y + 0),
        "torch.autograd.Function '_Doubled' has its own backward",
    ),
    "hook": (_hooked, "a hook on a gradient, which is not traced"),
    "data": (lambda _, y: y * y.data, "the .data of a tensor, which is not traced"),
    "round": (_rounded, "the loss depends on 'first.weight' in steps alone"),
    "nearest": (_sampled_nearest, "the loss depends on .* in steps alone"),
    "max_unpool": (
        _unpooled,
        "aten.max_unpool2d.default: in PyTorch all elements at one index get a gradient",
    ),
    "norm": (
        lambda _, y: torch.linalg.vector_norm(y.relu() * 0, 3.5, 1) + y.sum(),
        "aten.linalg_vector_norm.default: in PyTorch the gradient at a norm of 0 is 0",
    ),
    "i1": (
        lambda _, y: torch.special.i1(y * 0) + y,
        "aten.special_i1.default: in PyTorch the gradient at 0 is 1/2",
    ),
    "log_ndtr": (
        lambda _, y: torch.special.log_ndtr(y * 40),
        "aten.special_log_ndtr.default: in PyTorch the gradient far",
    ),
    "as_strided_scatter": (
        lambda _, y: y.as_strided_scatter(y[0] * 2, (16,), (1,)),
        "aten.as_strided_scatter.default: in PyTorch overwritten elements",
    ),
}


def _compared(model: nn.Module, batches: Sequence[Tensor], **options: Any) -> aicf.pytorch.TrainStep:
    """Trains a model by train_step and its copy in eager mode; their weights, buffers and losses agree."""
    theirs = copy.deepcopy(model)
    step = aicf.pytorch.train_step(model, None, torch.optim.AdamW(model.parameters(), 0.01), options=options)
    optimizer = torch.optim.AdamW(theirs.parameters(), 0.01)
    for x in batches:
        optimizer.zero_grad()
        loss = theirs(x)
        loss.backward()
        optimizer.step()
        assert_same(step(x), loss.detach(), 1e-9)
    assert_same(model.state_dict(), theirs.state_dict(), 1e-9)
    return step


def _batches(count: int = 3) -> list[Tensor]:
    return [random(6, 8, seed=seed) for seed in range(count)]


@pytest.mark.parametrize("name", BY_AICF)
def test_gradients_by_aicf(name: str) -> None:
    step = _compared(_Model(BY_AICF[name]), _batches())
    (program,) = step.report().programs
    assert str(program.gradients) == "gradients by AICF: every op has a rule"


@pytest.mark.parametrize("name", BY_PYTORCH)
def test_gradients_by_pytorch(name: str) -> None:
    middle, reason = BY_PYTORCH[name]
    step = _compared(_Model(middle), _batches())
    (program,) = step.report().programs
    assert program.gradients.by == "pytorch"
    assert re.search(reason, program.gradients.because)
    assert "test_step_gradients.py:" in program.gradients.because


@pytest.mark.parametrize("name", BY_PYTORCH)
def test_without_those_of_pytorch_it_is_an_error(name: str) -> None:
    middle, reason = BY_PYTORCH[name]
    model = _Model(middle)
    before = copy.deepcopy(model.state_dict())
    step = aicf.pytorch.train_step(
        model, None, torch.optim.AdamW(model.parameters(), 0.01), options={"gradients": "aicf"}
    )
    with pytest.raises(AicfError, match=reason):
        step(_batches()[0])
    assert_same(model.state_dict(), before)


@pytest.mark.parametrize(
    "name", ["cumsum", "topk", "max_pool3d", "grid_sample", "straight through", "no_grad"]
)
def test_those_of_pytorch_where_both_can(name: str) -> None:
    step = _compared(_Model(BY_AICF[name]), _batches(), gradients="pytorch")
    (program,) = step.report().programs
    assert str(program.gradients) == "gradients by PyTorch: the option gradients is 'pytorch'"


def test_the_choice_is_logged_and_in_the_ledger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "aicf.pytorch"):
        step = _compared(_Model(BY_PYTORCH["function"][0]), _batches(1))
    message = "gradients by PyTorch: torch.autograd.Function '_Reversed' has its own backward, at "
    assert message in caplog.text
    assert message in str(step.report())
    (executable,) = step.executables
    assert executable.decisions[0].choice == "gradients by PyTorch"
    assert message in " ".join(str(executable.explain()).split())


def test_the_ledger_of_an_artifact_has_it(tmp_path: Any) -> None:
    step = _compared(_Model(BY_PYTORCH["function"][0]), _batches(1))
    step.executables[0].save(tmp_path / "step.aicf")
    assert aicf.load(tmp_path / "step.aicf").decisions[0].choice == "gradients by PyTorch"


def test_the_report_has_each_form_of_a_batch() -> None:
    step = _compared(_Model(BY_AICF["cumsum"]), [random(6, 8), random(3, 8), random(6, 8)])
    report = step.report()
    assert [program.batch for program in report.programs] == ["float64[6, 8]", "float64[3, 8]"]
    assert str(report).startswith("_Model: 3 steps, 2 programs\n  _Model_step of float64[6, 8]: ")


class _Network(nn.Module):
    """Convolution, batch norm, tied and unused weights, and a function with a backward of its own."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.other.weight = self.one.weight
        self.unused, self.frozen = nn.Linear(2, 2), nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """The mean of a square."""
        y = _Reversed.apply(self.norm(self.conv(x))).mean((2, 3))
        return self.frozen(self.other(self.one(y).tanh())).square().mean()


@pytest.mark.parametrize("gradients", ["auto", "pytorch"])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_a_network(gradients: str, form: torch.memory_format) -> None:
    model = _Network().double().to(memory_format=form)
    images = [random(2, 3, 6, 6, seed=seed).to(memory_format=form) for seed in range(3)]
    step = _compared(model, images, gradients=gradients)
    assert step.report().programs[0].gradients.by == "pytorch"
    assert int(model.norm.num_batches_tracked) == 3


def test_dropout_follows_the_seed() -> None:
    def trained(seed: int) -> list[Tensor]:
        model = _Model(lambda _, y: F.dropout(_Reversed.apply(y), 0.5))
        step = aicf.pytorch.train_step(model, None, torch.optim.SGD(model.parameters(), 0.1))
        torch.manual_seed(seed)
        losses = [step(x) for x in _batches()]
        return [*losses, *(each.detach() for each in model.parameters())]

    assert_same(trained(3), trained(3))
    assert not torch.equal(trained(3)[0], trained(4)[0])


def test_the_mask_of_dropout_is_that_of_the_forward_part() -> None:
    def middle(model: nn.Module, y: Tensor) -> Tensor:
        kept = F.dropout(torch.ones_like(y), 0.5)
        model.kept.copy_(kept)
        return y * kept

    model = _Model(middle)
    model.register_buffer("kept", torch.zeros(6, 16, dtype=torch.float64))
    theirs = copy.deepcopy(model)
    theirs.middle = lambda own, y: y * own.kept
    options = {"gradients": "pytorch"}
    step = aicf.pytorch.train_step(model, None, torch.optim.SGD(model.parameters(), 0.1), options=options)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1)
    for x in _batches():
        found = step(x)
        theirs.kept.copy_(model.kept)
        optimizer.zero_grad()
        loss = theirs(x)
        loss.backward()
        optimizer.step()
        assert_same(found, loss.detach(), 1e-9)
    assert 0 < int((model.kept == 0).sum()) < model.kept.numel()
    assert_same(model.state_dict(), theirs.state_dict(), 1e-9)


@pytest.mark.parametrize("gradients", ["aicf", "pytorch"])
def test_autocast(gradients: str) -> None:
    def trained(gradients: str) -> tuple[Tensor, Tensor]:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        start = torch.cat([each.detach().flatten() for each in model.parameters()])
        x, target = random(8, 16).float(), random(8, 4).float()
        with torch.autocast("cpu", torch.bfloat16):
            if gradients == "eager":
                F.mse_loss(model(x), target).backward()
                optimizer.step()
            else:
                options = {"gradients": gradients}
                aicf.pytorch.train_step(model, F.mse_loss, optimizer, options=options)(x, target)
        after = torch.cat([each.detach().flatten() for each in model.parameters()])
        return after - start, after

    moved, _ = trained(gradients)
    expected, _ = trained("eager")
    assert float((moved - expected).norm()) < 0.03 * float(expected.norm())


def test_a_budget_of_memory() -> None:
    def network() -> nn.Module:
        torch.manual_seed(1)
        layers = [nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)) for _ in range(4)]
        return nn.Sequential(*layers, _Mean()).double()

    def arena(budget: float) -> int:
        batches = [random(64, 16, seed=seed) for seed in range(3)]
        step = _compared(network(), batches, gradients="pytorch", memory_budget=budget)
        (program,) = step.executables[0].plan.programs
        return program.arena_bytes

    whole, some, least = arena(1.0), arena(0.6), arena(0.0)
    assert least < some < whole


class _Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        """The mean of squares."""
        return _Reversed.apply(x).square().mean()


def test_a_parameter_that_the_loss_does_not_read() -> None:
    """Its gradient is zero, and AdamW still makes it smaller, as in eager mode."""

    class Filled(_Model):
        def __init__(self) -> None:
            super().__init__(lambda _, y: y)
            self.level = nn.Parameter(random(6, 16))

        def forward(self, x: Tensor) -> Tensor:
            """`level` is read for its shape."""
            y = self.last(self.first(x).tanh())
            return (y * torch.fill(self.level, 2.0)).mean()

    model = Filled()
    before = model.level.detach().clone()
    _compared(model, _batches())
    assert float(model.level.detach().norm()) < float(before.norm())


def test_a_hook_on_a_parameter() -> None:
    model = _Model(BY_AICF["cumsum"])
    model.first.weight.register_hook(lambda grad: grad * 2)
    step = aicf.pytorch.train_step(model, None, torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(InvalidIR, match=r"'first.weight' has a hook on its gradient.*torch.compile"):
        step(_batches()[0])


def test_neither_can() -> None:
    model = _Model(lambda _, y: _Determined.apply(y))
    step = aicf.pytorch.train_step(model, None, torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(
        UnsupportedOp,
        match="'_Determined' has its own backward.*those of PyTorch cannot be compiled: op aten",
    ):
        step(_batches()[0])


def test_what_pytorch_cannot_trace() -> None:
    from torch.utils.checkpoint import checkpoint

    model = _Model(lambda own, y: checkpoint(torch.sin, y, use_reentrant=True))
    step = aicf.pytorch.train_step(model, None, torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(InvalidIR, match="PyTorch cannot trace the gradients: .*use_reentrant"):
        step(_batches()[0])


def test_checkpoints_of_the_other_kind() -> None:
    from torch.utils.checkpoint import checkpoint

    step = _compared(_Model(lambda own, y: checkpoint(torch.sin, y, use_reentrant=False)), _batches())
    assert step.report().programs[0].gradients.by == "aicf"


@pytest.mark.parametrize("gradients", ["AICF", None, 3])
def test_what_is_nobody(gradients: Any) -> None:
    model = _Model(BY_AICF["cumsum"])
    with pytest.raises(PolicyError, match="gradients is .*; it is 'auto', 'aicf' or 'pytorch'"):
        aicf.pytorch.train_step(
            model, None, torch.optim.SGD(model.parameters(), 0.1), options={"gradients": gradients}
        )


def test_torch_compile_has_no_such_option() -> None:
    with pytest.raises(PolicyError, match="there is no option 'gradients'"):
        aicf.pytorch.aicf_backend(torch.fx.symbolic_trace(nn.ReLU()), [], options={"gradients": "aicf"})


@pytest.mark.parametrize("gradients", ["aicf", "pytorch"])
def test_batches_of_all_kinds(gradients: str) -> None:
    """One tensor twice, a dictionary, numbers, and what is named."""

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.layer = nn.Linear(8, 8).double()

        def forward(
            self, given: dict[str, Tensor], factor: float, *, labels: Tensor, bias: Any = None
        ) -> Tensor:
            """A loss."""
            assert bias is None
            return F.mse_loss(self.layer(given["x"]) * factor + given["y"], labels)

    model = Named()
    theirs = copy.deepcopy(model)
    optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (model, theirs)]
    step = aicf.pytorch.train_step(model, None, optimizers[0], options={"gradients": gradients})
    for x in _batches():
        arguments, named = ({"y": x, "x": x + 1}, 3.0), {"labels": x}
        optimizers[1].zero_grad()
        loss = theirs(*arguments, **named)
        loss.backward()
        optimizers[1].step()
        assert_same(step(*arguments, **named), loss.detach(), 1e-9)
    assert_same(model.state_dict(), theirs.state_dict(), 1e-9)


def test_what_a_model_must_not_change() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(10, 6, max_norm=1.0), _Mean()).double()
    step = aicf.pytorch.train_step(
        model, None, torch.optim.SGD(model.parameters(), 0.1), options={"gradients": "pytorch"}
    )
    with pytest.raises(UnsupportedOp, match=r"the model changes '0.weight' in place; return the new value"):
        step(torch.arange(6))


def test_a_loss_that_is_no_number() -> None:
    model = nn.Linear(8, 8).double()
    step = aicf.pytorch.train_step(
        model, torch.sub, torch.optim.SGD(model.parameters(), 0.1), options={"gradients": "pytorch"}
    )
    with pytest.raises(InvalidIR, match=r"the loss has shape \(6, 8\); it must be a tensor of rank 0"):
        step(*_batches(2))


@pytest.mark.parametrize("gradients", ["aicf", "pytorch"])
@pytest.mark.parametrize("limit", [1e-3, 1e3])
def test_gradients_that_are_clipped(gradients: str, limit: float) -> None:
    """A limit that all steps reach, and one that none does."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).double()
    theirs = copy.deepcopy(module)
    x, target = random(6, 8), random(6, 4)
    mine, other = (torch.optim.SGD(each.parameters(), lr=0.5) for each in (module, theirs))
    options = {"gradients": gradients, "clip_norm": limit}
    step = aicf.pytorch.train_step(module, F.mse_loss, mine, options=options)
    for _ in range(3):
        step(x, target)
        other.zero_grad()
        F.mse_loss(theirs(x), target).backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), limit)
        other.step()
    assert_same(dict(module.state_dict()), dict(theirs.state_dict()), 1e-9)


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), float("inf"), "1"])
def test_a_norm_that_no_gradient_can_have(limit: object) -> None:
    module = nn.Linear(2, 2)
    with pytest.raises(PolicyError, match="clip_norm is .*; give a number above 0"):
        aicf.pytorch.train_step(
            module, F.mse_loss, torch.optim.SGD(module.parameters()), options={"clip_norm": limit}
        )
