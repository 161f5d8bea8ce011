"""Emit programs written by hand, with open instructions: passes complete them, and they compute what NumPy says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from xdsl.builder import Builder, InsertPoint
from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    f32,
    f64,
    i64,
)
from xdsl.ir import Attribute, SSAValue

import aicf
from aicf.dialects.emit import BindOp, BufferType, EdgeAttr, ProgramOp, SlotOp, ViewOp, emit_resolved
from aicf.dialects.emit_types import KernelAttr
from aicf.dialects.logical import DispatchOp
from aicf.frontends.text import make_context, parse_module
from aicf.passes.pipelines.text import parse_pipeline
from aicf.universe import AICF_UNIVERSE

TARGETS = ("cpu", "reference")
NO_LIBRARY = {"forbid": ["cpu.gemm_blas"]}


class Hand:
    """A program under construction, as a user writes it with `emit_resolved`."""

    def __init__(self, phase: str = "bufferized", name: str = "hand"):
        self.program = ProgramOp(name, phase)
        self.builder = Builder(InsertPoint.at_end(self.program.body.block))

    def bind(self, role: str, name: str, *shape: int, updated: bool = False) -> SSAValue:
        type_ = BufferType(shape, f32, "bound")
        bind = BindOp(role, name, type_, binding="direct", updated=updated)
        return self.builder.insert(bind).buffer

    def slot(self, *shape: int) -> SSAValue:
        return self.builder.insert(SlotOp(BufferType(shape, f32, "arena"))).buffer

    def view(self, source: SSAValue, shape: tuple[int, ...], strides: tuple[int, ...]) -> SSAValue:
        assert isinstance(source.type, BufferType)
        type_ = BufferType(shape, f32, source.type.space.data, strides)
        return self.builder.insert(ViewOp(source, 0, type_)).buffer

    def add(self, kind: str, name: str, inputs: list[SSAValue], output: SSAValue, **attrs: Attribute) -> None:
        emit_resolved(self.builder, kind=kind, name=name, inputs=inputs, outputs=[output], attrs=attrs)

    def module(self) -> ModuleOp:
        return ModuleOp([self.program])


def integer(value: int) -> Attribute:
    return IntegerAttr(value, i64)


def flags(**values: bool) -> dict[str, Attribute]:
    return {name: BoolAttr.from_bool(value) for name, value in values.items()}


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def head() -> ModuleOp:
    """probs = softmax(layer_norm(x w^T + b)), sums = the rows of the product."""
    hand = Hand(name="head")
    x = hand.bind("input", "x", 8, 16)
    w, b = hand.bind("param", "w", 24, 16), hand.bind("param", "b", 24)
    scale, shift = hand.bind("param", "scale", 24), hand.bind("param", "shift", 24)
    probs, sums = hand.bind("output", "probs", 8, 24), hand.bind("output", "sums", 8)
    h, n = hand.slot(8, 24), hand.slot(8, 24)
    epilogue = flags(transpose_a=False, transpose_b=True, bias=True, residual=False)
    hand.add("gemm_epilogue", "fc", [x, w, b], h, **epilogue, activation=StringAttr("none"))
    hand.add("layernorm_fwd", "norm", [h, scale, shift], n, axis=integer(1), epsilon=FloatAttr(1e-5, f64))
    hand.add("softmax", "probs", [n], probs, axis=integer(1))
    rows = {"first_axis": integer(1), "axis_count": integer(1), **flags(keepdims=False)}
    hand.add("reduce_sum", "sums", [h], sums, **rows)
    return hand.module()


def head_in_numpy(x: np.ndarray, weights: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    x, w = x.astype(np.float64), {name: value.astype(np.float64) for name, value in weights.items()}
    h = x @ w["w"].T + w["b"]
    centered = h - h.mean(1, keepdims=True)
    n = centered / np.sqrt((centered**2).mean(1, keepdims=True) + 1e-5) * w["scale"] + w["shift"]
    e = np.exp(n - n.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True), h.sum(1)


def head_weights(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "w": normal(rng, 24, 16),
        "b": normal(rng, 24),
        "scale": normal(rng, 24),
        "shift": normal(rng, 24),
    }


@pytest.mark.parametrize("target", TARGETS)
def test_an_open_program_compiles_and_computes(target: str):
    rng = np.random.default_rng(1)
    weights, x = head_weights(rng), normal(rng, 8, 16)
    exe = aicf.compile(head(), weights, target)
    for got, expected in zip(exe(x), head_in_numpy(x, weights), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)
    assert "the kind table's body of softmax" in str(exe.explain("probs"))


def test_a_final_program_is_what_the_same_passes_give_again():
    """The output of the passes on a hand-written program is a final program like any other."""
    rng = np.random.default_rng(2)
    weights, x = head_weights(rng), normal(rng, 8, 16)
    first = aicf.compile(head(), weights, "cpu")
    again = aicf.compile(first.ir("emit"), weights)
    assert again.ir("emit") == first.ir("emit")
    for one, other in zip(first(x), again(x), strict=True):
        assert np.array_equal(one, other)


PIPELINE = (
    'set-target{target="cpu:x86-64-v2"},verify-emit,select-kernels,generate-kernels,verify-emit,schedule,verify-order,'
    "decide-inplace,plan-memory,plan-capture,verify-emit,verify-order,verify-capture-safe"
)


def test_every_pass_leaves_a_program_that_prints_and_parses():
    module, context = head(), make_context()
    for step in parse_pipeline(PIPELINE, AICF_UNIVERSE.all_passes):
        step.apply(context, module)
        module.verify()
        text = str(module)
        assert str(parse_module(text, context=context)) == text


@pytest.mark.parametrize("target", TARGETS)
def test_a_parameter_is_updated_in_place_by_hand(target: str):
    hand = Hand()
    gradient = hand.bind("input", "g", 5, 7)
    w, rate = hand.bind("param", "w", 5, 7, updated=True), hand.bind("meta", "rate")
    hand.add("sgd_step", "step", [w, gradient, rate], w, learning_rate_operand=integer(2))
    rng = np.random.default_rng(3)
    start, g = normal(rng, 5, 7), normal(rng, 5, 7)
    exe = aicf.compile(hand.module(), {"w": start, "rate": np.float32(0.5)}, target)
    exe(g)
    exe(g)
    np.testing.assert_allclose(exe.state()["w"], start - 2 * (np.float32(0.5) * g), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_what_reads_a_parameter_stays_on_its_side_of_the_update(target: str):
    """Of more than a core's cache and breadth first, so that `cpu` takes another order."""
    size = (512, 256)
    hand = Hand()
    x, u, v = (hand.bind("input", name, *size) for name in "xuv")
    w = hand.bind("param", "w", *size, updated=True)
    before, left, right, after = (hand.bind("output", name, *size) for name in ("o", "p", "q", "r"))
    kept = [hand.slot(*size) for _ in range(3)]
    for source, slot, name in zip((u, w, v), kept, ("left", "old", "right"), strict=True):
        hand.add("relu", name, [source], slot)
    hand.add("relu", "show_old", [kept[1]], before)
    hand.add("copy", "update", [x], w)
    hand.add("relu", "show_left", [kept[0]], left)
    hand.add("relu", "show_right", [kept[2]], right)
    hand.add("relu", "new", [w], after)
    rng = np.random.default_rng(11)
    start, *inputs = (normal(rng, *size) for _ in range(4))
    exe = aicf.compile(hand.module(), {"w": start}, target)
    assert ("order of reuse" in str(exe.ir("emit"))) == (target == "cpu")
    for old in (start, inputs[0]):
        for got, read in zip(exe(*inputs), (old, *inputs[1:], inputs[0]), strict=True):
            np.testing.assert_array_equal(got, np.maximum(read, 0))


