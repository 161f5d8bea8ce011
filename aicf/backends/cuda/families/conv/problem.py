"""Reads a convolution from its operands: sizes, strides, and where its epilogue reads and writes. Plain data.

Shared by the descriptors (which see a `Workload`) and the code generators (which see a `Launch`) of this folder. As a
product, a convolution has a row for every pixel of the result, a column for every output channel of a group, and groups
as its batch; K runs over the elements of a window, channels innermost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import AnyFloat, ArrayAttr, IntegerType
from xdsl.ir import Attribute
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr

from aicf.backends.base import BufferRef, Launch
from aicf.backends.common.loop_nest import index_ops, is_linear, sums_type
from aicf.backends.common.record import read_integer
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.backends.cuda.families.conv.pack.kernel import packed
from aicf.backends.cuda.families.gemm.problem import Access, GemmProblem, Strided, access_of, strided
from aicf.backends.cuda.families.records import integers
from aicf.backends.cuda.target import ELEMENT_BYTES, SHORT_INTEGERS
from aicf.dialects.emit_kernels import KernelOp
from aicf.errors import PlanError

X, WEIGHT, FIRST_EXTRA = 0, 1, 2
"""Numbers of the operands."""


@dataclass(frozen=True)
class ConvProblem:
    """A convolution along one to three dimensions, without its epilogue.

    Args:
        dtype: Of operand and weight, unless `weight_dtype` says another one.
        batch: Images.
        groups: Groups of channels.
        channels, outputs: Of a group, of the operand and of the result.
        sizes, counts: Of the operand and of the result along each dimension.
        taps, strides, dilations, low: Of windows: elements, steps, steps within, zeros before the first element.
        x_strides: Elements between neighbours of the operand: images, channels, then each dimension.
        weight_strides: Of the weight: outputs, channels of a group, then each dimension of a window.
        x_alignment, weight_alignment: Bytes to which the first elements are aligned, at most 16.
        weight_dtype: Of the weight, if it is another one: an 8-bit integer, as that of the operand.
        widens: Whether the sums of short integers are i32.
        padding_value: What lies around the operand.
    """

    dtype: str
    batch: int
    groups: int
    channels: int
    outputs: int
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    taps: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    x_strides: tuple[int, ...]
    weight_strides: tuple[int, ...]
    x_alignment: int
    weight_alignment: int
    weight_dtype: str | None = None
    widens: bool = False
    padding_value: int = 0

    @property
    def rank(self) -> int:
        """Dimensions along which windows slide."""
        return len(self.sizes)

    @property
    def element_bytes(self) -> int:
        """Of an element of operand and weight."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def pixels(self) -> int:
        """Of all images of the result: rows of the product."""
        return self.batch * prod(self.counts)

    @property
    def window(self) -> int:
        """Elements of a window."""
        return prod(self.taps)

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.pixels * self.groups * self.outputs * self.window * self.channels

    @property
    def is_channels_last(self) -> bool:
        """Whether neighbouring channels of the operand are neighbours in memory."""
        return self.x_strides[1] == 1 or self.groups * self.channels == 1

    @property
    def high(self) -> tuple[int, ...]:
        """Elements that windows reach past the last one of the operand, along each dimension; negative where they end
        before it."""
        reached = zip(self.counts, self.strides, self.taps, self.dilations, self.sizes, self.low, strict=True)
        return tuple(
            (n - 1) * step + (k - 1) * apart + 1 - size - low for n, step, k, apart, size, low in reached
        )

    def product(self, k: int) -> GemmProblem:
        """The product whose epilogue this one's is: its dims are groups, images, the dimensions of a result, channels.
        Its K has `k` elements; where its operands lie says the convolution, not the product."""
        grouped = self.groups > 1
        return GemmProblem(
            self.dtype,
            self.pixels,
            self.outputs,
            k,
            (k, 1),
            (1, k),
            (self.groups,) if grouped else (),
            (0,) if grouped else (),
            (0,) if grouped else (),
            (self.batch, *self.counts),
            1,
            1,
            self.x_alignment,
            self.weight_alignment,
            self.weight_dtype,
            self.widens,
        )


