"""ResNet and MobileNetV2 as PyTorch modules, written down from their papers with random weights: the networks that
torchvision would bring.

K. He et al., "Deep Residual Learning for Image Recognition", 2015 (basic blocks), and M. Sandler et al., "MobileNetV2:
Inverted Residuals and Linear Bottlenecks", 2018.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, which is projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """`[N, 3, H, W]` to `[N, classes]`.

    Args:
        blocks: Basic blocks of each stage; `(2, 2, 2, 2)` is ResNet-18.
        width: Channels of the first stage; each later one has twice as many.
    """

    def __init__(self, blocks: tuple[int, ...] = (2, 2, 2, 2), width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        stages: list[nn.Module] = []
        inputs = width
        for number, count in enumerate(blocks):
            outputs = width << number
            for index in range(count):
                stages.append(BasicBlock(inputs, outputs, 2 if number and not index else 1))
                inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(x)))


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution, linear projection; with a shortcut where the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        expand = [_conv_norm(inputs, hidden, 1), nn.ReLU6()] if expansion > 1 else []
        self.body = nn.Sequential(
            *expand,
            _conv_norm(hidden, hidden, 3, stride, groups=hidden),
            nn.ReLU6(),
            _conv_norm(hidden, outputs, 1),
        )
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.has_shortcut else self.body(x)


STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, blocks and first stride of each stage: table 2 of the paper."""


class MobileNetV2(nn.Module):
    """`[N, 3, H, W]` to `[N, classes]`."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [_conv_norm(3, 32, 3, 2), nn.ReLU6()]
        inputs = 32
        for expansion, outputs, count, first in STAGES:
            for index in range(count):
                layers.append(InvertedResidual(inputs, outputs, 1 if index else first, expansion))
                inputs = outputs
        layers += [_conv_norm(inputs, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


def _conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    padding = kernel // 2
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    )


def randomize_norms(module: nn.Module) -> None:
    """Gives batch norms statistics as training would: a fresh one is the identity, which would test nothing."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean, std=0.2)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
            nn.init.uniform_(part.weight, 0.5, 1.5)
            nn.init.normal_(part.bias, std=0.2)
