"""Scalar programs as text: every op compiles for every element type, without calls, stack or approximations."""

from __future__ import annotations

import math
import re

import pytest

from aicf.backends.base import BufferRef
from aicf.backends.cuda.codegen.scalar import (
    TEXTS,
    combine_text,
    constant_text,
    identity_text,
    point_snippet,
    store_snippet,
)
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.ptx.arithmetic import ERF_LIMIT, ERFC_LOG2
from aicf.backends.cuda.compiler.specializer import splice, stage
from aicf.backends.cuda.compiler.toolchain import compile_kernels
from aicf.backends.cuda.target import ELEMENT_BYTES
from aicf.dialects.emit_kernels import SCALAR_OPS
from tests.backends.cpu.kernels_text import pointwise
from tests.backends.cuda.scalar_programs import DTYPES, every_op, every_op_code
from tests.backends.cuda.simulator import INTEGERS


def test_every_scalar_op_has_text() -> None:
    """The ops that a phase may hold are exactly those with a row."""
    assert set(TEXTS) == SCALAR_OPS


HUGE_ANGLE_BYTES = {"f64": 40}
"""Sine and cosine of f64 keep the product of a huge argument with 2/pi on the stack."""


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_op_compiles_without_stack(dtype: str) -> None:
    """One kernel with all ops of an element type: it types, and nothing of it calls out or spills."""
    kernel, _ = every_op(dtype, 64)
    (cubin,) = compile_kernels([every_op_code(kernel)], "sm_90a").values()
    assert cubin.stack_bytes <= HUGE_ANGLE_BYTES.get(dtype, 0)


def test_an_epilogue_reads_its_operands_through_their_strides() -> None:
    """Bias and residual addresses follow maps and strides; the accumulator is a parameter."""
    kernel, _ = every_op("f32", 8)
    refs = [BufferRef(1, 0, (8,), (3,), "f32")]
    outputs = [BufferRef(2, 0, (8,), (1,), "f32") for _ in kernel.out_maps]
    snippet = point_snippet(kernel, 1, refs, outputs)
    assert snippet.params[:3] == ("acc0", "i0", "in0")
    assert any("load_f32(in0 + u64(i64(i32(i0 * 3)) * 4))" in line for line in snippet.body)
    assert not any("in1" in line for line in snippet.body)


def test_strict_rounding_rounds_after_every_op() -> None:
    """`fused` rounds casts that are used and what bits are asked of; `strict` every result of a half type."""
    kernel, _ = every_op("f16", 8)
    refs = [BufferRef(1, 0, (8,), (1,), "f16")] * 2
    outputs = [BufferRef(2, 0, (8,), (1,), "f16") for _ in kernel.out_maps]
    fused = "\n".join(point_snippet(kernel, 0, refs, outputs).body)
    strict = "\n".join(point_snippet(kernel, 0, refs, outputs, "strict").body)
    bits = 2  # as another half type, and as an integer
    assert len(re.findall("f32_to_f16", fused)) == bits
    assert len(re.findall("f32_to_f16", strict)) >= 11 + bits


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("combine", ["sum", "max", "min"])
def test_reductions_start_from_their_neutral_element(dtype: str, combine: str) -> None:
    """The text of the identity and of a step, evaluated with NumPy scalars in place of Numba's types."""
    import numpy as np

    class Libdevice:
        int_as_float = staticmethod(lambda bits: np.int32(bits).view(np.float32))
        longlong_as_double = staticmethod(lambda bits: np.int64(bits).view(np.float64))

    class Cuda:
        libdevice = Libdevice
        selp = staticmethod(lambda c, a, b: a if c else b)

    scope = {
        **INTEGERS,
        "f32": np.float32,
        "f64": np.float64,
        "cuda": Cuda,
        "max_nan": np.maximum,
        "min_nan": np.minimum,
    }
    identity = eval(identity_text(combine, dtype), scope)
    for value in {"i1": (0, 1), "u8": (0, 7, 255)}.get(dtype, (-7, 0, 7)):
        x = eval(constant_text(value, dtype), scope)
        assert eval(combine_text(combine, dtype, "a", "b"), {**scope, "a": identity, "b": x}) == x
        assert eval(combine_text(combine, dtype, "a", "b"), {**scope, "a": x, "b": identity}) == x


