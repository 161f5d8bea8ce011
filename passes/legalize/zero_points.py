"""What a zero point adds to sums of products of stored integers, and how it is taken off them again.

With a zero point `z` of all of the first factor, `sum((a - z) * b)` is `sum(a * b) - z * sum(b)`, modulo 2**32 as sums
of i32 are. Where `b` follows from parameters, the last term does so too, and the product reads `a` as it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import SSAValue

from aicf.dialects import logical
from aicf.dialects.types import element_of, tensor_info
from aicf.passes.legalize.dequantised import I32
from aicf.passes.support.writing import Writer


@dataclass(frozen=True)
class Correction:
    """What sums of products exceed those of a factor less its zero point by.

    Args:
        zero: The zero point, integers that are all the same.
        shape: Of the other factor.
        summed: Dimensions of the other factor that are added up.
        along: Dimensions of the sums along which the rest of its dimensions lie.
    """

    zero: SSAValue
    shape: tuple[int, ...]
    summed: tuple[int, ...]
    along: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the rest of the other factor's dimensions."""
        return tuple(size for dim, size in enumerate(self.shape) if dim not in self.summed)

    def excess(self, writer: Writer, other: SSAValue, suffix: str) -> SSAValue:
        """The zero point times sums of the other factor: i32 of shape `sizes`."""
        wide = writer.cast(other, I32, f"{suffix}.i32")
        sums = writer.add(logical.ReduceSumOp(wide, self.summed), f"{suffix}.sums")
        return writer.add(logical.MulOp(sums, self._spread(writer, sums, f"{suffix}.zero_point")), suffix)

    def taken_off(self, writer: Writer, sums: SSAValue, excess: SSAValue, suffix: str) -> SSAValue:
        """Sums, of i32, less what `excess` gave."""
        spread = writer.broadcast(excess, self.along, tensor_info(sums.type).shape, f"{suffix}.broadcast")
        return writer.add(logical.SubOp(sums, spread), suffix)

    def _spread(self, writer: Writer, like: SSAValue, suffix: str) -> SSAValue:
        owner = self.zero.owner
        if isinstance(owner, logical.ConstantOp):
            return writer.splat(int(owner.array.flat[0]), like, suffix)
        assert isinstance(owner, logical.BroadcastOp), "a zero point that is one number is repeated"
        number = writer.cast(writer.reshape(owner.operand, (), suffix), I32, f"{suffix}.i32")
        return writer.broadcast(number, (), tensor_info(like.type).shape, f"{suffix}.broadcast")


def is_one_number(zero: SSAValue) -> bool:
    """Whether zero points are all the same integer, constant or not."""
    if isinstance(zero.owner, logical.ConstantOp):
        return zero.owner.is_splat
    if not isinstance(zero.owner, logical.BroadcastOp):
        return False
    info = tensor_info(zero.owner.operand.type)
    return all(size == 1 for size in info.shape) and element_of(zero.type).kind == "int"
