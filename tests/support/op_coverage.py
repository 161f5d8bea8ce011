"""What a table or a generator of tests lacks of the op set, by name: at first a new op is missing in each of them."""

from __future__ import annotations

from collections.abc import Collection

from aicf.dialects import logical

REQUESTS = (logical.DispatchOp, logical.GradientOp)
"""Ops that ask for what a pass writes in their place: they give no value, so there is nothing to compare."""

OF_PACKAGES = (logical.CustomOp,)
"""What it computes is said by packages; `tests/kernels` defines some."""

OF_TRAINING = (logical.SaveOp, logical.SgdOp, logical.AdamOp, logical.AdamwOp)
"""Ops that `aicf-training` alone replaces: tables of what `aicf-inference` compiles cannot hold them."""


def assert_holds_every_op(held: Collection[type], where: str, besides: Collection[type] = ()) -> None:
    """Fails with the names of the ops that are not in `held`, and `where` they belong.

    Args:
        besides: Ops that another table holds.
    """
    excused = {*REQUESTS, *OF_PACKAGES, *besides}
    missing = [op.name for op in logical.Logical.operations if op not in held and op not in excused]
    assert not missing, f"{', '.join(missing)}: missing in {where}"
