"""Emit IR from Python: buffers and their maps, instructions and their defaults, what varies in a kernel."""

from __future__ import annotations

import pytest
from xdsl.builder import Builder
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, TensorType, f32, f64, i64
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.emit import (
    BufferType,
    EdgeAttr,
    KernelOp,
    LayoutAttr,
    ProgramOp,
    ResolvedOp,
    SlotOp,
    ViewOp,
    emit_resolved,
    root_buffer,
)
from aicf.dialects.kinds import KINDS, SCHEMAS, pack, schema_of, schemas_of, unpack
from aicf.frontends.text import parse_module

# Buffers


def test_equal_maps_are_equal_types() -> None:
    assert BufferType([1, 64], f32, "arena", [7, 1]) == BufferType([1, 64], f32, "arena")
    assert BufferType([1, 64], f32, "arena", [7, 1]).is_contiguous
    assert BufferType([4, 1, 3], f32, "arena", [9, 8, 1]) == BufferType([4, 1, 3], f32, "arena", [9, 5, 1])
    assert BufferType([0, 3], f32, "arena", [7, 1]) == BufferType([0, 3], f32, "arena")
    assert BufferType([4, 3], f32, "arena", [1, 4]) != BufferType([4, 3], f32, "arena")


@pytest.mark.parametrize(
    "shape,strides,reach,span",
    [
        ((), (), (0, 1), 4),
        ((8,), (1,), (0, 8), 32),
        ((8,), (-1,), (-7, 1), 32),
        ((4, 3), (-3, 1), (-9, 3), 48),
        ((4, 3), (0, 2), (0, 5), 20),
        ((4, 0), (9, 9), (0, 0), 0),
        ((2, 2), (-10, 3), (-10, 4), 56),
    ],
)
def test_reach_covers_both_directions(
    shape: tuple[int, ...], strides: tuple[int, ...], reach: tuple[int, int], span: int
) -> None:
    type_ = BufferType(shape, f32, "arena", strides)
    assert type_.reach == reach
    assert type_.span_bytes == span


def test_a_layout_gives_the_physical_size() -> None:
    layout = LayoutAttr("packed", {"bytes": IntegerAttr(4096, i64)})
    assert BufferType([3, 5], f32, "const", layout=layout).span_bytes == 4096


@pytest.mark.parametrize("element", [TensorType(f32, [2]), IntegerAttr(1, i64)])
def test_elements_are_element_types(element: object) -> None:
    with pytest.raises(VerifyException, match="element type"):
        BufferType([4], element, "arena")  # pyright: ignore[reportArgumentType]


def test_views_that_see_each_other_have_no_root() -> None:
    type_ = BufferType([4], f32, "arena")
    view = ViewOp(SlotOp(type_).buffer, 0, type_)
    assert isinstance(root_buffer(view.buffer), SlotOp)
    view.operands[0] = view.buffer
    assert root_buffer(view.buffer) is None


# Schemas


def test_every_schema_belongs_to_a_kind() -> None:
    assert {schema for kind in KINDS for schema in schemas_of(kind)} == SCHEMAS.keys()


def test_the_newest_schema_of_a_kind_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in (10, 2):
        monkeypatch.setitem(SCHEMAS, f"gemm.v{version}", ())
    assert schemas_of("gemm") == ("gemm.v1", "gemm.v2", "gemm.v10")
    assert schema_of("gemm") == "gemm.v10"
    assert schema_of("gemm_epilogue") == "gemm_epilogue.v1"
    assert schema_of("relu") == ""


# Instructions

GEMM = {"transpose_a": BoolAttr.from_bool(False), "transpose_b": BoolAttr.from_bool(True)}


def _program() -> tuple[ProgramOp, Builder, SSAValue]:
    program = ProgramOp("p")
    builder = Builder(InsertPoint.at_end(program.body.block))
    return program, builder, builder.insert(SlotOp(BufferType([8], f32, "arena"))).buffer


def _emit(kind: str, **fields: object) -> ResolvedOp:
    program, builder, buffer = _program()
    op = emit_resolved(builder, kind=kind, name="a", inputs=[buffer], outputs=[buffer], **fields)  # pyright: ignore
    assert program.instructions == (op,)
    return op


def test_one_call_is_one_instruction_with_its_defaults() -> None:
    op = _emit("relu")
    assert op.kind_id.value.data == 1
    assert [source.data for source in op.src] == ["a"]
    assert (op.schema.data, op.blob.data) == ("", "0x")
    assert op.body is None and op.code is None


