"""The work of groups whose bodies are alike: derived once, then copied under the names of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, SSAValue

from aicf.dialects.emit_kernels import KernelOp
from aicf.dialects.logical import ID_ATTR
from aicf.passes.bodies.workload import GroupWorkload, code_symbol, prologue_symbol, workload_of_body


@dataclass(frozen=True)
class WorkTemplate:
    """The work of all bodies of one structure; its ops and values are named by their indices in the body."""

    work: GroupWorkload

    @staticmethod
    def of(body: Block, origins: Sequence[tuple[str, bool]]) -> WorkTemplate:
        """The template of a body whose block argument i comes from `origins[i]` (role, updated)."""
        return WorkTemplate(workload_of_body("", _numbered(body), origins))

    def named(self, group_id: str, body: Block) -> GroupWorkload:
        """The work of a body of the structure, as if it were derived from it."""
        names = _Names(body)
        work = self.work.work
        code = None if work.code is None else names.code(work.code, code_symbol(group_id))
        prologue = None if work.prologue is None else names.code(work.prologue, prologue_symbol(group_id))
        own = replace(work, id=group_id, body=names.block(work.body), code=code, prologue=prologue)
        return replace(self.work, work=own)


def _token(index: int) -> str:
    """The name of the value at an index; no derived value is called so."""
    return f"value.{index}"


def _values(body: Block) -> list[SSAValue]:
    return [*body.args, *(result for op in body.ops for result in op.results)]


def _numbered(body: Block) -> Block:
    """A copy of a body in which ids of ops and names of values say their indices."""
    block, values = _copy(body)
    for index, op in enumerate(block.ops):
        op.attributes[ID_ATTR] = StringAttr(str(index))
    for index, value in enumerate(values):
        value.name_hint = _token(index)
    return block


def _copy(body: Block) -> tuple[Block, list[SSAValue]]:
    """A copy of a block of ops without regions, and all its values."""
    block = Block(arg_types=body.arg_types)
    values = dict[SSAValue, SSAValue](zip(body.args, block.args, strict=True))
    for old, new in zip(body.args, block.args, strict=True):
        new.name_hint = old.name_hint
    for op in body.ops:
        block.add_op(op.clone_without_regions(values))
    return block, [*block.args, *(result for op in block.ops for result in op.results)]


class _Names:
    """The names in a body, by those in the template of its structure."""

    def __init__(self, body: Block):
        self.ops = list(body.ops)
        self.hints = {_token(index): value.name_hint for index, value in enumerate(_values(body))}

    def block(self, template: Block) -> Block:
        """A copy of a block with the ids, locations and names of the body; ops that stand for none of it have none."""
        block, values = _copy(template)
        for op in block.ops:
            if isinstance(index := op.attributes.get(ID_ATTR), StringAttr):
                own = self.ops[int(index.data)]
                op.attributes, op.location = dict(own.attributes), own.location
        self._rename(values)
        return block

    def code(self, template: KernelOp, symbol: str) -> KernelOp:
        """A copy of a generated program with the names of the body."""
        code = template.clone()
        code.properties["sym_name"] = StringAttr(symbol)
        self._rename(code.body.block.args)
        for op in code.walk():
            self._rename(op.results)
        return code

    def _rename(self, values: Sequence[SSAValue]) -> None:
        for value in values:
            if (hint := value.name_hint) is not None:
                value.name_hint = self.hints.get(hint, hint)
