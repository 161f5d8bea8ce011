"""What a kernel is asked to run: one group or instruction, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.ir import Attribute, Block

from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.emit_types import LayoutAttr


@dataclass(frozen=True)
class OperandInfo:
    """One operand or result of a piece of work, as a kernel sees it.

    Args:
        role: `input`, `param`, `state`, `meta`, `const`, `derived`, `output` or `temp` (a value of this program).
        shape: Logical sizes.
        dtype: Element type name (`f32`, `i1`, ...).
        strides: Elements between neighbours, one per dimension; 0 where broadcast.
        updated: Whether the program overwrites it (then it cannot be prepared ahead).
        offset: Elements from the start of its buffer, which is aligned, to its first element.
        layout: The physical layout that it was prepared in, None for plain strided memory.
    """

    role: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    updated: bool = False
    offset: int = 0
    layout: LayoutAttr | None = None

    @property
    def is_weight(self) -> bool:
        """Whether it may be packed ahead: a parameter that no program overwrites, or what is made of such alone."""
        return self.role in ("param", "derived") and not self.updated


@dataclass(frozen=True)
class Workload:
    """What a kernel is asked to run: one group or instruction.

    Args:
        id: Group id.
        kind: Opcode name derived from the body.
        attrs: Attributes of the kind's schema.
        operands, results: As seen by the kernel (view ops that produce them are already strides).
        body: The meaning: primitive logical ops from block arguments (operands) to `emit.yield` (results).
        code: The generated scalar program, for kinds that have one (epilogues and generated kernels).
        prologue: The generated row program that makes operand 0 of the product, for kinds that have one.
        rounding: As in the policy: `fused` lets a value between two ops of the body stay in the type it is computed
            in, `strict` rounds it to its own.
        batch_invariant: Whether the bits of a result element may depend on nothing but the terms that it is made of,
            not on how many other elements there are. Only kernels with that offer are asked to run such work.
        tf32: Whether its products may round f32 operands to TF32.
    """

    id: str
    kind: str
    attrs: Mapping[str, Attribute]
    operands: tuple[OperandInfo, ...]
    results: tuple[OperandInfo, ...]
    body: Block
    code: KernelOp | None
    prologue: KernelOp | None = None
    rounding: str = "fused"
    batch_invariant: bool = False
    tf32: bool = False
