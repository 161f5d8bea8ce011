"""Runs a module on NumPy by what its ops mean, at any stage: logical functions, groups, and buffer programs.

It is the yardstick that every stage and every backend is compared with, so it knows no kernel and no code: an
instruction is its body. Layouts of prepared weights are invisible; such a buffer holds the logical values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DenseIntOrFPElementsAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import IsTerminator

from aicf.dialects.emit import (
    PHASES,
    PREPARE,
    BindOp,
    BodyOp,
    GroupOp,
    ProgramOp,
    ResolvedOp,
    SlotOp,
    ViewOp,
    buffer_of,
    symbols,
)
from aicf.dialects.emit_types import BufferType
from aicf.dialects.logical import NAME_ATTR, ROLE_ATTR, UPDATES_ATTR, DispatchOp
from aicf.dialects.types import dense_array, element_of
from aicf.errors import InputMismatch, InvalidIR, PlanError
from aicf.semantics import Array, Mode, as_value, evaluate, evaluate_block, value_dtype

POISON = 0xFF
"""Byte that fills an arena before a run: NaN in every float type, so that a read of what nobody wrote shows."""


@dataclass(frozen=True)
class Results:
    """What a run gives: outputs, and the new values of parameters and states, by name."""

    outputs: dict[str, Array] = field(default_factory=dict[str, Array])
    updates: dict[str, Array] = field(default_factory=dict[str, Array])


def run_module(
    module: ModuleOp,
    feeds: Mapping[str, Array],
    mode: Mode,
    *,
    order: Sequence[str] | None = None,
    arena: bool = False,
) -> Results:
    """Runs the function or program that `feeds` fit; with buckets the one whose input shapes are those given.

    Args:
        feeds: Inputs and weights by name.
        mode: `exact` or `typed`, see `semantics`.
        order: Names of a program's instructions in the order to run them, default text order.
        arena: Runs a program on one poisoned byte arena, see `run_program`.

    Raises:
        InputMismatch: nothing in the module takes `feeds`.
        InvalidIR, PlanError: it cannot be run.
    """
    chosen = _choose(module, feeds)
    if isinstance(chosen, FuncOp):
        prepare = symbols(module).get(PREPARE)
        derived = run_function(prepare, feeds, mode).outputs if isinstance(prepare, FuncOp) else {}
        return run_function(chosen, {**feeds, **derived}, mode)
    return run_program(module, chosen, feeds, mode, order=order, arena=arena)


def _choose(module: ModuleOp, feeds: Mapping[str, Array]) -> FuncOp | ProgramOp:
    table = symbols(module)
    dispatch = next((op for op in module.body.block.ops if isinstance(op, DispatchOp)), None)
    if dispatch is not None:
        names = list(dispatch.table.values())
    else:
        names = [name for name, op in table.items() if isinstance(op, FuncOp | ProgramOp) and name != PREPARE]
    candidates = [op for name in names if isinstance(op := table.get(name), FuncOp | ProgramOp)]
    fitting = [op for op in candidates if _fits(op, feeds)] if len(candidates) > 1 else candidates
    if len(fitting) != 1:
        shapes = ", ".join(f"{name}: {list(array.shape)}" for name, array in feeds.items())
        raise InputMismatch(
            f"{len(fitting)} of the programs ({', '.join(names) or 'none'}) take {shapes}; name one"
        )
    return fitting[0]


def _fits(op: FuncOp | ProgramOp, feeds: Mapping[str, Array]) -> bool:
    if isinstance(op, ProgramOp):
        shapes = {
            bind.bind_name.data: buffer_of(bind.buffer).get_shape() for bind in op.binds if _is_fed(bind)
        }
    else:
        names, roles = (_names(op.arg_attrs, len(op.args), key) for key in (NAME_ATTR, ROLE_ATTR))
        given = zip(names, roles, op.args, strict=True)
        shapes = {name: cast(Any, arg.type).get_shape() for name, role, arg in given if role != "derived"}
    return all(name in feeds and feeds[name].shape == shape for name, shape in shapes.items())


# Functions: value semantics


def run_function(function: FuncOp, feeds: Mapping[str, Array], mode: Mode) -> Results:
    """Runs a function of logical ops and groups; static shapes only."""
    block = function.body.block
    names = _names(function.arg_attrs, len(block.args), NAME_ATTR)
    values: dict[SSAValue, Array] = {}
    for name, arg in zip(names, block.args, strict=True):
        values[arg] = as_value(_fed(feeds, name, cast(Any, arg.type).get_shape()), element_of(arg.type), mode)
    outcome = _run_block(block, values, mode)
    outputs = _names(function.res_attrs, len(outcome), NAME_ATTR)
    updates = _names(function.res_attrs, len(outcome), UPDATES_ATTR)
    return Results(
        {name: array for name, array in zip(outputs, outcome, strict=True) if name},
        {name: array for name, array in zip(updates, outcome, strict=True) if name},
    )


def _run_block(block: Block, values: dict[SSAValue, Array], mode: Mode) -> list[Array]:
    for op in block.ops:
        operands = [values[operand] for operand in op.operands]
        if op.has_trait(IsTerminator):
            return operands
        if isinstance(op, GroupOp):
            results: Sequence[Array] = evaluate_block(op.body.block, operands, mode)
        else:
            results = evaluate(op, operands, mode)
        values.update(zip(op.results, results, strict=True))
    raise InvalidIR("the function ends without func.return")


def _names(attrs: ArrayAttr[DictionaryAttr] | None, count: int, key: str) -> list[str]:
    """Interface attribute `key` of each argument or result; empty where there is none."""
    if attrs is None:
        return [""] * count
    named = (entry.data.get(key) for entry in attrs)
    return [value.data if isinstance(value, StringAttr) else "" for value in named]


def _fed(feeds: Mapping[str, Array], name: str, shape: tuple[int, ...]) -> Array:
    if name not in feeds:
        raise InputMismatch(f"'{name}' is not given; given: {', '.join(feeds) or 'nothing'}")
    if feeds[name].shape != shape:
        raise InputMismatch(f"'{name}': expected shape {list(shape)}, got {list(feeds[name].shape)}")
    return feeds[name]


# Programs: buffers


class Buffers:
    """The memory of a program: one flat array of elements per bind and slot, and the views on them."""

    def __init__(self) -> None:
        self._flat: dict[SSAValue, Array] = {}

    def place(self, buffer: SSAValue, flat: Array) -> None:
        """Puts a bind or slot on `flat`, its elements in memory order."""
        self._flat[buffer] = flat

    def view(self, buffer: SSAValue) -> Array:
        """A writable array on the memory of a bind, slot or view."""
        type_, offset = buffer_of(buffer), 0
        strides = element_strides(type_)
        while isinstance(view := buffer.owner, ViewOp):
            offset += view.offset.value.data
            buffer = view.source
        flat = self._flat[buffer][offset:]
        return _strided(flat, type_.get_shape(), strides)


def _strided(flat: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """An array of another shape and strides, in elements. NumPy's `as_strided` does not take floats of 8 bits."""
    steps = [step * flat.itemsize for step in strides]
    return np.ndarray(tuple(shape), flat.dtype, flat.view(np.uint8), 0, steps)


