"""Logical programs through the whole pipeline for cuda, run on a simulated GPU and held to the semantics."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp

from aicf.backends.base import CodeUnit
from aicf.backends.cuda.compiler.build import emitter
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.target import arch_named
from aicf.dialects.emit import PREPARE
from aicf.dialects.types import ELEMENTS, ElementType, element_named
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context, parse_module
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.plan_from_ir import code_units, read_module
from tests.backends.cuda.integer_simulator import names
from tests.backends.cuda.simulator import Memory, run
from tests.support.elementwise_ops import assert_same, every_op, operands
from tests.support.random_graphs import RandomProgram, random_program, run_program

ARCH = arch_named("sm_90a")
GENERATED = "cuda.generated"
"""The kernel whose code the simulator runs with its own names; those of products come from another one."""
CONTRACTIONS = ("logical.matmul", "logical.linear", "logical.attention")


def compiled(module: ModuleOp, policy: str = "") -> tuple[CapturePlan, CodeUnit]:
    """The plan and the code unit of the module's one program beside `@prepare`, for cuda; `module` is final then."""
    AicfInferencePass("cuda:sm_90a", policy=policy, training=True).apply(make_context(), module)
    (plan,) = read_module(module).programs
    return plan, unit_of(module, plan)


def unit_of(module: ModuleOp, plan: CapturePlan) -> CodeUnit:
    """The code unit of one program of a final module."""
    (unit,) = (unit for unit in code_units(module) if unit.entry == plan.entry)
    return unit


