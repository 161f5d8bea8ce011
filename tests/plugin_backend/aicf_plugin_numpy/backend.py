"""The backend: describes its kernels and turns final programs into JSON, which `loader` runs."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.arith import CmpfOp, ConstantOp
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineMap

from aicf.backends.base import BufferRef, CodeUnit, Launch
from aicf.backends.common.kernel import AnyKernel
from aicf.backends.native import NativeCode
from aicf.dialects.emit_kernels import KernelOp, ReduceOp, StoreOp, YieldOp
from aicf.dialects.emit_types import TargetAttr
from aicf.dialects.types import element_of
from aicf.errors import PolicyError
from aicf_plugin_numpy.kernels import KERNELS
from aicf_plugin_numpy.loader import NumpyCode


class NumpyBackend:
    """See `aicf.backends.base.Backend`."""

    name = "numpy"
    timing = "aicf.tuning.host_device:HostDevice"

    def resolve_arch(self, arch: str | None) -> str:
        """There is one level."""
        if arch not in (None, "any"):
            raise PolicyError(f"backend 'numpy' has no level '{arch}'; legal: any")
        return "any"

    def libraries(self) -> Mapping[str, str]:
        """None."""
        return {}

    def kernels(self) -> Sequence[AnyKernel]:
        """See `kernels`."""
        return KERNELS

    def build(self, module: ModuleOp, units: Sequence[CodeUnit], target: TargetAttr) -> NativeCode:
        """JSON of every program's launches."""
        programs = {unit.entry: [_launch(launch) for launch in unit.launches] for unit in units}
        return NativeCode(json.dumps(programs, sort_keys=True).encode(), features=())

    def load(self, native: NativeCode) -> NumpyCode:
        """See `loader`."""
        return NumpyCode(native.code)

    def devices(self) -> Sequence[Mapping[str, str]]:
        """This machine."""
        return ({"name": platform.machine(), "arch": "any"},)


def _launch(launch: Launch) -> dict[str, Any]:
    flags = {
        key: bool(value.value.data) for key, value in launch.record.items() if isinstance(value, IntegerAttr)
    }
    return {
        "kernel": launch.kernel,
        "flags": {key: flags[key] for key in ("transpose_a", "transpose_b") if key in flags},
        "ins": [_ref(ref) for ref in launch.ins],
        "outs": [_ref(ref) for ref in launch.outs],
        "code": None if launch.code is None else _code(launch.code),
    }


def _ref(ref: BufferRef) -> dict[str, Any]:
    return {
        "base": ref.base,
        "offset": ref.offset,
        "shape": ref.shape,
        "strides": ref.strides,
        "dtype": ref.dtype,
    }


def _code(code: KernelOp) -> dict[str, Any]:
    numbers: dict[SSAValue, int] = {value: number for number, value in enumerate(code.body.block.args)}
    phases = [[_step(op, numbers) for op in phase.body.block.ops] for phase in _numbered(code, numbers)]
    return {
        "sizes": [*code.parallel_sizes, *code.reduce_sizes],
        "reduced": len(code.reduce_sizes),
        "ins": [_map(m) for m in code.in_maps],
        "outs": [_map(m) for m in code.out_maps],
        "phases": phases,
    }


def _numbered(code: KernelOp, numbers: dict[SSAValue, int]) -> Sequence[Any]:
    """The phases; what one yields has the number of what the later ones read."""
    for phase in code.phases:
        for op in phase.body.block.ops:
            if isinstance(op, YieldOp):
                for inner, outer in zip(op.values, phase.values, strict=True):
                    numbers[outer] = numbers[inner]
            for result in op.results:
                numbers[result] = len(numbers)
    return code.phases


def _map(index_map: AffineMap) -> list[int]:
    """Per dim of the operand the dim of the iteration space, -1 for a constant."""
    return [e.position if isinstance(e, AffineDimExpr) else -1 for e in index_map.results]


def _step(op: Operation, numbers: Mapping[SSAValue, int]) -> dict[str, Any]:
    step: dict[str, Any] = {"op": op.name, "args": [numbers[value] for value in op.operands]}
    if op.results:
        step["result"] = numbers[op.results[0]]
    match op:
        case ConstantOp(value=FloatAttr() | IntegerAttr() as value):
            step |= {"value": value.value.data, "dtype": element_of(op.result.type).name}
        case CmpfOp():
            step["predicate"] = op.predicate.value.data
        case ReduceOp():
            step["combine"] = op.combine.data
        case StoreOp():
            step["output"] = op.output.value.data
        case _:
            pass
    return step
