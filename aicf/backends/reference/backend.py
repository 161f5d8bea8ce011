"""The reference backend: one kernel that runs anything, by its body, on NumPy.

Slow and right. It chooses nothing and packs nothing, so plans for it show the program without any kernel's demands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO

from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute
from xdsl.printer import Printer

from aicf.backends.base import CodeUnit
from aicf.backends.common.kernel import AnyKernel, UndecidedKernel
from aicf.backends.common.workload import Workload
from aicf.backends.host import processor_facts
from aicf.backends.native import NativeCode
from aicf.backends.reference.loader import ENTRY_ATTR, MODE, ReferenceCode, load_native
from aicf.dialects.emit import ProgramOp, symbols
from aicf.dialects.emit_types import KernelAttr, LayoutAttr, TargetAttr
from aicf.dialects.kinds import KINDS
from aicf.errors import PolicyError, UnsupportedOp


class BodyKernel(UndecidedKernel):
    """Runs the body of an instruction, whatever it is."""

    id = "reference.body"
    library = "body"
    kinds = frozenset(KINDS)

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """Always: every body can be evaluated."""
        return None

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """The same for everything: there is nothing to choose from."""
        return 1.0

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        """Which results may take the bytes of an operand of the same type: all, operands are read first."""
        pairs = [
            ArrayAttr([IntegerAttr(result, i64), IntegerAttr(operand, i64)])
            for result, made in enumerate(work.results)
            for operand, read in enumerate(work.operands)
            if (made.shape, made.strides, made.dtype) == (read.shape, read.strides, read.dtype)
        ]
        return {"may_alias": ArrayAttr(pairs)} if pairs else {}

    def prepare(self, work: Workload, operand: int, layout: LayoutAttr, target: TargetAttr) -> KernelAttr:
        """Raises UnsupportedOp: this kernel asks for no layout."""
        raise UnsupportedOp(
            f"'{work.id}': {self.id} reads plain memory and prepares no '{layout.layout.data}'"
        )


class ReferenceBackend:
    """See `Backend`."""

    name = "reference"

    def resolve_arch(self, arch: str | None) -> str:
        """The arithmetic: `typed`, every value rounded to its dtype."""
        if arch not in (None, MODE):
            raise PolicyError(f"backend 'reference' has no level '{arch}'; legal: {MODE}")
        return MODE

    def libraries(self) -> Mapping[str, str]:
        """None."""
        return {}

    def kernels(self) -> Sequence[AnyKernel]:
        """The one kernel."""
        return (BodyKernel(),)

    def build(self, module: ModuleOp, units: Sequence[CodeUnit], target: TargetAttr) -> NativeCode:
        """The module's text, with the entry of each unit noted on its program."""
        copy = module.clone()
        programs = symbols(copy)
        for unit in units:
            program = programs[unit.program.sym_name.data]
            assert isinstance(program, ProgramOp)
            program.attributes[ENTRY_ATTR] = StringAttr(unit.entry)
        text = StringIO()
        Printer(text).print_op(copy)
        return NativeCode(text.getvalue().encode("utf-8"), features=())

    def load(self, native: NativeCode) -> ReferenceCode:
        """See `load_native`."""
        return load_native(native)

    def devices(self) -> Sequence[Mapping[str, str]]:
        """This machine."""
        return (processor_facts(MODE),)