@pytest.mark.parametrize("target", TARGETS)
def test_a_view_of_a_weight_is_read_where_it_lies(target: str):
    """Only a whole parameter is packed; a strided view of one goes to a kernel as it is."""
    hand = Hand()
    x, w = hand.bind("input", "x", 6, 9), hand.bind("param", "w", 4, 9)
    y = hand.bind("output", "y", 6, 4)
    hand.add(
        "gemm", "fc", [x, hand.view(w, (9, 4), (1, 9))], y, **flags(transpose_a=False, transpose_b=False)
    )
    rng = np.random.default_rng(4)
    x_value, w_value = normal(rng, 6, 9), normal(rng, 4, 9)
    exe = aicf.compile(hand.module(), {"w": w_value}, target)
    np.testing.assert_allclose(exe(x_value), x_value @ w_value.T, rtol=1e-5, atol=1e-5)
    assert exe.plan.prepare is None


def test_a_product_of_two_inputs_gets_its_workspace():
    hand = Hand()
    a, b = hand.bind("input", "a", 70, 90), hand.bind("input", "b", 130, 90)
    y = hand.bind("output", "y", 70, 130)
    hand.add("gemm", "product", [a, b], y, **flags(transpose_a=False, transpose_b=True))
    rng = np.random.default_rng(5)
    values = normal(rng, 70, 90), normal(rng, 130, 90)
    exe = aicf.compile(hand.module(), target="cpu", policy=NO_LIBRARY)
    np.testing.assert_allclose(exe(*values), values[0] @ values[1].T, rtol=1e-4, atol=1e-4)
    assert exe.plan.programs[0].launches[0].ws


