"""`PrecisionPolicy`: in which element types a model computes, as plain data.

It says what is rounded and where; `lower-precision` writes that into the program as casts and scales, and all later
passes see a program like any other. The ranges that integers need come from sample inputs: `aicf calibrate` measures
them and writes a policy file. Like the other sections it holds no code and chooses nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from aicf.errors import PolicyError
from aicf.policies.accuracy_goal import AccuracyGoal
from aicf.policies.fields import (
    Reader,
    check_names,
    choice,
    integer,
    json_value,
    map_of,
    numbers,
    pairs_of_numbers,
)
from aicf.policies.section import Section

UNCHANGED = "unchanged"
F32 = "f32"
INT8, FP8 = "int8", "fp8"
EIGHT_BITS = (INT8, FP8)
"""What the operands of products become, with scales; all else of a model does not."""
FLOATS = ("bf16", "f16")
"""Element types that the values of a whole model are rounded to."""
PRECISIONS = (UNCHANGED, *FLOATS, *EIGHT_BITS)
ASYMMETRIC, SYMMETRIC = "asymmetric", "symmetric"
NONE, MINMAX, PERCENTILE, ENTROPY = "none", "minmax", "percentile", "entropy"
METHODS = (MINMAX, PERCENTILE, ENTROPY)
"""How calibration gets ranges from the values it sees."""


@dataclass(frozen=True)
class PrecisionPolicy(Section):
    """In which element types a model computes; by default as it is written.

    Args:
        version: Of this format.
        to: What f32 becomes. `f16`, `bf16`: the values of the model, but sums along axes, exponentials, powers and
            losses, which stay f32. `int8`: the operands of products and convolutions, weights with a scale for each
            output channel; all else is as `rest` says. `fp8`: the operands of products in f8E4M3FN, likewise.
        rest: What the ops become that `int8` and `fp8` are not for: `f32`, `f16` or `bf16`.
        ops: By the id of an op, another precision than `to`: `f32` leaves the op as it is.
        ranges: By the id of a product that becomes one of 8 bits, the smallest and the largest value that each of its
            operands takes on, of those that do not follow from parameters alone, in their order.
        activations: The integers of those operands: `asymmetric`, u8 with a zero point, or `symmetric`, i8 without.
        smoothing: By the id of a product with a weight, for each input channel, a number that its operand is divided
            by and its weight multiplied with, before both are rounded.
        corrections: By the id of a product, for each output channel, a number that is added to the result: the mean of
            what rounding its operands takes away.
        packed_activations: What activations become in products with block-quantised weights: `f32`, as they are, or
            `int8`, rounded to 8 bits with a step that 32 neighbours share (16 where a scheme's groups are 16); next to
            weights of float codes and chosen matrices they stay f32.
        method: A request to calibration, how to get ranges; `none` where it is done or left open.
        keep: A request to calibration, `{metric: top1, loss: 0.5 %}`: how much may be lost, see `AccuracyGoal`.
        accuracy: What `aicf calibrate` measured. It decides nothing; the ledger repeats it.

    Raises:
        PolicyError: a value is not legal; the message names its path and lists what is.
    """

    READERS: ClassVar[Mapping[str, Reader]] = {
        "version": integer,
        "to": choice(PRECISIONS),
        "rest": choice((F32, *FLOATS)),
        "ops": map_of(choice((F32, *FLOATS, *EIGHT_BITS))),
        "ranges": map_of(pairs_of_numbers),
        "activations": choice((ASYMMETRIC, SYMMETRIC)),
        "smoothing": map_of(numbers),
        "corrections": map_of(numbers),
        "packed_activations": choice((F32, INT8)),
        "method": choice((NONE, *METHODS)),
        "keep": Reader(map_of(json_value).read, AccuracyGoal.SCHEMA),
        "accuracy": map_of(json_value),
    }
    SECTION: ClassVar[str] = "precision"
    BOUNDS: ClassVar[tuple[str, ...]] = (
        "to",
        "rest",
        "ops",
        "ranges",
        "activations",
        "smoothing",
        "corrections",
        "packed_activations",
    )

    to: str = UNCHANGED
    rest: str = F32
    ops: Mapping[str, str] = field(default_factory=dict[str, str])
    ranges: Mapping[str, tuple[tuple[float, float], ...]] = field(
        default_factory=dict[str, tuple[tuple[float, float], ...]]
    )
    activations: str = ASYMMETRIC
    smoothing: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    corrections: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    packed_activations: str = F32
    method: str = NONE
    keep: Mapping[str, object] = field(default_factory=dict[str, object])
    accuracy: Mapping[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        super().__post_init__()
        for id_, ranges in self.ranges.items():
            for index, (low, high) in enumerate(ranges):
                if not low <= high:
                    raise PolicyError(
                        f"ranges.{id_}[{index}]: {low} to {high} is no range; the smaller number comes first"
                    )
        for id_, factors in self.smoothing.items():
            for index, factor in enumerate(factors):
                if factor <= 0:
                    raise PolicyError(f"smoothing.{id_}[{index}]: must be above 0, got {factor}")
        if self.rest != F32 and self.to not in EIGHT_BITS:
            raise PolicyError(f"rest: {self.to} leaves no rest; it goes with to: {' or '.join(EIGHT_BITS)}")
        if self.keep:
            AccuracyGoal.of(self.keep)

    @property
    def goal(self) -> AccuracyGoal | None:
        """How much accuracy may be lost, if it says so."""
        return AccuracyGoal.of(self.keep) if self.keep else None

    @property
    def request(self) -> str | None:
        """The field that only calibration can follow; None if there is none."""
        return "keep" if self.keep else "method" if self.method != NONE else None

    @property
    def changes(self) -> bool:
        """Whether anything is to be lowered."""
        return self.to != UNCHANGED or any(precision != F32 for precision in self.ops.values())

    def precision_of(self, id_: str) -> str:
        """What the op of that id, without its bucket, is to compute in; `f32` for as it is."""
        return self.ops.get(id_, F32 if self.to == UNCHANGED else self.to)

    def check_ids(self, ops: Collection[str], products: Mapping[str, Collection[str]]) -> None:
        """Raises PolicyError, naming the path, for a key that is no op of the model, or no product where it says
        something of one. `products` are those that may become `int8`, and those that may become `fp8`."""
        check_names("ops", self.ops, ops, "op has this id")
        for name in ("ranges", "smoothing", "corrections"):
            check_names(name, getattr(self, name), products[INT8], "product has this id")
        for id_, precision in self.ops.items():
            if precision in EIGHT_BITS and id_ not in products[precision]:
                what = "product of f32" if precision == INT8 else "product of f32, other than a convolution,"
                raise PolicyError(
                    f"ops.{id_}: no {what} that depends on an input; only those become {precision}"
                )
