"""Opcodes of emit IR: the kind table and the attribute schemas with their packed form.

A *kind* is the logical opcode of an instruction; its number is stable for ever. A *schema* names a little-endian
layout for the kind's attributes, so that a runtime without this compiler can read them. What a kind means is said
by the body of an instruction, not here.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, StringAttr, f64, i1, i64
from xdsl.ir import Attribute

from aicf.dialects.block_schemes import BLOCK_SCHEMES


@dataclass(frozen=True)
class Kind:
    """What is true of all instructions of a kind.

    Args:
        number: Of the kind in a program; it never changes.
        needs_code: Whether its kernels need the scalar program that is generated from the body.
        is_windowed: Whether windows slide along its dimensions: then it runs faster in one order of memory, row-major
            or channels-last, than in the other.
        takes_tf32: Whether a policy may round its operands of f32 to TF32.
        family: Field of a kernel policy that says whose kernels are to run it, one of `FAMILIES`; empty if none does.
        scalar_program: Whether the scalar program of its body is all of it: then kernels of scalar programs run it,
            where it has one.
        epilogue: Whether it is one product and what follows it element by element: then its scalar program is the
            epilogue of a kernel of products.
        updates: Whether it updates many tensors, or one: then kernels of many tensors run it.
        bare: Whether instructions may leave all attributes to the body, although the kind has a schema.
        parts: How to write an instruction as several, for the message where no one kernel runs all of it.
        becomes: The kind of what takes in more ops when layouts are decided, empty if nothing does: a policy may name a
            kernel of that kind before.
    """

    number: int
    needs_code: bool = True
    is_windowed: bool = False
    takes_tf32: bool = False
    family: str = ""
    scalar_program: bool = False
    epilogue: bool = False
    updates: bool = False
    bare: bool = False
    parts: str = ""
    becomes: str = ""


PACKED_PRODUCTS = "matmul_blocks_fused"
"""Products of packed weights with what is computed before and after them."""

KINDS: dict[str, Kind] = {
    "add": Kind(0, scalar_program=True),
    "relu": Kind(1, scalar_program=True),
    "gemm": Kind(2, needs_code=False, takes_tf32=True, family="matmul"),
    "bias_add": Kind(3, scalar_program=True),
    "reduce_sum": Kind(4, scalar_program=True),
    "mse_grad": Kind(5, scalar_program=True),
    "relu_bwd": Kind(6, scalar_program=True),
    "sgd_step": Kind(7, scalar_program=True, updates=True),
    "copy": Kind(8, needs_code=False),
    "grad_zero": Kind(9, scalar_program=True),
    "adam_step": Kind(10, scalar_program=True, updates=True, bare=True),
    "step_inc": Kind(11, scalar_program=True),
    "bias_corr": Kind(12, scalar_program=True),
    "layernorm_fwd": Kind(13, scalar_program=True),
    "layernorm_bwd": Kind(
        14, scalar_program=True, parts="write dx as one instruction, dscale and dbias as another"
    ),
    "batchnorm_fwd": Kind(15, scalar_program=True),
    "batchnorm_bwd": Kind(16, scalar_program=True),
    "gemm_epilogue": Kind(17, takes_tf32=True, family="matmul", epilogue=True),
    "softmax": Kind(18, scalar_program=True),
    "softmax_bwd": Kind(19, scalar_program=True),
    "mse_loss": Kind(20, scalar_program=True),
    "cross_entropy_fwd": Kind(21, scalar_program=True, parts="write it with reduction none, then reduce_sum"),
    "cross_entropy_bwd": Kind(
        22, scalar_program=True, parts="write it with reduction none, with the gradient of each sample"
    ),
    "gemm_epilogue_bwd": Kind(23, takes_tf32=True, family="matmul", epilogue=True),
    "generated": Kind(24, scalar_program=True),
    "concat": Kind(25, needs_code=False),
    "pack": Kind(26, needs_code=False),
    "gemm_gated": Kind(27, takes_tf32=True, family="matmul"),
    "norm_gemm": Kind(28, family="matmul"),
    "attention": Kind(29, needs_code=False, family="attention"),
    "gemm_multi": Kind(30, takes_tf32=True, family="matmul"),
    "norm_gated": Kind(31, family="matmul"),
    "gemm_norm": Kind(32, family="matmul"),
    "last_update": Kind(33, needs_code=False),
    "scatter_combine": Kind(34, needs_code=False),
    "topk_indices": Kind(35, needs_code=False),
    "attention_step": Kind(36, needs_code=False, family="attention"),
    "update": Kind(37, updates=True),
    "conv": Kind(38, is_windowed=True, takes_tf32=True, family="conv", becomes="conv_moments"),
    "pool": Kind(39, is_windowed=True),
    "lstm": Kind(40, needs_code=False),
    "non_max_suppression": Kind(41, needs_code=False),
    "attention_backward": Kind(42, needs_code=False, family="attention"),
    "conv_weight_grad": Kind(43, needs_code=False, is_windowed=True, takes_tf32=True),
    "mul": Kind(44, scalar_program=True),
    "custom": Kind(45, needs_code=False),
    "gemm_sums": Kind(46, needs_code=False, family="matmul"),
    "pool_taps": Kind(47, needs_code=False, is_windowed=True),
    "max_pool_grad": Kind(48, needs_code=False, is_windowed=True),
    "dequantize_blocks": Kind(49, needs_code=False),
    "matmul_blocks": Kind(50, needs_code=False, takes_tf32=True),
    "cached_attention": Kind(51, needs_code=False, family="attention"),
    "cached_attention_step": Kind(52, needs_code=False, family="attention"),
    "conv_moments": Kind(53, is_windowed=True, family="conv"),
    "rounded_matmul_blocks": Kind(54, needs_code=False),
    PACKED_PRODUCTS: Kind(55),
    "conv_transpose": Kind(56, needs_code=False, is_windowed=True),
}
"""Append-only: a number, once given, never changes and is never used again."""

FAMILIES = tuple(dict.fromkeys(kind.family for kind in KINDS.values() if kind.family))
"""Families of kinds, each with a field in a kernel policy."""


SCALAR_PROGRAMS = frozenset(name for name, kind in KINDS.items() if kind.scalar_program)
"""What kernels of scalar programs run: they are asked of each instruction whether it has one that they can."""

EPILOGUES = tuple(name for name, kind in KINDS.items() if kind.epilogue)
"""One product with what follows it element by element."""

UPDATES = frozenset(name for name, kind in KINDS.items() if kind.updates)
"""What kernels that update many tensors run."""


def family_of(kind: str) -> str:
    """The family of a kind; empty if it has none."""
    return KINDS[kind].family if kind in KINDS else ""


def may_run(kinds: Container[str], kind: str) -> bool:
    """Whether a kernel of `kinds` runs an instruction of a kind, or what that becomes."""
    return kind in kinds or (kind in KINDS and bool(KINDS[kind].becomes) and KINDS[kind].becomes in kinds)


def number_of(kind: str) -> int:
    """The number of a kind; -1 for a word that is none, which verifiers refuse."""
    return KINDS[kind].number if kind in KINDS else -1


ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "sigmoid", "tanh", "generated")
"""Values of the `activation` field, in the order of their packed code. `generated` = see the instruction's code."""