def conv_problem(
    attrs: Mapping[str, Attribute],
    ins: Sequence[OperandInfo] | Sequence[BufferRef],
    counts: Sequence[int],
    sums: str,
    layout: str | None,
) -> ConvProblem:
    """The problem of an instruction.

    Args:
        attrs: Attributes of its kind, or a record that holds them.
        ins: Its operands.
        counts: Sizes of the result along each dimension.
        sums: Element type of the sums.
        layout: That in which the weight is packed, None if it lies as the operand says.
    """
    x, weight = strided(ins[X]), strided(ins[WEIGHT])
    return conv_of(attrs, x, weight if layout is None else packed(weight, layout), counts, sums)


def conv_of(
    attrs: Mapping[str, Attribute], x: Strided, weight: Strided, counts: Sequence[int], sums: str
) -> ConvProblem:
    """The problem of a convolution of `x` and `weight`, the other arguments as in `conv_problem`."""
    groups, rank = read_integer(attrs, "groups"), len(x.shape) - 2

    def each(name: str) -> tuple[int, ...]:
        return tuple(read_integer(attrs, f"{name}_{dim}") for dim in range(rank))

    return ConvProblem(
        x.dtype,
        batch=x.shape[0],
        groups=groups,
        channels=weight.shape[1],
        outputs=weight.shape[0] // groups,
        sizes=x.shape[2:],
        counts=tuple(counts),
        taps=weight.shape[2:],
        strides=each("stride"),
        dilations=each("dilation"),
        low=each("low"),
        x_strides=x.strides,
        weight_strides=weight.strides,
        x_alignment=x.alignment,
        weight_alignment=weight.alignment,
        weight_dtype=None if weight.dtype == x.dtype else weight.dtype,
        widens=x.dtype in SHORT_INTEGERS and sums != x.dtype,
        padding_value=padding_value(attrs),
    )


def padding_value(attrs: Mapping[str, Attribute]) -> int:
    """What lies around the operand, as the attributes of a convolution or a record say; 0 if they say nothing."""
    return read_integer(attrs, "padding_value") if "padding_value" in attrs else 0


def conv_of_work(work: Workload, layout: str | None = None) -> ConvProblem:
    """The convolution that a work asks for, `layout` as in `conv_problem`. The work has passed `conv_reason`."""
    sizes = result_sizes(work.code, [result.shape for result in work.results])
    assert sizes is not None, "the problem is asked of what reads every sum once"
    sums = sums_type(work.code, [result.dtype for result in work.results])
    return conv_problem(work.attrs, work.operands, sizes[2:], sums, layout)


def windows_of(work: Workload) -> Mapping[str, Attribute]:
    """The attributes of the kind that a record holds: what lies around the operand is 0 where a kernel is legal."""
    return {name: value for name, value in work.attrs.items() if name != "padding_value"}


def conv_of_launch(launch: Launch) -> ConvProblem:
    """The convolution of an instruction, whose record holds the attributes of its kind. Raises PlanError if its
    epilogue does not read every sum once."""
    sizes, layout = result_sizes(launch.code, [ref.shape for ref in launch.outs]), launch.ins[WEIGHT].layout
    if sizes is None:
        raise misplaced(launch)
    sums = sums_type(launch.code, [ref.dtype for ref in launch.outs])
    return conv_problem(
        launch.record, launch.ins, sizes[2:], sums, None if layout is None else layout.layout.data
    )


def misplaced(launch: Launch) -> PlanError:
    """What a code generator raises where an instruction is not what its record was made for."""
    return PlanError(
        f"instruction '{launch.name}': its operands do not lie as its kernel record says: run lower-to-emit again"
    )


