"""Programs that read and write at indices: one graph an entry, with random inputs, indices in range and out of it.

Sizes are ones at which vectors are whole, have a tail, or do not exist; the float type is a parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from aicf.dialects.logical import ScatterMode
from aicf.dialects.types import element_named
from aicf.frontends.builder import Graph
from aicf.frontends.builder.core import Value

Array = np.ndarray


@dataclass
class Inputs:
    """A graph under construction and the arrays of its inputs."""

    dtype: str
    seed: int = 0
    graph: Graph = field(default_factory=lambda: Graph("f"))
    arrays: dict[str, Array] = field(default_factory=dict)

    def data(self, *shape: int, dtype: str | None = None) -> Value:
        """Random elements."""
        element = element_named(dtype or self.dtype)
        random = np.random.default_rng(self.seed + len(self.arrays))
        if element.is_float:
            return self._input(random.standard_normal(shape).astype(element.dtype), element.name)
        return self._input(random.integers(-9, 9, shape).astype(element.dtype), element.name)

    def indices(self, size: int, *shape: int, dtype: str = "i64") -> Value:
        """Indices of `size` elements: most in range, from both ends, some far out."""
        random = np.random.default_rng(self.seed + 100 + len(self.arrays))
        rows = random.integers(-size, size, shape)
        far = random.choice([-(10**9), 10**9, size, -size - 1], shape)
        made = np.where(random.random(shape) < 0.2, far, rows)
        return self._input(made.astype(element_named(dtype).dtype), dtype)

    def _input(self, array: Array, dtype: str) -> Value:
        name = f"x{len(self.arrays)}"
        self.arrays[name] = array
        return self.graph.input(name, array.shape, dtype)


def _pad(i: Inputs) -> Value:
    return i.graph.relu(i.graph.pad(i.data(3, 5, 37), [1, 0, 2], [0, 2, 3], 0.5))


def _pad_aligned(i: Inputs) -> Value:
    """Whole vectors lie inside or outside."""
    return i.graph.pad(i.data(5, 64), [1, 16], [0, 32], -1.0)


def _pad_edge(i: Inputs) -> Value:
    return i.graph.pad(i.data(5, 7), [2, 3], [1, 0], mode="edge")


def _pad_reflect(i: Inputs) -> Value:
    return i.graph.pad(i.data(5, 7), [4, 0], [1, 6], mode="reflect")


def _embedding(i: Inputs) -> Value:
    """Rows of a table, added and normalised."""
    rows = i.graph.gather(i.data(7, 48), i.indices(7, 9))
    return i.graph.layer_norm(rows + i.data(9, 48), i.data(48), i.data(48))


def _gather_middle(i: Inputs) -> Value:
    return i.graph.gather(i.data(3, 6, 20), i.indices(6, 2, 3, dtype="i32"), 1)


def _gather_last(i: Inputs) -> Value:
    return i.graph.gather(i.data(4, 33), i.indices(33, 40), 1)


def _gather_transposed(i: Inputs) -> Value:
    """The operand's view is strides of the memory that is read."""
    return i.graph.gather(i.graph.transpose(i.data(16, 6), [1, 0]), i.indices(6, 5), 0)


def _gather_elements(i: Inputs) -> Value:
    found = i.graph.gather_elements(i.data(6, 40), i.indices(40, 6, 33, dtype="i32"), 1)
    return i.graph.where(i.graph.compare("gt", found, 0.0), found, -1.0)


def _gather_and_element(i: Inputs) -> Value:
    """One operand read at indices and at the point: no result may overwrite it."""
    x = i.graph.exp(i.data(6, 32))
    return i.graph.gather_elements(x, i.indices(6, 6, 32), 0) + x


def _gather_summed(i: Inputs) -> Value:
    """Rows read in a reduction over the rows."""
    return i.graph.reduce_sum(i.graph.gather(i.data(7, 40), i.indices(7, 11)), [0])


def _flip(i: Inputs) -> Value:
    return i.graph.flip(i.data(4, 35), [0, 1]) + i.graph.flip(i.data(4, 35), [0])


def _tile(i: Inputs) -> Value:
    return i.graph.tile(i.data(3, 10), [2, 3])


def _one_hot(i: Inputs) -> Value:
    return i.graph.one_hot(i.indices(11, 5, 3), 11, 1, dtype=i.dtype) * i.data(5, 11, 3)


def _iota(i: Inputs) -> Value:
    return i.data(4, 35) + i.graph.iota([4, 35], 1, i.dtype)


def _coordinates_in_memory(i: Inputs) -> Value:
    """A scatter and a transpose take coordinates that no other op computes."""
    steps = i.graph.sub(i.graph.iota([6], 0, "i64"), 1)
    rows = i.graph.scatter(i.data(6, 5), steps, i.data(6, 5), "add")
    return rows + i.graph.transpose(i.graph.iota([5, 6], 0, i.dtype), [1, 0])


def _scatter(i: Inputs, mode: ScatterMode, dtype: str = "i64") -> Value:
    """Rows of several dimensions."""
    return i.graph.scatter(i.data(7, 5, 3), i.indices(7, 40, dtype=dtype), i.data(40, 5, 3), mode)


def _scatter_few_rows(i: Inputs) -> Value:
    """So many updates of each row that sums under a mask are cheaper."""
    return i.graph.scatter(i.data(2, 96), i.indices(2, 4096), i.data(4096, 96), "add")


