"""The NumPy meaning of logical ops against ONNX Runtime's, op by op: a definition nobody else shares is a bug."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from xdsl.ir import Block, Operation, SSAValue

from aicf.dialects import logical
from aicf.dialects.types import tensor
from aicf.semantics import evaluate

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.peers

Array = np.ndarray[Any, Any]
Build = Callable[..., Operation]
RNG = np.random.default_rng(7)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape, np.float32)


def positive(*shape: int) -> Array:
    return np.abs(normal(*shape)) + np.float32(0.1)


def integers(*shape: int) -> Array:
    return RNG.integers(-50, 50, shape, np.int64)


X, Y, P, M, N = normal(3, 4, 5), normal(3, 4, 5), positive(3, 4, 5), integers(3, 7), integers(3, 7)
CONDITION, OTHER_CONDITION = X > Y, X > 0
HALVES = (integers(4, 9) / 2).astype(np.float32)
WITH_NAN = np.where(CONDITION, X, np.float32(np.nan))
BOUNDS = (np.array(-0.5, np.float32), np.array(0.75, np.float32))

BYTES = RNG.integers(0, 256, 8).astype(np.uint8)

PLANES = normal(2, 3, 8, 9)
INDICES = RNG.integers(-4, 4, (3, 4))
ROWS = RNG.permuted(np.tile(np.arange(-2, 2), (3, 1)), axis=1)
"""ONNX leaves open which of two updates stays: none meet."""
REDUCTIONS = {"set": "none", "add": "add", "max": "max", "min": "min", "mul": "mul"}

# Name, ONNX op, its attributes, inputs that are constants of the model, our op, operands.
Case = tuple[str, str, dict[str, Any], Sequence[Array], Build, Sequence[Array]]


def same(name: str, build: Build, *operands: Array, onnx_name: str | None = None) -> Case:
    return name, onnx_name or name, {}, (), build, operands


CASES: list[Case] = [
    same("Add", logical.AddOp, X, Y),
    same("Sub", logical.SubOp, X, Y),
    same("Mul", logical.MulOp, X, Y),
    same("Div", logical.DivOp, X, P),
    same("Max", logical.MaxOp, X, Y),
    same("Min", logical.MinOp, X, Y),
    same("Add integers", logical.AddOp, M, N, onnx_name="Add"),
    same("Mul integers", logical.MulOp, M, N, onnx_name="Mul"),
    same("Div integers", logical.DivOp, M, np.where(N == 0, 3, N), onnx_name="Div"),
    same("Neg", logical.NegOp, X),
    same("Abs", logical.AbsOp, X),
    same("Abs integers", logical.AbsOp, M, onnx_name="Abs"),
    same("Sign", logical.SignOp, X),
    same("Sign integers", logical.SignOp, M, onnx_name="Sign"),
    same("Reciprocal", logical.ReciprocalOp, P),
    same("Pow", logical.PowOp, P, Y),
    same("Mod", logical.ModOp, M, np.where(N == 0, 3, N)),
    same("BitwiseAnd", logical.AndOp, M, N),
    same("BitwiseOr", logical.OrOp, M, N),
    same("BitwiseXor", logical.XorOp, M, N),
    same("BitwiseNot", logical.NotOp, M),
    (
        "BitShift left",
        "BitShift",
        {"direction": "LEFT"},
        (),
        logical.ShiftLeftOp,
        (BYTES, np.arange(8, dtype=np.uint8)),
    ),
    (
        "BitShift right",
        "BitShift",
        {"direction": "RIGHT"},
        (),
        logical.ShiftRightOp,
        (BYTES, np.arange(8, dtype=np.uint8)),
    ),
    same("And", logical.AndOp, CONDITION, OTHER_CONDITION),
    same("Or", logical.OrOp, CONDITION, OTHER_CONDITION),
    same("Xor", logical.XorOp, CONDITION, OTHER_CONDITION),
    same("Not", logical.NotOp, CONDITION),
    same("IsNaN", logical.IsNanOp, WITH_NAN),
    same("Floor", logical.FloorOp, HALVES),
    same("Ceil", logical.CeilOp, HALVES),
    same("Round", logical.RoundOp, HALVES),
    same("Sin", logical.SinOp, X),
    same("Cos", logical.CosOp, X),
    same("Tan", logical.TanOp, X),
    same("Asin", logical.AsinOp, np.tanh(X)),
    same("Acos", logical.AcosOp, np.tanh(X)),
    same("Atan", logical.AtanOp, X),
    same("Sinh", logical.SinhOp, X),
    same("Cosh", logical.CoshOp, X),
    same("Asinh", logical.AsinhOp, X),
    same("Acosh", logical.AcoshOp, P + 1),
    same("Atanh", logical.AtanhOp, np.tanh(X)),
    ("Clip", "Clip", {}, BOUNDS, lambda x: logical.ClampOp(x, -0.5, 0.75), (X,)),
    ("LeakyRelu", "LeakyRelu", {"alpha": 0.1}, (), lambda x: logical.LeakyReluOp(x, 0.1), (X,)),
    ("Elu", "Elu", {"alpha": 0.5}, (), lambda x: logical.EluOp(x, 0.5), (X,)),
    same("Softplus", logical.SoftplusOp, X * 9),
    (
        "HardSigmoid",
        "HardSigmoid",
        {"alpha": 0.2, "beta": 0.4},
        (),
        lambda x: logical.HardSigmoidOp(x, 0.2, 0.4),
        (X * 3,),
    ),
    same("HardSwish", logical.HardSwishOp, X * 3),
    same("Exp", logical.ExpOp, X),
    same("Log", logical.LogOp, P),
    same("Sqrt", logical.SqrtOp, P),
    same("Tanh", logical.TanhOp, X),
    same("Erf", logical.ErfOp, X),
    same("Relu", logical.ReluOp, X),
    same("Sigmoid", logical.SigmoidOp, X),
    ("Gelu", "Gelu", {}, (), logical.GeluOp, (X,)),
    ("Gelu tanh", "Gelu", {"approximate": "tanh"}, (), lambda x: logical.GeluOp(x, "tanh"), (X,)),
    same("Equal", lambda a, b: logical.CompareOp("eq", a, b), M, N),
    same("Less", lambda a, b: logical.CompareOp("lt", a, b), X, Y),
    same("GreaterOrEqual", lambda a, b: logical.CompareOp("ge", a, b), X, Y),
    same("Where", logical.SelectOp, CONDITION, X, Y),
    ("Cast", "Cast", {"to": onnx.TensorProto.INT64}, (), lambda x: logical.CastOp(x, "i64"), (X * 10,)),
    ("MatMul", "MatMul", {}, (), logical.MatmulOp, (normal(2, 3, 4), normal(2, 4, 5))),
    ("MatMul shared", "MatMul", {}, (), logical.MatmulOp, (normal(2, 3, 4), normal(4, 5))),
    ("Gemm", "Gemm", {"transB": 1}, (), logical.LinearOp, (normal(3, 4), normal(5, 4), normal(5))),
    (
        "ReduceSum",
        "ReduceSum",
        {"keepdims": 0},
        (np.array([1]),),
        lambda x: logical.ReduceSumOp(x, [1]),
        (X,),
    ),
    (
        "ReduceMean",
        "ReduceMean",
        {"keepdims": 1},
        (np.array([0, 2]),),
        lambda x: logical.ReduceMeanOp(x, [0, 2], keepdims=True),
        (X,),
    ),
    (
        "ReduceMax",
        "ReduceMax",
        {"keepdims": 0},
        (np.array([2]),),
        lambda x: logical.ReduceMaxOp(x, [2]),
        (X,),
    ),
    *(
        (
            name,
            name,
            {"keepdims": 1},
            (np.array([0, 2]),),
            lambda x, op=op: op(x, [0, 2], keepdims=True),
            (P,),
        )
        for name, op in (
            ("ReduceMin", logical.ReduceMinOp),
            ("ReduceProd", logical.ReduceProdOp),
            ("ReduceL2", logical.ReduceL2Op),
            ("ReduceLogSumExp", logical.ReduceLogSumExpOp),
        )
    ),
    *(
        (
            f"CumSum exclusive={exclusive} reverse={reverse}",
            "CumSum",
            {"exclusive": exclusive, "reverse": reverse},
            (np.array(1),),
            lambda x, e=exclusive, r=reverse: logical.CumsumOp(x, 1, exclusive=bool(e), reverse=bool(r)),
            (X,),
        )
        for exclusive in (0, 1)
        for reverse in (0, 1)
    ),
    ("ArgMax", "ArgMax", {"axis": 1, "keepdims": 0}, (), lambda x: logical.ArgmaxOp(x, 1), (np.round(X),)),
    (
        "ArgMin",
        "ArgMin",
        {"axis": 2, "keepdims": 1},
        (),
        lambda x: logical.ArgminOp(x, 2, keepdims=True),
        (np.round(X),),
    ),
    ("LogSoftmax", "LogSoftmax", {"axis": 1}, (), lambda x: logical.LogSoftmaxOp(x, 1), (X,)),
    (
        "BatchNormalization",
        "BatchNormalization",
        {"epsilon": 1e-3},
        (),
        lambda *values: logical.BatchNormOp(*values, epsilon=1e-3),
        (X, normal(4), normal(4), normal(4), positive(4)),
    ),
    (
        "InstanceNormalization",
        "InstanceNormalization",
        {"epsilon": 1e-3},
        (),
        lambda *values: logical.GroupNormOp(*values, groups=4, epsilon=1e-3),
        (X, normal(4), normal(4)),
    ),
    *(
        (
            f"{op} {name}",
            op,
            {"kernel_shape": [3, 2], "strides": strides, "pads": [*low, *high], "ceil_mode": int(ceil_mode)},
            (),
            lambda x, make=make, strides=strides, border=(low, high), ceil_mode=ceil_mode: make(
                x, [3, 2], strides, None, *border, ceil_mode=ceil_mode
            ),
            (PLANES,),
        )
        for op, make in (
            ("MaxPool", logical.MaxPoolOp),
            ("AveragePool", logical.AvgPoolOp),
            ("LpPool", lambda x, *windows, ceil_mode: logical.LpPoolOp(x, 2, *windows, ceil_mode=ceil_mode)),
        )
        for name, strides, low, high, ceil_mode in (
            ("plain", [1, 1], [0, 0], [0, 0], False),
            ("padded", [2, 1], [1, 0], [1, 1], False),
            ("rounded up", [3, 3], [0, 0], [1, 0], True),
        )
        if op != "LpPool" or not ceil_mode
    ),
    (
        "AveragePool counting padding",
        "AveragePool",
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
        (),
        lambda x: logical.AvgPoolOp(x, [3, 3], None, None, [1, 1], [1, 1], count_include_pad=True),
        (PLANES,),
    ),
    ("Softmax", "Softmax", {"axis": 1}, (), lambda x: logical.SoftmaxOp(x, 1), (X,)),
    (
        "LayerNormalization",
        "LayerNormalization",
        {"axis": 1, "epsilon": 1e-3},
        (),
        lambda x, scale, bias: logical.LayerNormOp(x, scale, bias, 1, 1e-3),
        (X, normal(4, 5), normal(4, 5)),
    ),
    ("Reshape", "Reshape", {}, (np.array([6, 10]),), lambda x: logical.ReshapeOp(x, [6, 10]), (X,)),
    ("Transpose", "Transpose", {"perm": [2, 0, 1]}, (), lambda x: logical.TransposeOp(x, [2, 0, 1]), (X,)),
    (
        "Expand",
        "Expand",
        {},
        (np.array([3, 6]),),
        lambda x: logical.BroadcastOp(x, [1], [3, 6]),
        (normal(6),),
    ),
    (
        "Slice",
        "Slice",
        {},
        (np.array([1, 0]), np.array([3, 7]), np.array([0, 1]), np.array([1, 3])),
        lambda x: logical.SliceOp(x, [1, 0], [2, 3], [1, 3]),
        (M,),
    ),
    ("Concat", "Concat", {"axis": 1}, (), lambda a, b: logical.ConcatOp([a, b], 1), (M, N)),
    ("Tile", "Tile", {}, (np.array([2, 3]),), lambda x: logical.TileOp(x, [2, 3]), (M,)),
    ("Gather", "Gather", {"axis": 1}, (), lambda x, i: logical.GatherOp(x, i, 1), (X, INDICES[:, :2])),
    (
        "GatherElements",
        "GatherElements",
        {"axis": 1},
        (),
        lambda x, i: logical.GatherElementsOp(x, i, 1),
        (normal(3, 4), INDICES),
    ),
    *(
        (
            f"ScatterElements {mode}",
            "ScatterElements",
            {"axis": 1, "reduction": reduction},
            (),
            lambda x, i, u, mode=mode: logical.ScatterElementsOp(x, i, u, 1, mode),
            (normal(3, 4), ROWS if mode == "set" else INDICES, normal(3, 4)),
        )
        for mode, reduction in REDUCTIONS.items()
    ),
    *(
        (
            f"ScatterND {mode}",
            "ScatterND",
            {"reduction": reduction},
            (),
            lambda x, i, u, mode=mode: logical.ScatterNdOp(x, i, u, mode),
            (normal(4, 5), np.array([[0, 2], [3, -1], [2, 2]]), normal(3)),
        )
        for mode, reduction in REDUCTIONS.items()
    ),
]

ELEMENTS = {"float32": "f32", "int64": "i64", "uint8": "u8", "bool": "i1"}


def run_onnx(
    kind: str, attributes: dict[str, Any], constants: Sequence[Array], operands: Sequence[Array]
) -> Array:
    names = [f"x{index}" for index in range(len(operands))]
    fixed = [onnx.numpy_helper.from_array(value, f"c{index}") for index, value in enumerate(constants)]
    node = onnx.helper.make_node(kind, [*names, *(value.name for value in fixed)], ["y"], **attributes)
    inputs = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in zip(names, operands, strict=True)
    ]
    output = onnx.helper.make_empty_tensor_value_info("y")
    graph = onnx.helper.make_graph([node], "case", inputs, [output], fixed)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(
        onnx.shape_inference.infer_shapes(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(["y"], dict(zip(names, operands, strict=True)))[0]


def run_ours(build: Build, operands: Sequence[Array]) -> Array:
    block = Block(arg_types=[tensor(array.shape, ELEMENTS[array.dtype.name]) for array in operands])
    values: Sequence[SSAValue] = block.args
    op = build(*values)
    block.add_op(op)
    (result,) = evaluate(op, operands, "typed")
    return result


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_same_answer(case: Case):
    _, kind, attributes, constants, build, operands = case
    theirs = run_onnx(kind, attributes, constants, operands)
    ours = run_ours(build, operands)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    if ours.dtype.kind == "f":
        # Their approximations of erf and exp are within a few units of the last place of f32.
        np.testing.assert_allclose(ours, theirs, rtol=4e-6, atol=4e-6)
    else:
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("largest", [True, False])
def test_topk_has_the_same_indices(largest: bool) -> None:
    """Also of equal elements: the lower place first."""
    x = (integers(6, 20) // 10).astype(np.float32)
    node = onnx.helper.make_node("TopK", ["x", "k"], ["v", "y"], axis=1, largest=int(largest), sorted=1)
    fixed = onnx.numpy_helper.from_array(np.array([7]), "k")
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in ("v", "y")]
    graph = onnx.helper.make_graph([node], "topk", [given], outputs, [fixed])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    model = onnx.shape_inference.infer_shapes(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = run_ours(lambda value: logical.TopkIndicesOp(value, 1, 7, smallest=not largest), (x,))
    np.testing.assert_array_equal(ours, session.run(["y"], {"x": x})[0])


@pytest.mark.parametrize("array", [X, integers(3, 4, 5), CONDITION])
def test_pad(array: Array) -> None:
    """Theirs takes amounts and value as inputs, the amounts before all dimensions first."""
    low, high, value = (1, 0, 2), (0, 3, 1), array[1, 2, 3]
    theirs = run_onnx("Pad", {}, (np.array([*low, *high]), np.array(value)), (array,))
    ours = run_ours(lambda x, v: logical.PadOp(x, v, low, high), (array, np.array(value)))
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_one_hot(axis: int) -> None:
    """Theirs takes the depth and both values as inputs; indices from the end, and out of range."""
    indices, off, on = np.array([[0, 4, -1], [-5, 5, -6]]), np.float32(-0.5), np.float32(2.5)
    theirs = run_onnx("OneHot", {"axis": axis}, (np.array(5), np.array([off, on])), (indices,))
    ours = run_ours(
        lambda i, a, b: logical.OneHotOp(i, a, b, axis, 5), (indices, np.array(on), np.array(off))
    )
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
