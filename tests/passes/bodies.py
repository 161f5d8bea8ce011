"""Bodies of instructions from their text, for tests of what is derived from a body."""

from __future__ import annotations

from xdsl.ir import Block

from aicf.dialects.emit import BodyOp
from aicf.frontends.text import parse_module

_MODULES: list[object] = []
"""Keeps the modules of parsed bodies alive."""


def body(arguments: str, *lines: str) -> Block:
    """The block of a body: `body("%x : tensor<4xf32>", "%y = logical.exp %x : tensor<4xf32>", "emit.yield ...")`."""
    text = "\n".join(lines)
    module = parse_module(f"emit.body @b {{\n^bb0({arguments}):\n{text}\n}}", "body.mlir")
    _MODULES.append(module)
    (op,) = module.body.block.ops
    assert isinstance(op, BodyOp)
    return op.body.block
