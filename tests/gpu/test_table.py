"""What the table of GPU cases holds, without a GPU: nothing may be left out."""

from __future__ import annotations

import pytest
from xdsl.dialects.func import FuncOp

from aicf.backends.common.user_kernel import CUSTOM
from aicf.backends.registry import get_kernels
from tests.gpu.cases import CASES, STATELESS
from tests.gpu.test_cases import LONG
from tests.support.op_coverage import assert_holds_every_op


@pytest.mark.new_op
def test_every_operation_is_in_a_case() -> None:
    """An operation added to the dialect is missing here until a program of the table has it."""
    held: set[type] = set()
    for name in CASES:
        if not name.startswith(("random", "fused", "drawn")):
            (function,) = (op for op in CASES[name].make().module.ops if isinstance(op, FuncOp))
            held |= {type(op) for op in function.body.block.ops}
    assert_holds_every_op(held, "the programs of tests/gpu/programs.py")


def test_every_kernel_runs_a_case() -> None:
    """A kernel added to the backend is missing here until a case pins it. Those that pack weights run before, in
    `@prepare`, and the values of who reads them tell; those that a package defines have tests beside it."""
    apart = ({"pack"}, {CUSTOM})
    kernels = {name for name, kernel in get_kernels("cuda").items() if kernel.kinds not in apart}
    assert kernels <= {kernel for case in CASES.values() for kernel in case.kernels}


def test_every_kernel_of_products_runs_every_kind_it_takes() -> None:
    """Through a policy that names both; cublasLt, which takes two, has a case by a tuning table for each."""
    pinned = {
        (kernel, kind) for case in CASES.values() for kind, kernel in case.policy.get("kernels", {}).items()
    }
    products = [kernel for kernel in get_kernels("cuda").values() if kernel.id.startswith("cuda.gem")]
    assert {(kernel.id, kind) for kernel in products for kind in kernel.kinds} <= pinned


def test_names_of_long_cases_are_those_of_cases() -> None:
    """A case that is renamed keeps its thousand replays."""
    assert set(LONG) <= set(STATELESS)
