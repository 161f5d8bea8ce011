"""The networks of `works` in PyTorch, and the ways in which PyTorch trains them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from contest import Contestant
from torch import Tensor, nn
from torch.nn import functional
from works import LEARNING_RATE, Array, EncoderConfig, Workload

Step = Callable[[], object]
WARM_UPS = 3


class Classifier(nn.Module):
    """Linear layers `fc1`, `fc2` and so on, with ReLU between them."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        for i, (inputs, outputs) in enumerate(pairwise(sizes), 1):
            self.add_module(f"fc{i}", nn.Linear(inputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, inputs], the result [batch, classes]."""
        first, *others = self.children()
        x = first(x)
        for layer in others:
            x = layer(functional.relu(x))
        return x


class EncoderLayer(nn.Module):
    """Attention and GELU layers, each after a norm and added to its input."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden, config.inner
        self.heads = config.heads
        self.norm1, self.norm2 = (nn.LayerNorm(hidden, eps=config.epsilon) for _ in range(2))
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """x and the result [batch, tokens, hidden]."""
        parts = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts.unbind(0))
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    """Layers, the mean over the tokens, a linear layer."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.head = nn.Linear(config.hidden, config.classes)

    def forward(self, x: Tensor) -> Tensor:
        """x [batch, tokens, hidden], the result [batch, classes]."""
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


@dataclass
class Trainer:
    """A module in training on one place for a batch.

    Args:
        module: With parameters in f32, or f64 for the exact one.
        dtype: What it computes in: parameters are cast to it where they are read.
        x, y: The batch; what is to be learned next is copied there.
        optimizer: Of all parameters.
    """

    module: nn.Module
    dtype: torch.dtype
    x: Tensor
    y: Tensor
    optimizer: torch.optim.Optimizer

    def loss(self) -> Tensor:
        """Of the batch."""
        if self.dtype == next(self.module.parameters()).dtype:
            logits = self.module(self.x)
        else:
            low = {name: value.to(self.dtype) for name, value in self.module.named_parameters()}
            logits = torch.func.functional_call(self.module, low, self.x).float()
        return functional.cross_entropy(logits, self.y)

    def feed(self, x: Array, y: Array) -> None:
        """The batch to learn next."""
        self.x.copy_(torch.from_numpy(x))
        self.y.copy_(torch.from_numpy(y))

    def restart(self, parameters: Mapping[str, Array]) -> None:
        """Everything as before the first step, in place: graphs know the addresses."""
        self.module.load_state_dict({name: torch.from_numpy(value) for name, value in parameters.items()})
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()


def trainer(
    work: Workload,
    parameters: Mapping[str, Array],
    device: str,
    dtype: torch.dtype | None = None,
    **options: Any,
) -> Trainer:
    """A module that trains on a device, with options of the optimizer.

    Args:
        dtype: Of everything; None takes the work's, with parameters in f32.
    """
    module = _module(work).to(device, dtype or torch.float32)
    low = dtype or getattr(torch, {"f32": "float32", "bf16": "bfloat16"}[work.x_dtype])
    x = torch.zeros(tuple(work.x_shape), dtype=low, device=device)
    y = torch.zeros(work.x_shape[0], dtype=torch.int64, device=device)
    optimizer = (
        torch.optim.AdamW(module.parameters(), LEARNING_RATE, weight_decay=work.decay, **options)
        if work.decay
        else torch.optim.Adam(module.parameters(), LEARNING_RATE, **options)
    )
    made = Trainer(module, low, x, y, optimizer)
    made.restart(parameters)
    return made


def _module(work: Workload) -> nn.Module:
    config = work.config
    return Encoder(config) if isinstance(config, EncoderConfig) else Classifier(*config)


def eager(trained: Trainer) -> Callable[[], Tensor]:
    """A step, op by op; gives the loss."""
    return _step(trained, trained.loss, trained.optimizer.step)


def compiled(trained: Trainer, mode: str) -> Callable[[], Tensor]:
    """A step with forward, backward and optimizer compiled; gives the loss."""
    update = torch.compile(trained.optimizer.step, mode=mode)
    return _step(trained, torch.compile(trained.loss, mode=mode), update)


def half_compiled(trained: Trainer, mode: str) -> Callable[[], Tensor]:
    """A step with forward and backward compiled; gives the loss."""
    return _step(trained, torch.compile(trained.loss, mode=mode), trained.optimizer.step)


def _step(trained: Trainer, loss_of: Callable[[], Tensor], update: Step) -> Callable[[], Tensor]:
    def step() -> Tensor:
        trained.optimizer.zero_grad(set_to_none=True)
        loss = loss_of()
        loss.backward()
        update()
        return loss.detach()

    return step


def contestant(
    trained: Trainer, parameters: Mapping[str, Array], step: Step, loss_of: Callable[[], Tensor]
) -> Contestant:
    """One that trains by `step`; `loss_of` gives the last loss."""
    wait = torch.cuda.synchronize if trained.x.is_cuda else _nothing
    return Contestant(lambda: trained.restart(parameters), trained.feed, step, wait, lambda: float(loss_of()))


def _nothing() -> None:
    """A processor's steps are done when they return."""


def captured(step: Callable[[], Tensor]) -> tuple[Step, Tensor]:
    """A step in a CUDA Graph: what replays it, and where its loss is."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    return graph.replay, loss
