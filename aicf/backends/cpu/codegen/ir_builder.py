"""A small layer over ``llvmlite.ir`` for code whose shapes are all static: typed vectors, masks, loops, intrinsics.

It knows element types and a CPU level, and nothing about kernels. A value has a `dtype` name and a lane count known to
its user; one lane means a plain scalar, so that the same emitting code makes vector bodies and scalar tails with
the same rounding. Memory holds elements as their type says, a value is what `REGISTERS` names: loads widen narrow
floats, stores round them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import llvmlite.ir

from aicf.backends.cpu.codegen.scalar import narrow_floats
from aicf.backends.cpu.target import (
    ELEMENT_BYTES,
    FLOAT8,
    HALVES,
    MAX_SHUFFLED,
    NARROW_FLOATS,
    REGISTERS,
    CpuLevel,
)
from aicf.dialects.types import element_named

ir: Any = llvmlite.ir
"""llvmlite ships no type information."""
Value: TypeAlias = Any
"""An ``llvmlite.ir`` value."""

I1 = ir.IntType(1)
I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
F32 = ir.FloatType()
F64 = ir.DoubleType()
PTR = ir.PointerType()
VOID = ir.VoidType()

SCALARS: dict[str, Any] = {
    "f64": F64,
    "f32": F32,
    "i64": I64,
    "i32": I32,
    "i16": I16,
    "i8": I8,
    "u8": I8,
    "i1": I1,
}
"""LLVM types of registers."""

MEMORY: dict[str, Any] = {
    **SCALARS,
    **dict.fromkeys(HALVES, I16),
    **dict.fromkeys(FLOAT8, I8),
    "i1": I8,
}
"""LLVM types of elements in memory; narrow floats as their bits."""


class _Splat(ir.Constant):
    """A vector constant printed in the short form (sixteen spelled-out lanes made up most of the module's text)."""

    def __init__(self, type_: Any, text: str) -> None:
        ir.Constant.__init__(self, type_, ir.Undefined)
        self.text = f"splat ({type_.element} {text})"

    def _to_string(self) -> str:
        return f"{self.type} {self.text}"

    def _get_reference(self) -> str:
        return self.text


class _Callee:
    """A function pointer with a signature."""

    def __init__(self, pointer: Value, signature: Any) -> None:
        self.pointer = pointer
        self.function_type = signature
        self.type = ir.PointerType()

    def get_reference(self) -> str:
        """As the pointer itself."""
        return self.pointer.get_reference()


def _literal(dtype: str, value: float | int) -> str:
    if dtype == "i1":
        return "true" if value else "false"
    if REGISTERS[dtype] not in ("f32", "f64"):
        return str(int(value))
    number = float(element_named(dtype).dtype.type(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016x}"


@dataclass(frozen=True)
class Number:
    """A float of a program, by its bits: 0 and -0 are two.

    Args:
        dtype: Its element type.
        literal: As LLVM reads it.
    """

    dtype: str
    literal: str

    @staticmethod
    def of(dtype: str, value: float) -> Number:
        """`value` rounded to `dtype`."""
        return Number(dtype, _literal(dtype, value))

    @property
    def value(self) -> float:
        """The number."""
        return struct.unpack("<d", struct.pack("<Q", int(self.literal, 16)))[0]


class Emitter:
    """Emits into one function at a time; `b` is the raw ``IRBuilder``."""

    def __init__(self, module: Any, level: CpuLevel, function: Any) -> None:
        self.module = module
        self.level = level
        self.function = function
        self.b: Any = ir.IRBuilder(function.append_basic_block("entry"))
        self._entry_block = self.b.block
        self._given: dict[Number, Value] = {}
        self._read: dict[tuple[Number, int], Value] = {}

    # Types and constants.

    def type(self, dtype: str, lanes: int) -> Any:
        """The LLVM type of a register of `lanes` elements of `dtype`."""
        scalar = SCALARS[REGISTERS[dtype]]
        return scalar if lanes == 1 else ir.VectorType(scalar, lanes)

    def const(self, dtype: str, lanes: int, value: float | int) -> Value:
        """`value` in every lane, rounded to `dtype`."""
        literal = _literal(dtype, value)
        if lanes == 1:
            return ir.FormattedConstant(self.type(dtype, 1), literal)
        return _Splat(self.type(dtype, lanes), literal)

    def give_numbers(self, numbers: Sequence[Number], base: Value) -> None:
        """Says which numbers of the program lie at `base`, 8 bytes each."""
        self._given = {number: self._slot(base, index) for index, number in enumerate(numbers)}

    def _slot(self, base: Value, index: int) -> Value:
        return self.b.gep(base, [self.index(index)], inbounds=True, source_etype=I64)

    def number(self, dtype: str, lanes: int, value: float) -> Value:
        """A number of the program in every lane: read once, at the start of the function, if it is given."""
        number = Number.of(dtype, value)
        if number not in self._given:
            return self.const(dtype, lanes, value)
        if (number, lanes) not in self._read:
            with self.b.goto_block(self._entry_block):
                self._read[number, lanes] = self.splat(self.load(self._given[number], dtype, 1), lanes)
        return self._read[number, lanes]

    def ramp(self, dtype: str, lanes: int, step: int) -> Value:
        """The integers 0, `step`, 2 `step` and so on."""
        return ir.Constant(self.type(dtype, lanes), [lane * step for lane in range(lanes)])

    def index(self, value: int) -> Value:
        """An i64 constant."""
        return ir.Constant(I64, value)

    def lane_mask(self, lanes: int, active: int) -> Value:
        """A constant mask with the first `active` of `lanes` set."""
        return ir.Constant(ir.VectorType(I1, lanes), [int(lane < active) for lane in range(lanes)])

    def lanes_below(self, lanes: int, count: Value) -> Value:
        """A mask with the first `count` of `lanes` set; `count` is an index below 2**31, at most 0 for none."""
        narrow = self.b.trunc(count, I32)
        if lanes == 1:
            return self.b.icmp_signed("<", ir.Constant(I32, 0), narrow)
        return self.b.icmp_signed("<", self.ramp("i32", lanes, 1), self.splat(narrow, lanes))

    def is_constant(self, value: Value) -> bool:
        """Whether `value` came from `const`; constants are never NaN unless asked for."""
        return isinstance(value, ir.Constant)

    # Memory. Addresses are opaque pointers plus element offsets.

    def address(self, base: Value, offset: Value | int, dtype: str) -> Value:
        """`base` moved by `offset` elements of `dtype`."""
        if isinstance(offset, int):
            if offset == 0:
                return base
            offset = self.index(offset)
        return self.b.gep(base, [offset], inbounds=True, source_etype=MEMORY[dtype])

    def load(self, address: Value, dtype: str, lanes: int, active: int | None = None) -> Value:
        """`lanes` contiguous elements; lanes from `active` on are not touched in memory and read as zero."""
        stored = self._load_raw(address, MEMORY[dtype], ELEMENT_BYTES[dtype], lanes, active)
        return self._register(stored, dtype, lanes)

    def load_masked(self, address: Value, dtype: str, lanes: int, mask: Value) -> Value:
        """`lanes` (2 or more) contiguous elements; lanes outside `mask` are not touched in memory and read as zero."""
        stored = self._load_under(address, MEMORY[dtype], ELEMENT_BYTES[dtype], lanes, mask)
        return self._register(stored, dtype, lanes)

    def _register(self, stored: Value, dtype: str, lanes: int) -> Value:
        """The register of elements as they lie in memory."""
        if dtype == "i1":
            return self.b.icmp_unsigned("!=", stored, ir.Constant(stored.type, None if lanes > 1 else 0))
        return narrow_floats.widened(self.b, self.level, stored, dtype) if dtype in NARROW_FLOATS else stored

    def _stored(self, value: Value, dtype: str, lanes: int) -> Value:
        """What lies in memory for a register."""
        if dtype == "i1":
            return self.b.zext(value, I8 if lanes == 1 else ir.VectorType(I8, lanes))
        return narrow_floats.narrowed(self.b, self.level, value, dtype) if dtype in NARROW_FLOATS else value

    def reread(self, value: Value, source: str, target: str, lanes: int) -> Value:
        """The register of `target` for what lies in memory for one of `source`, which has as many bytes."""
        scalar = MEMORY[target]
        stored = self._stored(value, source, lanes)
        bits = self.b.bitcast(stored, scalar if lanes == 1 else ir.VectorType(scalar, lanes))
        return self._register(bits, target, lanes)

    def rounded(self, value: Value, dtype: str, lanes: int) -> Value:
        """The value of a register of a narrow float rounded to that type; others as they are."""
        if dtype not in NARROW_FLOATS:
            return value
        return self._register(self._stored(value, dtype, lanes), dtype, lanes)

    def _load_raw(self, address: Value, scalar: Any, align: int, lanes: int, active: int | None) -> Value:
        if lanes == 1:
            return self.b.load(address, align=align, typ=scalar)
        if active is None or active >= lanes:
            return self.b.load(address, align=align, typ=ir.VectorType(scalar, lanes))
        return self._load_under(address, scalar, align, lanes, self.lane_mask(lanes, active))

    def _load_under(self, address: Value, scalar: Any, align: int, lanes: int, mask: Value) -> Value:
        vector = ir.VectorType(scalar, lanes)
        name = f"llvm.masked.load.v{lanes}{_suffix(scalar)}.p0"
        callee = self.declare(name, ir.FunctionType(vector, [PTR, I32, mask.type, vector]), immediates=(1,))
        return self.b.call(callee, [address, ir.Constant(I32, align), mask, ir.Constant(vector, None)])

    def store(self, value: Value, address: Value, dtype: str, lanes: int, active: int | None = None) -> None:
        """Write `lanes` contiguous elements; lanes from `active` on leave memory alone."""
        value = self._stored(value, dtype, lanes)
        if lanes == 1 or active is None or active >= lanes:
            self.b.store(value, address, align=ELEMENT_BYTES[dtype])
            return
        self._store_under(value, address, dtype, [lane < active for lane in range(lanes)])

    def _store_under(self, value: Value, address: Value, dtype: str, held: Sequence[bool]) -> None:
        """Write the lanes of a vector, as memory holds them, that are held; at least one is."""
        align, lanes = ELEMENT_BYTES[dtype], len(held)
        if held.count(True) == 1:
            # LLVM turns a masked store of one truncated lane into a store of the lane before it was truncated.
            lane = held.index(True)
            self.b.store(self.lane(value, lane), self.address(address, lane, dtype), align=align)
            return
        mask = ir.Constant(ir.VectorType(I1, lanes), [int(here) for here in held])
        name = f"llvm.masked.store.v{lanes}{_suffix(MEMORY[dtype])}.p0"
        callee = self.declare(name, ir.FunctionType(VOID, [value.type, PTR, I32, mask.type]), immediates=(2,))
        self.b.call(callee, [value, address, ir.Constant(I32, align), mask])

    def prefetch(self, address: Value) -> None:
        """Asks for a cache line to read, into the second level of cache. Never faults."""
        signature = ir.FunctionType(VOID, [PTR, I32, I32, I32])
        read, second_level, data = (ir.Constant(I32, value) for value in (0, 2, 1))
        callee = self.declare("llvm.prefetch.p0", signature, immediates=(1, 2, 3))
        self.b.call(callee, [address, read, second_level, data])

    def splat(self, scalar: Value, lanes: int) -> Value:
        """`scalar` in every lane."""
        if lanes == 1:
            return scalar
        vector = ir.VectorType(scalar.type, lanes)
        undefined = ir.Constant(vector, ir.Undefined)
        single = self.b.insert_element(undefined, scalar, ir.Constant(I32, 0))
        return self.b.shuffle_vector(single, undefined, ir.Constant(ir.VectorType(I32, lanes), None))

    def lane(self, value: Value, number: int) -> Value:
        """One lane of a vector; a scalar as it is."""
        if not isinstance(value.type, ir.VectorType):
            return value
        return self.b.extract_element(value, ir.Constant(I32, number))

    def with_lane(self, vector: Value, number: int, scalar: Value) -> Value:
        """A vector with one lane replaced."""
        return self.b.insert_element(vector, scalar, ir.Constant(I32, number))

    def stack(self, scalar: Any, count: int, align: int = 64) -> Value:
        """`count` elements on the stack of the function, allocated once at its entry."""
        with self.b.goto_block(self._entry_block):
            self.b.position_at_start(self._entry_block)
            slot = self.b.alloca(ir.ArrayType(scalar, count))
            slot.align = align
            slot.type = PTR  # llvmlite still gives alloca a typed pointer
        return slot

    # Arithmetic that is more than one LLVM instruction.

    def declare(self, name: str, signature: Any, immediates: tuple[int, ...] = ()) -> Value:
        """The external function or intrinsic `name`, declared once per module."""
        found = self.module.globals.get(name)
        if found is not None:
            return found
        function = ir.Function(self.module, signature, name)
        for position in immediates:
            function.args[position].add_attribute("immarg")
        return function

    def typed_function(self, pointer: Value, signature: Any) -> Value:
        """`pointer` as a callee: llvmlite takes the signature of a call from the type of its callee."""
        callee = _Callee(pointer, signature)
        return callee

    def intrinsic(self, name: str, *operands: Value) -> Value:
        """An overloaded LLVM intrinsic whose result and operands have one type."""
        type_ = operands[0].type
        callee = self.declare(
            f"llvm.{name}.{_type_suffix(type_)}", ir.FunctionType(type_, [type_] * len(operands))
        )
        return self.b.call(callee, list(operands))

    def saturating_int(self, x: Value, type_: Any, signed: bool = True) -> Value:
        """A float truncated toward zero; out of range gives the nearest integer, NaN gives 0."""
        if isinstance(type_, ir.VectorType) and type_.element.width < 32:
            return self._saturating_short(x, type_, signed)
        if isinstance(type_, ir.VectorType) and type_.element.width == 32 and signed:
            return self._saturating_word(x, type_.count)
        name = f"llvm.fpto{'s' if signed else 'u'}i.sat.{_type_suffix(type_)}.{_type_suffix(x.type)}"
        return self.b.call(self.declare(name, ir.FunctionType(type_, [x.type])), [x])

    def _saturating_word(self, x: Value, lanes: int) -> Value:
        """The same for vectors of i32: LLVM's own intrinsic makes several times the instructions of it."""
        dtype = "f32" if x.type.element == F32 else "f64"
        largest = (1 << 31) - (128 if dtype == "f32" else 1)  # that the type has
        least, most = (self.const(dtype, lanes, float(limit)) for limit in (-(1 << 31), largest))
        inside = self.b.select(self.b.fcmp_ordered(">", x, least), x, least)
        inside = self.b.select(self.b.fcmp_ordered("<", inside, most), inside, most)
        whole = self.b.fptosi(inside, self.type("i32", lanes))
        above = self.b.fcmp_ordered(">", x, most)
        whole = self.b.select(above, self.const("i32", lanes, (1 << 31) - 1), whole)
        return self.b.select(self.b.fcmp_unordered("uno", x, x), self.const("i32", lanes, 0), whole)

    def _saturating_short(self, x: Value, type_: Any, signed: bool) -> Value:
        """The same for vectors of integers of 8 or 16 bits, by way of i32: LLVM converts to these lane by lane."""
        bits, lanes = type_.element.width, type_.count
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        dtype = "f32" if x.type.element == F32 else "f64"
        least, most = (self.const(dtype, lanes, limit) for limit in (low, high))
        inside = self.b.select(self.b.fcmp_ordered(">", x, least), x, least)
        inside = self.b.select(self.b.fcmp_ordered("<", inside, most), inside, most)
        whole = self.b.fptosi(inside, self.type("i32", lanes))
        if signed:
            # A NaN has become the least integer.
            whole = self.b.select(self.b.fcmp_unordered("uno", x, x), self.const("i32", lanes, 0), whole)
        return self.b.trunc(whole, type_)

    def halves(self, x: Value) -> tuple[Value, Value]:
        """Lower and upper half of a vector; scalars once only one lane is left in each."""
        lanes = x.type.count
        if lanes == 2:
            low, high = (self.b.extract_element(x, ir.Constant(I32, lane)) for lane in range(2))
            return low, high
        half = lanes // 2
        order = ir.VectorType(I32, half)
        undefined = ir.Constant(x.type, ir.Undefined)
        low = self.b.shuffle_vector(x, undefined, ir.Constant(order, list(range(half))))
        high = self.b.shuffle_vector(x, undefined, ir.Constant(order, list(range(half, lanes))))
        return low, high

    def load_strided(
        self, address: Value, stride: int, dtype: str, lanes: int, active: int | None = None
    ) -> Value:
        """`lanes` elements `stride` apart (0: one element everywhere); lanes from `active` on are zero."""
        if stride == 1 or lanes == 1:
            return self.load(address, dtype, lanes, active)
        if stride == 0:
            return self.splat(self.load(address, dtype, 1), lanes)
        count = lanes if active is None else active
        if stride <= MAX_SHUFFLED and count > 1:
            return self._register(self._every(address, stride, dtype, lanes, count), dtype, lanes)
        offsets = [lane * stride for lane in range(count)]
        return self.load_apart([self.address(address, offset, dtype) for offset in offsets], dtype, lanes)

    def _every(self, address: Value, stride: int, dtype: str, lanes: int, count: int) -> Value:
        """`count` elements `stride` apart as they lie in memory: whole vectors, the last of which ends at the last one
        wanted, and shuffles of them."""
        scalar, span = MEMORY[dtype], (count - 1) * stride + 1
        starts = [*range(0, span - lanes, lanes), max(span - lanes, 0)]
        active = span if span < lanes else None
        loads = [
            self._load_raw(self.address(address, start, dtype), scalar, ELEMENT_BYTES[dtype], lanes, active)
            for start in starts
        ]
        zero = ir.Constant(ir.VectorType(scalar, lanes), None)
        (base, first), later = ((zero, -1), 0) if count < lanes or len(loads) == 1 else ((loads[0], 0), 1)
        vector = base
        for number in range(later, len(loads)):
            order = list[int]()
            for lane in range(lanes):
                offset = lane * stride - starts[number]
                if lane < count and 0 <= offset < lanes:
                    order.append(lanes + offset)
                else:
                    order.append(lane if number > later or first < 0 else min(lane * stride, lanes - 1))
            shuffle = ir.Constant(ir.VectorType(I32, lanes), order)
            vector = self.b.shuffle_vector(vector, loads[number], shuffle)
        return vector

    def load_apart(self, addresses: Sequence[Value], dtype: str, lanes: int) -> Value:
        """An element from each address, in the first of `lanes` (2 or more) lanes; the others are zero."""
        vector = ir.Constant(ir.VectorType(MEMORY[dtype], lanes), None)
        for lane, address in enumerate(addresses):
            element = self._load_raw(address, MEMORY[dtype], ELEMENT_BYTES[dtype], 1, None)
            vector = self.b.insert_element(vector, element, ir.Constant(I32, lane))
        return self._register(vector, dtype, lanes)

    def store_strided(
        self, value: Value, address: Value, stride: int, dtype: str, lanes: int, active: int | None = None
    ) -> None:
        """Write `lanes` elements `stride` apart."""
        if stride == 1 or lanes == 1:
            self.store(value, address, dtype, lanes, active)
            return
        stored, count = self._stored(value, dtype, lanes), lanes if active is None else active
        if stride <= MAX_SHUFFLED and count > 1:
            self._store_every(stored, address, stride, dtype, lanes, count)
            return
        for lane in range(count):
            element = self.b.extract_element(stored, ir.Constant(I32, lane))
            self.b.store(element, self.address(address, lane * stride, dtype), align=ELEMENT_BYTES[dtype])

    def _store_every(
        self, stored: Value, address: Value, stride: int, dtype: str, lanes: int, count: int
    ) -> None:
        """Whole vectors with `count` lanes of one `stride` apart, under masks that spare what lies between."""
        for start in range(0, (count - 1) * stride + 1, lanes):
            sources = [divmod(start + element, stride) for element in range(lanes)]
            held = [not rest and lane < count for lane, rest in sources]
            order = [lane if here else 0 for (lane, _), here in zip(sources, held, strict=True)]
            spread = self.b.shuffle_vector(stored, stored, ir.Constant(ir.VectorType(I32, lanes), order))
            self._store_under(spread, self.address(address, start, dtype), dtype, held)

    def gather(self, table: Value, index: Value, dtype: str, lanes: int) -> Value:
        """Elements of `table` at an index of its own per lane."""
        if lanes == 1:
            return self.load(self.address(table, index, dtype), dtype, 1)
        vector = self.const(dtype, lanes, 0)
        for lane in range(lanes):
            position = ir.Constant(I32, lane)
            element = self.load(self.address(table, self.b.extract_element(index, position), dtype), dtype, 1)
            vector = self.b.insert_element(vector, element, position)
        return vector

    def scaled(self, index: Value, factor: int) -> Value:
        """``index * factor``."""
        if factor == 1:
            return index
        # The constant of a body is a text: `'1' * 3` is not what is wanted.
        if isinstance(index, ir.Constant) and isinstance(index.constant, int):
            return self.index(index.constant * factor)
        return self.b.mul(index, self.index(factor))

    def moved(self, base: Value, index: Value, stride: int, dtype: str) -> Value:
        """`base` moved by ``index * stride`` elements."""
        return base if stride == 0 else self.address(base, self.scaled(index, stride), dtype)

    def opaque(self, address: Value) -> Value:
        """The same address, of which LLVM knows nothing: what is loaded from it is not kept for a load elsewhere."""
        same = ir.InlineAsm(ir.FunctionType(PTR, [PTR]), "", "=r,0")
        return self.b.call(same, [address])

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c of floats: one rounding where the level has FMA, else two (never a call into libm)."""
        if self.level.has_fma:
            return self.intrinsic("fma", a, b, c)
        return self.b.fadd(self.b.fmul(a, b), c)

    def transpose(self, vectors: Sequence[Value]) -> list[Value]:
        """The square transpose of n vectors of n lanes (n a power of two), by log2(n) rounds of perfect shuffles."""
        lanes = len(vectors)
        half = lanes // 2
        index = ir.VectorType(I32, lanes)
        low = ir.Constant(index, [lane // 2 + lane % 2 * lanes for lane in range(lanes)])
        high = ir.Constant(index, [half + lane // 2 + lane % 2 * lanes for lane in range(lanes)])
        current = list(vectors)
        for _ in range(lanes.bit_length() - 1):
            pairs = [(current[i], current[i + half]) for i in range(half)]
            current = [self.b.shuffle_vector(x, y, order) for x, y in pairs for order in (low, high)]
        return current

    # Control flow.

    def loop(
        self,
        start: Value | int,
        stop: Value | int,
        step: int,
        carried: Sequence[Value],
        body: Callable[[Value, list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """``for i in range(start, stop, step): carried = body(i, carried)``; returns the last `carried`.

        With integer bounds the trip count is known: no iteration emits nothing, one is emitted in line.
        """
        if isinstance(start, int) and isinstance(stop, int):
            trips = max(0, -(-(stop - start) // step))
            if trips == 0:
                return list(carried)
            if trips == 1:
                return list(body(self.index(start), list(carried)))
            return self._bottom_tested(
                self.index(start), self.index(start + trips * step), step, carried, body
            )
        first = self.index(start) if isinstance(start, int) else start
        last = self.index(stop) if isinstance(stop, int) else stop
        before = self.b.block
        inside = self.b.append_basic_block("guarded")
        after = self.b.append_basic_block("after")
        self.b.cbranch(self.b.icmp_signed("<", first, last), inside, after)
        self.b.position_at_end(inside)
        results = self._bottom_tested(first, last, step, carried, body)
        done = self.b.block
        self.b.branch(after)
        self.b.position_at_end(after)
        merged: list[Value] = []
        for initial, result in zip(carried, results, strict=True):
            phi = self.b.phi(initial.type)
            phi.add_incoming(initial, before)
            phi.add_incoming(result, done)
            merged.append(phi)
        return merged

    def each(
        self, start: Value | int, stop: Value | int, step: int = 1
    ) -> Callable[[Callable[[Value], None]], None]:
        """A decorator that emits ``for i in range(start, stop, step): body(i)`` where `body` is defined, see `loop`."""

        def emit(body: Callable[[Value], None]) -> None:
            def once(i: Value, _: list[Value]) -> list[Value]:
                body(i)
                return []

            self.loop(start, stop, step, [], once)

        return emit

    def _bottom_tested(
        self,
        start: Value,
        stop: Value,
        step: int,
        carried: Sequence[Value],
        body: Callable[[Value, list[Value]], Sequence[Value]],
    ) -> list[Value]:
        before = self.b.block
        head = self.b.append_basic_block("loop")
        self.b.branch(head)
        self.b.position_at_end(head)
        counter = self.b.phi(I64)
        counter.add_incoming(start, before)
        phis = [self.b.phi(value.type) for value in carried]
        for phi, value in zip(phis, carried, strict=True):
            phi.add_incoming(value, before)
        results = list(body(counter, list(phis)))
        following = self.b.add(counter, self.index(step), flags=("nsw",))
        latch = self.b.block
        counter.add_incoming(following, latch)
        for phi, value in zip(phis, results, strict=True):
            phi.add_incoming(value, latch)
        done = self.b.append_basic_block("done")
        self.b.cbranch(self.b.icmp_signed("<", following, stop), head, done)
        self.b.position_at_end(done)
        return results

    def descend(
        self, start: Value, goes_on: Callable[[Value], Value], step: Callable[[Value], Value]
    ) -> Value:
        """``while i > 0 and goes_on(i): i = step(i)`` from ``i = start``; returns the last i (all i64)."""
        before = self.b.block
        head, test, body, done = (
            self.b.append_basic_block(name) for name in ("head", "test", "body", "done")
        )
        self.b.branch(head)
        self.b.position_at_end(head)
        index = self.b.phi(I64)
        index.add_incoming(start, before)
        self.b.cbranch(self.b.icmp_signed(">", index, self.index(0)), test, done)
        self.b.position_at_end(test)
        self.b.cbranch(goes_on(index), body, done)
        self.b.position_at_end(body)
        following = step(index)
        index.add_incoming(following, self.b.block)
        self.b.branch(head)
        self.b.position_at_end(done)
        return index

    def loop_while(
        self,
        carried: Sequence[Value],
        goes_on: Callable[[list[Value]], Value],
        body: Callable[[list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """``while goes_on(carried): carried = body(carried)``; returns the last `carried`."""
        before = self.b.block
        head, inside, done = (self.b.append_basic_block(name) for name in ("head", "body", "done"))
        self.b.branch(head)
        self.b.position_at_end(head)
        phis = [self.b.phi(value.type) for value in carried]
        for phi, value in zip(phis, carried, strict=True):
            phi.add_incoming(value, before)
        self.b.cbranch(goes_on(list(phis)), inside, done)
        self.b.position_at_end(inside)
        results = list(body(list(phis)))
        for phi, value in zip(phis, results, strict=True):
            phi.add_incoming(value, self.b.block)
        self.b.branch(head)
        self.b.position_at_end(done)
        return phis

    def first_lane(self, mask: Value) -> Value:
        """The number (i64) of the first lane in which the mask holds; there is one."""
        bits = ir.IntType(mask.type.count)
        name, signature = f"llvm.cttz.i{bits.width}", ir.FunctionType(bits, [bits, I1])
        callee = self.declare(name, signature, immediates=(1,))
        number = self.b.call(callee, [self.b.bitcast(mask, bits), ir.Constant(I1, 1)])
        return number if bits == I64 else self.b.zext(number, I64)

    def no_lane(self, mask: Value) -> Value:
        """Whether the mask holds nowhere."""
        if not isinstance(mask.type, ir.VectorType):
            return self.b.not_(mask)
        bits = ir.IntType(mask.type.count)
        return self.b.icmp_signed("==", self.b.bitcast(mask, bits), ir.Constant(bits, 0))

    def unless(
        self, condition: Value, then: Callable[[], Sequence[Value]], values: Sequence[Value]
    ) -> list[Value]:
        """``values if condition else then()``."""
        before = self.b.block
        taken, after = (self.b.append_basic_block(name) for name in ("rare", "common"))
        self.b.cbranch(condition, after, taken)
        self.b.position_at_end(taken)
        others = list(then())
        done = self.b.block
        self.b.branch(after)
        self.b.position_at_end(after)
        merged: list[Value] = []
        for value, other in zip(values, others, strict=True):
            phi = self.b.phi(value.type)
            phi.add_incoming(value, before)
            phi.add_incoming(other, done)
            merged.append(phi)
        return merged

    def panels(self, count: int, width: int) -> Callable[[Callable[[Value, int], None]], None]:
        """A decorator that emits a function of the number and the width of a panel, for each panel of `count` columns;
        the last may be narrower."""

        def emit(panel: Callable[[Value, int], None]) -> None:
            full, rest = divmod(count, width)
            self.each(0, full)(lambda number: panel(number, width))
            if rest:
                panel(self.index(full), rest)

        return emit

    def pieces(self, count: int, size: int) -> Callable[[Callable[[Value, int], None]], None]:
        """A decorator that emits a function of the first element and the length of a piece, for each piece of `count`
        elements; the last may be shorter."""

        def emit(piece: Callable[[Value, int], None]) -> None:
            full = count // size * size
            self.each(0, full, size)(lambda first: piece(first, size))
            if full < count:
                piece(self.index(full), count - full)

        return emit

    def part_of(self, workspace: Value, tid: Value, threads: int, count: int) -> Value:
        """Where the `count` bytes of one of `threads` threads start in the workspace of all; None if there is none."""
        if workspace is None or threads == 1:
            return workspace
        return self.b.gep(workspace, [self.b.mul(tid, self.index(count))], source_etype=I8)

    def when(
        self, condition: Value, then: Callable[[], None], otherwise: Callable[[], None] | None = None
    ) -> None:
        """``if condition: then() else: otherwise()``."""
        taken = self.b.append_basic_block("then")
        other = self.b.append_basic_block("else") if otherwise is not None else None
        after = self.b.append_basic_block("endif")
        self.b.cbranch(condition, taken, other if other is not None else after)
        self.b.position_at_end(taken)
        then()
        self.b.branch(after)
        if other is not None and otherwise is not None:
            self.b.position_at_end(other)
            otherwise()
            self.b.branch(after)
        self.b.position_at_end(after)


def _suffix(scalar: Any) -> str:
    if isinstance(scalar, ir.IntType):
        return f"i{scalar.width}"
    return "f64" if scalar == F64 else "f32"


def _type_suffix(type_: Any) -> str:
    if isinstance(type_, ir.VectorType):
        return f"v{type_.count}{_suffix(type_.element)}"
    return _suffix(type_)
