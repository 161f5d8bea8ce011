"""AICF: compile a model into a static, deterministic execution graph, and replay it.

    exe = aicf.compile("mlp.mlir", weights="mlp.safetensors")
    y = exe(x)
    exe.save("mlp.aicf")
    exe = aicf.load("mlp.aicf")

Every name is imported when it is first used: a process that only loads and runs never imports the compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from aicf.errors import (
    AicfError,
    ArtifactError,
    BackendUnavailable,
    CaptureError,
    EngineError,
    InputMismatch,
    InvalidIR,
    PlanError,
    PolicyError,
    SessionClosed,
    UnsupportedOp,
)

if TYPE_CHECKING:
    from aicf import backends as backends
    from aicf import bisection as bisection
    from aicf import calibration as calibration
    from aicf import certificates as certificates
    from aicf import dialects as dialects
    from aicf import engines as engines
    from aicf import frontends as frontends
    from aicf import inference as inference
    from aicf import kernels as kernels
    from aicf import llm as llm
    from aicf import passes as passes
    from aicf import policies as policies
    from aicf import runtime as runtime
    from aicf import semantics as semantics
    from aicf import testing as testing
    from aicf import tools as tools
    from aicf import training as training
    from aicf import tuning as tuning
    from aicf.bisection import Bisection, bisect
    from aicf.calibration import Calibration, calibrate
    from aicf.certificates import Certificate, Verification, verify
    from aicf.compilation.compiled import CompiledModel
    from aicf.compilation.compiler import compile
    from aicf.compilation.extensions import at
    from aicf.compilation.reading import load
    from aicf.frontends.builder import Graph, Value
    from aicf.inference import InferenceSession
    from aicf.kernels import custom_op, kernel
    from aicf.policies.execution_policy import ExecutionPolicy
    from aicf.policies.kernel_policy import KernelPolicy
    from aicf.policies.policy import Policy
    from aicf.policies.precision_policy import PrecisionPolicy
    from aicf.runtime import Executable, GraphExec, Profiler, Stream, devices, init, shutdown
    from aicf.training import TrainStep, load_step, losses, optimizers, schedules, train_step
    from aicf.tuning.tune import tune

__all__ = [
    "AicfError",
    "ArtifactError",
    "BackendUnavailable",
    "Bisection",
    "Calibration",
    "CaptureError",
    "Certificate",
    "CompiledModel",
    "EngineError",
    "Executable",
    "ExecutionPolicy",
    "Graph",
    "GraphExec",
    "InferenceSession",
    "InputMismatch",
    "InvalidIR",
    "KernelPolicy",
    "PlanError",
    "Policy",
    "PolicyError",
    "PrecisionPolicy",
    "Profiler",
    "SessionClosed",
    "Stream",
    "TrainStep",
    "UnsupportedOp",
    "Value",
    "Verification",
    "at",
    "bisect",
    "calibrate",
    "compile",
    "custom_op",
    "devices",
    "init",
    "kernel",
    "load",
    "load_step",
    "losses",
    "optimizers",
    "schedules",
    "shutdown",
    "train_step",
    "tune",
    "verify",
]

_HOMES = {
    **dict.fromkeys(("Bisection", "bisect"), "aicf.bisection"),
    **dict.fromkeys(("Calibration", "calibrate"), "aicf.calibration"),
    **dict.fromkeys(("Certificate", "Verification", "verify"), "aicf.certificates"),
    "CompiledModel": "aicf.compilation.compiled",
    "load": "aicf.compilation.reading",
    "compile": "aicf.compilation.compiler",
    "at": "aicf.compilation.extensions",
    "Graph": "aicf.frontends.builder",
    "Value": "aicf.frontends.builder",
    "InferenceSession": "aicf.inference",
    **dict.fromkeys(("custom_op", "kernel"), "aicf.kernels"),
    "ExecutionPolicy": "aicf.policies.execution_policy",
    "KernelPolicy": "aicf.policies.kernel_policy",
    "Policy": "aicf.policies.policy",
    "PrecisionPolicy": "aicf.policies.precision_policy",
    **dict.fromkeys(
        ("Executable", "GraphExec", "Profiler", "Stream", "devices", "init", "shutdown"), "aicf.runtime"
    ),
    **dict.fromkeys(
        ("TrainStep", "load_step", "losses", "optimizers", "schedules", "train_step"), "aicf.training"
    ),
    "tune": "aicf.tuning.tune",
}
"""Where each lazy name lives."""

_MODULES = (
    "backends",
    "bisection",
    "calibration",
    "certificates",
    "dialects",
    "engines",
    "frontends",
    "inference",
    "kernels",
    "llm",
    "passes",
    "policies",
    "runtime",
    "semantics",
    "testing",
    "tools",
    "training",
    "tuning",
)
"""Packages that are imported when they are first named, as in `aicf.training.initial_weights`."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"aicf.{name}")
    if name == "pytorch":
        return _pytorch()
    if name not in _HOMES:
        raise AttributeError(f"module 'aicf' has no attribute '{name}'")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def _pytorch() -> object:
    """The package, which imports PyTorch. Raises BackendUnavailable if that is not there."""
    try:
        return import_module("aicf.pytorch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from aicf.support.extras import install

        raise BackendUnavailable(
            f"aicf.pytorch needs PyTorch, which is missing: {install('torch')}"
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES, "pytorch"})
