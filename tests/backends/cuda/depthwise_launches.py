"""One depthwise convolution alone for cuda: its work, its record, its launch, and its results on a simulated GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.compiler.launches import KernelLaunch
from aicf.backends.cuda.families.conv.depthwise.codegen import emit
from aicf.backends.cuda.families.conv.depthwise.kernel import ConvDepthwiseKernel
from aicf.backends.cuda.families.conv.pack.kernel import outputs_innermost
from aicf.backends.cuda.target import ELEMENT_BYTES
from aicf.compilation.record import Options
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import LayoutAttr, TargetAttr
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import target_of, workload_of
from aicf.runtime.tensors import numpy_dtype
from aicf.semantics.evaluate import evaluate_block
from aicf.tuning.candidates import grouped
from tests.backends.cuda.simulator import Memory, run
from tests.gpu.convolutions import Convolution, convolutions

Array = NDArray[Any]

KERNEL = ConvDepthwiseKernel()

_MODULES: list[ModuleOp] = []
"""Works hold parts of them, and go with them."""


def work_of(
    made: Convolution, dtype: str = "f16", target: str = "cuda:sm_90a"
) -> tuple[Workload, TargetAttr]:
    """What kernels are asked to run: the group that holds the convolution."""
    return work_in(convolutions(dtype, [made]), target)


def work_in(graph: Graph, target: str = "cuda:sm_90a") -> tuple[Workload, TargetAttr]:
    """The same of a graph with one convolution."""
    module = grouped(graph.module(), Options(target, "", "", 1), make_context(), lambda _: None)
    _MODULES.append(module)
    works = [workload_of(op).work for op in module.walk() if isinstance(op, GroupOp)]
    (work,) = (work for work in works if work.kind == "conv")
    return work, target_of(module)


def channels_last(work: Workload) -> Workload:
    """The work with channels-last results."""

    def strides(shape: Sequence[int]) -> tuple[int, ...]:
        order = [0, *range(2, len(shape)), 1]
        return tuple(prod(shape[dim] for dim in order[order.index(axis) + 1 :]) for axis in range(len(shape)))

    return replace(work, results=tuple(replace(one, strides=strides(one.shape)) for one in work.results))


def laid_out(work: Workload, record: Mapping[str, Attribute]) -> Workload:
    """The work with its operands in the layouts that the record asks for."""
    layouts: Any = record.get("layouts")
    if layouts is None:
        return work
    operands = [
        replace(info, layout=layout, offset=0) if isinstance(layout, LayoutAttr) else info
        for info, layout in zip(work.operands, layouts.data, strict=True)
    ]
    return replace(work, operands=tuple(operands))


def launch_of(work: Workload, record: Mapping[str, Attribute], on: int | None = None) -> KernelLaunch:
    """The launch of a record; operands are buffers 1, 2, ..., then results, the first of them at operand `on` if that
    is given."""
    given = laid_out(work, record)
    refs = [
        BufferRef(
            base, info.offset * ELEMENT_BYTES[info.dtype], info.shape, info.strides, info.dtype, info.layout
        )
        for base, info in enumerate((*given.operands, *given.results), 1)
    ]
    ins, outs = tuple(refs[: len(work.operands)]), tuple(refs[len(work.operands) :])
    outs = outs if on is None else (ins[on], *outs[1:])
    (launch,) = emit(Launch("conv", work.kind, KERNEL.id, record, ins, outs, (), work.body, work.code, ()))
    return launch


def drawn_operands(work: Workload, seed: int) -> list[Array]:
    """Normally distributed values."""
    source = np.random.default_rng(seed)
    return [source.standard_normal(info.shape).astype(numpy_dtype(info.dtype)) for info in work.operands]


def expected(work: Workload, operands: Sequence[Array]) -> list[Array]:
    """What the body means."""
    return evaluate_block(work.body, operands, "exact")


def simulated(
    work: Workload, record: Mapping[str, Attribute], operands: Sequence[Array], on: int | None = None
) -> list[Array]:
    """The results on a simulated GPU, the first of them at operand `on` if that is given. Elements that lie between
    those of the operands were never written."""
    infos = (*laid_out(work, record).operands, *work.results)
    places = [_places(info) for info in infos]
    sizes = [
        (int(place.max()) + 1) * ELEMENT_BYTES[info.dtype] for place, info in zip(places, infos, strict=True)
    ]
    memory = Memory([16, *sizes])
    for base, (array, place) in enumerate(zip(operands, places, strict=False), 1):
        memory.buffers[base].view(array.dtype)[place] = array
        memory.written[base].reshape(-1, array.itemsize)[place] = True
    run([launch_of(work, record, on)], memory)
    results: list[Array] = []
    for base, info in enumerate(work.results, 1 + len(operands)):
        base = base if on is None else 1 + on
        written = memory.written[base].reshape(-1, ELEMENT_BYTES[info.dtype])
        assert written[places[base - 1]].all()
        assert written.all(1).sum() == np.unique(places[base - 1]).size
        results.append(memory.buffers[base].view(numpy_dtype(info.dtype))[places[base - 1]])
    return results


def _places(info: OperandInfo) -> Array:
    """Where each element lies."""
    strides = info.strides if info.layout is None else outputs_innermost(info.shape)
    axes = (np.arange(size) * step for size, step in zip(info.shape, strides, strict=True))
    return np.asarray(info.offset + sum(np.ix_(*axes)))
