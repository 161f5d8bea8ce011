"""The ledger of emit IR: every decision of a pass, with its reason and what was rejected.

Nothing here takes part in a run; a module without its ledger runs the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Operation, Region
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, region_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.emit_syntax import (
    parse_attributes,
    parse_dictionary,
    parse_string,
    parse_strings,
    print_attributes,
    print_strings,
)


@irdl_op_definition
class DecisionOp(IRDLOperation):
    """One decision of a pass: about which ids, what was chosen, why, and what was rejected for which reason.

    `rejected` maps each rejected alternative to its reason. Its keys are unique: an alternative that was rejected
    twice (one kernel with two tiles, say) needs a key that says which (`cpu.gemm mr=4`).
    """

    name = "emit.decision"

    pass_name = prop_def(StringAttr)
    subjects = prop_def(ArrayAttr[StringAttr])
    choice = prop_def(StringAttr)
    because = prop_def(StringAttr)
    rejected = prop_def(DictionaryAttr)
    cost = prop_def(DictionaryAttr)

    def __init__(
        self,
        pass_name: str,
        subjects: Sequence[str],
        choice: str,
        because: str,
        rejected: Mapping[str, str] | None = None,
        cost: Mapping[str, Attribute] | None = None,
    ):
        super().__init__(
            properties={
                "pass_name": StringAttr(pass_name),
                "subjects": ArrayAttr([StringAttr(subject) for subject in subjects]),
                "choice": StringAttr(choice),
                "because": StringAttr(because),
                "rejected": DictionaryAttr({name: StringAttr(why) for name, why in (rejected or {}).items()}),
                "cost": DictionaryAttr(cost or {}),
            }
        )

    @classmethod
    def parse(cls, parser: Parser) -> DecisionOp:
        pass_name = parse_string(parser)
        subjects = [subject.data for subject in parse_strings(parser)]
        parser.parse_keyword("choice")
        choice = parse_string(parser)
        parser.parse_keyword("because")
        because = parse_string(parser)
        op = cls(pass_name, subjects, choice, because)
        for keyword in ("rejected", "cost"):
            if parser.parse_optional_keyword(keyword) is not None:
                op.properties[keyword] = parse_dictionary(parser)
        op.attributes |= parse_attributes(parser)
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_string_literal(self.pass_name.data)
        printer.print_string(" ")
        print_strings(printer, self.subjects)
        for keyword, text in (("choice", self.choice), ("because", self.because)):
            printer.print_string(f" {keyword} ")
            printer.print_string_literal(text.data)
        for keyword, entries in (("rejected", self.rejected), ("cost", self.cost)):
            if entries.data:
                printer.print_string(f" {keyword} ")
                printer.print_attribute(entries)
        print_attributes(printer, self)

    def verify_(self) -> None:
        for alternative, reason in self.rejected.data.items():
            if not alternative:
                raise VerifyException("emit.decision: a rejected alternative needs a name")
            if not isinstance(reason, StringAttr):
                raise VerifyException(
                    f"emit.decision: rejected alternative '{alternative}' needs its reason, a string"
                )
        if "" in self.cost.data:
            raise VerifyException("emit.decision: a cost needs a name")


@irdl_op_definition
class LedgerOp(IRDLOperation):
    """The append-only list of decisions of a module. Removing it never changes what runs."""

    name = "emit.ledger"

    body = region_def("single_block")

    traits = traits_def(NoTerminator())

    def __init__(self, decisions: Sequence[Operation] = ()):
        super().__init__(regions=[Region(Block(decisions))])

    @property
    def decisions(self) -> tuple[DecisionOp, ...]:
        """All entries, oldest first."""
        return tuple(op for op in self.body.block.ops if isinstance(op, DecisionOp))

    @classmethod
    def parse(cls, parser: Parser) -> LedgerOp:
        attributes = parse_attributes(parser)
        body = parser.parse_region()
        if not body.blocks:
            body.add_block(Block())
        return cls.create(attributes=attributes, regions=[body])

    def print(self, printer: Printer) -> None:
        print_attributes(printer, self)
        printer.print_string(" ")
        printer.print_region(self.body)

    def verify_(self) -> None:
        if self.body.block.args or any(not isinstance(op, DecisionOp) for op in self.body.block.ops):
            raise VerifyException("emit.ledger holds emit.decision only")


def find_ledger(module: ModuleOp) -> LedgerOp | None:
    """The ledger of `module`, if it has one."""
    return next((op for op in module.body.block.ops if isinstance(op, LedgerOp)), None)
