"""Small networks of convolutions with random structure, and what they give in float64."""

from __future__ import annotations

import random

from aicf.frontends.builder import Graph, Value


def random_convnet(seed: int, steps: int = 7, dtype: str = "f32") -> Graph:
    """Convolutions, poolings, norms, activations, residual sums, concatenations and transpositions in random order.

    Each step reads a value that was made before; what nobody reads is a result in the end, and so is a mean over all
    pixels.
    """
    net = _Net(seed, dtype)
    for _ in range(steps):
        getattr(net, net.random.choice(STEPS))()
    return net.finish()


STEPS = (
    *("convolution", "convolution", "depthwise", "pointwise", "norm", "pooling", "residual"),
    *("concatenation", "transposition", "activation", "scale"),
)
"""The names of the steps; an entry that comes twice is drawn more often."""


class _Net:
    def __init__(self, seed: int, dtype: str) -> None:
        self.random = random.Random(seed)
        self.g = Graph(f"net{seed}")
        self.dtype = dtype
        self.params = 0
        channels, size = self.random.choice((3, 8, 16)), self.random.choice((7, 9, 12))
        shape = (self.random.choice((1, 2)), channels, size, size + self.random.choice((0, 3)))
        self.values = [self.g.input("x", shape, dtype)]
        self.read: set[int] = set()

    def param(self, *shape: int) -> Value:
        self.params += 1
        return self.g.param(f"w{self.params}", shape, self.dtype)

    def some(self) -> Value:
        """A value, the last one more often than the others."""
        number = (
            len(self.values) - 1 if self.random.random() < 0.6 else self.random.randrange(len(self.values))
        )
        self.read.add(number)
        return self.values[number]

    def sizes(self, x: Value) -> list[int]:
        return [int(size) for size in x.shape]

    def convolution(self) -> None:
        x, taps = self.some(), self.random.choice((1, 3))
        _, channels, rows, columns = self.sizes(x)
        stride = self.random.choice((1, 1, 2)) if min(rows, columns) > 4 else 1
        outputs = self.random.choice((4, 8, 24))
        weight = self.param(outputs, channels, taps, taps)
        bias = self.param(outputs) if self.random.random() < 0.5 else None
        low = [taps // 2] * 2
        self.values.append(self.g.conv(x, weight, bias, strides=[stride] * 2, low=low))

    def depthwise(self) -> None:
        x = self.some()
        channels = self.sizes(x)[1]
        self.values.append(self.g.conv(x, self.param(channels, 1, 3, 3), low=[1, 1], groups=channels))

    def pointwise(self) -> None:
        x = self.some()
        outputs = self.random.choice((8, 16))
        self.values.append(self.g.relu(self.g.conv(x, self.param(outputs, self.sizes(x)[1], 1, 1))))

    def norm(self) -> None:
        x = self.some()
        channels = self.sizes(x)[1]
        scale, shift, mean = (self.param(channels) for _ in range(3))
        variance = self.g.exp(self.param(channels))
        self.values.append(self.g.batch_norm(x, scale, shift, mean, variance))

    def pooling(self) -> None:
        x = self.some()
        pool = self.random.choice((self.g.max_pool, self.g.avg_pool))
        self.values.append(pool(x, [3, 3], [self.random.choice((1, 2))] * 2, None, [1, 1], [1, 1]))

    def residual(self) -> None:
        x = self.some()
        alike = [value for value in self.values if value.shape == x.shape]
        self.values.append(x + self.random.choice(alike))

    def concatenation(self) -> None:
        x = self.some()
        alike = [v for v in self.values if (v.shape[0], *v.shape[2:]) == (x.shape[0], *x.shape[2:])]
        self.values.append(self.g.concat([x, self.random.choice(alike)], 1))

    def transposition(self) -> None:
        """To channels last, something there, and back, as models of such frameworks have it."""
        x = self.g.transpose(self.some(), [0, 2, 3, 1])
        self.values.append(self.g.transpose(self.g.sigmoid(x) * x, [0, 3, 1, 2]))

    def activation(self) -> None:
        x = self.some()
        self.values.append(self.random.choice((self.g.relu, self.g.sigmoid, self.g.tanh))(x))

    def scale(self) -> None:
        """Channels weighed by what follows from their means."""
        x = self.some()
        channels = self.sizes(x)[1]
        means = self.g.reduce_mean(x, [2, 3], keepdims=True)
        weights = self.g.sigmoid(self.g.conv(means, self.param(channels, channels, 1, 1)))
        self.values.append(x * weights)

    def finish(self) -> Graph:
        last = self.values[-1]
        self.g.output(self.g.reduce_mean(last, [2, 3]), "mean")
        for index, value in enumerate(self.values[1:], 1):
            if index not in self.read and self.random.random() < 0.7:
                way = [0, 2, 3, 1] if self.random.random() < 0.4 else [0, 1, 2, 3]
                self.g.output(self.g.transpose(value, way) if way[1] != 1 else value, f"y{index}")
        return self.g
