"""Products that are kept beside what is computed of their elements: one instruction writes both where that pays."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from aicf.frontends.text import make_context, parse_module
from aicf.passes.emit.raise_emit import RaiseEmitPass
from aicf.passes.emit.read_decisions import decisions_of
from aicf.policies.kernel_policy import KernelPolicy
from tests.gpu.programs import kept_dense, random_arrays
from tests.passes.test_generated_code import lowered
from tests.passes.test_multi_output import results_of
from tests.passes.test_raise_emit import compiled, stripped
from tests.support.generated_code import check_codes

TARGET = "cuda:sm_90a"
SIZES = (4096, 1024, 256)
WGMMA = {"kernels": {"gemm_epilogue": "cuda.gemm_wgmma"}}


def made(dtype: str, m: int, n: int, k: int, policy: object = None) -> ModuleOp:
    """A kept product under a policy."""
    module = kept_dense(dtype, m, n, k).module()
    if policy is not None:
        module.attributes["aicf.policy"] = KernelPolicy.from_json_value(policy).to_attr()
    return module


def test_the_instruction_comes_back() -> None:
    """From the program that was raised, and from the model by the policy that was extracted."""
    module = made("bf16", *SIZES)
    source = str(module)
    compiled(module, TARGET)
    assert results_of(module) == [2]
    first = stripped(module)
    again = parse_module(source, "model")
    again.attributes["aicf.policy"] = decisions_of(module).kernel.to_attr()
    compiled(again, TARGET)
    assert stripped(again) == first
    RaiseEmitPass().apply(make_context(), module)
    compiled(module, start="lowered")
    assert stripped(module) == first


@pytest.mark.parametrize(
    ("target", "dtype", "sizes", "policy"),
    [
        pytest.param("cpu:x86-64-v3", "f32", (64, 64, 64), None, id="cpu has no kernel for it"),
        pytest.param("reference:typed", "f32", (64, 64, 64), None, id="reference does not know what pays"),
        pytest.param("cuda:sm_80", "bf16", SIZES, None, id="nor has a target without warpgroup products"),
        pytest.param(TARGET, "f32", SIZES, None, id="nor f32"),
        pytest.param(TARGET, "bf16", (16, 1024, 256), None, id="few rows take less time apart"),
        pytest.param(TARGET, "bf16", SIZES, {"fusion": {"multi_output": False}}, id="off"),
        pytest.param(TARGET, "bf16", SIZES, {"fusion": {"elementwise": False}}, id="no pointwise group"),
        pytest.param(
            TARGET, "bf16", SIZES, {"determinism": "batch_invariant"}, id="what pays follows the batch"
        ),
        pytest.param(
            TARGET,
            "bf16",
            SIZES,
            {"kernels": {"gemm_epilogue": "cuda.gemm_mma"}},
            id="another kernel is pinned",
        ),
    ],
)
def test_they_stay_two(target: str, dtype: str, sizes: tuple[int, int, int], policy: object) -> None:
    module = made(dtype, *sizes, policy)
    compiled(module, target)
    assert set(results_of(module)) == {1}


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_the_epilogue_computes_both(dtype: str) -> None:
    """At a size that does not pay, as the policy wants it."""
    module = made(dtype, 48, 24, 16, WGMMA)
    arrays = random_arrays(module, dtype)
    done = lowered(module, TARGET)
    assert results_of(done) == [2]
    assert check_codes(done, arrays) == 1
