"""Hand-written final emit programs, and executables of them on the reference backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from aicf.backends.reference.backend import ReferenceBackend
from aicf.frontends.text import parse_module
from aicf.runtime import Executable, ModulePlan
from aicf.runtime.plan_from_ir import code_units, read_module, target_of
from aicf.support.dataclass_json import from_json_value

TARGET = '#emit.target<"reference", "typed", {threads = 1 : i64}>'
KERNEL = 'kernel("reference.body", {version = 1 : i64, determinism = "bitwise"})'

ADD_RELU = f"""
builtin.module attributes {{aicf.target = {TARGET}}} {{
  emit.body @sum.body {{
  ^bb0(%a: tensor<4x6xf32>, %b: tensor<4x6xf32>):
    %r = logical.add %a, %b : tensor<4x6xf32>
    emit.yield %r : tensor<4x6xf32>
  }}
  emit.body @act.body {{
  ^bb0(%a: tensor<4x6xf32>):
    %r = logical.relu %a : tensor<4x6xf32>
    emit.yield %r : tensor<4x6xf32>
  }}
  emit.body @twice.body {{
  ^bb0(%a: tensor<4x6xf32>):
    %r = logical.add %a, %a : tensor<4x6xf32>
    emit.yield %r : tensor<4x6xf32>
  }}
  emit.program @add_relu attributes {{phase = "final", arena_bytes = 128 : i64}} {{
    %x = emit.bind input "x" binding(direct) : !emit.buffer<4x6xf32, bound>
    %b = emit.bind param "b" binding(direct) : !emit.buffer<6xf32, bound>
    %y = emit.bind output "y" binding(direct) : !emit.buffer<4x6xf32, bound>
    %z = emit.bind output "z" binding(direct) : !emit.buffer<4x6xf32, bound>
    %h = emit.slot offset(0) size(96) align(64) : !emit.buffer<4x6xf32, arena>
    %rows = emit.view %b offset(0) : !emit.buffer<6xf32, bound> to !emit.buffer<4x6xf32, bound, strides [0, 1]>
    emit.resolved "add" id(0) name("sum") src(["sum"])
      ins(%x, %rows : !emit.buffer<4x6xf32, bound>, !emit.buffer<4x6xf32, bound, strides [0, 1]>)
      outs(%h : !emit.buffer<4x6xf32, arena>)
      body(@sum.body) {KERNEL} stream(0) after([])
    emit.resolved "relu" id(1) name("act") src(["act", "relu"])
      ins(%h : !emit.buffer<4x6xf32, arena>) outs(%y : !emit.buffer<4x6xf32, bound>)
      body(@act.body) {KERNEL} stream(0) after(["sum" full])
    emit.resolved "add" id(0) name("twice") src(["twice"])
      ins(%h : !emit.buffer<4x6xf32, arena>) outs(%z : !emit.buffer<4x6xf32, bound>)
      body(@twice.body) {KERNEL} stream(1) after(["sum" full])
  }}
}}
"""
"""y = relu(x + b), z = 2 (x + b); the last two instructions are unordered."""


def add_relu(x: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What `ADD_RELU` computes, in f32 like the program."""
    return np.maximum(x + b, 0), (x + b) + (x + b)


COUNTER = f"""
builtin.module attributes {{aicf.target = {TARGET}}} {{
  emit.body @step.body {{
  ^bb0(%a: tensor<3xf32>, %b: tensor<3xf32>):
    %r = logical.add %a, %b : tensor<3xf32>
    emit.yield %r : tensor<3xf32>
  }}
  emit.program @count attributes {{phase = "final", arena_bytes = 0 : i64}} {{
    %x = emit.bind input "x" binding(direct) : !emit.buffer<3xf32, bound>
    %w = emit.bind param "w" updated : !emit.buffer<3xf32, bound>
    emit.resolved "add" id(0) name("step") src(["step"])
      ins(%w, %x : !emit.buffer<3xf32, bound>, !emit.buffer<3xf32, bound>) outs(%w : !emit.buffer<3xf32, bound>)
      body(@step.body) {KERNEL} stream(0) after([])
  }}
}}
"""
"""w += x in place; no output."""


