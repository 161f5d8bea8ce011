"""One LLVM module per program module: a function per distinct instruction, and one entry per program that calls them.

``void ENTRY(i64 tid, i64 nthreads, void** table)`` runs a program; ``ENTRY_profile(i64 launch, ...)`` runs one of its
instructions. Pointers and functions come only through the table, so the object has no undefined symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from llvmlite import ir

from aicf.backends.base import BufferRef, CodeUnit, Launch
from aicf.backends.common.record import naming, read_number, read_part
from aicf.backends.cpu.attention import AttentionPointers, emit_attention
from aicf.backends.cpu.attention_spec import read_attention
from aicf.backends.cpu.barrier import emit_barrier_function
from aicf.backends.cpu.blas import FUNCTIONS, table_name
from aicf.backends.cpu.conv import emit_conv
from aicf.backends.cpu.conv_image import ConvPointers
from aicf.backends.cpu.conv_spec import ConvSpec, read_conv_spec
from aicf.backends.cpu.conv_work import pixel_accesses, read_conv, result_sizes, turned
from aicf.backends.cpu.detection_code import Suppression, SuppressionPointers
from aicf.backends.cpu.detection_spec import suppression_spec
from aicf.backends.cpu.epilogue import make_epilogue
from aicf.backends.cpu.gemm import GemmPointers, RowProgram, emit_gemm
from aicf.backends.cpu.gemm_kernels import PACKED_B
from aicf.backends.cpu.gemm_spec import GemmSpec
from aicf.backends.cpu.gemm_work import GemmWork, contiguous, read_gemm
from aicf.backends.cpu.ir_builder import F32, F64, I8, I32, I64, PTR, VOID, Emitter, Number, Value
from aicf.backends.cpu.loader import BARRIER, PROFILE_SUFFIX, YIELD
from aicf.backends.cpu.loop_spec import LoopSpec
from aicf.backends.cpu.loops import LoopPointers, emit_loops
from aicf.backends.cpu.module import compile_module, new_module
from aicf.backends.cpu.numbers import function_keys, global_numbers
from aicf.backends.cpu.pack import emit_pack
from aicf.backends.cpu.pack_pairs import Pairs, emit_pack_pairs
from aicf.backends.cpu.place_code import Topk, emit_last_update, emit_scatter
from aicf.backends.cpu.place_kernels import scatter_parts, summed_apart
from aicf.backends.cpu.pool import emit_pool
from aicf.backends.cpu.pool_code import PoolPointers
from aicf.backends.cpu.pool_spec import read_pool, read_pool_spec
from aicf.backends.cpu.records import (
    attention_spec,
    gemm_spec,
    get_bool,
    get_int,
    get_text,
    loop_spec,
    read_loops,
    read_rounding,
)
from aicf.backends.cpu.recurrent_code import Lstm, LstmPointers
from aicf.backends.cpu.recurrent_kernels import read_sizes
from aicf.backends.cpu.row_program import make_rows
from aicf.backends.cpu.subnormals import emit_flushed
from aicf.backends.cpu.target import ACCUMULATORS, HALVES, CpuLevel
from aicf.backends.cpu.update_kernels import KEEP, part_nests, read_subnormals
from aicf.backends.cpu.winograd_kernels import has_layout
from aicf.backends.cpu.winograd_pack import emit_winograd_pack
from aicf.backends.moves import moves
from aicf.backends.nests import LoopNest, Strided, nest_of, one_row
from aicf.backends.scatters import Scatter
from aicf.dialects.emit_types import LayoutAttr
from aicf.dialects.emit_updates import update_of
from aicf.errors import PlanError


@dataclass(frozen=True)
class _Call:
    """Run-time arguments of one instruction's function."""

    ins: tuple[Value, ...]
    outs: tuple[Value, ...]
    ws: tuple[Value, ...]
    tid: Value
    nthreads: Value
    table: Value
    """Address of the first function pointer."""


def _call_of(launch: Launch, args: Sequence[Value]) -> _Call:
    """The arguments of the function of an instruction, or of one that it passes them on to."""
    ins, outs, operands = len(launch.ins), len(launch.outs), _operand_count(launch)
    pointers, (tid, nthreads, table) = tuple(args[:operands]), args[operands : operands + 3]
    return _Call(pointers[:ins], pointers[ins : ins + outs], pointers[ins + outs :], tid, nthreads, table)