SLOPES = ("relu", "gelu", "gelu_tanh", "sigmoid", "tanh", "silu")
"""Values of the `activation` field of a product times the slope of an activation, in the order of their packed code."""

REDUCTIONS = ("none", "mean", "sum")
"""Values of the `reduction` field of a loss, in the order of their packed code."""

SCATTER_MODES = ("add", "max", "min", "mul")
"""Values of the `mode` field of a scatter, in the order of their packed code."""

POOL_MODES = ("max", "avg")
"""Values of the `mode` field of a pooling, in the order of their packed code."""

SUMMED = ("a", "b")
"""Values of the `summed` field of a product beside which an operand is summed, in the order of their packed code."""

ROTATIONS = ("none", "halves", "neighbours")
"""Values of the `rotation` field of a step of attention, in the order of their packed code: which elements of a head
are a pair that its position turns."""

CONV_DIMS = 3
"""Most dimensions of a window; attributes of those that a convolution has not are those of one element."""

FLAGS = (BoolAttr.from_bool(False), BoolAttr.from_bool(True))
"""The two i1 attributes, by truth: made once, for every instruction has some."""


@dataclass(frozen=True)
class Field:
    """One packed attribute.

    Args:
        name: Attribute name.
        code: `struct` code, little endian: `?` bool, `q` i64, `d` f64, `B` index into `values`.
        values: Legal strings of an enumeration (`B`).
    """

    name: str
    code: str
    values: tuple[str, ...] = ()

    def encode(self, value: Attribute) -> bool | int | float:
        """The Python number that is packed for `value`; ValueError names the field if the type is wrong."""
        match self.code, value:
            case "?", IntegerAttr() if value.type == i1:
                return bool(value.value.data)
            case "q", IntegerAttr() if value.type == i64:
                return value.value.data
            case "d", FloatAttr() if value.type == f64:
                return value.value.data
            case "B", StringAttr() if value.data in self.values:
                return self.values.index(value.data)
            case _:
                raise ValueError(f"attribute '{self.name}' must be {self.describe()}, got {value}")

    def decode(self, number: bool | int | float) -> Attribute:
        """The attribute that `encode` turns into `number`."""
        match self.code:
            case "?":
                return FLAGS[bool(number)]
            case "q":
                return IntegerAttr(int(number), i64)
            case "d":
                return FloatAttr(float(number), f64)
            case _:
                if int(number) >= len(self.values):
                    raise ValueError(f"attribute '{self.name}' has no value with code {int(number)}")
                return StringAttr(self.values[int(number)])

    def describe(self) -> str:
        """The legal type in words."""
        return {"?": "a bool", "q": "an i64", "d": "an f64"}.get(
            self.code, "one of " + ", ".join(self.values)
        )