def _scale_program(rows: int) -> str:
    tensor, bound = f"tensor<{rows}x2xf32>", f"!emit.buffer<{rows}x2xf32, bound>"
    return f"""
  emit.body @"scale{rows}.body" {{
  ^bb0(%a: {tensor}, %b: {tensor}, %c: {tensor}):
    %p = logical.mul %a, %b : {tensor}
    %r = logical.add %p, %c : {tensor}
    emit.yield %r : {tensor}
  }}
  emit.program @"scale@N={rows}" attributes {{phase = "final", arena_bytes = 0 : i64}} {{
    %x = emit.bind input "x" binding(direct) : {bound}
    %m = emit.bind input "m" binding(direct) : {bound}
    %one = emit.bind const "one" value(dense<[[1.0, 2.0]]>) : !emit.buffer<1x2xf32, const>
    %half = emit.bind derived "w.half" : !emit.buffer<2xf32, const, layout #emit.layout<"padded", {{bytes = 64 : i64}}>>
    %y = emit.bind output "y" binding(direct) : {bound}
    %ones = emit.view %one offset(0) : !emit.buffer<1x2xf32, const> to !emit.buffer<{rows}x2xf32, const, strides [0, 1]>
    emit.resolved "generated" id(24) name("scale{rows}") src(["scale"])
      ins(%x, %m, %ones : {bound}, {bound}, !emit.buffer<{rows}x2xf32, const, strides [0, 1]>) outs(%y : {bound})
      body(@"scale{rows}.body") {KERNEL} stream(0) after([])
    emit.resolved "generated" id(24) name("shift{rows}") src(["shift"])
      ins(%y, %half : {bound}, !emit.buffer<2xf32, const, layout #emit.layout<"padded", {{bytes = 64 : i64}}>>)
      outs(%y : {bound})
      body(@"shift{rows}.body") {KERNEL} stream(0) after(["scale{rows}" full])
  }}
  emit.body @"shift{rows}.body" {{
  ^bb0(%a: {tensor}, %b: tensor<2xf32>):
    %w = logical.broadcast %b {{dimensions = [1]}} : tensor<2xf32> -> {tensor}
    %r = logical.add %a, %w : {tensor}
    emit.yield %r : {tensor}
  }}"""


BUCKETS = f"""
builtin.module attributes {{aicf.target = {TARGET}}} {{
  logical.dispatch @scale dims ["N"] [[1] = @"scale@N=1", [5] = @"scale@N=5"]
  emit.body @half.body {{
  ^bb0(%a: tensor<2xf32>):
    %c = logical.constant dense<0.5> : tensor<2xf32>
    %r = logical.mul %a, %c : tensor<2xf32>
    emit.yield %r : tensor<2xf32>
  }}
  emit.program @prepare attributes {{phase = "final", arena_bytes = 0 : i64}} {{
    %w = emit.bind param "w" : !emit.buffer<2xf32, bound>
    %half = emit.bind derived "w.half" : !emit.buffer<2xf32, const, layout #emit.layout<"padded", {{bytes = 64 : i64}}>>
    emit.resolved "pack" id(26) name("w.half") src(["w"])
      ins(%w : !emit.buffer<2xf32, bound>)
      outs(%half : !emit.buffer<2xf32, const, layout #emit.layout<"padded", {{bytes = 64 : i64}}>>)
      body(@half.body) {KERNEL} stream(0) after([])
  }}
{_scale_program(1)}
{_scale_program(5)}
}}
"""
"""y = x * m + [1, 2] + w / 2 for N = 1 and N = 5; w / 2 is prepared."""


def scale(x: np.ndarray, m: np.ndarray, w: np.ndarray) -> np.ndarray:
    """What `BUCKETS` computes, in f32 like the program."""
    return x * m + np.array([1, 2], np.float32) + w * np.float32(0.5)


def module_of(text: str) -> ModuleOp:
    """The verified module."""
    return parse_module(text, "test.mlir")


def executable(text: str, weights: Mapping[str, np.ndarray], **options: Any) -> Executable:
    """The program on the reference backend."""
    module = module_of(text)
    native = ReferenceBackend().build(module, code_units(module), target_of(module))
    return Executable(read_module(module), native, weights, **options)


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal f32 numbers."""
    return rng.standard_normal(shape).astype(np.float32)


def read_plan(value: object) -> ModulePlan:
    """A plan that `to_json_value` stored. Raises ArtifactError if it is not one, or contradicts itself."""
    plan = from_json_value(ModulePlan, value, "plan")
    plan.check()
    return plan
