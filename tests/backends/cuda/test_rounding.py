"""`rounding` of a policy: where the kernels of cuda round values of f16 and bf16 between the ops of one group."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects.builtin import StringAttr

from aicf.backends.base import CodeUnit
from aicf.backends.cuda.families.gemm.cublaslt.kernel import CublasLtKernel
from aicf.backends.cuda.families.gemm.mma.kernel import MmaKernel
from aicf.backends.cuda.families.gemm.simt.kernel import SimtKernel
from aicf.backends.cuda.families.gemm.wgmma.codegen import emit as emit_wgmma
from aicf.backends.cuda.families.gemm.wgmma.kernel import WgmmaKernel
from aicf.dialects.emit_types import TargetAttr
from aicf.frontends.text import make_context, parse_module
from aicf.passes.kernels.workload_key import key_of
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.runtime.capture_plan import CapturePlan
from aicf.runtime.plan_from_ir import code_units, read_module
from tests.backends.cuda.gemm_launches import launch_of
from tests.backends.cuda.test_generated_programs import simulated
from tests.backends.cuda.wgmma_programs import work
from tests.support.random_graphs import run_program

TARGET = TargetAttr("cuda", "sm_90a")

CHAIN = """
func.func @f(%x : tensor<8x64xf16> {logical.name = "x", logical.role = "input"},
             %s : tensor<8x64xf16> {logical.name = "s", logical.role = "input"})
    -> (tensor<8x64xf16> {logical.name = "y"}) {
  %0 = logical.mul %x, %s : tensor<8x64xf16>
  %1 = logical.add %0, %x : tensor<8x64xf16>
  %2 = logical.mul %1, %1 : tensor<8x64xf16>
  func.return %2 : tensor<8x64xf16>
}
"""

ATTENTION = """
func.func @f(%q : tensor<4x32x64xf16> {logical.name = "q", logical.role = "input"},
             %k : tensor<4x32x64xf16> {logical.name = "k", logical.role = "input"},
             %v : tensor<4x32x64xf16> {logical.name = "v", logical.role = "input"})
    -> (tensor<4x32x64xf16> {logical.name = "y"}) {
  %0 = logical.matmul %q, %k {transpose_a = false, transpose_b = true}
      : (tensor<4x32x64xf16>, tensor<4x32x64xf16>) -> tensor<4x32x32xf16>
  %1 = logical.softmax %0 {axis = 2} : tensor<4x32x32xf16>
  %2 = logical.matmul %1, %v {transpose_a = false, transpose_b = false}
      : (tensor<4x32x32xf16>, tensor<4x32x64xf16>) -> tensor<4x32x64xf16>
  func.return %2 : tensor<4x32x64xf16>
}
"""


def compiled(text: str, rounding: str) -> tuple[CapturePlan, CodeUnit]:
    """The plan and the code unit of a program of one function."""
    module = parse_module(text)
    AicfInferencePass("cuda:sm_90a", f'{{"rounding": "{rounding}"}}').apply(make_context(), module)
    (plan,) = read_module(module).programs
    (unit,) = code_units(module)
    return plan, unit


def test_strict_kernels_give_the_bits_of_single_ops() -> None:
    """Three ops in one kernel: with `strict` every bit is that of rounding after each, with `fused` some are not."""
    random = np.random.default_rng(5)
    inputs = {name: random.standard_normal((8, 64)).astype(np.float16) for name in ("x", "s")}
    typed = run_program(parse_module(CHAIN), inputs, "typed")["y"].astype(np.float16)
    found = {rounding: simulated(*compiled(CHAIN, rounding), inputs)["y"] for rounding in ("fused", "strict")}
    assert len(compiled(CHAIN, "strict")[1].launches) == 1
    assert np.array_equal(found["strict"].view(np.uint16), typed.view(np.uint16))
    assert not np.array_equal(found["fused"].view(np.uint16), typed.view(np.uint16))
    assert np.allclose(found["fused"].astype(np.float64), typed.astype(np.float64), rtol=5e-3, atol=5e-3)


def test_attention_is_no_group_where_its_scores_must_be_rounded() -> None:
    """The kernel keeps scores in f32, so with `strict` there are others, which round them."""
    kinds = {
        rounding: [launch.kernel for launch in compiled(ATTENTION, rounding)[1].launches]
        for rounding in ("fused", "strict")
    }
    assert kinds["fused"] == ["cuda.attention"]
    assert "cuda.attention" not in kinds["strict"] and len(kinds["strict"]) >= 2
    records = [launch.record for launch in compiled(ATTENTION, "strict")[1].launches]
    assert all(record["rounding"] == StringAttr("strict") for record in records)


@pytest.mark.parametrize(
    ("kernel", "dtype"), [(MmaKernel(), "f16"), (WgmmaKernel(), "bf16"), (SimtKernel(), "f32")]
)
@pytest.mark.parametrize("rounding", ["fused", "strict"])
def test_products_record_what_the_policy_says(
    kernel: MmaKernel | WgmmaKernel | SimtKernel, dtype: str, rounding: str
) -> None:
    """The rounding of the work is that of the record; only the bits of an epilogue depend on it."""
    job = replace(work(128, 256, 64, kind="gemm_epilogue", dtype=dtype, after="bias_gelu"), rounding=rounding)
    assert kernel.legal(job, TARGET) is None
    assert kernel.record(job, TARGET)["rounding"] == StringAttr(rounding)


def test_a_strict_product_is_rounded_before_its_bias() -> None:
    """The text of the epilogue rounds the sum, and each value after it, to f16."""
    sources: dict[str, str] = {}
    for rounding in ("fused", "strict"):
        job = replace(work(128, 256, 64, kind="gemm_epilogue", dtype="f16", after="bias"), rounding=rounding)
        record = WgmmaKernel().record(job, TARGET)
        (launch,) = emit_wgmma(launch_of(job, "cuda.gemm_wgmma", record))
        sources[rounding] = launch.code.source
    assert "f32_to_f16" not in sources["fused"]
    assert sources["strict"].count("f32_to_f16") > 0


def test_the_library_rounds_once() -> None:
    """Its epilogues are one step; a plain product is the same with either rounding."""
    strict = replace(work(128, 256, 64, kind="gemm_epilogue", dtype="f16", after="bias"), rounding="strict")
    assert "every value rounded" in str(CublasLtKernel().legal(strict, TARGET))
    baseline = replace(work(128, 256, 64, kind="gemm", dtype="f16"), rounding="strict")
    assert CublasLtKernel().legal(baseline, TARGET) is None


def test_strict_works_are_measured_apart() -> None:
    """A tuning table does not give a strict group the time of a fused one."""
    job = work(128, 256, 64, kind="gemm", dtype="f16")
    assert key_of(replace(job, rounding="strict")).digest != key_of(job).digest
    assert key_of(replace(job, rounding="fused")).digest == key_of(job).digest
