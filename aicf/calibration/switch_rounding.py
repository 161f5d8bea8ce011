"""`switch-rounding`: one program in which each op that the policy lowers is rounded or not, as an input says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import PatternRewriter

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import ElementType, element_named, element_of, tensor, tensor_info
from aicf.passes.bodies.outlining import id_of
from aicf.passes.logical.lowerings.base import Lowering
from aicf.passes.logical.precision.eight_bits import EightBitProducts, rounds
from aicf.passes.logical.precision.products import products_of
from aicf.passes.support.identity import IdTable, name_after
from aicf.passes.support.interface import add_argument, functions
from aicf.passes.support.policy import PRECISION_ATTR, precision_of, without_bucket
from aicf.passes.support.writing import Writer
from aicf.policies.precision_policy import F32, FLOATS, PrecisionPolicy

SWITCHES = "calibration/switches"
"""Name of the input, a vector of i1: an element for each op, see `switched_ops`."""


def switched_ops(policy: PrecisionPolicy) -> tuple[str, ...]:
    """The ids of the ops that have a switch, in the order of the input: those that the policy lists."""
    return tuple(sorted(name for name, precision in policy.ops.items() if precision != F32))


@dataclass(frozen=True)
class SwitchRoundingPass(ModulePass):
    """Rounds the operands of each listed op, and the results of one in f16 or bf16, where its switch is on.

    The numbers are those of a lowered program; it computes with them in f32. The section `precision` of the policy is
    taken out: the program itself stays f32.
    """

    name = "switch-rounding"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        policy = precision_of(op)
        op.attributes.pop(PRECISION_ATTR, None)
        names = switched_ops(policy)
        ids = IdTable(op)
        for function in functions(op):
            model = [each for each in function.body.block.ops if isinstance(each, LogicalOp)]
            type_ = tensor((len(names),), element_named("i1"))
            vector = add_argument(function, SWITCHES, "input", type_, {})
            switches = {name: _Switch(vector, number) for number, name in enumerate(names)}
            _round_products(function, policy, switches, ids)
            for each in model:
                name = without_bucket(id_of(each))
                if name in switches and policy.ops[name] in FLOATS:
                    _round_floats(each, element_named(policy.ops[name]), switches[name], ids)


@dataclass(frozen=True)
class _Switch:
    """Element `number` of the vector of switches."""

    vector: SSAValue
    number: int

    def choose(self, writer: Writer, value: SSAValue, rounded: SSAValue, name: str) -> SSAValue:
        """The rounded value where the switch is on, else the value."""
        one = writer.add(logical.SliceOp(self.vector, [self.number], [1]), f"{name}.switch")
        flag = writer.reshape(one, (), f"{name}.flag")
        flags = writer.broadcast(flag, [], tensor_info(value.type).sizes, f"{name}.flags")
        return writer.add(logical.SelectOp(flags, rounded, value), f"{name}.chosen")


def _round_products(
    function: FuncOp, policy: PrecisionPolicy, switches: Mapping[str, _Switch], ids: IdTable
) -> None:
    products = EightBitProducts(policy, ids)
    for product in products_of(function):
        if rounds(policy, product):
            products.round_factors(product, switches[product.name].choose)


def _round_floats(op: LogicalOp, element: ElementType, switch: _Switch, ids: IdTable) -> None:
    """Rounds what an op reads and gives, as far as it is f32, to numbers of `element`."""
    before = Lowering(PatternRewriter(op), op, ids)
    for index, value in enumerate(op.operands):
        if element_of(value.type).name == F32:
            op.operands[index] = _rounded(before, value, element, switch, f"operand{index}")
    after = _After(op, ids)
    for index, result in enumerate(op.results):
        if element_of(result.type).name == F32:
            uses = list(result.uses)
            rounded = _rounded(after, result, element, switch, f"result{index}")
            for use in uses:
                use.operation.operands[use.index] = rounded


def _rounded(writer: Writer, value: SSAValue, element: ElementType, switch: _Switch, name: str) -> SSAValue:
    narrow = writer.cast(value, element, f"{name}.{element.name}")
    return switch.choose(writer, value, writer.cast(narrow, element_named(F32), f"{name}.rounded"), name)


class _After(Writer):
    """Adds ops behind one op."""

    def __init__(self, op: LogicalOp, ids: IdTable) -> None:
        self._op, self._ids = op, ids
        self._last: LogicalOp = op

    def add(self, op: LogicalOp, suffix: str) -> SSAValue:
        """Insert an op behind what was added before."""
        name_after(op, self._op, suffix, self._ids)
        block = self._op.parent_block()
        assert block is not None
        block.insert_op_after(op, self._last)
        self._last = op
        return op.results[0]


def listing(policy: PrecisionPolicy, lowered: Mapping[str, str]) -> PrecisionPolicy:
    """The policy that lists each op of `lowered` with its precision and lowers no other."""
    return replace(policy, to="unchanged", rest=F32, ops=dict(lowered))
