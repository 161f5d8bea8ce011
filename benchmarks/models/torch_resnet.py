"""A residual network of basic blocks in plain PyTorch, as ResNet-18 is for small images, in training mode."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    """Two convolutions of 3 x 3 beside the input, which a convolution of 1 x 1 brings to their shape."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.skip = nn.Sequential()
        if stride != 1 or inputs != outputs:
            convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.skip = nn.Sequential(convolution, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs, H, W] to [N, outputs, H / stride, W / stride]."""
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.skip(x))


def resnet(classes: int = 10, widths: Sequence[int] = (64, 128, 256, 512), depth: int = 2) -> nn.Sequential:
    """From images [N, 3, H, W] to scores [N, classes]; the defaults are those of ResNet-18.

    Args:
        widths: Output channels of each stage; every stage but the first halves rows and columns.
        depth: Blocks of a stage.
    """
    inputs = widths[0]
    stem = [
        nn.Conv2d(3, inputs, 7, 2, 3, bias=False),
        nn.BatchNorm2d(inputs),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    blocks: list[nn.Module] = []
    for stage, outputs in enumerate(widths):
        for number in range(depth):
            blocks.append(BasicBlock(inputs, outputs, 2 if stage and not number else 1))
            inputs = outputs
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