def test_attrs_are_packed_by_the_schema_of_the_kind() -> None:
    op = _emit("gemm", attrs=GEMM)
    assert (op.schema.data, op.blob.data) == ("gemm.v1", "0x0001")


def test_a_blob_alone_is_unpacked() -> None:
    assert dict(_emit("gemm", attr_blob=b"\x00\x01").attrs.data) == GEMM
    assert dict(_emit("gemm", attr_schema="gemm.v1", attr_blob=b"\x00\x01").attrs.data) == GEMM


def test_a_schema_may_be_its_version() -> None:
    assert _emit("relu", attr_schema=0).schema.data == ""
    assert _emit("gemm", attr_schema=1, attrs=GEMM).schema.data == "gemm.v1"


def test_code_body_and_edges_are_kept() -> None:
    op = _emit("relu", body="a.body", code="a.code", after=[EdgeAttr("b")])
    assert op.body is not None and op.body.root_reference.data == "a.body"
    assert op.code is not None and op.code.root_reference.data == "a.code"
    assert [edge.source.data for edge in op.after] == ["b"]
    assert op.stream is None


@pytest.mark.parametrize(
    "kind,fields,error,message",
    [
        ("rule", {}, VerifyException, "unknown kind 'rule'"),
        ("relu", {"kind_id": 2}, VerifyException, "kind 'relu' has id 1, not 2"),
        ("gemm", {}, ValueError, "schema 'gemm.v1' needs attribute transpose_a, transpose_b"),
        ("gemm", {"attr_schema": 0}, VerifyException, 'kind \'gemm\' has schema "gemm.v1", not ""'),
        ("gemm", {"attr_schema": 7}, ValueError, "unknown attribute schema 'gemm.v7'"),
        ("gemm", {"attr_blob": b"\x00"}, ValueError, "blob has 1 bytes, schema 'gemm.v1' packs 2"),
        (
            "gemm",
            {"attr_blob": b"\x01\x01", "attrs": GEMM},
            VerifyException,
            "blob 0x0101 is not attrs packed",
        ),
        ("relu", {"stream": -1}, VerifyException, "stream is not negative"),
        ("relu", {"src": []}, VerifyException, "names no source op"),
    ],
)
def test_a_wrong_instruction_is_refused(
    kind: str, fields: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _emit(kind, **fields)


@pytest.mark.parametrize("epsilon", [1e-5, float("inf"), float("nan"), -0.0])
def test_attributes_survive_packing(epsilon: float) -> None:
    attrs = {"axis": IntegerAttr(1, i64), "epsilon": FloatAttr(epsilon, f64)}
    packed = pack("layernorm_fwd.v1", attrs)
    assert pack("layernorm_fwd.v1", unpack("layernorm_fwd.v1", packed)) == packed
    assert _emit("layernorm_fwd", attrs=attrs).blob_bytes == packed


# Kernels

SOFTMAX = """
emit.kernel @k parallel [5] reduce [7] ins [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>]
    outs [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>] {
^bb0(%x : f32, %b : f32):
  %m, %e, %n = emit.phase -> f32, f32, f32 {
    %a = emit.reduce "max" %x : f32
    %c = math.exp %x : f32
    %d = arith.negf %b : f32
    emit.yield %a, %c, %d : f32, f32, f32
  }
  %k = emit.phase -> f32 {
    %a = arith.mulf %e, %m : f32
    emit.yield %a : f32
  }
  %p = emit.phase -> f32 {
    %a = arith.addf %m, %n : f32
    emit.yield %a : f32
  }
  emit.phase {
    emit.store %k, 0 : f32
    emit.yield
  }
  emit.phase {
    emit.store %p, 1 : f32
    emit.yield
  }
}
"""


def _kernel() -> KernelOp:
    kernel = parse_module(SOFTMAX).body.block.first_op
    assert isinstance(kernel, KernelOp)
    kernel.detach()
    return kernel


def test_what_varies_over_the_reduce_space() -> None:
    kernel = _kernel()
    x, b = kernel.body.block.args
    first, second, third, *_ = kernel.phases
    assert [kernel.varies(value) for value in (x, b)] == [True, False]
    assert [kernel.varies(value) for value in first.results] == [False, True, False]
    assert [kernel.varies(value) for value in (*second.results, *third.results)] == [True, False]


def test_phases_that_sweep() -> None:
    """Reducing, keeping a value and storing an output with reduce dims need every reduce point."""
    kernel = _kernel()
    assert [kernel.sweeps_reduce_space(phase) for phase in kernel.phases] == [True, True, False, True, False]