def _operand_count(launch: Launch) -> int:
    return len(launch.ins) + len(launch.outs) + len(launch.ws)


@dataclass(frozen=True)
class _Called:
    """The function of an instruction, and the address of the numbers that it reads, if it reads some."""

    function: Any
    numbers: Value | None = None


def build_object(name: str, units: Sequence[CodeUnit], level: CpuLevel) -> tuple[bytes, tuple[str, ...]]:
    """Object code of all units, and the names of the functions that follow the data pointers in every table."""
    return _Module(name, units, level).build()


def _threads(launch: Launch) -> int:
    with naming(launch.name):
        return get_int(launch.record, "threads")


def _library_function(launch: Launch) -> str | None:
    """Table name of the library function that an instruction calls."""
    if launch.kernel != "cpu.gemm_blas":
        return None
    return table_name(FUNCTIONS[launch.ins[0].dtype], get_text(launch.record, "library"))


class _Module:
    def __init__(self, name: str, units: Sequence[CodeUnit], level: CpuLevel) -> None:
        self.units = units
        self.level = level
        self.module = new_module(name, level)
        self.functions = self._table_functions()
        self.made: dict[str, Any] = {}
        self.tables: dict[tuple[Number, ...], Value] = {}
        self.keys = function_keys([launch for unit in units for launch in unit.launches])
        self.barrier: Any = None
        if BARRIER in self.functions:
            yield_at = self.functions.index(YIELD) - self.functions.index(BARRIER)
            self.barrier = emit_barrier_function(self.module, level, yield_at)

    def _table_functions(self) -> tuple[str, ...]:
        launches = [launch for unit in self.units for launch in unit.launches]
        names = [BARRIER, YIELD] if any(_threads(launch) > 1 for launch in launches) else []
        libraries = {name for launch in launches if (name := _library_function(launch)) is not None}
        return (*names, *sorted(libraries))

    def build(self) -> tuple[bytes, tuple[str, ...]]:
        for unit in self.units:
            called = [self._function(launch) for launch in unit.launches]
            self._entry(unit, called)
            self._profile_entry(unit, called)
        return compile_module(self.module, self.level), self.functions

    # Instructions.

    def _function(self, launch: Launch) -> _Called:
        """The function of an instruction; those that are equal but for buffers and numbers share one."""
        key, numbers = self.keys[id(launch)]
        function = self._made(launch, key, numbers)
        if not numbers:
            return _Called(function)
        if numbers not in self.tables:
            self.tables[numbers] = global_numbers(self.module, numbers)
        return _Called(function, self.tables[numbers])

    def _made(self, launch: Launch, key: str, numbers: Sequence[Number]) -> Any:
        """The function by what it depends on; one that reads numbers has an argument more."""
        if key not in self.made:
            pointers, given = [PTR] * _operand_count(launch), [PTR] if numbers else []
            signature = ir.FunctionType(VOID, [*pointers, I64, I64, PTR, *given])
            function = ir.Function(self.module, signature, f"instruction_{len(self.made)}")
            function.linkage = "internal"
            self._body(launch, function, numbers)
            self.made[key] = function
        return self.made[key]

    def _body(self, launch: Launch, function: Any, numbers: Sequence[Number]) -> None:
        emitter = _EMITTERS.get(launch.kernel)
        if emitter is None:
            raise PlanError(
                f"instruction '{launch.name}': kernel '{launch.kernel}' is not one of cpu's "
                f"({', '.join(_EMITTERS)}): run select-kernels for this target"
            )

        def emit(em: Emitter) -> None:
            if numbers:
                em.give_numbers(numbers, em.function.args[-1])
            emitter(em, launch, _call_of(launch, em.function.args), self.functions)

        em = Emitter(self.module, self.level, function)
        with naming(launch.name):
            if _flushes(launch):
                emit_flushed(em, emit)
            else:
                emit(em)
        em.b.ret_void()

    # Entries.

    def _entry(self, unit: CodeUnit, called: Sequence[_Called]) -> None:
        function = ir.Function(self.module, ir.FunctionType(VOID, [I64, I64, PTR]), unit.entry)
        em = Emitter(self.module, self.level, function)
        tid, nthreads, table = function.args
        if all(_threads(launch) == 1 for launch in unit.launches):
            em.when(
                em.b.icmp_signed("==", tid, em.index(0)),
                lambda: self._calls(em, unit, called, function.args),
            )
            em.b.ret_void()
            return
        pending: dict[str, bool] = {}
        for launch, target in zip(unit.launches, called, strict=True):
            serial = _threads(launch) == 1
            # Two serial instructions run in thread 0, in order; any other dependence needs a meeting point.
            if any(not (serial and pending[name]) for name in launch.waits_for if name in pending):
                em.b.call(self.barrier, [self._function_table(em, unit, table), nthreads])
                pending = {}
            pending[launch.name] = serial
            if serial:
                first = em.b.icmp_signed("==", tid, em.index(0))
                em.when(
                    first,
                    lambda launch=launch, target=target: self._call(em, unit, launch, target, function.args),
                )
            else:
                self._call(em, unit, launch, target, function.args)
        em.b.ret_void()

    def _calls(self, em: Emitter, unit: CodeUnit, called: Sequence[_Called], args: Sequence[Value]) -> None:
        """All launches in order, in one thread."""
        for launch, target in zip(unit.launches, called, strict=True):
            self._call(em, unit, launch, target, args)

    def _profile_entry(self, unit: CodeUnit, called: Sequence[_Called]) -> None:
        signature = ir.FunctionType(VOID, [I64, I64, I64, PTR])
        function = ir.Function(self.module, signature, unit.entry + PROFILE_SUFFIX)
        em = Emitter(self.module, self.level, function)
        number, tid, nthreads, table = function.args
        done = function.append_basic_block("done")
        choice = em.b.switch(number, done)
        for index, (launch, target) in enumerate(zip(unit.launches, called, strict=True)):
            block = function.append_basic_block("launch")
            choice.add_case(em.index(index), block)
            em.b.position_at_end(block)
            if _threads(launch) == 1:
                first = em.b.icmp_signed("==", tid, em.index(0))
                em.when(
                    first,
                    lambda launch=launch, target=target: self._call(
                        em, unit, launch, target, (tid, nthreads, table)
                    ),
                )
            else:
                self._call(em, unit, launch, target, (tid, nthreads, table))
            em.b.branch(done)
        em.b.position_at_end(done)
        em.b.ret_void()

    def _function_table(self, em: Emitter, unit: CodeUnit, table: Value) -> Value:
        return em.b.gep(table, [em.index(unit.table_size)], source_etype=PTR)

    def _call(
        self, em: Emitter, unit: CodeUnit, launch: Launch, target: _Called, args: Sequence[Value]
    ) -> None:
        tid, nthreads, table = args
        pointers = [self._pointer(em, table, ref) for ref in (*launch.ins, *launch.outs, *launch.ws)]
        given = [] if target.numbers is None else [target.numbers]
        arguments = [*pointers, tid, nthreads, self._function_table(em, unit, table), *given]
        em.b.call(target.function, arguments)

    def _pointer(self, em: Emitter, table: Value, ref: BufferRef) -> Value:
        base = em.b.load(em.b.gep(table, [em.index(ref.base)], source_etype=PTR), typ=PTR)
        return em.b.gep(base, [em.index(ref.offset)], source_etype=I8) if ref.offset else base


