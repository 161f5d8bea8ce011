"""Outputs of which only the first slices along a dimension are there: a program says how many in an output of its own.

A session hands out these slices and keeps the count to itself. What runs on memory of the caller writes all of it, and
the count beside it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aicf.runtime.executable import TensorSpec
from aicf.runtime.graph import Graph
from aicf.runtime.tensors import Array

OPEN = "?"
"""A size that follows from the data of each call."""


@dataclass(frozen=True)
class Counts:
    """Which outputs of a program are counted.

    Args:
        names: The outputs that are counts.
        of: Name of a counted output to its dimension and the name of its count.
    """

    names: frozenset[str]
    of: Mapping[str, tuple[int, str]]

    @classmethod
    def read(cls, graph: Graph) -> Counts:
        """Those of a program."""
        counting = [bind for bind in graph.outputs if bind.counts]
        pairs = {each.output: (each.axis, bind.name) for bind in counting for each in bind.counts}
        return cls(frozenset(bind.name for bind in counting), pairs)

    def visible(self, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """What users see of the outputs: no counts, and open sizes."""
        return tuple(self._opened(spec) for spec in specs if spec.name not in self.names)

    def _opened(self, spec: TensorSpec) -> TensorSpec:
        if spec.name not in self.of:
            return spec
        axis, _ = self.of[spec.name]
        return replace(spec, shape=(*spec.shape[:axis], OPEN, *spec.shape[axis + 1 :]))

    def taken(self, results: Mapping[str, Array], given: Container[str]) -> dict[str, Array]:
        """The results with what is there of counted ones, and without the counts.

        Args:
            results: All outputs of a run by name.
            given: Names of those that are memory of the caller: of these a part is given, not a copy.
        """
        return {
            name: self._slices(name, array, results, is_given=name in given)
            for name, array in results.items()
            if name not in self.names
        }

    def _slices(self, name: str, array: Any, results: Mapping[str, Array], *, is_given: bool) -> Array:
        if name not in self.of:
            return array
        axis, count = self.of[name]
        there = array[(slice(None),) * axis + (slice(int(results[count])),)]
        return there if is_given else np.array(there)