@pytest.mark.parametrize(
    ("result", "ends", "function"),
    [
        ("f16", "%t = arith.addf %e, %one : f32", "erf_absolute"),
        ("bf16", "%t = arith.addf %one, %e : f32", "erf_absolute"),
        ("f32", "%t = arith.addf %e, %one : f32", "erff"),
        ("f16", "%t = arith.mulf %e, %one : f32", "erff"),
        ("f16", "%t = arith.addf %e, %x : f32", "erff"),
    ],
)
def test_a_small_error_is_relative_unless_one_is_added(result: str, ends: str, function: str) -> None:
    kernel = pointwise(
        "8",
        ";d0",
        "%x : f32, %y : f32",
        f"%one = arith.constant 1.0 : f32 %e = math.erf %x : f32 {ends}"
        + (" %r = arith.negf %t : f32" if result == "f32" else f" %r = emit.cast %t : f32 to {result}"),
        result=result,
    )
    refs = [BufferRef(1, 0, (8,), (1,), "f32")]
    text = "\n".join(point_snippet(kernel, 1, refs, [BufferRef(2, 0, (8,), (1,), result)]).body)
    assert re.findall(r"erf_absolute|erff", text) == [function]
    strict = point_snippet(kernel, 1, refs, [BufferRef(2, 0, (8,), (1,), result)], "strict").body
    assert "erff" in "\n".join(strict)


def test_the_polynomial_of_erf() -> None:
    """Its steps in f32, with an exact power of two in place of the hardware's, against float64."""
    import numpy as np

    x = np.linspace(-6, 6, 100_001).astype(np.float32)
    powers = [np.frombuffer(bytes.fromhex(each[2:])[::-1], np.float32)[0] for each in ERFC_LOG2]
    a, q = np.minimum(np.abs(x), np.float32(ERF_LIMIT)), np.full_like(x, powers[-1])
    for power in powers[-2::-1]:
        q = (q.astype(np.float64) * a + power).astype(np.float32)
    found = np.copysign(1 - np.exp2(q * a, dtype=np.float32), x)
    exact = np.array([math.erf(value) for value in x.tolist()])
    assert np.abs(found - exact).max() < 1.2e-7
    # Exactly: what is multiplied by 1 + erf may be as large as it likes.
    np.testing.assert_array_equal(found[np.abs(x) >= ERF_LIMIT], np.sign(x[np.abs(x) >= ERF_LIMIT]))


def test_snippets_splice_into_a_template() -> None:
    """A product's end: accumulator through the snippet to a rounded store, as GEMM families write it."""
    kernel = pointwise(
        "4, 32",
        ";d1",
        "%acc : f16, %bias : f16",
        "%s = arith.addf %acc, %bias : f16 %r = math.erf %s : f16",
        result="f16",
    )
    refs = [BufferRef(1, 0, (32,), (1,), "f16")]
    outputs = [BufferRef(2, 0, (4, 32), (32, 1), "f16")]
    source = stage(
        two_indices, {"POINT": point_snippet(kernel, 1, refs, outputs), "STORE": store_snippet("f16")}
    )
    assert "erff" in source and "store_u16" in source
    code = KernelCode("epilogue", source, ("ptr", "ptr"), 32)
    (cubin,) = compile_kernels([code], "sm_90a").values()
    assert cubin.stack_bytes == 0 and ELEMENT_BYTES["f16"] == 2


def two_indices(extra, out):  # type: ignore[no-untyped-def]
    thread = i32(cuda.threadIdx.x)  # type: ignore[name-defined]  # noqa: F821
    value = splice(POINT, f32(1.5), i32(2), thread, extra, out)  # type: ignore[name-defined]  # noqa: F821
    splice(STORE, out + u64((64 + thread) * 2), value)  # type: ignore[name-defined]  # noqa: F821