def test_two_programs_share_a_packed_weight():
    programs: list[ProgramOp] = []
    for rows in (1, 6):
        hand = Hand(name=f"fc@N={rows}")
        x, w = hand.bind("input", "x", rows, 9), hand.bind("param", "w", 4, 9)
        y = hand.bind("output", "y", rows, 4)
        hand.add("gemm", "fc", [x, w], y, **flags(transpose_a=False, transpose_b=True))
        programs.append(hand.program)
    table = DispatchOp("fc", ["N"], [((1,), "fc@N=1"), ((6,), "fc@N=6")])
    rng = np.random.default_rng(6)
    w_value = normal(rng, 4, 9)
    exe = aicf.compile(ModuleOp([table, *programs]), {"w": w_value}, "cpu")
    assert exe.plan.prepare is not None and len(exe.plan.prepare.graph.nodes) == 1
    for rows in (1, 6):
        x_value = normal(rng, rows, 9)
        np.testing.assert_allclose(exe(x_value), x_value @ w_value.T, rtol=1e-5, atol=1e-5)


def test_a_planned_program_gets_its_workspace_after_what_it_holds():
    """A program whose memory is planned by hand keeps its offsets."""
    exe = aicf.compile(_two_products(), target="cpu", policy=NO_LIBRARY)
    rng = np.random.default_rng(7)
    a, b = normal(rng, 70, 90), normal(rng, 90, 90)
    np.testing.assert_allclose(exe(a, b), a @ b.T @ b.T, rtol=1e-3, atol=1e-2)
    one, two = exe.plan.programs[0].launches
    assert one.outs[0].offset == 0 and one.ws[0].offset >= 70 * 90 * 4 and two.ws[0].offset > one.ws[0].offset


def _two_products() -> ModuleOp:
    hand = Hand("planned")
    a, b = hand.bind("input", "a", 70, 90), hand.bind("input", "b", 90, 90)
    y, h = hand.bind("output", "y", 70, 90), hand.slot(70, 90)
    for name, source, target in (("one", a, h), ("two", h, y)):
        hand.add("gemm", name, [source, b], target, **flags(transpose_a=False, transpose_b=True))
    _plan_by_hand(hand.program)
    return hand.module()


def _plan_by_hand(program: ProgramOp) -> None:
    (slot,) = program.slots
    size = 70 * 90 * 4
    for key, value in (("offset", 0), ("size", size), ("align", 64)):
        slot.properties[key] = IntegerAttr(value, i64)
    program.properties["arena_bytes"] = IntegerAttr(size, i64)
    one, two = program.instructions
    for op in (one, two):
        op.properties["stream"] = IntegerAttr(0, i64)
    two.properties["after"] = ArrayAttr([EdgeAttr("one")])


# What cannot be completed


GROUPS = """func.func @f(%x : tensor<4x64xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<64x32xf32> {logical.name = "w", logical.role = "input"}) -> (tensor<4x32xf32> {logical.name = "y"}) {
  %g = emit.group "mine" from ["p", "r"] ins(%a = %x : tensor<4x64xf32>, %b = %w : tensor<64x32xf32>)
      -> (tensor<4x32xf32>) {
    %p = logical.matmul %a, %b : (tensor<4x64xf32>, tensor<64x32xf32>) -> tensor<4x32xf32>
    %r = logical.relu %p : tensor<4x32xf32>
    emit.yield %r : tensor<4x32xf32>
  }
  %s = logical.abs %g : tensor<4x32xf32>
  %y = logical.sqrt %s : tensor<4x32xf32>
  func.return %y : tensor<4x32xf32>
}
"""


