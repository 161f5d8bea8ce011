"""Attention: the weighted mean of values, by the likeness of queries and keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import I64, Float64Type, FloatAttr, IntegerAttr, UnitAttr, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, traits_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical_ops.base import LogicalOp, Operand, require_float
from aicf.dialects.logical_ops.properties import Properties, int_value
from aicf.dialects.traits import Composite, Contraction
from aicf.dialects.types import AnyTensor, TensorInfo, tensor_info

__all__ = ["AttentionOp"]


@irdl_op_definition
class AttentionOp(LogicalOp):
    """``softmax(q @ k.T * scale + mask) @ v`` for every head.

    q: ``[batch..., H, M, D]``, k: ``[batch..., G, N, D]``, v: ``[batch..., G, N, E]``, result ``[batch..., H, M, E]``;
    each of the G heads of keys and values serves the H / G heads of queries that follow each other (Ainslie et al.,
    GQA, 2023). ``scale`` is 1 / sqrt(D) if it is not stated.

    ``causal``: query i sees keys 0 to i + ``past`` alone, ``past`` being the number of keys before the first
    query. The mask is added to the scores, or if it is i1 says which keys are seen; its shape is ``[M, N]``, after any
    of the leading dimensions, each of size 1 or the scores'. A query that sees no key, so that all its scores are -inf,
    gives NaN, or 0 with ``empty_as_zero``. Vaswani et al., 2017.

    ``position`` (i32 or i64, of rank 0 or one for each of the leading dimensions before the heads) stands in place of
    ``past`` where it is known only when the program runs, as in a decoder whose keys and values are a cache: rows that
    no query sees are not read by kernels, and hold finite numbers. With a ``window`` query i sees the last ``window``
    of those keys alone (Beltagy et al., Longformer, 2020; Mistral). ``softcap`` bounds scores before masks:
    ``softcap * tanh(scores / softcap)`` (Gemma 2).
    """

    name = "logical.attention"
    query = operand_def()
    key = operand_def()
    value = operand_def()
    more = var_operand_def()
    scale = opt_prop_def(FloatAttr[Float64Type])
    causal = opt_prop_def(UnitAttr)
    past = prop_def(IntegerAttr[I64], default_value=IntegerAttr(0, i64))
    window = opt_prop_def(IntegerAttr[I64])
    softcap = opt_prop_def(FloatAttr[Float64Type])
    empty_as_zero = opt_prop_def(UnitAttr)
    traits = traits_def(Composite(), Contraction())

    def __init__(
        self,
        query: Operand,
        key: Operand,
        value: Operand,
        mask: Operand | None = None,
        position: Operand | None = None,
        *,
        scale: float | None = None,
        causal: bool = False,
        past: int = 0,
        window: int | None = None,
        softcap: float | None = None,
        empty_as_zero: bool = False,
    ):
        super().__init__(
            query,
            key,
            value,
            [operand for operand in (mask, position) if operand is not None],
            scale=scale,
            causal=causal,
            past=past,
            window=window,
            softcap=softcap,
            empty_as_zero=empty_as_zero,
        )

    @classmethod
    def infer(cls, operands: Sequence[Attribute], properties: Properties) -> AnyTensor:
        """``[batch..., H, M, E]`` of the queries' element type."""
        q, k, v, *more = (tensor_info(operand) for operand in operands)
        require_float(q)
        _check_heads(q, k, v)
        mask, position = _split([_is_position(info, q) for info in more])
        _check_properties(properties, position is not None)
        if mask is not None:
            _check_mask(more[mask], q, k)
        if position is not None:
            _check_position(more[position], q)
        return q.with_sizes([*q.sizes[:-1], v.sizes[-1]])

    def of_operands(self, *operands: Operand | None, **changed: object) -> AttentionOp:
        """See `LogicalOp`: queries, keys, values, then the mask and the position that there are."""
        query, key, value, *more = operands
        given: Sequence[Any] = [query, key, value, [operand for operand in more if operand is not None]]
        return super().of_operands(*given, **changed)

    @property
    def mask(self) -> SSAValue | None:
        """What is added to the scores, or says which keys are seen; None without one."""
        return self._one_of_more(0)

    @property
    def position(self) -> SSAValue | None:
        """How many keys come before the first query, as an operand; None without one."""
        return self._one_of_more(1)

    def _one_of_more(self, which: int) -> SSAValue | None:
        q = tensor_info(self.query.type)
        index = _split([_is_position(tensor_info(value.type), q) for value in self.more])[which]
        return None if index is None else self.more[index]

    @property
    def factor(self) -> float:
        """What scores are multiplied by."""
        if self.scale is not None:
            return self.scale.value.data
        depth = tensor_info(self.query.type).sizes[-1]
        if not isinstance(depth, int):
            raise VerifyException(f"{self.name}: scale follows from the symbolic size {depth}; state it")
        return depth**-0.5


