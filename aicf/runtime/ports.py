"""Inputs and outputs as callers must give them: checks of arrays against the boundary of a program, with messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from aicf.errors import InputMismatch, did_you_mean
from aicf.runtime.capture_plan import ARENA, CapturePlan
from aicf.runtime.dlpack import host_array
from aicf.runtime.graph import Bind
from aicf.runtime.memory import CACHE_LINE, allocate_tensor
from aicf.runtime.tensors import Array, address, dense_strides, describe, element_name, numpy_dtype
from aicf.support.arguments import text_from

COPY_BYTES = 16384
"""Inputs and outputs up to this size are copied through memory of ours: NumPy takes 0.1-0.4 us to copy them,
but over 1 us to say where an array lies."""


class Described(Protocol):
    """What messages say of an input or output; a size that is not fixed is its name."""

    @property
    def role(self) -> str:
        """`input` or `output`."""
        ...

    @property
    def name(self) -> str:
        """As users know it."""
        ...

    @property
    def shape(self) -> Sequence[int | str]:
        """Sizes."""
        ...

    @property
    def dtype(self) -> str:
        """Element type name."""
        ...


@dataclass(frozen=True)
class Port:
    """An input or output as callers must give it.

    Args:
        bind: Its position at the boundary.
        index: Its entry in the pointer table.
        dtype, shape: As NumPy has them.
        strides: Bytes between neighbours.
        is_dense: Row-major without gaps.
    """

    bind: Bind
    index: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_dense: bool

    @staticmethod
    def of(bind: Bind, index: int) -> Port:
        """The port of a bind."""
        dtype = numpy_dtype(bind.dtype)
        strides = tuple(step * dtype.itemsize for step in bind.strides)
        return Port(bind, index, dtype, bind.shape, strides, bind.strides == dense_strides(bind.shape))

    @property
    def is_staged(self) -> bool:
        """Whether the program uses memory of ours for it, and callers' memory is copied from or to there."""
        return self.bind.binding == "staged"

    @property
    def is_small(self) -> bool:
        """Whether calls copy it instead of asking for its address."""
        return self.bind.nbytes <= COPY_BYTES

    def new_buffer(self) -> Array:
        """Zeroed memory of ours for it, aligned as its bind says."""
        align = max(CACHE_LINE, self.bind.align or 1)
        return allocate_tensor(self.shape, self.bind.strides, self.bind.dtype, self.bind.nbytes, align)

    def is_aligned(self, array: Array) -> bool:
        """Whether a host array begins at a multiple of the bytes that its bind states."""
        return self.bind.align is None or address(array) % self.bind.align == 0

    def fits_in_place(self, array: Array) -> bool:
        """Whether the program can use the memory of `array` as it is."""
        flags = array.flags
        return bool(flags.aligned) and (
            array.strides == self.strides or (self.is_dense and bool(flags.c_contiguous))
        )

    def check(self, array: object, what: str = "") -> Array:
        """`array` as a NumPy array of the right shape and dtype, without a copy.

        Raises:
            InputMismatch: names the tensor, what was expected and what came.
        """
        array = as_array(array, self.bind)
        if array.dtype != self.dtype or array.shape != self.shape:
            raise self.mismatch(array, what)
        return array

    def check_in_place(self, value: object) -> Array:
        """As `check`, of memory that the program reads or writes where it is. Raises InputMismatch if it cannot."""
        array = self.check(value)
        if not self.fits_in_place(array):
            raise InputMismatch(
                f"{self.bind.role} '{self.bind.name}' has strides {array.strides} bytes, zero-copy needs aligned "
                f"{self.strides}; use np.ascontiguousarray, or call the executable, which copies"
            )
        self.check_writable(not array.flags.writeable)
        return array

    def check_writable(self, read_only: bool) -> None:
        """Raises InputMismatch if the memory of an output is read-only."""
        if self.bind.role == "output" and read_only:
            raise InputMismatch(f"output '{self.bind.name}' is a read-only array; give writable memory")

    def mismatch(self, array: Array, what: str = "") -> InputMismatch:
        """The error for an array of the wrong shape or dtype."""
        return self.mismatch_of(array.shape, element_name(array.dtype), what)

    def mismatch_of(self, shape: tuple[int, ...], dtype: str, what: str = "") -> InputMismatch:
        """The error for a tensor of another shape or element type than the program has."""
        wanted = describe(self.shape, self.bind.dtype)
        if len(shape) != len(self.shape):
            way_out = f"rank must be {len(self.shape)}, is {len(shape)}"
        elif shape != self.shape:
            way_out = "the shape was fixed when the program was compiled"
        else:
            way_out = f"convert it, as in array.astype('{self.dtype}')"
        what = what or self.bind.role
        return InputMismatch(
            f"{what} '{self.bind.name}': expected {wanted}, got {describe(shape, dtype)}; {way_out}"
        )


def as_array(value: object, bind: Described) -> Array:
    """A NumPy array on the memory of `value`: an array, or anything with DLPack or an array interface.

    Raises InputMismatch for anything else (lists have no dtype).
    """
    if type(value) is np.ndarray:  # first, for `np.ma` is a large package that NumPy imports when it is named
        return cast(Array, value)
    if isinstance(value, np.ma.MaskedArray):
        raise InputMismatch(f"{bind.role} '{bind.name}' is a masked array; fill it with array.filled(value)")
    if isinstance(value, np.ndarray):
        return cast(Array, value)
    try:
        if hasattr(value, "__dlpack__"):
            return host_array(value)
        if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
            return np.asarray(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise InputMismatch(
            f"{bind.role} '{bind.name}': {type(value).__name__} gives no host array: {error}"
        ) from error
    wanted = describe(bind.shape, bind.dtype)
    raise InputMismatch(
        f"{bind.role} '{bind.name}': expected an array {wanted}, got {type(value).__name__}; use np.asarray"
    )


def reject_unknown(given: Iterable[str], known: Sequence[str], what: str) -> None:
    """Raises InputMismatch for the first name that is not known, with the closest or all legal ones."""
    for name in given:
        text_from(name, InputMismatch, f"the name of {what}")
        if name not in known:
            has = f"it has {', '.join(known) or 'none'}"
            hint = " ".join(filter(None, (did_you_mean(name, known), has)))
            raise InputMismatch(f"there is no {what} '{name}'; {hint}")


class Boundary:
    """The inputs and outputs of one plan, and the names of its weights.

    Args:
        plan: The capture plan.
    """

    def __init__(self, plan: CapturePlan) -> None:
        self.plan = plan
        self.ports = tuple(
            Port.of(bind, index)
            for index, bind in enumerate(plan.graph.binds, ARENA + 1)
            if bind.role in ("input", "output")
        )
        self.inputs = tuple(port for port in self.ports if port.bind.role == "input")
        self.outputs = tuple(port for port in self.ports if port.bind.role == "output")
        self.by_name = {port.bind.name: port for port in self.ports}
        self.weight_roles = {bind.name: bind.role for bind in plan.graph.weights}