def test_a_group_formed_by_hand_stays_and_the_rest_is_fused():
    """Alone, the passes would take all four ops as one."""
    rng = np.random.default_rng(4)
    x, w = normal(rng, 4, 64), normal(rng, 64, 32)
    exe = aicf.compile(GROUPS, target="cpu:x86-64-v3")
    assert [row.name for row in exe.explain().programs[0].rows] == ["mine", "s"]
    wanted = np.sqrt(np.maximum(x.astype(np.float64) @ w, 0))
    np.testing.assert_allclose(exe.run({"x": x, "w": w})["y"], wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(aicf.PolicyError, match="dims: a program with groups is lowered, its sizes are fixed"):
        aicf.compile(GROUPS, dims="N=1")


def test_a_kind_that_says_nothing_needs_a_body():
    hand = Hand()
    x, y = hand.bind("input", "x", 4), hand.bind("output", "y", 4)
    hand.add("generated", "secret", [x], y)
    with pytest.raises(
        aicf.InvalidIR, match=r"instruction 'secret' has no body: kind 'generated' does not say"
    ):
        aicf.compile(hand.module(), target="cpu")


def test_an_overlap_that_no_kernel_permits_is_refused():
    hand = Hand()
    x, y = hand.bind("input", "x", 4, 4), hand.bind("output", "y", 4, 4)
    hand.add("copy", "first", [x], y)
    hand.add("softmax", "columns", [hand.view(y, (4, 4), (1, 4))], y, axis=integer(1))
    with pytest.raises(aicf.AicfError, match="overlap|overwrite"):
        aicf.compile(hand.module(), target="cpu")


def test_a_pinned_kernel_that_cannot_run_an_instruction():
    with pytest.raises(aicf.PolicyError, match="kernels.probs: 'cpu.copy' cannot run it"):
        aicf.compile(head(), target="cpu", policy={"kernels": {"probs": "cpu.copy"}})


def test_a_kernel_of_another_backend_is_refused():
    hand = Hand()
    x, y = hand.bind("input", "x", 4), hand.bind("output", "y", 4)
    hand.add("relu", "act", [x], y)
    record = {"version": IntegerAttr(1, i64), "determinism": StringAttr("bitwise")}
    hand.program.instructions[0].properties["kernel"] = KernelAttr("reference.body", record)
    with pytest.raises(aicf.InvalidIR, match="backend cpu has no kernel 'reference.body'; it has cpu.gemm"):
        aicf.compile(hand.module(), target="cpu")


def test_a_target_is_named_once():
    with pytest.raises(aicf.PolicyError, match="the emit program names no target"):
        aicf.compile(head())


ALIGN = 256


def aligned_sum(elements: int) -> ModuleOp:
    """y = relu(x) + relu(x), one operand and the result of the sum aligned."""
    hand = Hand(name="sums")
    x, y = hand.bind("input", "x", elements), hand.bind("output", "y", elements)
    a = hand.slot(elements)
    hand.add("relu", "half", [x], a)
    align = ArrayAttr([ArrayAttr([integer(operand), integer(ALIGN)]) for operand in (0, 2)])
    emit_resolved(
        hand.builder, kind="add", name="sum", inputs=[x, a], outputs=[y], constraints={"align": align}
    )
    return hand.module()


@pytest.mark.parametrize("target", TARGETS)
def test_callers_memory_is_aligned_as_an_instruction_wants(target: str, tmp_path: Path):
    """Calls copy what is not aligned so, bindings refuse it; the constraint is in the artifact's program."""
    elements = 8192
    exe = aicf.compile(aligned_sum(elements), None, target)
    block = np.random.default_rng(9).standard_normal(elements + 2 * ALIGN).astype(np.float32)
    start = -block.ctypes.data % ALIGN // 4
    aligned, shifted = block[start : start + elements], block[start + 4 : start + 4 + elements]
    for x in (aligned, shifted):
        np.testing.assert_allclose(exe(x), x.astype(np.float64) + np.maximum(x, 0), rtol=1e-6)
    exe.bind(x=aligned).replay()
    with pytest.raises(aicf.InputMismatch, match="the program wants a multiple of 256 bytes"):
        exe.bind(x=shifted)
    exe.save(tmp_path / "sums.aicf")
    kept = aicf.load(tmp_path / "sums.aicf", native="rebuild")
    with pytest.raises(aicf.InputMismatch, match="the program wants a multiple of 256 bytes"):
        kept.bind(x=shifted)
    assert "align = [[0 : i64, 256 : i64], [2 : i64, 256 : i64]]" in kept.ir("emit")
