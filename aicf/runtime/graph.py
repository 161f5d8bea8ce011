"""The graph of one final program: operations, order, and the boundary. It knows no kernel, no address, no
device.

Pure data, read from IR by `plan_from_ir` and stored inside the capture plan. How each operation runs is in
`capture_plan`.
"""

from __future__ import annotations

from dataclasses import dataclass

ROLES = ("input", "output", "param", "state", "meta", "const", "derived")
WEIGHT_ROLES = ("param", "state", "meta")
MUTABLE_ROLES = ("state", "meta")


@dataclass(frozen=True)
class HostValue:
    """How the executable computes a meta: by a formula before each run, or as what it keeps for the next.

    Args:
        formula: One of `host_formulas.FORMULAS`; None if it is kept.
        of: Operands of the formula: names of metas before this one, and numbers.
        numbers: Attributes of the formula.
        next: Of what is kept: the computed meta whose value is that of the next run.
    """

    formula: str | None
    of: tuple[str | int | float, ...]
    numbers: dict[str, object]
    next: str | None


@dataclass(frozen=True)
class Counted:
    """An output whose number of valid slices along `axis` is another output; the slices after them mean nothing."""

    output: str
    axis: int


@dataclass(frozen=True)
class Bind:
    """One buffer of the boundary; its position in `Graph.binds` plus one is its index in the pointer table.

    Args:
        name: As users know it, `fc1.weight`.
        role: `input`, `output`, `param`, `state`, `meta`, `const` or `derived`.
        shape, strides: Sizes, and elements between neighbours.
        dtype: Element type name.
        nbytes: Bytes from the first to past the last element; the physical size of a prepared layout.
        binding: `direct`, `staged` (it is copied to or from memory of ours), None where it cannot
            matter.
        align: Bytes that the address of a direct input or output must be a multiple of; None for those of its
            elements.
        updated: Whether the program overwrites this parameter, state or meta.
        layout: Text of the prepared layout, None for plain strided memory.
        value: Bytes of a const, or of what a meta starts with, in hexadecimal, row-major; of one element if it stands
            everywhere, whatever the shape.
        host: How the executable computes a meta; None for all others.
        counts: Of an output of one i64: the outputs of which it says how much is there. Empty for all others.
    """

    name: str
    role: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    nbytes: int
    binding: str | None
    align: int | None
    updated: bool
    layout: str | None
    value: str | None
    host: HostValue | None = None
    counts: tuple[Counted, ...] = ()

    @property
    def is_mutable(self) -> bool:
        """Whether it is kept from run to run, so that every instance needs its own copy."""
        return (self.updated or self.role in MUTABLE_ROLES) and not self.is_computed

    @property
    def is_computed(self) -> bool:
        """Whether the executable computes it anew before each run: it is no weight and no state."""
        return self.host is not None and self.host.formula is not None

    @property
    def is_host_written(self) -> bool:
        """Whether the executable writes it before each run, and no program does."""
        return self.host is not None and not self.updated


@dataclass(frozen=True)
class Edge:
    """Happens-before from the operation called `source`: `full` (its end) or `programmatic` (its wait)."""

    source: str
    kind: str


@dataclass(frozen=True)
class Node:
    """One operation.

    Args:
        name: Unique in the program.
        kind: Opcode name.
        src: Ids of the logical ops it stands for.
        after: Its happens-before edges.
        meaning: Hash of what it computes, of an operation of `@prepare`: what equal ones make can be shared.
    """

    name: str
    kind: str
    src: tuple[str, ...]
    after: tuple[Edge, ...]
    meaning: str | None = None


@dataclass(frozen=True)
class Graph:
    """A program: its boundary in order and its operations in text order, which is one topological order."""

    name: str
    binds: tuple[Bind, ...]
    nodes: tuple[Node, ...]

    def with_role(self, *roles: str) -> tuple[Bind, ...]:
        """The binds of these roles, in order."""
        return tuple(bind for bind in self.binds if bind.role in roles)

    @property
    def inputs(self) -> tuple[Bind, ...]:
        """What a caller feeds, in positional order."""
        return self.with_role("input")

    @property
    def outputs(self) -> tuple[Bind, ...]:
        """What a call returns, in order."""
        return self.with_role("output")

    @property
    def weights(self) -> tuple[Bind, ...]:
        """What has an initial value from the weights."""
        return tuple(bind for bind in self.with_role(*WEIGHT_ROLES) if not bind.is_computed)

    @property
    def is_stateful(self) -> bool:
        """Whether one run can change what the next one sees."""
        return any(bind.is_mutable for bind in self.binds)