def _is_position(info: TensorInfo, q: TensorInfo) -> bool:
    """Whether an operand is a position, right or wrong, and not a mask, which has rank 2 or more."""
    return info.element.kind == "int" and (info.rank < 2 or info.sizes == q.sizes[:-3])


def _split(are_positions: Sequence[bool]) -> tuple[int | None, int | None]:
    """Which of the operands after the values is the mask, and which the position that follows it.

    Raises VerifyException if there are others.
    """
    match are_positions:
        case []:
            return None, None
        case [is_position]:
            return (None, 0) if is_position else (0, None)
        case [False, True]:
            return 0, 1
        case _:
            raise VerifyException(
                "after query, key and value come a mask (float or i1) and a position (integer)"
            )


def _check_heads(q: TensorInfo, k: TensorInfo, v: TensorInfo) -> None:
    for name, info in (("query", q), ("key", k), ("value", v)):
        if info.rank < 3:
            raise VerifyException(
                f"{name} {info} has rank {info.rank}; it is [batch..., heads, tokens, size]"
            )
        if info.element != q.element:
            raise VerifyException(f"element types differ: query {q.element.name}, {name} {info.element.name}")
        if info.rank != q.rank or info.sizes[:-3] != q.sizes[:-3]:
            raise VerifyException(f"batch sizes differ: query {q.shape_text}, {name} {info.shape_text}")
    if k.sizes[-1] != q.sizes[-1]:
        raise VerifyException(
            f"sizes of a query and a key differ: {q.sizes[-1]} in {q.shape_text}, {k.sizes[-1]} in {k.shape_text}"
        )
    if k.sizes[-3:-1] != v.sizes[-3:-1]:
        raise VerifyException(f"heads or tokens differ: key {k.shape_text}, value {v.shape_text}")
    heads, groups = q.sizes[-3], k.sizes[-3]
    even = isinstance(heads, int) and isinstance(groups, int) and groups > 0 and heads % groups == 0
    if heads != groups and not even:
        raise VerifyException(
            f"{heads} heads of queries are no multiple of {groups} heads of keys ({q.shape_text}, {k.shape_text})"
        )


def _check_properties(properties: Properties, has_position: bool) -> None:
    scale, past = properties.get("scale"), int_value(properties.get("past", IntegerAttr(0, i64)))
    if isinstance(scale, FloatAttr) and not 0.0 < abs(scale.value.data) < float("inf"):
        raise VerifyException(f"scale is {scale.value.data}; it is finite and not 0")
    if past < 0:
        raise VerifyException(f"past is {past}; it is the number of keys before the first query, 0 or more")
    if past and "causal" not in properties:
        raise VerifyException("past without causal has no meaning; add causal or drop past")
    if has_position and ("causal" not in properties or past):
        raise VerifyException("a position stands in place of past, with causal; add causal and drop past")
    if "window" in properties:
        if (window := int_value(properties["window"])) < 1:
            raise VerifyException(
                f"window is {window}; it is the number of keys that a query sees, 1 or more"
            )
        if "causal" not in properties:
            raise VerifyException("window without causal has no meaning; add causal or drop window")
    softcap = properties.get("softcap")
    if isinstance(softcap, FloatAttr) and not 0.0 < softcap.value.data < float("inf"):
        raise VerifyException(f"softcap is {softcap.value.data}; it is finite and above 0")


def _check_position(position: TensorInfo, q: TensorInfo) -> None:
    if position.element.name not in ("i32", "i64"):
        raise VerifyException(f"position has element type {position.element.name}; it is i32 or i64")
    if position.rank and position.sizes != q.sizes[:-3]:
        batch = "x".join(str(size) for size in q.sizes[:-3]) or "no dimensions"
        raise VerifyException(
            f"position has shape {position.shape_text}; it is one number of rank 0, or one for each of {batch} before "
            "the heads"
        )


def _check_mask(mask: TensorInfo, q: TensorInfo, k: TensorInfo) -> None:
    if mask.element.kind != "bool" and mask.element != q.element:
        raise VerifyException(f"mask has element type {mask.element.name}; it is {q.element.name} or i1")
    scores = (*q.sizes[:-1], k.sizes[-2])
    aligned = scores[len(scores) - mask.rank :] if 2 <= mask.rank <= len(scores) else ()
    fits = bool(aligned) and all(own in (1, wanted) for own, wanted in zip(mask.sizes, aligned, strict=True))
    if not fits:
        text = "x".join(str(size) for size in scores)
        raise VerifyException(
            f"mask {mask.shape_text} does not broadcast to the scores {text} from the right"
        )
