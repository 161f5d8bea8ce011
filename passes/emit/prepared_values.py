"""What `@prepare` makes, as values again: for programs that are raised to functions which compute all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from aicf.dialects.logical import ID_ATTR
from aicf.passes.bodies.matching import computed_from
from aicf.passes.bodies.views import View
from aicf.passes.support.identity import op_id, unused
from aicf.passes.support.policy import without_bucket


@dataclass(frozen=True)
class Origin:
    """What a derived bind shows.

    Args:
        value: A value of the raised `@prepare`: an argument, which is a parameter, or what is computed of some.
        view: What of it.
    """

    value: SSAValue
    view: View


@dataclass(frozen=True)
class PreparedValues:
    """The raised `@prepare`.

    Args:
        origins: What each derived bind shows, by name.
        params: Name and type of each argument.
    """

    origins: Mapping[str, Origin] = field(default_factory=dict[str, Origin])
    params: Mapping[SSAValue, tuple[str, Attribute]] = field(
        default_factory=dict[SSAValue, tuple[str, Attribute]]
    )


@dataclass
class Inliner:
    """Computes values of `@prepare` in a function.

    Args:
        block: The function's, at whose end copies of their ops are put.
        parameter: Gives the function's argument for a parameter of `@prepare`.
        bucket: What ids of the function end with.
        taken: Ids in the module; gets those of the copies.
    """

    block: Block
    parameter: Callable[[SSAValue], SSAValue]
    bucket: str
    taken: set[str]
    here: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def value(self, value: SSAValue) -> SSAValue:
        """What the function has of a value of `@prepare`."""
        block = value.owner if isinstance(value.owner, Block) else value.owner.parent
        assert block is not None
        for op in computed_from([value], self.here, block.ops):
            self._copy(op)
        return self._operand(value)

    def _operand(self, value: SSAValue) -> SSAValue:
        if value not in self.here:
            self.here[value] = self.parameter(value)
        return self.here[value]

    def _copy(self, op: Operation) -> None:
        for operand in op.operands:
            self._operand(operand)
        copy = op.clone(self.here)
        if (id_ := op_id(op)) is not None:
            copy.attributes[ID_ATTR] = StringAttr(unused(without_bucket(id_), self.taken, "_", self.bucket))
        self.block.add_op(copy)