def element_strides(type_: BufferType) -> tuple[int, ...]:
    """Strides of the values here: row-major for a prepared layout."""
    if type_.get_layout() is None:
        return type_.get_strides()
    return BufferType(type_.get_shape(), type_.element_type, "const").get_strides()


def element_span(type_: BufferType) -> int:
    """Elements from the first to past the last one here."""
    if type_.element_count == 0:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(type_.get_shape(), element_strides(type_), strict=True))


def run_instructions(
    instructions: Sequence[ResolvedOp], bodies: Mapping[str, Operation], buffers: Buffers, mode: Mode
) -> None:
    """Runs instructions in the order given. Operands are read before results are written."""
    for instruction in instructions:
        body = body_of(instruction, bodies)
        inputs = [buffers.view(value).copy() for value in instruction.ins]
        for out, array in zip(instruction.outs, evaluate_block(body, inputs, mode), strict=True):
            buffers.view(out)[...] = array


def body_of(instruction: ResolvedOp, bodies: Mapping[str, Operation]) -> Block:
    """The meaning of an instruction. Raises PlanError if it has none."""
    name = instruction.instruction.data
    body = None if instruction.body is None else bodies.get(instruction.body.root_reference.data)
    if not isinstance(body, BodyOp):
        raise PlanError(f"instruction '{name}' has no body to run; give body(@symbol) of an emit.body")
    counts = (len(body.body.block.args), len(body.terminator.values))
    if counts != (len(instruction.ins), len(instruction.outs)):
        raise PlanError(f"instruction '{name}': its body takes {counts[0]} and gives {counts[1]} values")
    return body.body.block


