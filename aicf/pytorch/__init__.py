"""AICF for PyTorch: the backend of `torch.compile`, `train_step`, `save` and `load`. Importing it imports PyTorch.

model = torch.compile(model, backend="aicf")
"""

from aicf.pytorch.backend import aicf_backend
from aicf.pytorch.deploy import Deployed, load, save
from aicf.pytorch.options import StepOptions, TorchOptions, policy
from aicf.pytorch.report import TorchReport, report
from aicf.pytorch.step_report import StepReport
from aicf.pytorch.train_step import TrainStep, train_step

__all__ = [
    "Deployed",
    "StepOptions",
    "StepReport",
    "TorchOptions",
    "TorchReport",
    "TrainStep",
    "aicf_backend",
    "load",
    "policy",
    "report",
    "save",
    "train_step",
]
