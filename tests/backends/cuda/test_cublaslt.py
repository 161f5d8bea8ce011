"""The library's products: which work is legal, and that a record is the call that does it.

No GPU and no library: `library_model` does what the library's manual says of a call, on NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from aicf.backends.common.workload import Workload
from aicf.backends.cuda.compiler.launches import LibraryCall
from aicf.backends.cuda.families.gemm.cublaslt.codegen import emit
from aicf.backends.cuda.families.gemm.cublaslt.kernel import CublasLtKernel
from aicf.backends.cuda.runtime import cublaslt
from aicf.backends.cuda.runtime.device_program import Address, LibraryNode
from aicf.compilation.record import Options
from aicf.compilation.sources import read_model
from aicf.compilation.stages import passes_of
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.json_values import attribute_of
from aicf.errors import ArtifactError, BackendUnavailable
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import workload_of
from aicf.passes.kernels.select_kernels import SelectKernelsPass
from aicf.passes.pipelines.text import apply_pass
from tests.backends.cuda.gemm_launches import launch_of
from tests.support.record_checks import record_reason

TARGET = TargetAttr("cuda", "sm_90a")
KERNEL = CublasLtKernel()

_MODULES: list[object] = []
"""Keeps the modules of works alive."""


@dataclass(frozen=True)
class Product:
    """A program with one product and what follows it."""

    a: tuple[int, ...] = (6, 5)
    b: tuple[int, ...] = (5, 4)
    out: tuple[int, ...] = (6, 4)
    flags: str = ""
    bias: bool = False
    residual: bool = False
    activation: str = ""
    dtype: str = "f32"

    def text(self) -> str:
        a, b, out, row = (self._type(shape) for shape in (self.a, self.b, self.out, self.out[-1:]))
        arguments = [f'%a : {a} {{logical.name = "a", logical.role = "input"}}']
        arguments.append(f'%b : {b} {{logical.name = "b", logical.role = "param"}}')
        flags = f" {{{self.flags}}}" if self.flags else ""
        lines, value = [f"%p = logical.matmul %a, %b{flags} : ({a}, {b}) -> {out}"], "%p"
        if self.bias:
            arguments.append(f'%v : {row} {{logical.name = "v", logical.role = "param"}}')
            index = len(self.out) - 1
            lines.append(f"%w = logical.broadcast %v {{dimensions = [{index}]}} : {row} -> {out}")
            lines.append(f"%s = logical.add {value}, %w : {out}")
            value = "%s"
        if self.residual:
            arguments.append(f'%r : {out} {{logical.name = "r", logical.role = "input"}}')
            lines.append(f"%t = logical.add %r, {value} : {out}")
            value = "%t"
        if self.activation:
            op, _, options = self.activation.partition(" ")
            lines.append(f"%u = logical.{op} {value} {options} : {out}")
            value = "%u"
        body = "\n".join([*lines, f"func.return {value} : {out}"])
        return f'func.func @f({", ".join(arguments)}) -> ({out} {{logical.name = "y"}}) {{\n{body}\n}}'

    def _type(self, shape: Sequence[int]) -> str:
        return f"tensor<{'x'.join(map(str, shape))}x{self.dtype}>"


def work_of(text: str) -> Workload:
    """The work of the one product of a program."""
    context = make_context()
    source = read_model(text, context)
    for step in passes_of(source, Options("reference:typed", "", "", 1)):
        if isinstance(step, SelectKernelsPass):
            break
        apply_pass(step, context, source.module)
    _MODULES.append(source.module)
    groups = [workload_of(op).work for op in source.module.walk() if isinstance(op, GroupOp)]
    (work,) = (work for work in groups if work.kind in KERNEL.kinds)
    return work


def call_of(work: Workload) -> LibraryCall:
    """The call of a work whose operands are table entries 0, 1, ... in order, results last."""
    record = {**KERNEL.record(work, TARGET), **KERNEL.device_fields}
    launch = replace(launch_of(work, KERNEL.id, record), ws=())
    (call,) = emit(launch)
    assert isinstance(call, LibraryCall)
    return call


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("compute_type", "tf32"),
        ("scale_type", "f16"),
        ("reduction", "none"),
        ("epilogue", "relu"),
        ("beta", 1.0),
    ],
)
def test_an_edited_call_is_refused(entry: str, value: object) -> None:
    """Arithmetic that rounds otherwise, or another epilogue than the body's, is no call of the instruction."""
    work = work_of(Product().text())
    record = {**KERNEL.record(work, TARGET), **KERNEL.device_fields}
    assert record_reason(KERNEL, work, record, TARGET) is None
    edited = {**record, entry: attribute_of(value)}
    assert f"its '{entry}' is {value}" in str(record_reason(KERNEL, work, edited, TARGET))


