"""ATen's products of floats of 8 bits with scales."""

from __future__ import annotations

from aicf.frontends.builder import Value
from aicf.frontends.torch.ops.base import Writer, row


@row("_scaled_mm.default")
def _scaled_mm(
    writer: Writer,
    lhs: Value,
    rhs: Value,
    scale_a: Value,
    scale_b: Value,
    bias: Value | None = None,
    scale_result: Value | None = None,
    *_: object,
    **named: object,
) -> Value:
    """lhs @ rhs with sums of f32, times the scale of each tensor, row of lhs or column of rhs, plus a bias.

    `use_fast_accum` chooses how a GPU adds up; the policy of the compile does here.
    """
    product = writer.graph.matmul(lhs, rhs, widening=True)
    rows, columns = writer.sizes(product)
    product = product * _scale(writer, scale_a, (rows, 1)) * _scale(writer, scale_b, (1, columns))
    if bias is not None:
        product = product + writer.cast(bias, "f32")
    if scale_result is not None:
        product = product * _scale(writer, scale_result, (1, 1))
    return writer.result(product)


def _scale(writer: Writer, scale: Value, along: tuple[int, int]) -> Value:
    """A scale of one number, or of one for each row or column, such that it broadcasts to the product."""
    count = 1
    for size in writer.sizes(scale):
        count *= size
    if scale.dtype != "f32" or count not in (1, along[0] * along[1]):
        writer.unsupported(
            f"a scale of {scale.dtype} {list(writer.sizes(scale))}",
            "give one number of f32, or one for each row of the first and each column of the second operand",
        )
    return writer.reshape(scale, along if count > 1 else (1, 1))
