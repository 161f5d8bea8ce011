"""One-point programs that hold every scalar op, by element type: what tests compile, and what runs on a GPU."""

from __future__ import annotations

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import i1
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap

from aicf.backends.base import BufferRef
from aicf.backends.cuda.codegen.scalar import dtype_of, point_snippet, store_text
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.target import ELEMENT_BYTES
from aicf.dialects.emit_kernels import (
    BitcastOp,
    CastOp,
    DivIntOp,
    KernelOp,
    PhaseOp,
    ShiftLeftOp,
    ShiftRightOp,
    SigmoidOp,
    StoreOp,
    YieldOp,
)
from aicf.dialects.types import element_named

DTYPES = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "i1")
FLOATS = ("f64", "f32", "f16", "bf16")
UNARY_FLOAT = {
    "exp": math.ExpOp,
    "log": math.LogOp,
    "sqrt": math.SqrtOp,
    "rsqrt": math.RsqrtOp,
    "tanh": math.TanhOp,
    "erf": math.ErfOp,
    "sigmoid": SigmoidOp,
    "expm1": math.ExpM1Op,
    "log1p": math.Log1pOp,
    "sin": math.SinOp,
    "cos": math.CosOp,
    "atan": math.AtanOp,
    "abs": math.AbsFOp,
    "floor": math.FloorOp,
    "ceil": math.CeilOp,
    "round": math.RoundEvenOp,
    "neg": arith.NegfOp,
}
BINARY_FLOAT = {
    "add": arith.AddfOp,
    "sub": arith.SubfOp,
    "mul": arith.MulfOp,
    "div": arith.DivfOp,
    "max": arith.MaximumfOp,
    "min": arith.MinimumfOp,
    "pow": math.PowFOp,
}
BINARY_INT = {
    "add": arith.AddiOp,
    "sub": arith.SubiOp,
    "mul": arith.MuliOp,
    "and": arith.AndIOp,
    "or": arith.OrIOp,
    "xor": arith.XOrIOp,
    "max": arith.MaxSIOp,
    "min": arith.MinSIOp,
    "umax": arith.MaxUIOp,
    "umin": arith.MinUIOp,
    "div": DivIntOp,
}
SHIFTS = {"shift_left": ShiftLeftOp, "shift_right": ShiftRightOp}
SAME_SIZE = (("f64", "i64"), ("f32", "i32"), ("f16", "bf16", "i16"), ("i8", "u8", "i1"))
"""Types that have the same bits."""
FLOAT_PREDICATES = (
    "oeq",
    "ogt",
    "oge",
    "olt",
    "ole",
    "one",
    "ord",
    "ueq",
    "ugt",
    "uge",
    "ult",
    "ule",
    "une",
    "uno",
)
INT_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


def every_op(dtype: str, size: int) -> tuple[KernelOp, list[tuple[str, str]]]:
    """A kernel over `size` points of two operands of `dtype` with one output an op, and each output's (op, dtype)."""
    block = Block(arg_types=[element_named(dtype).type] * 2)
    a, b = block.args
    made: list[tuple[str, Operation]] = []
    if dtype in FLOATS:
        made += [(name, op(a)) for name, op in UNARY_FLOAT.items()]
        made += [(name, op(a, b)) for name, op in BINARY_FLOAT.items()]
        made += [(f"cmp {name}", arith.CmpfOp(a, b, name)) for name in FLOAT_PREDICATES]
    else:
        made += [
            (name, op(a, b)) for name, op in BINARY_INT.items() if dtype != "i1" or not name.startswith("u")
        ]
        made += [(f"cmp {name}", arith.CmpiOp(a, b, name)) for name in INT_PREDICATES]
        made += [(name, op(a, b)) for name, op in SHIFTS.items() if dtype != "i1"]
    others = next(types for types in SAME_SIZE if dtype in types)
    made += [(f"bits {other}", BitcastOp(a, element_named(other).type)) for other in others if other != dtype]
    made += [(f"cast {other}", CastOp(a, element_named(other).type)) for other in DTYPES if other != dtype]
    condition = CastOp(b, i1) if dtype != "i1" else None
    test: SSAValue = b if condition is None else condition.result
    made.append(("select", arith.SelectOp(test, a, b)))
    ops = [*([condition] if condition else []), *(op for _, op in made)]
    stores = [StoreOp(op.results[0], number) for number, (_, op) in enumerate(made)]
    block.add_op(PhaseOp(Region(Block([*ops, *stores, YieldOp()]))))
    maps = [AffineMap.identity(1)] * (2 + len(made))
    kernel = KernelOp("ops", [size], [], maps[:2], maps[2:], Region(block))
    kernel.verify()
    return kernel, [(name, dtype_of(op.results[0])) for name, op in made]


def every_op_code(kernel: KernelOp) -> KernelCode:
    """One thread a point; the parameters are the two operands, then the outputs."""
    (size,) = kernel.parallel_sizes
    dtypes = [dtype_of(argument) for argument in kernel.body.block.args]
    dtypes += [dtype_of(op.value) for op in kernel.phases[0].body.block.ops if isinstance(op, StoreOp)]
    refs = [BufferRef(index, 0, (size,), (1,), dtype) for index, dtype in enumerate(dtypes)]
    snippet = point_snippet(kernel, 0, refs[:2], refs[2:])
    params = snippet.params[1:]
    stores = [
        store_text(dtype, f"{out} + u64(i64(i0) * {ELEMENT_BYTES[dtype]})", f"results[{number}]")
        for number, (dtype, out) in enumerate(zip(dtypes[2:], params[2:], strict=True))
    ]
    start = "i0 = i32(cuda.blockIdx.x) * i32(cuda.blockDim.x) + i32(cuda.threadIdx.x)"
    lines = [start, f"if i0 >= {size}:", "    return", *snippet.body, f"results = {snippet.result}", *stores]
    source = f"def every_op({', '.join(params)}):\n" + "".join(f"    {line}\n" for line in lines)
    return KernelCode(f"every_op_{dtypes[0]}", source, ("ptr",) * len(params), 128)