def test_operands_are_rounded_to_tf32_where_that_is_allowed() -> None:
    """Then the record says so, and one that does not is another call."""
    work = work_of(Product().text())
    baseline = {**KERNEL.record(work, TARGET), **KERNEL.device_fields}
    allowed = replace(work, tf32=True)
    assert KERNEL.record(allowed, TARGET)["compute_type"] == attribute_of("tf32")
    assert "its 'compute_type' is f32" in str(record_reason(KERNEL, allowed, baseline, TARGET))
    assert KERNEL.cost_us(allowed, TARGET) <= KERNEL.cost_us(work, TARGET)


def library_model(call: Mapping[str, Any], at: Mapping[str, np.ndarray]) -> None:
    """``D = epilogue(op(A) op(B) + C + bias)`` on flat memory, matrices stored by columns."""

    def matrix(name: str, memory: np.ndarray, batch: int) -> np.ndarray:
        rows, cols, ld, step = call["matrices"][name]
        start = memory[batch * step :]
        size = start.itemsize
        return np.lib.stride_tricks.as_strided(start, (rows, cols), (size, ld * size))

    for batch in range(call["batch"]):
        a, b = (matrix(name, at[name], batch) for name in "ab")
        a = a.T if call["transpose"][0] else a
        b = b.T if call["transpose"][1] else b
        value = a @ b
        if "c" in at:
            value = value + matrix("c", at["c"], batch)
        words = call["epilogue"].split("_")
        if "bias" in words:
            value = value + at["bias"][: len(value), None]
        if "relu" in words:
            value = np.maximum(value, 0)
        if "gelu" in words:
            value = gelu_tanh(value)
        matrix("d", at["d"], batch)[...] = value


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


