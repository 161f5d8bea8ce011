"""A kernel record taken apart: what stays with the instruction, and what the program around it must provide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, i8, i64
from xdsl.ir import Attribute

from aicf.backends.common.kernel import AnyKernel
from aicf.dialects.emit import BufferType, SlotOp
from aicf.dialects.emit_types import KernelAttr, LayoutAttr

_ELSEWHERE = ("may_alias", "layouts")
"""Entries that become the instruction's constraints and its operands' types."""


@dataclass(frozen=True)
class RecordParts:
    """What a kernel asks for.

    Args:
        kernel: The record of the instruction.
        constraints: What the kernel permits.
        layouts: The layout that each of the first operands must be prepared in, None for plain memory.
        workspace_bytes: Scratch memory for the launch.
    """

    kernel: KernelAttr
    constraints: Mapping[str, Attribute]
    layouts: Sequence[LayoutAttr | None]
    workspace_bytes: int

    def layout_at(self, index: int) -> LayoutAttr | None:
        """The layout of operand `index`."""
        return self.layouts[index] if index < len(self.layouts) else None

    def workspace(self) -> SlotOp | None:
        """A slot for the workspace, None if the kernel needs none."""
        if not self.workspace_bytes:
            return None
        slot = SlotOp(BufferType([self.workspace_bytes], i8, "arena"))
        slot.buffer.name_hint = "ws"
        return slot


def take_apart(kernel: KernelAttr) -> RecordParts:
    """The parts of a record that a descriptor gave."""
    entries = kernel.record.data
    size = entries.get("workspace_bytes")
    layouts = entries.get("layouts")
    found: Sequence[Attribute] = ()
    if isinstance(layouts, ArrayAttr):
        found = cast("ArrayAttr[Attribute]", layouts).data
    return RecordParts(
        KernelAttr(
            kernel.kernel.data, {key: value for key, value in entries.items() if key not in _ELSEWHERE}
        ),
        {"may_alias": entries["may_alias"]} if "may_alias" in entries else {},
        [entry if isinstance(entry, LayoutAttr) else None for entry in found],
        size.value.data if isinstance(size, IntegerAttr) else 0,
    )


def kernel_record(kernel: AnyKernel, entries: Mapping[str, Attribute]) -> KernelAttr:
    """The record of `kernel` with its version and determinism class first."""
    own: dict[str, Attribute] = {
        "version": IntegerAttr(kernel.version, i64),
        "determinism": StringAttr(kernel.determinism),
    }
    return KernelAttr(kernel.id, {**own, **entries})
