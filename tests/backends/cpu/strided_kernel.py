"""One kernel compiled alone, with operands that lie as a test says: planes of channels, or channels side by side."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, UnitAttr
from xdsl.ir import Attribute

from aicf.backends.base import BufferRef, CodeUnit, Launch
from aicf.backends.common.kernel import AnyKernel
from aicf.backends.common.record import read_integer, read_text
from aicf.backends.common.workload import Workload
from aicf.backends.cpu.compiler.build import build_object
from aicf.backends.cpu.families.conv.winograd.matrices import transforms
from aicf.backends.cpu.families.conv.winograd.pack.kernel import WINOGRAD_WEIGHT
from aicf.backends.cpu.families.gemm.pack.kernel import PACKED_B
from aicf.backends.cpu.runtime.loader import load_object
from aicf.backends.cpu.target import level_named
from aicf.backends.registry import get_kernels
from aicf.compilation.record import Options
from aicf.dialects.emit import GroupOp
from aicf.dialects.emit_types import LayoutAttr, TargetAttr
from aicf.frontends.builder import Graph
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import target_of, workload_of
from aicf.runtime.plan_from_ir import code_units
from aicf.tuning.candidates import grouped
from tests.backends.cpu.harness import NUMPY, Poisoned
from tests.backends.cpu.programs import argument, function, lower

Array = NDArray[Any]
Lies = Literal["planes", "channels"]


def laid(array: Array, lies: Lies) -> Array:
    """The same array, contiguous or with the elements along dimension 1 side by side."""
    if lies == "planes" or array.ndim < 3:
        return np.ascontiguousarray(array)
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def element_strides(array: Array) -> tuple[int, ...]:
    """Elements between neighbours."""
    return tuple(step // array.itemsize for step in array.strides)


def work_in(graph: Graph, prefix: str, target: str, threads: int = 1) -> tuple[Workload, TargetAttr]:
    """The work of the one group of a graph that a kernel whose id starts so takes, and the target."""
    module = grouped(
        graph.module(), Options(target, json.dumps({}), "", threads), make_context(), lambda _: None
    )
    kinds = {kind for kernel in kernels_named(prefix) for kind in getattr(kernel, "kinds", ())}
    works = [workload_of(op).work for op in module.walk() if isinstance(op, GroupOp)]
    (work,) = (work for work in works if work.kind in kinds)
    return work, target_of(module)


def kernels_named(prefix: str) -> list[AnyKernel]:
    """Kernels of the CPU whose id starts so."""
    return [kernel for name, kernel in get_kernels("cpu").items() if name.startswith(prefix)]


class StridedKernel:
    """The cheapest kernel of some name for a graph's one convolution or pooling.

    Args:
        graph: The program.
        prefix: What the kernel's id starts with.
        lies: How each operand of rank 3 or more lies, in the order of the work's operands; the weight of a convolution
            is contiguous whatever is said.
        result: How the result lies.
        target, threads: As `aicf.compile` has them.
    """

    def __init__(
        self,
        graph: Graph,
        prefix: str,
        lies: Sequence[Lies],
        result: Lies,
        target: str = "cpu",
        threads: int = 1,
    ) -> None:
        work, self.target = work_in(graph, prefix, target, threads)
        self.lies: list[Lies] = [*lies]
        if work.kind == "conv":
            self.lies[1] = "planes"
        assert len(self.lies) == len(work.operands)
        self.result = result
        operands = tuple(
            replace(info, strides=_strides(info.shape, how)) if len(info.shape) > 2 else info
            for info, how in zip(work.operands, self.lies, strict=True)
        )
        results = tuple(replace(info, strides=_strides(info.shape, result)) for info in work.results)
        self.work = replace(work, operands=operands, results=results)
        legal = [kernel for kernel in kernels_named(prefix) if kernel.legal(self.work, self.target) is None]
        self.kernel = min(legal, key=lambda kernel: kernel.cost_us(self.work, self.target))
        self.us = self.kernel.cost_us(self.work, self.target)
        self.record: Mapping[str, Attribute] = self.kernel.record(self.work, self.target)
        self.threads = read_integer(self.record, "threads")

    @property
    def layouts(self) -> list[LayoutAttr | None]:
        """Of each operand, the packed one that the record asks for."""
        found = self.record.get("layouts")
        if not isinstance(found, ArrayAttr):
            return [None] * len(self.work.operands)
        return [None if isinstance(entry, UnitAttr) else _layout(entry) for entry in found.data]

    def compile(self) -> bytes:
        """Object code."""
        infos = (*self.work.operands, *self.work.results)
        layouts = [*self.layouts, *[None] * len(self.work.results)]
        refs = [
            BufferRef(number + 1, 0, info.shape, info.strides, info.dtype, layout)
            for number, (info, layout) in enumerate(zip(infos, layouts, strict=True))
        ]
        ins, outs = refs[: len(self.work.operands)], refs[len(self.work.operands) :]
        spare = BufferRef(len(refs) + 1, 0, (self.workspace_bytes,), (1,), "u8")
        launch = Launch(
            *("placed", self.work.kind, self.kernel.id, self.record, tuple(ins), tuple(outs)),
            (spare,) if self.workspace_bytes else (),
            self.work.body,
            self.work.code,
            (),
        )
        unit = replace(_empty_unit(), entry="run", launches=(launch,), table_size=len(refs) + 2)
        return build_object("placed", [unit], level_named(self.target.arch.data))[0]

    @property
    def workspace_bytes(self) -> int:
        """Bytes that the record asks for."""
        return read_integer(self.record, "workspace_bytes") if "workspace_bytes" in self.record else 0

    def prepared(self, arrays: Sequence[Array]) -> list[Array]:
        """Operands as they lie in memory, the weight packed where the record asks for it."""
        return [
            laid(array, how) if layout is None else packed(array, layout)
            for array, how, layout in zip(arrays, self.lies, self.layouts, strict=True)
        ]

    def caller(self, memory: Sequence[Array]) -> Any:
        """A function that runs the kernel, each thread's part after the other, on operands as `prepared` gives them and
        the result's memory."""
        loaded = load_object(self.compile())
        spare = np.zeros(self.workspace_bytes + 64, np.uint8)
        start = spare.ctypes.data + -spare.ctypes.data % 64
        addresses = [0, *(array.ctypes.data for array in memory), start]
        table = (ctypes.c_void_p * len(addresses))(*addresses)
        run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(loaded.address("run"))

        def call() -> None:
            for tid in range(self.threads):
                run(tid, self.threads, ctypes.addressof(table))

        call.keeps = (loaded, spare, memory)  # type: ignore[attr-defined]
        return call

    def __call__(self, arrays: Sequence[Array]) -> Array:
        """The result for operands in the order of the work's."""
        (info,) = self.work.results
        shape = info.shape if self.result == "planes" else (info.shape[0], *info.shape[2:], info.shape[1])
        memory = Poisoned(shape, info.dtype)
        memory.array.view(np.uint8)[...] = 0xFF
        self.caller([*self.prepared(arrays), memory.array])()
        memory.check()
        return memory.array if self.result == "planes" else np.moveaxis(memory.array, -1, 1)


