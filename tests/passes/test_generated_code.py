"""Generated programs compute what the bodies of their instructions mean, for `cpu` and for `cuda`, without a device.

The random graphs and training steps of the prefix tests are held to that as well; here are programs in which numbers
are shared by tensors of several shapes, small networks in training, every op in every element type, and tests of the
oracle.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, ModuleOp
from xdsl.ir.affine import AffineExpr, AffineMap

from aicf.dialects.emit_access_ops import IndexOp
from aicf.dialects.emit_kernels import KernelOp, ReduceOp
from aicf.dialects.emit_scalar_ops import SCALAR_OPS
from aicf.dialects.emit_updates import is_update
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context, parse_module
from aicf.passes.emit.lower_to_emit import LowerToEmitPass
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from tests.gpu.random_ops import RANDOM_OPS
from tests.support.generated_code import check_codes
from tests.support.meta_programs import regression_batch, regression_program, regression_start
from tests.support.random_graphs import random_program
from tests.support.random_steps import numbers
from tests.support.scalar_meanings import WITH_MEANING
from tests.support.training_graphs import Program, attention, encoder, mlp

TARGETS = ("cpu:x86-64-v3", "cuda:sm_90a")
SEEDS = 40


def lowered(module: ModuleOp, target: str) -> ModuleOp:
    """The module with instructions and their generated programs, not scheduled yet."""
    context = make_context()
    for step in AicfTrainingPass(target).passes():
        step.apply(context, module)
        if isinstance(step, LowerToEmitPass):
            break
    return module


def regression() -> Program:
    random = np.random.default_rng(3)
    return regression_program().module(), {**regression_start(random), **regression_batch(random)}


def dropped() -> Program:
    """Two dropouts whose offsets follow from one step, and their gradients, which draw the same numbers again."""
    graph, random = Graph("dropped"), np.random.default_rng(4)
    shapes = {"x": (8, 6), "y": (8, 4), "w": (6, 6), "v": (4, 6)}
    x, y = (graph.input(name, shapes[name]) for name in "xy")
    w, v = (graph.param(name, shapes[name]) for name in "wv")
    seed, step = (graph.meta(name, (), "i64") for name in ("seed", "step"))
    hidden = graph.dropout(graph.relu(graph.linear(x, w)), seed, step * 24, 0.25)
    loss = graph.mse_loss(graph.dropout(graph.linear(hidden, v), seed, step * 24 + 12, 0.5), y)
    graph.output(loss, "loss")
    now = graph.step_inc(step)
    rate = graph.learning_rate(now, "cosine", 0.1, 3, 40)
    for param in (w, v):
        graph.update(param, graph.sgd(param, graph.gradient(loss, param), rate, now)[0])
    graph.update(step, now)
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return graph.module(), {**feeds, "seed": np.array(7), "step": np.array(2)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_shared_numbers(first: int, target: str) -> None:
    for seed in range(first, first + 20):
        dtype = "f64" if seed % 5 == 0 else "f32"
        program = random_program(seed, float_type=dtype, steps=8, taken=numbers.STEPS)
        assert check_codes(lowered(program.module, target), program.inputs, f"seed {seed}")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "make",
    [
        mlp,
        regression,
        dropped,
        attention,
        pytest.param(lambda: encoder(layers=1, dropout=0.1), id="encoder"),
    ],
)
def test_training_steps(make: Callable[[], Program], target: str) -> None:
    module, feeds = make()
    assert check_codes(lowered(module, target), feeds) > 4


def test_what_a_group_computes_twice_has_code_once() -> None:
    """The gradient of a loss computes the softmax again, from a cast of its own; in one group with the loss both are
    the same."""
    graph = Graph("twice")
    x, labels = graph.input("x", (64, 40001), "bf16"), graph.input("labels", (64,), "i64")
    loss = graph.cross_entropy(graph.cast(x, "f32"), labels)
    graph.output(loss, "loss")
    graph.output(graph.gradient(loss, x), "dx")
    module = lowered(graph.module(), "cuda:sm_90a")
    feeds = {
        "x": np.random.default_rng(0).standard_normal((64, 40001)).astype(ml_dtypes.bfloat16),
        "labels": np.arange(64) * 600,
    }
    check_codes(module, feeds)
    (code,) = (
        op
        for op in module.walk()
        if isinstance(op, KernelOp) and any(isinstance(each, math.ExpOp) for each in op.walk())
    )
    reduced = [op.combine.data for op in code.walk() if isinstance(op, ReduceOp)]
    assert reduced == ["max", "sum", "sum"]
    assert sum(isinstance(op, math.ExpOp) for op in code.walk()) == 1


@pytest.mark.parametrize("family", sorted({ops.family for ops in RANDOM_OPS.values()}))
def test_every_op_in_every_type(family: str) -> None:
    """One draw of those that run on a device."""
    for ops in RANDOM_OPS.values():
        if ops.family == family and ops.number == 0:
            program = ops.program()
            check_codes(lowered(program.module, "cuda:sm_90a"), program.arrays, ops.name)


SHARED = """
func.func @shared(
    %g : tensor<6xf32> {logical.name = "g", logical.role = "input"},
    %p : tensor<6xf32> {logical.name = "p", logical.role = "param"},
    %q : tensor<6xf32> {logical.name = "q", logical.role = "param"},
    %r : tensor<4xf32> {logical.name = "r", logical.role = "param"},
    %step : tensor<i64> {logical.name = "step", logical.role = "meta"})
    -> (tensor<6xf32> {logical.updates = "p"}, tensor<6xf32> {logical.updates = "q"},
        tensor<4xf32> {logical.updates = "r"}, tensor<i64> {logical.updates = "step"}) {
  %now = logical.step_inc %step : tensor<i64>
  %down = logical.sub %p, %g : tensor<6xf32>
  %up = logical.max %q, %g : tensor<6xf32>
  %other = logical.neg %r : tensor<4xf32>
  func.return %down, %up, %other, %now : tensor<6xf32>, tensor<6xf32>, tensor<4xf32>, tensor<i64>
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_parts_of_two_programs_read_one_tensor(target: str) -> None:
    """Each has an operand of its own, counted as those of its program."""
    random = np.random.default_rng(6)
    sizes = {"g": 6, "p": 6, "q": 6, "r": 4}
    feeds = {name: random.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
    feeds["step"] = np.array(3)
    module = lowered(parse_module(SHARED, "shared"), target)
    updates = [op for op in module.walk() if isinstance(op, KernelOp) and is_update(op)]
    assert [len(code.parallel_sizes) for code in updates] == [3]
    assert check_codes(module, feeds)


def test_every_scalar_op_has_a_meaning() -> None:
    assert SCALAR_OPS == WITH_MEANING


PLACED = """
func.func @placed(
    %a : tensor<4x6xf32> {logical.name = "a", logical.role = "input"})
    -> (tensor<4x6xf32> {logical.name = "p"}, tensor<4xf32> {logical.name = "q"}) {
  %c = logical.iota {axis = 1} : tensor<4x6xf32>
  %p = logical.sub %a, %c : tensor<4x6xf32>
  %q = logical.reduce_sum %p {axes = [1]} : tensor<4x6xf32> -> tensor<4xf32>
  func.return %p, %q : tensor<4x6xf32>, tensor<4xf32>
}
"""


def _swap_operands(module: ModuleOp) -> None:
    op = next(op for op in module.walk() if isinstance(op, arith.SubfOp))
    op.operands = [op.rhs, op.lhs]


def _other_dim(module: ModuleOp) -> None:
    op = next(op for op in module.walk() if isinstance(op, IndexOp))
    op.properties["dim"] = IndexOp(0).dim


def _other_combination(module: ModuleOp) -> None:
    op = next(op for op in module.walk() if isinstance(op, ReduceOp))
    op.properties["combine"] = ReduceOp("max", op.value).combine


def _one_element(module: ModuleOp) -> None:
    op = next(op for op in module.walk() if isinstance(op, KernelOp))
    rank = len(op.parallel_sizes) + len(op.reduce_sizes)
    origin = AffineMap(rank, 0, tuple(AffineExpr.constant(0) for _ in op.out_maps[0].results))
    op.properties["outs"] = ArrayAttr([AffineMapAttr(origin), *op.outs.data[1:]])


@pytest.mark.parametrize("change", [_swap_operands, _other_dim, _other_combination, _one_element])
def test_a_wrong_program_is_told(change: Callable[[ModuleOp], None]) -> None:
    module = lowered(parse_module(PLACED, "placed"), TARGETS[0])
    feeds = {"a": np.random.default_rng(5).standard_normal((4, 6))}
    assert check_codes(module, feeds)
    change(module)
    with pytest.raises(AssertionError):
        check_codes(module, feeds)