def prepared(module: ModuleOp, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What `@prepare` of a final module makes of the parameters among `inputs`, by name; nothing if there is none."""
    plan = read_module(module).prepare
    return {} if plan is None else simulated(plan, unit_of(module, plan), inputs)


def simulated(plan: CapturePlan, unit: CodeUnit, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name, or what `@prepare` derives. `inputs` holds parameters and what was derived of them, too."""
    binds = plan.graph.binds
    written = "derived" if plan.name == PREPARE else "output"
    memory = Memory([max(16, plan.arena_bytes), *(bind.nbytes for bind in binds)])
    for base, bind in enumerate(binds, 1):
        if bind.value is not None:
            memory.fill(base, np.frombuffer(bytes.fromhex(bind.value), np.uint8))
        elif bind.role != written:
            memory.fill(base, inputs[bind.name])
    for launch in unit.launches:
        parts = emitter(launch.kernel)(launch)
        more = () if launch.kernel == GENERATED else (names,)
        run([part for part in parts if isinstance(part, KernelLaunch)], memory, *more)
    return {
        bind.name: memory.buffers[base].view(element_named(bind.dtype).dtype).reshape(bind.shape)
        for base, bind in enumerate(binds, 1)
        if bind.role == written
    }


def without_contractions(seed: int, float_type: str) -> RandomProgram:
    """The first random program from `seed` on that multiplies no matrices: those have kernels of their own."""
    while True:
        program = random_program(seed, float_type=float_type, steps=6)
        (function,) = (op for op in program.module.body.block.ops if isinstance(op, FuncOp))
        if not any(op.name in CONTRACTIONS for op in function.body.block.ops):
            return program
        seed += 100


@pytest.mark.parametrize("float_type", ["f32", "f16", "bf16", "f64"])
@pytest.mark.parametrize("seed", range(3))
def test_random_programs_keep_their_meaning(seed: int, float_type: str) -> None:
    """Every op of the logical dialect but products, fused as the passes like, on the buffers that the plan places."""
    program = without_contractions(seed, float_type)
    exact = run_program(program.module, program.inputs)
    typed = run_program(program.module, program.inputs, "typed")
    plan, unit = compiled(program.module)
    found = simulated(plan, unit, program.inputs | prepared(program.module, program.inputs))
    for name, wanted in exact.items():
        own = found[name].astype(np.float64)
        scale = max(1e-3, np.abs(wanted.astype(np.float64)).max())
        rounded = np.abs(typed[name].astype(np.float64) - wanted.astype(np.float64)).max()
        least = {"f32": 2e-6, "f16": 4e-3, "bf16": 3e-2, "f64": 1e-13}[float_type] * scale
        assert np.abs(own - wanted).max() <= max(3 * rounded, least), name


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64", "i16", "i8", "u8", "i1"])
def test_every_elementwise_op(dtype: str) -> None:
    """Random values and edges together, each op as it is written for a GPU."""
    module = every_op((5, 31), dtype)
    inputs = {f"x{number}": array for number, array in enumerate(operands(2, dtype, (5, 31), 3))}
    wanted = run_program(module, inputs)
    found = simulated(*compiled(module), inputs)
    for name, values in wanted.items():
        assert_same(name, found[name], values, dtype)


@pytest.mark.parametrize("source", ELEMENTS, ids=lambda e: e.name)
def test_casts_to_every_type(source: ElementType) -> None:
    """Random values and edges: what is out of range saturates from floats and wraps from integers."""
    g = Graph("casts")
    x = g.input("x0", (3, 32), source.name)
    for target in ELEMENTS:
        if target != source:
            g.output(g.cast(x, target.name), target.name)
    module = g.module()
    inputs = {"x0": operands(1, source.name, (3, 32), 5)[0]}
    wanted = run_program(module, inputs, "typed")
    found = simulated(*compiled(module), inputs)
    for name, values in wanted.items():
        exact = np.float64 if values.dtype.kind not in "iub" else values.dtype
        np.testing.assert_array_equal(found[name].astype(exact), values.astype(exact), err_msg=name)


PROGRAM = """
func.func @f(%x : tensor<6x40xf16> {logical.name = "x", logical.role = "input"},
             %s : tensor<40xf16> {logical.name = "s", logical.role = "param"},
             %b : tensor<40xf16> {logical.name = "b", logical.role = "param"})
    -> (tensor<6x40xf16> {logical.name = "y"}, tensor<40x6xf16> {logical.name = "t"},
        tensor<6x80xf16> {logical.name = "c"}) {
  %0 = logical.layer_norm %x, %s, %b {axis = 1, epsilon = 1.0e-5 : f64}
      : (tensor<6x40xf16>, tensor<40xf16>, tensor<40xf16>) -> tensor<6x40xf16>
  %1 = logical.softmax %0 {axis = 1} : tensor<6x40xf16>
  %2 = logical.gelu %1 {approximate = "none"} : tensor<6x40xf16>
  %3 = logical.transpose %2 {permutation = [1, 0]} : tensor<6x40xf16> -> tensor<40x6xf16>
  %4 = logical.concat %2, %x {axis = 1} : (tensor<6x40xf16>, tensor<6x40xf16>) -> tensor<6x80xf16>
  func.return %2, %3, %4 : tensor<6x40xf16>, tensor<40x6xf16>, tensor<6x80xf16>
}
"""


def test_rows_copies_and_concatenations_of_one_program() -> None:
    """Normalisations, a transposed copy and a concatenation; every record waits inside and lets successors start."""
    random = np.random.default_rng(3)
    shapes = {"x": (6, 40), "s": (40,), "b": (40,)}
    inputs = {name: random.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()}
    wanted = run_program(parse_module(PROGRAM), inputs)
    module = parse_module(PROGRAM)
    plan, unit = compiled(module)
    assert {launch.kernel for launch in unit.launches} == {"cuda.generated", "cuda.copy", "cuda.concat"}
    for launch in (launch for each in code_units(module) for launch in each.launches):
        assert launch.record["combination_order" if launch.kernel == "cuda.generated" else "parts"]
        assert isinstance(launch.record["rounding"], StringAttr)
    derived = prepared(module, inputs)
    assert {bind.name for bind in plan.graph.with_role("derived")} == set(derived)
    found = simulated(plan, unit, inputs | derived)
    for name, value in wanted.items():
        assert np.abs(found[name].astype(np.float64) - value).max() <= 4e-3 * np.abs(value).max()
