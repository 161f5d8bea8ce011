"""A small residual network for images of 8 by 8: batch norms of the batch, and their running means."""

from __future__ import annotations

import aicf
from aicf.frontends.builder import Value

EPSILON = 1e-5
MOMENTUM = 0.1
CHANNELS = (12, 24)


class ResidualNet:
    """The graph of a batch, for training or, with running means as parameters, for inference."""

    def __init__(self, batch: int, *, training: bool, dtype: str = "f32") -> None:
        self.training = training
        self.dtype = dtype
        self.graph = g = aicf.Graph("residual_net")
        x = g.input("x", (batch, 1, 8, 8), dtype)
        x = g.relu(self.norm("stem.norm", self.conv("stem.conv", x, CHANNELS[0], 3)))
        x = self.block("first", x, CHANNELS[0], 1)
        x = self.block("second", x, CHANNELS[1], 2)
        pooled = g.reduce_mean(x, (2, 3))
        weight, bias = g.param("fc.weight", (10, CHANNELS[1]), dtype), g.param("fc.bias", (10,), dtype)
        g.output(g.linear(pooled, weight, bias), "scores")

    def conv(self, name: str, x: Value, outputs: int, size: int, stride: int = 1) -> Value:
        """A convolution without a bias, padded to the size of the input."""
        weight = self.graph.param(f"{name}.weight", (outputs, x.info.shape[1], size, size), self.dtype)
        low = [size // 2] * 2
        return self.graph.conv(x, weight, strides=[stride] * 2, low=low, name=name)

    def norm(self, name: str, x: Value) -> Value:
        """A batch norm, as `torch.nn.BatchNorm2d` trains it."""
        g, channels = self.graph, x.info.shape[1:2]
        scale, shift = (g.param(f"{name}.{part}", channels, self.dtype) for part in ("weight", "bias"))
        names = [f"{name}.running_mean", f"{name}.running_var"]
        if not self.training:
            return g.batch_norm(
                x, scale, shift, *(g.param(each, channels, self.dtype) for each in names), EPSILON
            )
        count = x.info.shape[0] * x.info.shape[2] * x.info.shape[3]
        mean = g.reduce_mean(x, (0, 2, 3))
        centered = x - g.reshape(mean, (1, *channels, 1, 1))
        variance = g.reduce_mean(centered * centered, (0, 2, 3))
        for running, value in zip(names, (mean, variance * (count / (count - 1))), strict=True):
            state = g.state(running, channels, self.dtype)
            g.update(state, state * (1 - MOMENTUM) + g.detach(value) * MOMENTUM)
        return g.batch_norm(x, scale, shift, mean, variance, EPSILON)

    def block(self, name: str, x: Value, outputs: int, stride: int) -> Value:
        """Two convolutions beside the input, which a convolution of single pixels brings to their shape."""
        y = self.graph.relu(self.norm(f"{name}.norm1", self.conv(f"{name}.conv1", x, outputs, 3, stride)))
        y = self.norm(f"{name}.norm2", self.conv(f"{name}.conv2", y, outputs, 3))
        if stride != 1:
            x = self.norm(f"{name}.norm3", self.conv(f"{name}.conv3", x, outputs, 1, stride))
        return self.graph.relu(y + x)
