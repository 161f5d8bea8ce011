"""Reads products with packed weights from their operands. Imports no code generator."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from aicf.backends.base import BufferRef
from aicf.backends.common.record import Record, read_integer, read_text
from aicf.backends.common.workload import OperandInfo
from aicf.backends.cuda.families.blocks.layout import PANEL_ROWS, TileLayout
from aicf.dialects.kinds import PACKED_PRODUCTS

Operand = OperandInfo | BufferRef


@dataclass(frozen=True)
class BlocksProblem:
    """``x @ weight.T`` of one or two weights: x [m, k], each weight n rows of k columns in blocks of a scheme, the
    result [m, n].

    Args:
        scheme: Of the blocks.
        m, n, k: See above.
        products: Weights, whose sums meet in each element of the result.
        has_rows: Whether a row program makes x, which takes whole rows.
        extras: Operands that the epilogue reads beside the sums.
    """

    scheme: str
    m: int
    n: int
    k: int
    products: int = 1
    has_rows: bool = False
    extras: int = 0

    @property
    def layout(self) -> TileLayout:
        """How the weight lies."""
        return TileLayout(self.scheme)

    @property
    def row_tiles(self) -> int:
        """Tiles along K."""
        return self.layout.row_tiles(self.k)

    @property
    def panels(self) -> int:
        """Along N, of each weight."""
        return -(-self.n // PANEL_ROWS)

    @property
    def panel_bytes(self) -> int:
        """Of the tiles of a panel."""
        return self.row_tiles * self.layout.tile_bytes

    @property
    def weight_bytes(self) -> int:
        """Of all tiles of all weights."""
        return self.products * self.panels * self.panel_bytes


@dataclass(frozen=True)
class Roles:
    """Numbers of the operands; x is 0.

    Args:
        weights: The packed weights.
        rows: What the row program reads beside x.
        extras: What the epilogue reads beside the sums.
    """

    weights: tuple[int, ...]
    rows: tuple[int, ...] = ()
    extras: tuple[int, ...] = ()


def read_roles(kind: str, entries: Record, count: int) -> Roles:
    """The roles of `count` operands of an instruction of `kind`.

    Args:
        entries: The attributes of a work or the entries of a kernel record. Raises RecordError if one is missing.
    """
    if kind != PACKED_PRODUCTS:
        return Roles((1,))
    first = 1 + read_integer(entries, "products")
    last = first + read_integer(entries, "prologue_operands")
    return Roles(tuple(range(1, first)), tuple(range(first, last)), tuple(range(last, count)))


def read_problem(
    roles: Roles, entries: Record, x: Operand, result: Operand, *, has_rows: bool
) -> BlocksProblem:
    """The product that an instruction is. Raises RecordError if the scheme is missing."""
    scheme, m = read_text(entries, "scheme"), prod(x.shape[:-1])
    products, extras = len(roles.weights), len(roles.extras)
    return BlocksProblem(scheme, m, result.shape[-1], x.shape[-1], products, has_rows, extras)
