"""The builder's graph: its ground and the ops of every family."""

from __future__ import annotations

from dataclasses import dataclass

from aicf.frontends.builder.attention import AttentionOps
from aicf.frontends.builder.contraction import ContractionOps
from aicf.frontends.builder.convolution import ConvolutionOps
from aicf.frontends.builder.detection import DetectionOps
from aicf.frontends.builder.indexing import IndexingOps
from aicf.frontends.builder.losses import LossOps
from aicf.frontends.builder.normalization import NormalizationOps
from aicf.frontends.builder.optimizers import OptimizerOps
from aicf.frontends.builder.pooling import PoolingOps
from aicf.frontends.builder.random import RandomOps
from aicf.frontends.builder.recurrent import RecurrentOps
from aicf.frontends.builder.reduction import ReductionOps
from aicf.frontends.builder.training import TrainingOps


@dataclass
class Graph(
    ContractionOps,
    ConvolutionOps,
    AttentionOps,
    ReductionOps,
    NormalizationOps,
    PoolingOps,
    IndexingOps,
    DetectionOps,
    RandomOps,
    RecurrentOps,
    LossOps,
    TrainingOps,
    OptimizerOps,
):
    """A program under construction; its methods raise :class:`InvalidIR`, with the Python source line, on wrong use."""
