"""Logical ops as Python objects and as text: construction, round trips, constants and damaged programs."""

from __future__ import annotations

from io import StringIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.ir import Block
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from aicf.dialects import logical
from aicf.dialects.traits import (
    Expensive,
    MatrixKernels,
    PositionalOperands,
    PrimitiveReduction,
    RandomNumbers,
    Rearrangement,
    StridedOperands,
    StridedView,
    TrainingOnly,
    Unpacking,
)
from aicf.dialects.types import ELEMENTS, tensor, tensor_info
from aicf.errors import InvalidIR
from aicf.frontends.text import make_context, parse_module, verify_module
from aicf.passes.logical.lowerings import FORMULAS
from tests.support.op_coverage import OF_TRAINING, assert_holds_every_op
from tests.support.random_graphs import assert_same_results, random_program, run_program

CONTEXT = make_context()


@pytest.mark.parametrize("seed", range(40))
def test_round_trips(seed: int) -> None:
    program = random_program(1000 + seed)
    text = str(program.module)
    again = parse_module(text, context=CONTEXT)
    assert str(again) == text
    generic = StringIO()
    Printer(generic, print_generic_format=True).print_op(program.module)
    from_generic = parse_module(generic.getvalue(), context=CONTEXT)
    assert str(from_generic) == text
    expected = run_program(program.module, program.inputs)
    assert_same_results(expected, run_program(again, program.inputs))


@pytest.mark.new_op
def test_the_generator_covers_the_op_set() -> None:
    made = {type(op) for seed in range(300) for op in random_program(seed).module.walk()}
    assert_holds_every_op(made, "tests/support/random_steps/", besides=OF_TRAINING)


def test_the_generator_follows_from_its_seed() -> None:
    first, second = random_program(7), random_program(7)
    assert str(first.module) == str(second.module)
    assert all(np.array_equal(first.inputs[name], second.inputs[name]) for name in first.inputs)


@st.composite
def constants(draw: st.DrawFn):
    element = draw(st.sampled_from(ELEMENTS))
    shape = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
    count = int(np.prod(shape))
    raw = draw(st.binary(min_size=count * element.bytes, max_size=count * element.bytes))
    if element.kind == "bool":
        return element, (np.frombuffer(raw, np.uint8) % 2 == 0).reshape(shape)
    return element, np.frombuffer(raw, element.dtype).reshape(shape)


@settings(deadline=None)
@given(constants())
def test_constants_keep_every_bit(constant) -> None:
    element, array = constant
    op = logical.ConstantOp(array, tensor(array.shape, element))
    assert op.is_splat == (array.tobytes() == array.tobytes()[: array.itemsize] * array.size)
    module = parse_module(f"func.func @f() {{\n  %0 = {_text(op)}\n  func.return\n}}", context=CONTEXT)
    (again,) = (inner for inner in module.walk() if isinstance(inner, logical.ConstantOp))
    values = np.broadcast_to(again.array, array.shape)
    same = values.tobytes() == array.tobytes()
    # A NaN may lose its payload in print: any NaN is one.
    assert same or (
        element.is_float and np.array_equal(values.astype(float), array.astype(float), equal_nan=True)
    )
    assert _text(again) == _text(op)


def _text(op: logical.LogicalOp) -> str:
    return str(op).split(" = ", 1)[1]


def test_a_splat_costs_the_same_at_every_shape() -> None:
    op = logical.ConstantOp(0.5, tensor((1 << 20, 1 << 20), "f32"))
    assert len(op.value.data.data) == 4
    assert _text(op) == "logical.constant dense<5.000000e-01> : tensor<1048576x1048576xf32>"


