"""Programs of hand-written instructions without bodies, one for each case of `tests/passes/training_kinds.py`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.builder import Builder, InsertPoint
from xdsl.dialects.builtin import ModuleOp, f32, i64

from aicf.dialects.emit import BindOp, BufferType, ProgramOp, emit_resolved
from tests.passes.training_kinds import Array, Case


def module_of(cases: Sequence[Case], align: int | None = None) -> ModuleOp:
    """One program: case k reads inputs `k.i`, and gives outputs `k.o`."""
    program = ProgramOp("kinds", "bufferized")
    builder = Builder(InsertPoint.at_end(program.body.block))
    reads = [_binds(builder, "input", k, case.operands, align) for k, case in enumerate(cases)]
    writes = [_binds(builder, "output", k, case.expected, align) for k, case in enumerate(cases)]
    for k, case in enumerate(cases):
        emit_resolved(
            builder,
            kind=case.kind,
            name=f"{case.kind}.{k}",
            inputs=[bind.buffer for bind in reads[k]],
            outputs=[bind.buffer for bind in writes[k]],
            attrs=case.attrs,
        )
    return ModuleOp([program])


def _binds(builder: Builder, role: str, k: int, arrays: Sequence[Array], align: int | None) -> list[BindOp]:
    binds: list[BindOp] = []
    for number, array in enumerate(arrays):
        type_ = BufferType(array.shape, i64 if array.dtype.kind == "i" else f32, "bound")
        binds.append(BindOp(role, f"{k}.{role[0]}{number}", type_, binding="direct", align=align))
        builder.insert(binds[-1])
    return binds


def feeds_of(cases: Sequence[Case]) -> dict[str, Array]:
    """The inputs, by name."""
    return {
        f"{k}.i{number}": array.astype("int64" if array.dtype.kind == "i" else "float32")
        for k, case in enumerate(cases)
        for number, array in enumerate(case.operands)
    }


def expected_of(cases: Sequence[Case]) -> dict[str, Array]:
    """The outputs, by name."""
    return {
        f"{k}.o{number}": array for k, case in enumerate(cases) for number, array in enumerate(case.expected)
    }
