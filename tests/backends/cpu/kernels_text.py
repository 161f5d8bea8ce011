"""Generated kernels as text, for tests: parsed like any program."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.math import Math
from xdsl.parser import Parser

from aicf.dialects.emit import Emit
from aicf.dialects.emit_kernels import KernelOp


def parse_kernel(text: str) -> KernelOp:
    """The `emit.kernel` in `text`."""
    context = Context()
    for dialect in (Builtin, Arith, Math, Emit):
        context.load_dialect(dialect)
    op = Parser(context, text).parse_op()
    assert isinstance(op, KernelOp)
    op.verify()
    return op


def pointwise(
    parallel: str, ins: str, types: str, body: str, outs: str = "", result: str = "f32"
) -> KernelOp:
    """A one-phase kernel over `parallel`; `body` computes %r from the operands named in `types`."""
    rank = len(parallel.split(","))
    dims = ", ".join(f"d{i}" for i in range(rank))
    identity = f"affine_map<({dims}) -> ({dims})>"
    maps = ", ".join(identity if not m else f"affine_map<({dims}) -> ({m})>" for m in ins.split(";"))
    out = identity if not outs else f"affine_map<({dims}) -> ({outs})>"
    return parse_kernel(
        f"""emit.kernel @k parallel [{parallel}] reduce [] ins [{maps}] outs [{out}] {{
        ^bb0({types}):
          emit.phase {{ {body} emit.store %r, 0 : {result} emit.yield }}
        }}"""
    )


def softmax(rows: int, columns: int, dtype: str = "f32", *, first: bool = False) -> KernelOp:
    """Softmax over the last dim of [rows, columns], or over the first of [columns, rows]."""
    index = "(d0, d1) -> (d1, d0)" if first else "(d0, d1) -> (d0, d1)"
    return parse_kernel(
        f"""emit.kernel @k parallel [{rows}] reduce [{columns}]
            ins [affine_map<{index}>] outs [affine_map<{index}>] {{
        ^bb0(%x : {dtype}):
          %m = emit.phase -> {dtype} {{ %0 = emit.reduce "max" %x : {dtype} emit.yield %0 : {dtype} }}
          %s, %k = emit.phase -> {dtype}, {dtype} {{
            %a = arith.subf %x, %m : {dtype}
            %b = math.exp %a : {dtype}
            %c = emit.reduce "sum" %b : {dtype}
            emit.yield %c, %b : {dtype}, {dtype} }}
          emit.phase {{ %d = arith.divf %k, %s : {dtype} emit.store %d, 0 : {dtype} emit.yield }}
        }}"""
    )


def layer_norm(rows: int, columns: int) -> KernelOp:
    """Normalisation of the last dim of [rows, columns] with scale and bias [columns]."""
    return parse_kernel(
        f"""emit.kernel @k parallel [{rows}] reduce [{columns}]
            ins [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d1)>]
            outs [affine_map<(d0, d1) -> (d0, d1)>] {{
        ^bb0(%x : f32, %scale : f32, %bias : f32):
          %sum = emit.phase -> f32 {{ %0 = emit.reduce "sum" %x : f32 emit.yield %0 : f32 }}
          %mean, %squares = emit.phase -> f32, f32 {{
            %n = arith.constant {float(columns)} : f32
            %mu = arith.divf %sum, %n : f32
            %c = arith.subf %x, %mu : f32
            %q = arith.mulf %c, %c : f32
            %r = emit.reduce "sum" %q : f32
            emit.yield %mu, %r : f32, f32 }}
          emit.phase {{
            %n = arith.constant {float(columns)} : f32
            %e = arith.constant 1.0e-5 : f32
            %v = arith.divf %squares, %n : f32
            %w = arith.addf %v, %e : f32
            %i = math.rsqrt %w : f32
            %c = arith.subf %x, %mean : f32
            %y = arith.mulf %c, %i : f32
            %z = arith.mulf %y, %scale : f32
            %o = arith.addf %z, %bias : f32
            emit.store %o, 0 : f32
            emit.yield }}
        }}"""
    )


def reduction(
    parallel: str, reduce: str, ins: str, outs: str, how: str = "sum", dtype: str = "f32"
) -> KernelOp:
    """A plain reduction with the given index maps over d0, d1, ..."""
    count = sum(len(list(filter(None, sizes.split(",")))) for sizes in (parallel, reduce))
    dims = ", ".join(f"d{i}" for i in range(count))
    return parse_kernel(
        f"""emit.kernel @k parallel [{parallel}] reduce [{reduce}]
            ins [affine_map<({dims}) -> ({ins})>] outs [affine_map<({dims}) -> ({outs})>] {{
        ^bb0(%x : {dtype}):
          %s = emit.phase -> {dtype} {{ %0 = emit.reduce "{how}" %x : {dtype} emit.yield %0 : {dtype} }}
          emit.phase {{ emit.store %s, 0 : {dtype} emit.yield }}
        }}"""
    )


def counting(rows: int, columns: int, dtype: str = "i64") -> KernelOp:
    """Row sums of x[i, j] * (j + 1) [rows], and x[i, j] + 100 i + j [rows, columns], of integers."""
    return parse_kernel(
        f"""emit.kernel @k parallel [{rows}] reduce [{columns}]
            ins [affine_map<(d0, d1) -> (d0, d1)>]
            outs [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>] {{
        ^bb0(%x : {dtype}):
          %s = emit.phase -> {dtype} {{
            %j = emit.index 1 : {dtype}
            %one = arith.constant 1 : {dtype}
            %w = arith.addi %j, %one : {dtype}
            %p = arith.muli %x, %w : {dtype}
            %0 = emit.reduce "sum" %p : {dtype}
            emit.yield %0 : {dtype} }}
          emit.phase {{
            %i = emit.index 0 : {dtype}
            %j = emit.index 1 : {dtype}
            %hundred = arith.constant 100 : {dtype}
            %r = arith.muli %i, %hundred : {dtype}
            %a = arith.addi %r, %j : {dtype}
            %b = arith.addi %a, %x : {dtype}
            emit.store %s, 0 : {dtype}
            emit.store %b, 1 : {dtype}
            emit.yield }}
        }}"""
    )