_ATTENTION = (
    Field("scale", "d"),
    Field("mask", "?"),
    Field("causal", "?"),
    Field("past", "q"),
    Field("nan_as_zero", "?"),
    Field("empty_as_zero", "?"),
)

_CACHED = (*_ATTENTION, Field("position", "?"), Field("window", "q"), Field("softcap", "d"))

_SCHEME = (Field("scheme", "B", tuple(BLOCK_SCHEMES)),)
_TRANSPOSED = (Field("transpose_a", "?"), Field("transpose_b", "?"))
_PROLOGUE = (*_TRANSPOSED, Field("prologue_operands", "q"))

_CONV = (
    Field("groups", "q"),
    *(Field(f"{name}_{dim}", "q") for name in ("stride", "dilation", "low") for dim in range(CONV_DIMS)),
)

_POOL_WINDOWS = tuple(
    Field(f"{name}_{dim}", "q")
    for name in ("size", "stride", "dilation", "low", "high")
    for dim in range(CONV_DIMS)
)

_REDUCTION = Field("reduction", "B", REDUCTIONS)
_CROSS_ENTROPY = (
    Field("axis", "q"),
    Field("ignore_index", "q"),
    Field("label_smoothing", "d"),
    _REDUCTION,
)

SCHEMAS: dict[str, tuple[Field, ...]] = {
    "": (),
    "gemm.v1": _TRANSPOSED,
    "gemm_epilogue.v1": (
        *_TRANSPOSED,
        Field("bias", "?"),
        Field("residual", "?"),
        Field("activation", "B", ACTIVATIONS),
    ),
    "reduce_sum.v1": (Field("first_axis", "q"), Field("axis_count", "q"), Field("keepdims", "?")),
    "softmax.v1": (Field("axis", "q"),),
    "layernorm_fwd.v1": (Field("axis", "q"), Field("epsilon", "d")),
    "sgd_step.v1": (Field("learning_rate_operand", "q"),),
    "mse_loss.v1": (_REDUCTION,),
    "mse_grad.v1": (_REDUCTION, Field("grad", "?")),
    "adam_step.v1": (
        *(Field(name, "d") for name in ("beta1", "beta2", "epsilon", "weight_decay")),
        Field("decoupled", "?"),
    ),
    "bias_corr.v1": (Field("beta", "d"),),
    "layernorm_bwd.v1": (
        Field("axis", "q"),
        Field("epsilon", "d"),
        *(Field(name, "?") for name in ("dx", "dscale", "dbias")),
    ),
    "batchnorm_fwd.v1": (Field("epsilon", "d"), Field("training", "?"), Field("momentum", "d")),
    "batchnorm_bwd.v1": (Field("epsilon", "d"),),
    "softmax_bwd.v1": (Field("axis", "q"),),
    "cross_entropy_fwd.v1": _CROSS_ENTROPY,
    "cross_entropy_bwd.v1": _CROSS_ENTROPY,
    "gemm_epilogue_bwd.v1": (*_TRANSPOSED, Field("activation", "B", SLOPES)),
    "concat.v1": (Field("axis", "q"),),
    "gemm_gated.v1": _TRANSPOSED,
    "norm_gemm.v1": _PROLOGUE,
    "attention.v1": _ATTENTION[:3],
    "attention.v2": _ATTENTION[:4],
    "attention.v3": _ATTENTION[:5],
    "attention.v4": _ATTENTION,
    "attention_backward.v1": _ATTENTION[:5],
    "attention_backward.v2": _ATTENTION,
    "attention_step.v1": _ATTENTION[:4],
    "attention_step.v2": _ATTENTION[:5],
    "attention_step.v3": _ATTENTION,
    "cached_attention.v1": _CACHED,
    "cached_attention_step.v1": _CACHED,
    "cached_attention_step.v2": (*_CACHED, Field("rotation", "B", ROTATIONS)),
    "gemm_multi.v1": (*_TRANSPOSED, Field("products", "q")),
    "norm_gated.v1": _PROLOGUE,
    "gemm_norm.v1": _TRANSPOSED,
    "gemm_sums.v1": (*_TRANSPOSED, Field("summed", "B", SUMMED)),
    "scatter_combine.v1": (Field("mode", "B", SCATTER_MODES),),
    "lstm.v1": (Field("reverse", "?"),),
    "non_max_suppression.v1": (Field("centred", "?"),),
    "topk_indices.v1": (Field("axis", "q"), Field("smallest", "?")),
    "conv.v1": _CONV,
    "conv_weight_grad.v1": _CONV,
    "conv_transpose.v1": _CONV,
    "conv.v2": (*_CONV, Field("padding_value", "q")),
    "conv_moments.v1": (*_CONV, Field("padding_value", "q")),
    "dequantize_blocks.v1": _SCHEME,
    "matmul_blocks.v1": _SCHEME,
    "matmul_blocks_fused.v1": (
        *_SCHEME,
        Field("products", "q"),
        Field("prologue", "?"),
        Field("prologue_operands", "q"),
    ),
    "rounded_matmul_blocks.v1": _SCHEME,
    "pool.v1": (Field("mode", "B", POOL_MODES), Field("count_include_pad", "?"), *_POOL_WINDOWS),
    "pool_taps.v1": _POOL_WINDOWS,
    "max_pool_grad.v1": _POOL_WINDOWS[:-CONV_DIMS],
}
"""Field layouts by schema name, packed without padding; a changed layout gets a new version, never a new meaning."""