def run_program(
    module: ModuleOp,
    program: ProgramOp,
    feeds: Mapping[str, Array],
    mode: Mode,
    *,
    order: Sequence[str] | None = None,
    arena: bool = False,
) -> Results:
    """Runs a buffer program of any phase; `@prepare` first if it has derived binds.

    Args:
        feeds: Inputs, parameters, states and meta tensors by name; copied.
        mode: The arithmetic. In `exact` every buffer of floats holds float64.
        order: Instruction names in the order to run them; default text order.
        arena: From phase `planned` on, in `typed` only: all slots lie in one byte arena at their offsets, poisoned
            before the run, and workspace is poisoned at each use, so that a wrong offset gives a wrong result.

    Raises:
        InputMismatch: a feed is missing or has another shape.
        PlanError: an instruction has no body, `order` is not a permutation, or `arena` is asked for too early.
    """
    buffers = Buffers()
    derived = _run_prepare(module, program, feeds, mode)
    for bind in program.binds:
        buffers.place(bind.buffer, _bind_memory(bind, feeds, derived, mode))
    _place_slots(program, buffers, mode, arena)
    instructions = _ordered(program, order)
    bodies = symbols(module)
    for instruction in instructions:
        if arena:
            for workspace in instruction.ws:
                buffers.view(workspace).view(np.uint8)[...] = POISON
        run_instructions([instruction], bodies, buffers, mode)
    outputs = {b.bind_name.data: buffers.view(b.buffer).copy() for b in program.binds if _writes(program, b)}
    updates = {
        b.bind_name.data: buffers.view(b.buffer).copy() for b in program.binds if b.updated is not None
    }
    return Results({name: outputs[name] for name in outputs if name not in updates}, updates)


def _writes(program: ProgramOp, bind: BindOp) -> bool:
    return bind.role.data == "output" or (program.sym_name.data == PREPARE and bind.role.data == "derived")


def _run_prepare(
    module: ModuleOp, program: ProgramOp, feeds: Mapping[str, Array], mode: Mode
) -> Mapping[str, Array]:
    if program.sym_name.data == PREPARE or not any(bind.role.data == "derived" for bind in program.binds):
        return {}
    prepare = symbols(module).get(PREPARE)
    if not isinstance(prepare, ProgramOp):
        raise PlanError(
            f"@{program.sym_name.data} has derived binds, but there is no emit.program @{PREPARE}"
        )
    return run_program(module, prepare, feeds, mode).outputs


def _bind_memory(bind: BindOp, feeds: Mapping[str, Array], derived: Mapping[str, Array], mode: Mode) -> Array:
    type_, name = buffer_of(bind.buffer), bind.bind_name.data
    element = element_of(type_.element_type)
    flat = np.zeros(max(element_span(type_), 1), value_dtype(element, mode))
    if bind.role.data == "const":
        assert isinstance(bind.value, DenseIntOrFPElementsAttr)
        value: Array = dense_array(bind.value)
    elif _is_fed(bind):
        value = _fed(feeds, name, type_.get_shape())
    elif name in derived:
        value = derived[name]
    else:
        return flat
    _strided(flat, type_.get_shape(), element_strides(type_))[...] = as_value(value, element, mode)
    return flat


def _place_slots(program: ProgramOp, buffers: Buffers, mode: Mode, arena: bool) -> None:
    if arena and (mode != "typed" or program.phase_index < PHASES.index("planned")):
        raise PlanError(
            f"@{program.sym_name.data}: a byte arena needs mode 'typed' and phase 'planned' or later"
        )
    size = 0 if program.arena_bytes is None else program.arena_bytes.value.data
    block = np.full(size, POISON, np.uint8)
    for slot in program.slots:
        type_ = buffer_of(slot.buffer)
        dtype = value_dtype(element_of(type_.element_type), mode)
        buffers.place(slot.buffer, _arena_flat(slot, block, dtype) if arena else _poisoned(type_, dtype))


def _arena_flat(slot: SlotOp, block: Array, dtype: np.dtype[Any]) -> Array:
    type_ = buffer_of(slot.buffer)
    if slot.offset is None:
        raise PlanError("a slot has no offset; run plan-memory")
    start = slot.offset.value.data
    end = start + element_span(type_) * dtype.itemsize
    if end > block.nbytes:
        raise PlanError(f"a slot ends at byte {end} of an arena of {block.nbytes}; run plan-memory again")
    return np.ndarray((element_span(type_),), dtype, block.data, start)


def _poisoned(type_: BufferType, dtype: np.dtype[Any]) -> Array:
    return np.full(max(element_span(type_), 1) * dtype.itemsize, POISON, np.uint8).view(dtype)


def _ordered(program: ProgramOp, order: Sequence[str] | None) -> Sequence[ResolvedOp]:
    instructions = {op.instruction.data: op for op in program.instructions}
    if order is None:
        return list(instructions.values())
    if sorted(order) != sorted(instructions):
        raise PlanError(f"@{program.sym_name.data}: the order given is not a permutation of its instructions")
    return [instructions[name] for name in order]


def _is_fed(bind: BindOp) -> bool:
    return bind.role.data in ("input", "param", "state", "meta")
