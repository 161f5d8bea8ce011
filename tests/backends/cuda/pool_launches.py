"""One pooling alone for cuda, with operands that lie as a test says: its work, its record, its launch, its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.loop_nest import Strided
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.families.pool.codegen import emit
from aicf.backends.cuda.families.pool.kernel import PoolKernel
from aicf.backends.cuda.target import ELEMENT_BYTES
from aicf.compilation.record import Options
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import TargetAttr
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import target_of, workload_of
from aicf.runtime.tensors import numpy_dtype
from aicf.tuning.candidates import grouped
from tests.backends.cuda.simulator import Memory, run

Array = NDArray[Any]
Order = Sequence[int]
"""The dimensions of a value as they lie in memory, outermost first."""

KERNEL = PoolKernel()


def planes(rank: int) -> Order:
    """Row-major memory."""
    return range(rank)


def channels(rank: int) -> Order:
    """Channels-last memory."""
    return [0, *range(2, rank), 1]


def strides_in(shape: Sequence[int], order: Order, gap: int = 0) -> tuple[int, ...]:
    """Elements between neighbours along each dimension, with `gap` elements after each row in memory."""
    found, step = [0] * len(shape), 1
    for number, dim in enumerate(reversed(order)):
        found[dim] = step
        step = step * shape[dim] + (gap if number == 0 else 0)
    return tuple(found)


def pooling(op: str, shape: Sequence[int], dtype: str, **windows: Any) -> Graph:
    """One pooling of `x`."""
    g = Graph("pooling")
    g.output(getattr(g, op)(g.input("x", shape, dtype), **windows), "y")
    return g


def work_of(
    graph: Graph,
    x: Order,
    y: Order,
    gap: int = 0,
    offset: int = 0,
    target: str = "cuda:sm_90a",
) -> tuple[Workload, TargetAttr]:
    """The work of a graph's one pooling.

    Args:
        x, y: How the operand and the result lie.
        gap, offset: Elements after each row, and before the first element.
    """
    module = grouped(graph.module(), Options(target, "", "", 1), make_context(), lambda _: None)
    works = [workload_of(op).work for op in module.walk() if isinstance(op, GroupOp)]
    (work,) = (work for work in works if work.kind == "pool")

    def laid(infos: Sequence[OperandInfo], order: Order) -> tuple[OperandInfo, ...]:
        return tuple(
            replace(info, strides=strides_in(info.shape, order, gap), offset=offset) for info in infos
        )

    return replace(work, operands=laid(work.operands, x), results=laid(work.results, y)), target_of(module)


def launch_of(work: Workload, record: Mapping[str, Attribute]) -> KernelLaunch:
    """The launch of a record; the operand is buffer 1, the result buffer 2."""
    refs = [
        BufferRef(base, info.offset * ELEMENT_BYTES[info.dtype], info.shape, info.strides, info.dtype)
        for base, info in enumerate((*work.operands, *work.results), 1)
    ]
    ins, outs = tuple(refs[:1]), tuple(refs[1:])
    (launch,) = emit(Launch("pooling", work.kind, KERNEL.id, record, ins, outs, (), work.body, work.code, ()))
    return launch


def simulated(work: Workload, record: Mapping[str, Attribute], x: Array) -> Array:
    """The result on a simulated GPU. Elements that lie between those of the operand were never written."""
    operand, result = work.operands[0], work.results[0]
    memory = Memory([16, *(_elements(info) * x.itemsize for info in (operand, result))])
    places = _places(operand)
    buffer, written = memory.buffers[1].view(x.dtype), memory.written[1].reshape(-1, x.itemsize)
    buffer[places], written[places] = x, True
    run([launch_of(work, record)], memory)
    places = _places(result)
    given = memory.written[2].reshape(-1, x.itemsize)
    assert given[places].all() and given.sum() == places.size * x.itemsize
    return memory.buffers[2].view(numpy_dtype(result.dtype))[places]


def strided(info: OperandInfo) -> Strided:
    """An operand by its sizes, strides and type."""
    return Strided(info.shape, info.strides, info.dtype)


def _places(info: OperandInfo) -> Array:
    """Where each element lies."""
    axes = (np.arange(size) * step for size, step in zip(info.shape, info.strides, strict=True))
    return info.offset + sum(np.ix_(*axes))


def _elements(info: OperandInfo) -> int:
    return int(_places(info).max()) + 1