def conv_reason(work: Workload, widens: bool = False) -> str | None:
    """Why `work` is no convolution that a kernel of this folder can run, None if it is one. With `widens` the kernel
    has reasons of its own for types and for what lies around the operand."""
    x, weight = work.operands[:FIRST_EXTRA]
    if x.dtype != weight.dtype and not widens:
        return f"its operand is {x.dtype} and its weight {weight.dtype}: cast one of them first"
    if (around := padding_value(work.attrs)) != 0 and not widens:
        return f"around its operand lies {around}, not 0: pad it before"
    if 0 in x.shape or 0 in weight.shape or any(0 in result.shape for result in work.results):
        return "nothing to convolve"
    if work.code is None:
        return "what follows the convolution has no generated code"
    if work.code.reduce_sizes or len(work.code.phases) != 1:
        return "a reduction follows the convolution"
    if index_ops(work.code) or any(
        not isinstance(argument.type, AnyFloat | IntegerType) for argument in work.code.body.block.args
    ):
        return "what follows the convolution reads at computed indices"
    if not all(is_linear(m) for m in (*work.code.in_maps, *work.code.out_maps)):
        return "an operand of the epilogue is not indexed by sums of the result's dims"
    if result_sizes(work.code, [result.shape for result in work.results]) is None:
        return "what follows the convolution repeats its result, or reads a part of it"
    return None


def result_sizes(code: KernelOp | None, outputs: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """The sizes of the convolution's own result, ``[N, M, O1..Ok]``; None where its epilogue repeats that, or reads a
    part of it."""
    if code is None:
        return tuple(outputs[0])
    if (loops := _loops(code)) is None:
        return None
    return tuple(1 if loop is None else code.parallel_sizes[loop] for loop in loops)


def _loops(code: KernelOp) -> list[int | None] | None:
    """For each dimension of the sums the loop of the epilogue that runs along it, None for one of size 1; see the same
    of the CPU's convolutions."""
    loops: list[int | None] = []
    for expr in code.in_maps[0].results:
        if isinstance(expr, AffineDimExpr):
            loops.append(expr.position)
        elif isinstance(expr, AffineConstantExpr) and expr.value == 0:
            loops.append(None)
        else:
            return None
    if any(size != 1 and loop not in loops for loop, size in enumerate(code.parallel_sizes)):
        return None
    return loops


def epilogue_accesses(
    code: KernelOp | None, problem: ConvProblem, extras: Sequence[Strided], outputs: Sequence[Strided]
) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
    """Accesses of the epilogue's operands and results over the dims of `ConvProblem.product`. The work has passed
    `conv_reason`."""
    if code is None:
        reads, writes = [], [Access(out.dtype, 0, out.strides, out.alignment) for out in outputs]
    else:
        loops = _loops(code)
        assert loops is not None, "accesses are asked of what reads every sum once"
        reads = [_along(access_of(m, one), loops) for m, one in zip(code.in_maps[1:], extras, strict=True)]
        writes = [_along(access_of(m, one), loops) for m, one in zip(code.out_maps, outputs, strict=True)]
    return (
        tuple(_as_product(access, problem) for access in reads),
        tuple(_as_product(access, problem) for access in writes),
    )


def may_alias(work: Workload, problem: ConvProblem) -> Attribute:
    """A result may lie on an operand of the epilogue that is read at the same places: by the thread that then stores
    there."""
    extras, outputs = ([strided(one) for one in many] for many in (work.operands[FIRST_EXTRA:], work.results))
    reads, writes = epilogue_accesses(work.code, problem, extras, outputs)
    return ArrayAttr(
        [
            integers((result, FIRST_EXTRA + extra))
            for result, write in enumerate(writes)
            for extra, read in enumerate(reads)
            if (read.dtype, read.offset, read.strides) == (write.dtype, write.offset, write.strides)
        ]
    )


def _along(access: Access, loops: Sequence[int | None]) -> Access:
    """An access over the loops of the epilogue as one over the dims of the sums."""
    steps = tuple(0 if loop is None else access.strides[loop] for loop in loops)
    return Access(access.dtype, access.offset, steps, access.alignment)


def _as_product(access: Access, problem: ConvProblem) -> Access:
    """An access over images, channels and pixels as one over groups, images, pixels, and the channels of a group."""
    image, channel, *pixels = access.strides
    group = (problem.outputs * channel,) if problem.groups > 1 else ()
    return Access(access.dtype, access.offset, (*group, image, *pixels, channel), access.alignment)