def _strided(ref: BufferRef) -> Strided:
    return Strided(ref.shape, ref.strides, ref.dtype)


# One emitter per kernel.


def _read(launch: Launch) -> GemmWork:
    """The products of a GEMM instruction, checked against its record."""
    transposed = (get_bool(launch.record, "transpose_a"), get_bool(launch.record, "transpose_b"))
    operands, results = ([_strided(ref) for ref in refs] for refs in (launch.ins, launch.outs))
    packed = launch.ins[1].layout is not None
    work = read_gemm(launch.kind, operands, results, transposed, launch.code, launch.prologue, packed)
    if work.batch_in_rows != get_int(launch.record, "batch_in_rows"):
        raise PlanError(
            f"instruction '{launch.name}': its buffers let {work.batch_in_rows} batch dims become rows, its kernel "
            "record was made for another number: run select-kernels again"
        )
    return work


def _gemm(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    work = _read(launch)
    spec = gemm_spec(launch.record, work.problem, em.level.has_fma)
    _check_layouts(launch, spec, work.places.rights)
    if spec.workspace_bytes and not call.ws:
        raise PlanError(
            f"instruction '{launch.name}' needs {spec.workspace_bytes} bytes of workspace: run lower-to-emit again"
        )
    workspace = call.ws[0] if call.ws else None
    outs = [call.outs] if len(work.places.extras) == 1 else [(out,) for out in call.outs]
    pointers = [
        (*(call.ins[place] for place in extras), *own)
        for extras, own in zip(work.places.extras, outs, strict=True)
    ]
    epilogue = make_epilogue(em, launch.code, work.accesses[0], pointers, read_rounding(launch.record))
    a = call.ins[0] if work.rows is None else None
    rights = tuple(call.ins[place] for place in work.places.rights)
    rows = None if work.rows is None else _row_program(launch, call, work.rows, work.places.rows)
    emit_gemm(em, spec, GemmPointers(a, rights, workspace, call.tid, call.nthreads), epilogue, rows)


def _check_layouts(launch: Launch, spec: GemmSpec, rights: Sequence[int]) -> None:
    """Refuses right operands that do not lie as the record says."""
    for place in rights:
        layout = launch.ins[place].layout
        if (spec.b_source == "packed") != (layout is not None) or (
            layout is not None
            and _panels(layout, launch.ins[place].dtype) != (spec.nr, spec.b_element, int(spec.problem.pairs))
        ):
            raise PlanError(
                f"instruction '{launch.name}': the layout of operand {place} is not the one its kernel record asks "
                "for: run lower-to-emit again"
            )


def _panels(layout: LayoutAttr, dtype: str) -> tuple[int, str, int]:
    """Columns of a panel of a packed weight of type `dtype`, the type of its elements, and how far apart the terms of
    pairs lie, 0 without pairs."""
    entries = layout.parameters_.data
    element = get_text(entries, "element") if "element" in entries else dtype
    return get_int(entries, "nr"), element, get_int(entries, "pairs") if "pairs" in entries else 0


def _row_program(launch: Launch, call: _Call, nest: LoopNest, operands: Sequence[int]) -> RowProgram:
    """The rows in front of the products, with the decisions of the record."""
    row = one_row(nest)
    spec = loop_spec(read_part(launch.record, "rows"), row.nest)
    return make_rows(row, spec, [call.ins[place] for place in operands])


def _attention(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    past = get_int(launch.record, "past") if get_bool(launch.record, "causal") else None
    nan_as_zero = get_bool(launch.record, "nan_as_zero")
    problem = read_attention(
        [_strided(ref) for ref in launch.ins], _strided(launch.outs[0]), past, nan_as_zero
    )
    spec = attention_spec(launch.record, problem, em.level.has_fma)
    if not call.ws:
        raise PlanError(
            f"instruction '{launch.name}' needs {spec.workspace_bytes} bytes of workspace: run lower-to-emit again"
        )
    mask = call.ins[3] if problem.mask is not None else None
    q, k, v = call.ins[:3]
    pointers = AttentionPointers(q, k, v, mask, call.outs[0], call.ws[0], call.tid, call.nthreads)
    emit_attention(em, spec, read_number(launch.record, "scale"), pointers)


def _conv(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    x, weight, *extras = (_strided(ref) for ref in launch.ins)
    outs = [_strided(ref) for ref in launch.outs]
    sizes, accesses = result_sizes(launch.code, outs), pixel_accesses(launch.code, extras, outs)
    problem = None if sizes is None else read_conv(launch.record, x, weight, sizes)
    spec = None if problem is None else read_conv_spec(launch.record, problem, em.level.has_fma)
    if accesses is None or spec is None or not _has_weight(launch.ins[1].layout, spec):
        raise PlanError(
            f"instruction '{launch.name}': its operands do not lie as its kernel record says: run lower-to-emit again"
        )
    if spec.workspace_bytes and not call.ws:
        raise PlanError(
            f"instruction '{launch.name}' needs {spec.workspace_bytes} bytes of workspace: run lower-to-emit again"
        )
    workspace = call.ws[0] if call.ws else None
    pointers = [(*call.ins[2:], *call.outs)]
    if spec.lanes_along == "channels":
        accesses = turned(accesses)
    epilogue = make_epilogue(em, launch.code, accesses, pointers, read_rounding(launch.record))
    pixels, weights = call.ins[:2]
    emit_conv(em, spec, ConvPointers(pixels, weights, workspace, call.tid, call.nthreads), epilogue)


def _has_weight(layout: LayoutAttr | None, spec: ConvSpec) -> bool:
    """Whether the weight of a convolution lies as its record says."""
    if layout is None or not spec.prepared:
        return layout is None and not spec.prepared
    if spec.winograd is not None:
        return has_layout(layout, spec.winograd)
    return layout.layout.data == PACKED_B


def _pool(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    problem = read_pool(launch.record, _strided(launch.ins[0]), _strided(launch.outs[0]))
    pointers = PoolPointers(call.ins[0], call.outs[0], call.tid, call.nthreads)
    emit_pool(em, read_pool_spec(launch.record, problem), pointers)


_CBLAS_ROW_MAJOR = 101
_CBLAS_TRANSPOSE = {False: 111, True: 112}


def _blas(em: Emitter, launch: Launch, call: _Call, functions: Sequence[str]) -> None:
    work = _read(launch)
    name = _library_function(launch)
    assert name is not None
    at = em.b.gep(call.table, [em.index(functions.index(name))], source_etype=PTR)
    callee = em.b.load(at, typ=PTR)
    problem, output = work.problem, work.accesses[0][0]
    scalar = F32 if problem.dtype == "f32" else F64
    signature = ir.FunctionType(
        VOID, [I32, I32, I32, I64, I64, I64, scalar, PTR, I64, PTR, I64, scalar, PTR, I64]
    )
    one, zero = em.const(problem.dtype, 1, 1), em.const(problem.dtype, 1, 0)

    def product(depth: int, a: Value, b: Value, c: Value) -> None:
        if depth < len(problem.batch):
            steps = (problem.a_batch_strides[depth], problem.b_batch_strides[depth], output.strides[depth])

            def body(i: Value, _: list[Value]) -> list[Value]:
                moved = [
                    em.moved(p, i, step, problem.dtype) for p, step in zip((a, b, c), steps, strict=True)
                ]
                product(depth + 1, *moved)
                return []

            em.loop(0, problem.batch[depth], 1, [], body)
            return
        flags = [ir.Constant(I32, _CBLAS_ROW_MAJOR)]
        leading: list[Value] = []
        a_matrix = (problem.a_strides, problem.m, problem.k)
        b_matrix = (problem.b_strides, problem.k, problem.n)
        for strides, rows, columns in (a_matrix, b_matrix):
            transposed = strides[1] != 1
            flags.append(ir.Constant(I32, _CBLAS_TRANSPOSE[transposed]))
            leading.append(
                em.index(max(strides[1] if transposed else strides[0], rows if transposed else columns))
            )
        sizes = [em.index(size) for size in (problem.m, problem.n, problem.k)]
        ldc = em.index(max(output.strides[-2], problem.n))
        em.b.call(
            em.typed_function(callee, signature),
            [*flags, *sizes, one, a, leading[0], b, leading[1], zero, c, ldc],
        )

    product(0, call.ins[0], call.ins[1], call.outs[0])


def _generated(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    if launch.code is None:
        raise PlanError(f"instruction '{launch.name}' has no generated code: run generate-kernels")
    refs = (*launch.ins, *launch.outs)
    nest = nest_of(launch.code, [ref.strides for ref in refs], [ref.dtype for ref in refs])
    spec = loop_spec(launch.record, nest)
    emit_loops(em, nest, spec, LoopPointers((*call.ins, *call.outs), call.tid, call.nthreads))


def _gemm_norm(em: Emitter, launch: Launch, call: _Call, functions: Sequence[str]) -> None:
    """The product into workspace, then the loops of the row program, as if they were two instructions."""
    if not call.ws:
        raise PlanError(f"instruction '{launch.name}' needs workspace: run lower-to-emit again")
    shape = launch.outs[0].shape
    sums = BufferRef(0, 0, shape, contiguous(shape), ACCUMULATORS[launch.ins[0].dtype])
    behind = em.b.gep(call.ws[0], [em.index(get_int(launch.record, "sums_bytes"))], source_etype=I8)
    product = replace(
        launch,
        kind="gemm",
        record=read_part(launch.record, "product"),
        ins=launch.ins[:2],
        outs=(sums,),
        code=None,
    )
    _gemm(em, product, replace(call, ins=call.ins[:2], outs=call.ws[:1], ws=(behind,)), functions)
    rows = replace(launch, record=read_part(launch.record, "rows"), ins=(sums, *launch.ins[2:]))
    _generated(em, rows, replace(call, ins=(call.ws[0], *call.ins[2:])), functions)


def _move(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    target = _strided(launch.outs[0])
    found = moves(launch.body, [_strided(ref) for ref in launch.ins], target, get_int(launch.record, "axis"))
    assert found is not None, "verify-emit asks the kernel whether it moves elements"
    specs = read_loops(launch.record, [move.nest for move in found])
    for move, spec in zip(found, specs, strict=True):
        result = em.address(call.outs[0], move.offset, target.dtype)
        sources = () if move.operand is None else (call.ins[move.operand],)
        _part(em, launch, call, move.nest, spec, (*sources, result))


def _part(
    em: Emitter,
    launch: Launch,
    call: _Call,
    nest: LoopNest,
    spec: LoopSpec,
    pointers: tuple[Value, ...],
) -> None:
    """The loops of one part of an instruction; in one thread where others of its parts have several."""
    emit = partial(emit_loops, em, nest, spec, LoopPointers(pointers, call.tid, call.nthreads))
    if _threads(launch) > 1 and spec.threads == 1:
        em.when(em.b.icmp_signed("==", call.tid, em.index(0)), emit)
    else:
        emit()


def _flushes(launch: Launch) -> bool:
    """Whether the code of an instruction takes subnormal numbers for 0."""
    return launch.kernel == "cpu.multi_tensor" and read_subnormals(launch.record) != KEEP


def _multi_tensor(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    if launch.code is None:
        raise PlanError(f"instruction '{launch.name}' has no generated code: run generate-kernels")
    update = update_of(launch.code, len(launch.ins), len(launch.outs))
    dtypes = ([ref.dtype for ref in refs] for refs in (launch.ins, launch.outs))
    nests = part_nests(launch.code, update, *dtypes)
    specs = read_loops(launch.record, nests)
    numbers = [call.ins[number] for number in update.scalars]
    for part, nest, spec in zip(update.parts, nests, specs, strict=True):
        read = [call.ins[number] for number in part.operands]
        pointers = (*numbers, *read, *(call.outs[number] for number in part.results))
        _part(em, launch, call, nest, spec, pointers)


def _pack(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    source = launch.ins[0]
    k_dim, nr = get_int(launch.record, "k_dim"), get_int(launch.record, "nr")
    shape, steps = _as_matrix(source)
    k, n = shape[k_dim], shape[1 - k_dim]
    strides = (steps[k_dim], steps[1 - k_dim])
    lanes = get_int(launch.record, "lanes")
    into = get_text(launch.record, "element") if "element" in launch.record else source.dtype
    if "pairs" in launch.record:
        pairs = Pairs(source.dtype, into, k, get_int(launch.record, "pairs"))
        emit_pack_pairs(em, pairs, lanes, n, nr, strides, call.ins[0], call.outs[0])
        return
    # Elements that keep their type move as they are.
    moved = ("i16", "i16") if into == source.dtype and into in HALVES else (source.dtype, into)
    emit_pack(em, moved[0], lanes, k, n, nr, strides, call.ins[0], call.outs[0], moved[1])


def _pack_winograd(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    source = launch.ins[0]
    lanes, tile, nr = (get_int(launch.record, name) for name in ("lanes", "output_tile", "nr"))
    outputs, channels = source.shape[:2]
    sizes = (outputs, channels)
    emit_winograd_pack(em, source.dtype, lanes, sizes, tile, nr, call.ins[0], call.outs[0])


def _as_matrix(source: BufferRef) -> tuple[tuple[int, int], tuple[int, int]]:
    """Sizes and strides of a weight whose dims behind the first are one."""
    if len(source.shape) == 2:
        (rows, columns), (row, column) = source.shape, source.strides
        return (rows, columns), (row, column)
    return (source.shape[0], prod(source.shape[1:])), (source.strides[0], 1)


def _last_update(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    emit_last_update(em, _strided(launch.ins[0]), _strided(launch.outs[0]), call.ins[0], call.outs[0])


def _scatter(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    places = (_strided(ref) for ref in (*launch.ins, *launch.outs))
    scatter = Scatter(*places, mode=get_text(launch.record, "mode"))
    nests, sums = scatter_parts(scatter), summed_apart(scatter)
    if sums is not None and not call.ws:
        raise PlanError(f"instruction '{launch.name}' needs workspace: run lower-to-emit again")
    copy, row, *back = read_loops(launch.record, nests)
    if sums is None:
        emit_scatter(em, scatter, (copy, row), call.ins, call.outs[0])
        return
    emit_scatter(em, sums, (copy, row), call.ins, call.ws[0])
    pointers = LoopPointers((call.ws[0], call.outs[0]), em.index(0), em.index(1))
    emit_loops(em, nests[-1], back[0], pointers)


def _topk(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    axis, smallest = get_int(launch.record, "axis"), get_bool(launch.record, "smallest")
    topk = Topk(_strided(launch.ins[0]), _strided(launch.outs[0]), axis, smallest)
    # One thread of several does all rows where the record says so.
    alone = _threads(launch) == 1
    tid, nthreads = (em.index(0), em.index(1)) if alone else (call.tid, call.nthreads)
    topk.emit(em, call.ins[0], call.outs[0], tid, nthreads)


def _lstm(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    sizes = read_sizes(launch.record, launch.outs[0].shape)
    if not (sizes.ahead or call.ws):
        raise PlanError(f"instruction '{launch.name}' needs workspace: run lower-to-emit again")
    x, weight, first, states = (_strided(ref) for ref in (*launch.ins, *launch.outs))
    lstm = Lstm(x, weight, first, states, sizes, get_bool(launch.record, "reverse"))
    workspace = None if sizes.ahead else call.ws[0]
    lstm.emit(em, LstmPointers(call.ins[0], call.ins[1], call.ins[2], call.outs[0], workspace))


def _non_max_suppression(em: Emitter, launch: Launch, call: _Call, _: Sequence[str]) -> None:
    if not call.ws:
        raise PlanError(f"instruction '{launch.name}' needs workspace: run lower-to-emit again")
    boxes, scores = (_strided(ref) for ref in launch.ins[:2])
    kept = _strided(launch.outs[0])
    spec = suppression_spec(launch.record, scores.shape[2], kept.shape[2], scores.dtype)
    suppression = Suppression(boxes, scores, kept, get_bool(launch.record, "centred"), spec)
    overlap, *floor = call.ins[2:]
    pointers = SuppressionPointers(
        call.ins[0], call.ins[1], overlap, floor[0] if floor else None, call.outs[0], call.ws[0]
    )
    alone = _threads(launch) == 1
    tid, nthreads = (em.index(0), em.index(1)) if alone else (call.tid, call.nthreads)
    suppression.emit(em, pointers, tid, nthreads)


_EMITTERS: Mapping[str, Callable[[Emitter, Launch, _Call, Sequence[str]], None]] = {
    "cpu.gemm_avx512": _gemm,
    "cpu.gemm_avx2": _gemm,
    "cpu.gemm_portable": _gemm,
    "cpu.gemm_blas": _blas,
    "cpu.conv_avx512": _conv,
    "cpu.conv_avx2": _conv,
    "cpu.conv_portable": _conv,
    "cpu.pool": _pool,
    "cpu.attention_avx512": _attention,
    "cpu.attention_avx2": _attention,
    "cpu.attention_portable": _attention,
    "cpu.gemm_norm_avx512": _gemm_norm,
    "cpu.gemm_norm_avx2": _gemm_norm,
    "cpu.gemm_norm_portable": _gemm_norm,
    "cpu.generated": _generated,
    "cpu.copy": _move,
    "cpu.concat": _move,
    "cpu.pack": _pack,
    "cpu.pack_winograd": _pack_winograd,
    "cpu.last_update": _last_update,
    "cpu.scatter": _scatter,
    "cpu.topk": _topk,
    "cpu.lstm": _lstm,
    "cpu.non_max_suppression": _non_max_suppression,
    "cpu.multi_tensor": _multi_tensor,
}
"""Kernel id -> code."""
