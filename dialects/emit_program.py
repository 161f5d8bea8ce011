"""Programs: `emit.program`, the unit that is captured and replayed, and what holds between its ops.

Rules that need an analysis (overlap, happens-before, what each phase requires) are in `verify-emit` and
`verify-order`.
"""

from __future__ import annotations

from collections import Counter

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, StringAttr, SymbolNameConstraint, i64
from xdsl.ir import Block, Region
from xdsl.irdl import IRDLOperation, irdl_op_definition, opt_prop_def, prop_def, region_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, NoTerminator, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.emit_buffers import BindOp, SlotOp, ViewOp, root_buffer
from aicf.dialects.emit_instruction import ResolvedOp
from aicf.dialects.emit_syntax import parse_attributes
from aicf.dialects.host_formulas import is_computed, metas_read

PHASES = ("bufferized", "scheduled", "inplace", "planned", "final")
"""Phases of an `emit.program`, in order; each fixes which fields are decided."""

PREPARE = "prepare"
"""Symbol of the program that fills `derived` binds, run once when weights are bound."""

_FIELDS = ("phase", "arena_bytes", "graphs")
"""Properties that stand in the attribute dictionary of the text form, in this order."""


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """A program over buffers. `phase` says which decisions are made; only `final` runs.

    `graphs` partitions the instructions by name into what is captured together, in order. The program `@prepare`
    writes `derived` binds and nothing else outside its arena; any other writes outputs and updated state only.
    """

    name = "emit.program"

    sym_name = prop_def(SymbolNameConstraint())
    phase = prop_def(StringAttr)
    arena_bytes = opt_prop_def(IntegerAttr.constr(i64))
    graphs = opt_prop_def(ArrayAttr[ArrayAttr[StringAttr]])
    body = region_def("single_block")

    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface(), NoTerminator())

    def __init__(self, sym_name: str, phase: str = "bufferized", body: Region | None = None):
        super().__init__(
            properties={"sym_name": StringAttr(sym_name), "phase": StringAttr(phase)},
            regions=[Region(Block()) if body is None else body],
        )

    @property
    def phase_index(self) -> int:
        """Position of the phase in `PHASES`."""
        return PHASES.index(self.phase.data)

    @property
    def binds(self) -> tuple[BindOp, ...]:
        """The program's boundary, in order."""
        return tuple(op for op in self.body.block.ops if isinstance(op, BindOp))

    @property
    def slots(self) -> tuple[SlotOp, ...]:
        """Arena buffers."""
        return tuple(op for op in self.body.block.ops if isinstance(op, SlotOp))

    @property
    def instructions(self) -> tuple[ResolvedOp, ...]:
        """Instructions in text order."""
        return tuple(op for op in self.body.block.ops if isinstance(op, ResolvedOp))

    def verify_(self) -> None:
        if self.phase.data not in PHASES:
            raise VerifyException(
                f"program phase must be one of {', '.join(PHASES)}, got '{self.phase.data}'"
            )
        for field in ("sym_name", *_FIELDS):
            if field in self.attributes:
                raise VerifyException(
                    f"emit.program: '{field}' is a field of the op and cannot be an attribute"
                )
        if self.arena_bytes is not None and self.arena_bytes.value.data < 0:
            raise VerifyException(f"arena_bytes is not negative, got {self.arena_bytes.value.data}")
        if self.body.block.args:
            raise VerifyException(
                "emit.program has no block arguments; what it gets from outside are its binds"
            )
        for op in self.body.block.ops:
            if not isinstance(op, BindOp | SlotOp | ViewOp | ResolvedOp):
                raise VerifyException(
                    f"emit.program holds binds, slots, views and instructions, found {op.name}"
                )
        self._verify_names()
        self._verify_metas()
        self._verify_graphs()
        for instruction in self.instructions:
            self._verify_writes(instruction)

    def _verify_names(self) -> None:
        binds = self.binds
        families = {
            "outputs": [op.bind_name.data for op in binds if op.role.data == "output"],
            "binds": [op.bind_name.data for op in binds if op.role.data != "output"],
            "instructions": [op.instruction.data for op in self.instructions],
        }
        for family, names in families.items():
            for name, count in Counter(names).items():
                if count > 1:
                    raise VerifyException(f"{count} {family} are named '{name}'")

    def _verify_metas(self) -> None:
        """Formulas of the executable read earlier metas; what it keeps is what a formula gives."""
        seen: set[str] = set()
        computed = {bind.bind_name.data for bind in self.binds if is_computed(bind.host)}
        for bind in (bind for bind in self.binds if bind.role.data == "meta"):
            name, host = bind.bind_name.data, bind.host
            for read in () if host is None else metas_read(host):
                if read not in (seen if is_computed(host) else computed):
                    where = "before it" if is_computed(host) else "that the executable computes"
                    raise VerifyException(f"meta '{name}' is computed of '{read}', which is no meta {where}")
            seen.add(name)

    def _verify_graphs(self) -> None:
        if self.graphs is None:
            return
        captured = Counter(name.data for graph in self.graphs for name in graph)
        names = {op.instruction.data for op in self.instructions}
        if any(not graph.data for graph in self.graphs):
            raise VerifyException("graphs: a graph without instructions")
        for name, count in captured.items():
            if name not in names:
                raise VerifyException(f"graphs names '{name}', which is no instruction of the program")
            if count > 1:
                raise VerifyException(f"graphs: instruction '{name}' is in {count} places")
        for name in sorted(names - captured.keys()):
            raise VerifyException(f"graphs: instruction '{name}' is in no graph")

    def _verify_writes(self, instruction: ResolvedOp) -> None:
        for value in (*instruction.outs, *instruction.ws):
            root = root_buffer(value)
            if isinstance(root, BindOp) and not self._may_write(root):
                raise VerifyException(
                    f"instruction '{instruction.instruction.data}' writes {root.role.data} '{root.bind_name.data}'; "
                    + (
                        "@prepare writes derived binds"
                        if self._is_prepare
                        else "write a slot, an output or an updated bind"
                    )
                )

    @property
    def _is_prepare(self) -> bool:
        return self.sym_name.data == PREPARE

    def _may_write(self, bind: BindOp) -> bool:
        if self._is_prepare:
            return bind.role.data == "derived"
        return bind.role.data == "output" or bind.updated is not None

    @classmethod
    def parse(cls, parser: Parser) -> ProgramOp:
        sym_name = parser.parse_symbol_name().data
        entries = parse_attributes(parser, reserved=("sym_name",))
        phase = entries.pop("phase", None)
        if not isinstance(phase, StringAttr):
            parser.raise_error("emit.program needs a phase, one of " + ", ".join(PHASES))
        body = parser.parse_region()
        if not body.blocks:
            body.add_block(Block())
        op = cls(sym_name, phase.data, body)
        for key in _FIELDS:
            if key in entries:
                op.properties[key] = entries.pop(key)
        op.attributes |= entries
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.sym_name.data)
        fields = {key: self.properties[key] for key in _FIELDS if key in self.properties}
        printer.print_op_attributes({**fields, **self.attributes}, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body)