PRODUCTS = {
    "plain": Product(),
    "transposed b": Product(b=(4, 5), flags="transpose_b"),
    "transposed a": Product(a=(5, 6), flags="transpose_a"),
    "both": Product(a=(5, 6), b=(4, 5), flags="transpose_a, transpose_b"),
    "bias": Product(bias=True),
    "relu": Product(activation="relu"),
    "bias relu": Product(bias=True, activation="relu"),
    "bias gelu": Product(bias=True, activation='gelu {approximate = "tanh"}'),
    "residual": Product(residual=True),
    "bias residual": Product(bias=True, residual=True),
    "all": Product(bias=True, residual=True, activation="relu"),
    "one row": Product(a=(1, 5), out=(1, 4), bias=True),
    "one column": Product(b=(5, 1), out=(6, 1)),
    "rows in a batch": Product(a=(3, 6, 5), out=(3, 6, 4), bias=True, residual=True),
    "batch": Product(a=(3, 6, 5), b=(3, 5, 4), out=(3, 6, 4)),
    "two batch dims": Product(a=(2, 3, 6, 5), b=(2, 3, 4, 5), out=(2, 3, 6, 4), flags="transpose_b"),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_record_is_the_call_that_does_the_work(name: str):
    """On random data, by the library's rules: layouts, transposition, batch strides, epilogue and residual."""
    product = PRODUCTS[name]
    work = work_of(product.text())
    assert KERNEL.legal(work, TARGET) is None
    call = call_of(work)
    rng = np.random.default_rng(11)
    arrays = [rng.standard_normal(operand.shape) for operand in work.operands]
    out = np.full(work.results[0].shape, np.nan)
    flat = [array.reshape(-1) for array in (*arrays, out)]
    names = [str(each) for each in call.call["operands"]]  # type: ignore[union-attr]
    library_model(call.call, {each: flat[a.base] for each, a in zip(names, call.operands, strict=True)})
    a, b, *extras = arrays
    wanted = (a.swapaxes(-1, -2) if "transpose_a" in product.flags else a) @ (
        b.swapaxes(-1, -2) if "transpose_b" in product.flags else b
    )
    wanted = sum(extras, wanted)
    if product.activation:
        wanted = np.maximum(wanted, 0) if product.activation == "relu" else gelu_tanh(wanted)
    np.testing.assert_allclose(out, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("product", "reason"),
    [
        (Product(activation="gelu"), "no such epilogue"),
        (Product(activation="sigmoid"), "no such epilogue"),
        (Product(dtype="f64"), "the library multiplies f16, bf16, f32"),
    ],
)
def test_what_the_library_has_not_is_refused(product: Product, reason: str):
    found = KERNEL.legal(work_of(product.text()), TARGET)
    assert found is not None and reason in found


def test_another_constant_is_another_function():
    """A maximum with one is no ReLU: the constants of a program count, not only its ops."""
    text = Product(activation="relu").text()
    one = "%one = logical.constant dense<1.0> : tensor<6x4xf32>\n%u = logical.max %p, %one"
    other = text.replace("%u = logical.relu %p ", one)
    assert KERNEL.legal(work_of(text), TARGET) is None
    assert "no such epilogue" in str(KERNEL.legal(work_of(other), TARGET))


def test_strides_without_contiguous_rows_are_refused():
    """Heads in the middle of a tensor: two batch dims that are no single one."""
    text = """
    func.func @f(%q : tensor<2x6x3x8xf16> {logical.name = "q", logical.role = "input"},
                 %k : tensor<2x3x8x4xf16> {logical.name = "k", logical.role = "input"})
        -> (tensor<2x3x6x4xf16> {logical.name = "y"}) {
      %h = logical.transpose %q {permutation = [0, 2, 1, 3]} : tensor<2x6x3x8xf16> -> tensor<2x3x6x8xf16>
      %y = logical.matmul %h, %k : (tensor<2x3x6x8xf16>, tensor<2x3x8x4xf16>) -> tensor<2x3x6x4xf16>
      func.return %y : tensor<2x3x6x4xf16>
    }"""
    assert "the library steps over one batch dim" in str(KERNEL.legal(work_of(text), TARGET))


def test_all_addresses_are_fixed_and_the_residual_may_be_overwritten():
    record = KERNEL.record(work_of(PRODUCTS["bias residual"].text()), TARGET)
    assert str(record["fixed_addresses"]) == "[0 : i64, 1 : i64, 2 : i64, 3 : i64, 4 : i64]"
    assert str(record["may_alias"]) == "[[0 : i64, 3 : i64]]"
    assert "may_alias" not in KERNEL.record(work_of(PRODUCTS["bias"].text()), TARGET)


# The run side, as far as it goes without a GPU


def test_without_a_driver_the_library_says_so(monkeypatch: pytest.MonkeyPatch):
    class Bindings:
        def get_version(self) -> int:
            raise RuntimeError("no driver here")

    monkeypatch.setattr(cublaslt, "_bindings", Bindings)
    with pytest.raises(BackendUnavailable, match="loading the library failed: RuntimeError: no driver here"):
        cublaslt.version()


def test_versions_are_written_as_people_write_them(monkeypatch: pytest.MonkeyPatch):
    class Bindings:
        def get_version(self) -> int:
            return 130002

    monkeypatch.setattr(cublaslt, "_bindings", Bindings)
    assert cublaslt.version() == "13.0.2"


def test_a_call_of_another_release_is_refused():
    node = LibraryNode("p", "cublasLt.matmul", "13.0.2", {"dtype": "f32"}, (Address(0, 0),))
    with pytest.raises(ArtifactError, match="instruction 'p': no call of this release"):
        cublaslt.call(0, node, [0], 0)
    call = {**call_of(work_of(Product().text())).call, "compute_type": "f16"}
    with pytest.raises(ArtifactError, match="compute_type 'f16' is none of f32, tf32; compile it again"):
        cublaslt.call(0, LibraryNode("p", "cublasLt.matmul", "13.0.2", call, ()), [], 0)
