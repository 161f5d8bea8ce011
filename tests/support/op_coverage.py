"""What a table or a generator of tests lacks of the op set, by name: at first a new op is missing in each of them."""

from __future__ import annotations

from collections.abc import Collection

from aicf.dialects import logical


def assert_holds_every_op(held: Collection[type], where: str) -> None:
    """Fails with the names of the ops that are not in `held`, and `where` they belong."""
    missing = [
        op.name for op in logical.Logical.operations if op not in held and op is not logical.DispatchOp
    ]
    assert not missing, f"{', '.join(missing)}: missing in {where}"