def test_constructors_infer_and_refuse() -> None:
    a, b = Block(arg_types=[tensor((2, 3), "f32"), tensor((4, 3), "f32")]).args
    assert logical.MatmulOp(a, b, transpose_b=True).result.type == tensor((2, 4), "f32")
    assert logical.CompareOp("lt", a, a).result.type == tensor((2, 3), "i1")
    assert logical.ReduceSumOp(a, [0], keepdims=True).info.shape == (1, 3)
    with pytest.raises(VerifyException, match="contracted sizes differ"):
        logical.MatmulOp(a, b)
    with pytest.raises(VerifyException, match="operand types differ: 2x3xf32 and 4x3xf32"):
        logical.AddOp(a, b)
    with pytest.raises(VerifyException, match="element counts differ"):
        logical.ReshapeOp(a, (7,))
    with pytest.raises(VerifyException, match="at most 1024 stand in the IR"):
        logical.ConstantOp(np.arange(1025), tensor((1025,), "i64"))


def test_traits_say_what_kind_of_op_it_is() -> None:
    kinds = {
        logical.Elementwise: {"add", "exp", "gelu", "compare", "select", "cast"},
        logical.Contraction: {
            "matmul",
            "linear",
            "attention",
            "conv",
            "conv_transpose",
            "conv_weight_grad",
            "matmul_blocks",
            "rounded_matmul_blocks",
        },
        logical.Reduction: {
            *("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"),
            *("reduce_l2", "reduce_logsumexp", "reduce_any", "reduce_all", "argmax", "argmin"),
        },
        logical.ViewLike: {"reshape", "transpose", "broadcast", "slice", "window", "concat"},
        logical.Scan: {"cumsum"},
        logical.Composite: {op.name.removeprefix("logical.") for op in FORMULAS}
        - {"custom", "dequantize_blocks", "lstm", "matmul", "matmul_blocks", "pow", "rounded_matmul_blocks"},
        logical.Normalization: {
            *("softmax", "layer_norm", "log_softmax", "rms_norm", "batch_norm", "group_norm"),
        },
        logical.IndexedRead: {"pad", "gather", "gather_elements", "flip", "write_row"},
        Expensive: {
            *("exp", "log", "tanh", "erf", "sigmoid", "sqrt", "rsqrt", "div", "expm1", "log1p", "sin", "cos"),
            *(
                "atan",
                "pow",
                "philox_word",
                "pad",
                "gather",
                "gather_elements",
                "flip",
                "write_row",
                "custom",
            ),
        },
        MatrixKernels: {"matmul", "lstm"},
        StridedView: {"reshape", "transpose", "broadcast", "slice", "window"},
        Rearrangement: {"reshape", "transpose"},
        PrimitiveReduction: {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod"},
        RandomNumbers: {"philox", "philox_word"},
        Unpacking: {"dequantize_blocks", "matmul_blocks", "rounded_matmul_blocks"},
        TrainingOnly: {"gradient", "save", "sgd", "adam", "adamw"},
    }
    ops = {op.name.removeprefix("logical."): op for op in logical.Logical.operations}
    for trait, names in kinds.items():
        found = {name for name, op in ops.items() if op.get_traits_of_type(trait)}
        assert names <= found, trait
        if trait is not logical.Elementwise:
            assert names == found, trait


def test_an_op_with_a_kind_of_its_own_reads_operands_where_they_lie() -> None:
    ops = [op for op in logical.Logical.operations if issubclass(op, logical.LogicalOp)]
    own = {op for op in ops if op.kind_alone is not logical.LogicalOp.kind_alone}
    assert {logical.LstmOp, logical.ConcatOp, logical.AvgPoolOp} <= own
    assert all(op.has_trait(StridedOperands) for op in own)
    positional = {op for op in ops if op.has_trait(PositionalOperands)}
    assert {logical.MatmulOp, logical.ConvOp} == positional - own


VALID = str(random_program(3).module)


@settings(deadline=None, max_examples=150)
@given(
    st.integers(0, len(VALID)),
    st.integers(0, 12),
    st.text(alphabet=' %@#"[]{}<>(),.:=-x?0123456789aflogicNM', max_size=8),
)
def test_damaged_text_gives_one_kind_of_error(position: int, removed: int, inserted: str) -> None:
    damaged = VALID[:position] + inserted + VALID[position + removed :]
    try:
        module = parse_module(damaged, context=CONTEXT)
    except InvalidIR as error:
        assert "\n" not in str(error)
        return
    verify_module(module)
    for op in module.walk():
        for result in op.results:
            tensor_info(result.type)