def packed(weight: Array, layout: LayoutAttr) -> Array:
    """The panels of a weight whose dims after the first are one: what `cpu.pack` makes, or `cpu.pack_winograd`."""
    entries = layout.parameters_.data
    width = read_integer(entries, "nr")
    if layout.layout.data == WINOGRAD_WEIGHT:
        g = np.array(transforms(read_integer(entries, "output_tile")).weight, np.float64)
        elements = np.einsum("ia,ocab,jb->ijoc", g, weight.astype(np.float64), g).astype(weight.dtype)
        return np.stack([_panels(rows, width) for line in elements for rows in line])
    assert layout.layout.data == PACKED_B
    element = NUMPY[read_text(entries, "element")] if "element" in entries else weight.dtype
    return _panels(weight.reshape(weight.shape[0], -1).astype(element), width)


def _panels(rows: Array, width: int) -> Array:
    """Panels of `width` rows each, transposed."""
    panels = -(-len(rows) // width)
    full = np.zeros((panels * width, rows.shape[1]), rows.dtype)
    full[: len(rows)] = rows
    return np.ascontiguousarray(full.reshape(panels, width, -1).transpose(0, 2, 1))


def _strides(shape: tuple[int, ...], lies: Lies) -> tuple[int, ...]:
    return element_strides(laid(np.empty(shape, np.uint8), lies))


def _layout(entry: Attribute) -> LayoutAttr:
    assert isinstance(entry, LayoutAttr)
    return entry


def _empty_unit() -> CodeUnit:
    """The unit of some program, for its program op."""
    text = function([argument("x", (1,))], ((1,), "f32"), "%r = logical.relu %x : tensor<1xf32>")
    return code_units(lower(text, "generic"))[0]
