"""How much of an instruction's work each op of the model is that it stands for.

An estimate for profiles: nobody can measure an op inside a fused loop. It is read from the bodies of the emit program,
so it needs the text of one and imports the compiler; no decision depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from xdsl.ir import Attribute, Operation

from aicf.dialects import logical
from aicf.dialects.emit import BodyOp, ResolvedOp
from aicf.dialects.types import is_tensor, tensor_info
from aicf.frontends.text import make_context, parse_module
from aicf.passes.analysis.work_done import operations_of
from aicf.passes.support.identity import sources


def work_by_source(emit: str) -> dict[str, dict[str, float]]:
    """For each instruction of final emit IR by name: the work of its body by source op, in scalar operations.

    An op is at least one operation for each element that it gives. One that stands for several sources counts in equal
    parts for each; one that stands for none, such as a view, does not count.
    """
    module = parse_module(emit, "<emit>", context=make_context(), verify=False)
    bodies = {op.sym_name.data: op for op in module.walk() if isinstance(op, BodyOp)}
    found: dict[str, dict[str, float]] = {}
    for op in module.walk():
        if isinstance(op, ResolvedOp) and op.body is not None:
            shares = found.setdefault(op.instruction.data, {})
            for source, work in _work(bodies[op.body.root_reference.data]):
                shares[source] = shares.get(source, 0.0) + work
    return found


def _work(body: BodyOp) -> Iterator[tuple[str, float]]:
    for op in body.body.block.ops:
        names = sources(op)
        for name in names:
            yield name, max(arithmetic(op), _given(op)) / len(names)


def arithmetic(op: Operation) -> int:
    """Scalar operations of an op in a body; a product or convolution counts two for each multiply and add."""
    if isinstance(op, logical.ConvOp | logical.ConvTransposeOp):
        # Each element of the result, or of the operand where it is scattered, meets a window of channels.
        outer = op.results[0] if isinstance(op, logical.ConvOp) else op.operands[0]
        return 2 * prod(tensor_info(op.weight.type).shape[1:]) * _elements(outer.type)
    return operations_of(op)


def _given(op: Operation) -> int:
    """Elements that an op gives."""
    return sum(_elements(result.type) for result in op.results)


def _elements(type_: Attribute) -> int:
    return prod(tensor_info(type_).shape) if is_tensor(type_) else 0
