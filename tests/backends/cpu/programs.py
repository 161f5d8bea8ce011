"""Compiles logical programs for the CPU backend through the whole pipeline, for tests."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.parser import Parser

from aicf.backends.cpu.backend import CpuBackend
from aicf.backends.cpu.runtime.blas import LIBRARY
from aicf.backends.native import NativeCode
from aicf.dialects.emit import ProgramOp
from aicf.dialects.emit_types import TargetAttr
from aicf.passes.pipelines.text import parse_pipeline
from aicf.runtime.executable import Executable
from aicf.runtime.plan_from_ir import code_units, read_module
from aicf.universe import AICF_UNIVERSE

Array = NDArray[Any]


def lower(
    text: str,
    level: str,
    *,
    threads: int = 1,
    policy: dict[str, Any] | None = None,
    library: str | None = None,
) -> ModuleOp:
    """The final emit module of a logical program."""
    context = Context()
    for name, factory in AICF_UNIVERSE.all_dialects.items():
        context.register_dialect(name, factory)
    for name, factory in _xdsl_dialects().items():
        context.register_dialect(name, factory)
    module = Parser(context, text).parse_module()
    facts: dict[str, Any] = {"threads": IntegerAttr(threads, i64)}
    if library is not None:
        facts["libraries"] = DictionaryAttr({LIBRARY: StringAttr(library)})
    module.attributes["aicf.target"] = TargetAttr("cpu", level, facts)
    if policy is not None:
        from aicf.passes.logical.apply_policy import ApplyPolicyPass

        ApplyPolicyPass(json.dumps(policy)).apply(context, module)
    for pass_ in parse_pipeline("aicf-inference", AICF_UNIVERSE.all_passes):
        pass_.apply(context, module)
    return module


def _xdsl_dialects() -> dict[str, Any]:
    from xdsl.dialects import arith, builtin, func, math

    dialects = (builtin.Builtin, func.Func, arith.Arith, math.Math)
    return {dialect.name: (lambda dialect=dialect: dialect) for dialect in dialects}


def build(module: ModuleOp) -> NativeCode:
    """Native code of a final module."""
    target = module.attributes["aicf.target"]
    assert isinstance(target, TargetAttr)
    return CpuBackend().build(module, code_units(module), target)


def compile_program(text: str, level: str, weights: dict[str, Array], **options: Any) -> Executable:
    """A logical program, ready to call."""
    module = lower(text, level, **options)
    return Executable(read_module(module), build(module), weights)


def kernels_of(module: ModuleOp) -> list[str]:
    """Kernel ids of all instructions."""
    programs = [op for op in module.body.block.ops if isinstance(op, ProgramOp)]
    return [
        instruction.kernel.kernel.data
        for program in programs
        for instruction in program.instructions
        if instruction.kernel is not None
    ]


def tensor(shape: tuple[int, ...], dtype: str) -> str:
    """Type text."""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{dtype}>"


def argument(name: str, shape: tuple[int, ...], dtype: str = "f32", role: str = "input") -> str:
    """Argument text."""
    return f'%{name} : {tensor(shape, dtype)} {{logical.name = "{name}", logical.role = "{role}"}}'


def function(arguments: list[str], result: tuple[tuple[int, ...], str], body: str) -> str:
    """A program that returns %r."""
    type_ = tensor(*result)
    return f"""func.func @f({", ".join(arguments)}) -> ({type_} {{logical.name = "r"}}) {{
      {body}
      func.return %r : {type_}
    }}"""


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    """Random data."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def mlp(rows: int, approximate: str, width: int = 40, inner: int = 96) -> str:
    """Two linear layers with a GELU between, a residual and a softmax."""
    hidden, outer = tensor((rows, inner), "f32"), tensor((rows, width), "f32")
    return function(
        [
            argument("x", (rows, width)),
            argument("w1", (inner, width), role="param"),
            argument("b1", (inner,), role="param"),
            argument("w2", (width, inner), role="param"),
        ],
        ((rows, width), "f32"),
        f"""%h = logical.linear %x, %w1, %b1 : ({outer}, tensor<{inner}x{width}xf32>, tensor<{inner}xf32>) -> {hidden}
        %g = logical.gelu %h {{approximate = "{approximate}"}} : {hidden}
        %o = logical.linear %g, %w2 : ({hidden}, tensor<{width}x{inner}xf32>) -> {outer}
        %s = logical.add %o, %x : {outer}
        %r = logical.softmax %s {{axis = 1}} : {outer}""",
    )
