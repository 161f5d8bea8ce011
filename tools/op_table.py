"""The page `docs/reference/ops.md`: every logical op with the element types it takes and those that each backend runs.

All of it is asked for: the types from the verifiers, by `op_samples.py`; what runs from the kernels of the backends,
for the primitive ops that `lower-logical` writes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation

from aicf.backends.registry import resolve_target
from aicf.dialects import logical
from aicf.dialects.emit import YieldOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.logical import LogicalOp
from aicf.dialects.types import ELEMENTS
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import GroupWorkload, legal_kernels, workload_of_body
from aicf.passes.legalize.lower_logical import LowerLogicalPass
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.training.lower_optimizers import LowerOptimizersPass
from aicf.semantics import SEMANTICS
from aicf.tools.op_samples import function_of, samples_of

TARGETS = {"reference": "reference", "cpu": "cpu:x86-64-v3", "cuda": "cuda:sm_90a"}
"""Backend to the target whose kernels are asked."""

_NAMES = tuple(element.name for element in ELEMENTS)
_GROUPS = {
    "all": _NAMES,
    "all but f8": tuple(element.name for element in ELEMENTS if not element.is_float8),
    "numbers": tuple(
        element.name for element in ELEMENTS if element.kind != "bool" and not element.is_float8
    ),
    "floats": tuple(element.name for element in ELEMENTS if element.is_float and not element.is_float8),
    "integers": tuple(element.name for element in ELEMENTS if element.kind == "int"),
}
"""Words for sets of types."""

Row = tuple[str, ...]

_PREFACE = f"""The types are those with which the verifier takes the op; where it has indices, seeds or conditions too,
those of its data. A backend runs a type if it has a kernel for the op, which is asked of `{TARGETS["cpu"]}` and of
`{TARGETS["cuda"]}`: "yes" is all of them. An op made by formula is written with primitive ones
([lower-logical](passes.md#lower-logical), [lower-optimizers](passes.md#lower-optimizers)) and runs where these do.
What `logical.save` marks is kept, or computed again. "f8" are f8E4M3FN and f8E5M2, "floats" the
others, and "numbers" all types but these and i1. What each op means
is in [its reference](dialect-logical.md).
"""


def rows_of(family: ModuleType) -> Iterator[Row]:
    """A row an op: name, summary, how it is made, types, and the types of each backend."""
    for op in sorted(logical.ops_of(family), key=lambda op: op.name):
        if op in SEMANTICS:
            accepted = samples_of(op)
            runs = [
                [name for name, sample in accepted.items() if is_run(sample, backend)] for backend in TARGETS
            ]
            is_formula = op.get_traits_of_type(logical.Composite) or issubclass(op, logical.OptimizerOp)
            made = "by formula" if is_formula else "primitive"
            columns = [
                _types_text(list(accepted)),
                *(_coverage_text(names, list(accepted)) for names in runs),
            ]
            yield f"`{op.name}`", _summary(op), made, *columns


def _summary(op: type[Operation]) -> str:
    """The first sentence of the docstring."""
    text = re.sub(r"\s+", " ", inspect.cleandoc(op.__doc__ or "")).replace("``", "`")
    return re.split(r"(?<=[.;]) ", text)[0].rstrip(".;")


def _types_text(names: Sequence[str]) -> str:
    return next((word for word, group in _GROUPS.items() if tuple(names) == group), " ".join(names))


def _coverage_text(names: Sequence[str], accepted: Sequence[str]) -> str:
    return "yes" if names == accepted else _types_text(names) if names else "no"


def is_run(sample: LogicalOp, backend: str) -> bool:
    """Whether the backend has a kernel for each of the ops that the op is lowered to."""
    return all(_has_kernel(part, backend) for part in _parts(sample))


@dataclass(frozen=True)
class _Part:
    """An op without its operands; without a class it is a copy of its only operand."""

    op: type[LogicalOp] | None
    operands: tuple[Attribute, ...]
    result: Attribute
    properties: frozenset[tuple[str, Attribute]] = frozenset()

    def body(self) -> Block:
        """A group of it."""
        block = Block(arg_types=self.operands)
        given: Operation | None = None
        if self.op is not None:
            properties = dict(self.properties)
            given = self.op.create(operands=block.args, result_types=[self.result], properties=properties)
            block.add_op(given)
        block.add_op(YieldOp(block.args if given is None else given.results))
        return block


@cache
def _parts(sample: LogicalOp) -> tuple[_Part, ...]:
    """The primitive ops that an op is written with, each once. Of what is its operand or constant there is a copy."""
    copy = _Part(None, (sample.result.type,), sample.result.type)
    if isinstance(sample, logical.ConstantOp | logical.SaveOp):
        return (copy,)
    module = ModuleOp([function_of(sample)])
    for step in (AssignIdsPass(), LowerOptimizersPass(), LowerLogicalPass()):
        step.apply(make_context(), module)
    ops = [op for op in module.walk() if isinstance(op, LogicalOp) and not isinstance(op, logical.ConstantOp)]
    parts = (
        _Part(type(op), tuple(op.operand_types), op.result.type, frozenset(op.properties.items()))
        for op in ops
    )
    return tuple(dict.fromkeys(parts)) or (copy,)


@cache
def _work(part: _Part) -> GroupWorkload:
    body = part.body()
    return workload_of_body("op", body, [("input", False)] * len(body.args))


@cache
def _has_kernel(part: _Part, backend: str) -> bool:
    return bool(legal_kernels(_work(part), _target(backend))[0])


@cache
def _target(backend: str) -> TargetAttr:
    return resolve_target(TARGETS[backend])


def table_page(note: str) -> str:
    """The page, as Markdown; `note` says that it is generated."""
    header = ("op", "what it gives", "made", "element types", *TARGETS)
    parts = ["# Logical ops by element type\n", note, _PREFACE]
    for family in logical.FAMILIES:
        if rows := list(rows_of(family)):
            title = family.__name__.rpartition(".")[2].replace("_", " ")
            parts += [f"## {title[0].upper()}{title[1:]}\n", markdown_table(header, rows)]
    return "\n".join(parts)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its header."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