def _scatter_row(i: Inputs) -> Value:
    """One row, with an index of either type; what is computed of the rows joins them."""
    x, index = i.data(7, 40), i.indices(7, 1)
    updated = i.graph.scatter(i.graph.exp(x), index, i.data(1, 40))
    return i.graph.scatter(updated, i.indices(7, 1, dtype="i32"), i.data(1, 40)) * x


def _scatter_wide(i: Inputs) -> Value:
    """Rows of more columns than a block has threads; the result goes on."""
    return i.graph.relu(i.graph.scatter(i.data(3, 300), i.indices(3, 5, dtype="i32"), i.data(5, 300), "add"))


def _scatter_scalars(i: Inputs) -> Value:
    return i.graph.scatter(i.data(50), i.indices(50, 300), i.data(300), "add")


def _scatter_elements(i: Inputs) -> Value:
    return i.graph.scatter_elements(i.data(6, 9), i.indices(9, 5, 20), i.data(5, 20), 1, "max")


def _scatter_nd(i: Inputs) -> Value:
    return i.graph.scatter_nd(i.data(4, 5, 6), i.indices(4, 3, 7, 2), i.data(3, 7, 6))


def _scatter_turned(i: Inputs) -> Value:
    """Views of the operand and the updates are strides."""
    x, updates = (i.graph.transpose(value, [1, 0]) for value in (i.data(8, 6), i.data(8, 9)))
    return i.graph.scatter(x, i.indices(6, 9), updates, "min")


def _topk(i: Inputs, *, largest: bool) -> Value:
    """Elements with ties; indices and elements of the best."""
    found, indices = i.graph.topk(i.data(3, 300, dtype="i32"), 7, largest=largest)
    return i.graph.cast(found, i.dtype) + i.graph.cast(indices, i.dtype)


def _topk_middle(i: Inputs) -> Value:
    return i.graph.topk(i.data(2, 9, 5), 4, 1)[0]


def _topk_all(i: Inputs) -> Value:
    """A whole sort."""
    return i.graph.cast(i.graph.topk(i.data(2, 33), 33)[1], i.dtype)


def _non_max_suppression(i: Inputs, *, centred: bool) -> Value:
    """Whole numbers, so that scores are equal and boxes the same; more boxes than a block has threads."""
    boxes, scores = (
        i.graph.cast(i.data(*shape, dtype="i32"), i.dtype) for shape in ((1, 300, 4), (1, 2, 300))
    )
    overlap = i.graph.constant(0.25, (), i.dtype)
    floor = i.graph.constant(-2.0, (), i.dtype) if centred else None
    kept = i.graph.non_max_suppression(boxes, scores, overlap, floor, limit=6, centred=centred)
    return i.graph.cast(kept, i.dtype)


WRITES: dict[str, Callable[[Inputs], Value]] = {
    "scatter-set": partial(_scatter, mode="set"),
    "scatter-add": partial(_scatter, mode="add"),
    "scatter-max": partial(_scatter, mode="max", dtype="i32"),
    "scatter-min": partial(_scatter, mode="min"),
    "scatter-mul": partial(_scatter, mode="mul"),
    "scatter-few-rows": _scatter_few_rows,
    "scatter-row": _scatter_row,
    "scatter-wide": _scatter_wide,
    "scatter-scalars": _scatter_scalars,
    "scatter-elements": _scatter_elements,
    "scatter-nd": _scatter_nd,
    "coordinates-in-memory": _coordinates_in_memory,
    "scatter-turned": _scatter_turned,
    "topk": partial(_topk, largest=True),
    "topk-smallest": partial(_topk, largest=False),
    "topk-middle": _topk_middle,
    "topk-all": _topk_all,
    "non-max-suppression": partial(_non_max_suppression, centred=False),
    "non-max-suppression-centred": partial(_non_max_suppression, centred=True),
}
"""By name."""

READS: dict[str, Callable[[Inputs], Value]] = {
    "pad": _pad,
    "pad-aligned": _pad_aligned,
    "pad-edge": _pad_edge,
    "pad-reflect": _pad_reflect,
    "embedding": _embedding,
    "gather-middle": _gather_middle,
    "gather-last": _gather_last,
    "gather-transposed": _gather_transposed,
    "gather-elements": _gather_elements,
    "gather-and-element": _gather_and_element,
    "gather-summed": _gather_summed,
    "flip": _flip,
    "tile": _tile,
    "one-hot": _one_hot,
    "iota": _iota,
}
"""By name."""

PROGRAMS = {**READS, **WRITES}


def _many_updates(i: Inputs) -> Value:
    """Rows of two digits of eight bits, and more indices than one block sorts."""
    return i.graph.scatter(i.data(5000, 36), i.indices(5000, 70000), i.data(70000, 36), "add")


def _topk_long(i: Inputs) -> Value:
    """Rows that several blocks share; few enough that each element occurs often."""
    return i.graph.cast(i.graph.topk(i.data(2, 300_000, dtype="i32"), 900)[1], i.dtype)


LARGE: dict[str, Callable[[Inputs], Value]] = {
    "scatter-many": _many_updates,
    "topk-long": _topk_long,
}
"""Programs that only a device runs in good time, by name."""


def built(make: Callable[[Inputs], Value], dtype: str, seed: int = 0) -> Inputs:
    """The graph, with its result called y, and its inputs."""
    inputs = Inputs(dtype, seed)
    inputs.graph.output(make(inputs), "y")
    return inputs
