"""Modules of torch.nn through torch.compile: results and gradients against eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.support.pytorch_backend import assert_same, compiled, gradients, random

pytestmark = pytest.mark.peers

ROWS = (6, 8)
SIGNAL = (2, 4, 9)
IMAGE = (2, 4, 8, 8)
VOLUME = (1, 4, 5, 6, 5)

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(8, 5), ROWS),
    "bilinear": (lambda: _Twice(nn.Bilinear(8, 8, 3)), ROWS),
    "gelu": (lambda: nn.GELU(approximate="tanh"), ROWS),
    "silu": (nn.SiLU, ROWS),
    "mish": (nn.Mish, ROWS),
    "elu": (nn.ELU, ROWS),
    "selu": (nn.SELU, ROWS),
    "celu": (lambda: nn.CELU(0.7), ROWS),
    "prelu": (lambda: nn.PReLU(8), ROWS),
    "leaky": (nn.LeakyReLU, ROWS),
    "softplus": (lambda: nn.Softplus(2, 1), ROWS),
    "softshrink": (nn.Softshrink, ROWS),
    "hardshrink": (nn.Hardshrink, ROWS),
    "hardswish": (nn.Hardswish, ROWS),
    "hardsigmoid": (nn.Hardsigmoid, ROWS),
    "hardtanh": (nn.Hardtanh, ROWS),
    "relu6": (nn.ReLU6, ROWS),
    "glu": (nn.GLU, ROWS),
    "logsigmoid": (nn.LogSigmoid, ROWS),
    "tanhshrink": (nn.Tanhshrink, ROWS),
    "softsign": (nn.Softsign, ROWS),
    "threshold": (lambda: nn.Threshold(0.1, 2.0), ROWS),
    "softmax": (lambda: nn.Softmax(-1), ROWS),
    "softmin": (lambda: nn.Softmin(0), ROWS),
    "log_softmax": (lambda: nn.LogSoftmax(-1), ROWS),
    "layer_norm": (lambda: nn.LayerNorm(8), ROWS),
    "rms_norm": (lambda: nn.RMSNorm(8), ROWS),
    "batch_norm": (lambda: nn.BatchNorm1d(8), ROWS),
    "batch_norm_2d": (lambda: nn.BatchNorm2d(4, momentum=0.3), IMAGE),
    "group_norm": (lambda: nn.GroupNorm(2, 4), IMAGE),
    "instance_norm": (lambda: nn.InstanceNorm2d(4, affine=True), IMAGE),
    "local_response_norm": (lambda: nn.LocalResponseNorm(3), IMAGE),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=1), SIGNAL),
    "conv1d_same": (lambda: nn.Conv1d(4, 6, 4, padding="same", dilation=2), SIGNAL),
    "conv2d": (lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0)), IMAGE),
    "conv2d_groups": (lambda: nn.Conv2d(4, 8, 3, groups=2, dilation=2), IMAGE),
    "conv2d_depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1, bias=False), IMAGE),
    "conv2d_reflect": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), IMAGE),
    "conv2d_circular": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), IMAGE),
    "conv3d": (lambda: nn.Conv3d(4, 3, 2), VOLUME),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 3, 3, stride=2), SIGNAL),
    "conv_transpose2d": (
        lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        IMAGE,
    ),
    "max_pool": (lambda: nn.MaxPool2d(3, 2, padding=1), IMAGE),
    "max_pool_ceil": (lambda: nn.MaxPool1d(2, ceil_mode=True), SIGNAL),
    "average_pool": (lambda: nn.AvgPool2d(3, 2, padding=1, count_include_pad=False), IMAGE),
    "adaptive_average_pool": (lambda: nn.AdaptiveAvgPool2d((3, 1)), IMAGE),
    "adaptive_max_pool": (lambda: nn.AdaptiveMaxPool2d(3), IMAGE),
    "lp_pool": (lambda: nn.LPPool2d(2, 3), IMAGE),
    "upsample": (lambda: nn.Upsample(scale_factor=2), IMAGE),
    "upsample_bilinear": (lambda: nn.Upsample(scale_factor=1.5, mode="bilinear"), IMAGE),
    "upsample_bicubic": (lambda: nn.Upsample(size=(5, 7), mode="bicubic", align_corners=True), IMAGE),
    "pixel_shuffle": (lambda: nn.PixelShuffle(2), IMAGE),
    "pixel_unshuffle": (lambda: nn.PixelUnshuffle(2), IMAGE),
    "channel_shuffle": (lambda: nn.ChannelShuffle(2), IMAGE),
    "unfold": (lambda: nn.Unfold(3, padding=1), IMAGE),
    "fold": (lambda: nn.Sequential(nn.Unfold(3), nn.Fold((8, 8), 3)), IMAGE),
    "reflection_pad": (lambda: nn.ReflectionPad2d(2), IMAGE),
    "replication_pad": (lambda: nn.ReplicationPad2d((1, 2, 0, 3)), IMAGE),
    "constant_pad": (lambda: nn.ConstantPad1d((2, -1), 1.5), SIGNAL),
    "zero_pad": (lambda: nn.ZeroPad2d(1), IMAGE),
    "flatten": (lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (16, 16))), IMAGE),
    "cosine_similarity": (lambda: _Twice(nn.CosineSimilarity()), ROWS),
    "pairwise_distance": (lambda: _Twice(nn.PairwiseDistance()), ROWS),
    "attention": (lambda: _Self(nn.MultiheadAttention(8, 2, batch_first=True)), (2, 5, 8)),
    "encoder_layer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, norm_first=True),
        (2, 5, 8),
    ),
    "decoder_layer": (lambda: _Twice(nn.TransformerDecoderLayer(8, 2, 12, dropout=0.0)), (5, 2, 8)),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 5)), ROWS),
    "weight_norm_of_columns": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 3, 2), dim=2),
        SIGNAL,
    ),
    "spectral_norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(8, 5)), ROWS),
    "lstm_cell": (lambda: _First(nn.LSTMCell(8, 5)), ROWS),
    "gru_cell": (lambda: nn.GRUCell(8, 5), ROWS),
    "rnn_cell": (lambda: nn.RNNCell(8, 5), ROWS),
}


class _Twice(nn.Module):
    """Calls a module of two arguments."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """Of x and another tensor."""
        return self.inner(x, x.flip(0) * 0.5 + 1)


class _Self(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """Attention of x to itself."""
        return self.inner(x, x, x, need_weights=False)[0]


class _First(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """The first result."""
        return self.inner(x)[0]


@pytest.mark.parametrize("name", MODULES)
def test_results_and_gradients(name: str) -> None:
    make, shape = MODULES[name]
    torch.manual_seed(3)
    model = make().double().train()
    theirs = copy.deepcopy(model)
    x, peer = random(*shape).requires_grad_(), random(*shape).requires_grad_()
    found, expected = compiled(model)(x), theirs(peer)
    assert_same(found, expected, 1e-8)
    found.cos().sum().backward()
    expected.cos().sum().backward()
    assert_same(x.grad, peer.grad, 1e-7)
    assert_same(gradients(model), gradients(theirs), 1e-7)
    assert_same(model.state_dict(), theirs.state_dict(), 1e-8)


@pytest.mark.parametrize("name", MODULES)
def test_evaluation(name: str) -> None:
    make, shape = MODULES[name]
    torch.manual_seed(3)
    model = make().double().eval()
    with torch.no_grad():
        assert_same(compiled(model)(random(*shape)), model(random(*shape)), 1e-8)


CLASSES = torch.tensor([0, 3, 2, 1, 7, 3])
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "cross_entropy": lambda x: F.cross_entropy(x, CLASSES, label_smoothing=0.1),
    "cross_entropy_ignored": lambda x: F.cross_entropy(x, CLASSES, ignore_index=3),
    "cross_entropy_weights": lambda x: F.cross_entropy(x, CLASSES, x.detach()[0].abs(), reduction="sum"),
    "cross_entropy_shares": lambda x: F.cross_entropy(x, x.detach().softmax(0)),
    "nll": lambda x: F.nll_loss(x, CLASSES),
    "mse": lambda x: F.mse_loss(x, x.detach().flip(0)),
    "l1": lambda x: F.l1_loss(x, x.detach().flip(0)),
    "huber": lambda x: F.huber_loss(x, x.detach().flip(0), delta=0.4),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x.detach().flip(0)),
    "binary": lambda x: F.binary_cross_entropy(x.sigmoid(), (x.detach() > 0).double()),
    "binary_logits": lambda x: F.binary_cross_entropy_with_logits(
        x, (x.detach() > 0).double(), pos_weight=x.detach()[0].abs()
    ),
    "kl": lambda x: F.kl_div(x.log_softmax(-1), x.detach().softmax(0), reduction="batchmean"),
    "poisson": lambda x: F.poisson_nll_loss(x, x.detach().abs()),
    "hinge": lambda x: F.hinge_embedding_loss(x, x.detach().sign()),
    "cosine": lambda x: F.cosine_embedding_loss(
        x, x.detach().flip(0) + 1, torch.tensor([1, -1, 1, 1, -1, 1])
    ),
    "triplet": lambda x: F.triplet_margin_loss(x, x.flip(0), x.roll(1, 0)),
    "margin": lambda x: F.multi_margin_loss(x, CLASSES),
    "soft_margin": lambda x: F.soft_margin_loss(x, x.detach().sign()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    x, peer = random(*ROWS).requires_grad_(), random(*ROWS).requires_grad_()
    found, expected = compiled(LOSSES[name])(x), LOSSES[name](peer)
    assert_same(found, expected, 1e-9)
    found.backward()
    expected.backward()
    assert_same(x.grad, peer.grad, 1e-8)


@pytest.mark.parametrize("named", [{}, {"padding_idx": 3}, {"max_norm": 1.0}, {"scale_grad_by_freq": True}])
def test_embeddings(named: dict[str, float]) -> None:
    model = nn.Embedding(10, 4, **named).double()  # type: ignore[arg-type]
    theirs = copy.deepcopy(model)
    tokens = torch.tensor([[1, 3, 3], [9, 0, 1]])
    for run, owner in ((compiled(model), model), (theirs, theirs)):
        run(tokens).sin().sum().backward()
        assert owner.weight.grad is not None
    assert_same(gradients(model), gradients(theirs), 1e-9)
    assert_same(model.weight, theirs.weight, 1e-9)
