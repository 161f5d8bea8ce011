"""The builder's graph: its ground and all ops."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.frontends.builder.comparison import ComparisonOps
from aicf.frontends.builder.contraction import ContractionOps
from aicf.frontends.builder.custom import CustomOps
from aicf.frontends.builder.indexing import IndexingOps
from aicf.frontends.builder.shapes import ShapeOps


@dataclass
class Graph(ContractionOps, ComparisonOps, IndexingOps, ShapeOps, CustomOps):
    """A program under construction; its methods raise :class:`InvalidIR`, with the Python source line, on wrong use."""