def schemas_of(kind: str) -> tuple[str, ...]:
    """All schemas of `kind`, oldest first; the empty schema if it has no attributes, or may leave them to the body."""
    found = [schema for schema in SCHEMAS if schema.rpartition(".v")[0] == kind]
    found.sort(key=lambda schema: int(schema.rpartition(".v")[2]))
    is_bare = not found or (kind in KINDS and KINDS[kind].bare)
    return ("", *found) if is_bare else tuple(found)


def schema_of(kind: str, *, bare: bool = False) -> str:
    """The current schema of `kind`: its newest, the empty one if it has no attributes.

    Args:
        bare: Whether the instruction leaves them to its body, if its kind allows that.
    """
    schemas = schemas_of(kind)
    return schemas[0] if bare and schemas[0] == "" else schemas[-1]


def _layout(fields: tuple[Field, ...]) -> struct.Struct:
    return struct.Struct("<" + "".join(field.code for field in fields))


def pack(schema: str, attrs: Mapping[str, Attribute]) -> bytes:
    """Packs `attrs` by `schema`. Raises ValueError for an unknown schema, a missing, extra or ill-typed attribute."""
    if schema not in SCHEMAS:
        raise ValueError(f"unknown attribute schema '{schema}'; known: {', '.join(filter(None, SCHEMAS))}")
    fields = SCHEMAS[schema]
    wanted = {field.name for field in fields}
    if missing := sorted(wanted - attrs.keys()):
        raise ValueError(f"schema '{schema}' needs attribute {', '.join(missing)}")
    if extra := sorted(attrs.keys() - wanted):
        raise ValueError(f"schema '{schema}' has no attribute {', '.join(extra)}")
    return _layout(fields).pack(*(field.encode(attrs[field.name]) for field in fields))


def unpack(schema: str, blob: bytes) -> dict[str, Attribute]:
    """The attributes packed in `blob`. Raises ValueError for an unknown schema or a blob of another size."""
    if schema not in SCHEMAS:
        raise ValueError(f"unknown attribute schema '{schema}'; known: {', '.join(filter(None, SCHEMAS))}")
    fields = SCHEMAS[schema]
    layout = _layout(fields)
    if len(blob) != layout.size:
        raise ValueError(f"blob has {len(blob)} bytes, schema '{schema}' packs {layout.size}")
    return {field.name: field.decode(value) for field, value in zip(fields, layout.unpack(blob), strict=True)}
