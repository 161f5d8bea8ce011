"""Pointwise kernels that transpose: inputs contiguous along another dim than the result go through shared memory.

A block makes one tile of TILE x TILE elements of the result. Inputs that are contiguous along the *tiled* dim are
read along it, kept with a row for each element of the last dim, and read back across: global memory sees whole lines.
"""

from __future__ import annotations

from collections.abc import Sequence

from aicf.backends.cuda.codegen.scalar import REGISTERS
from aicf.backends.cuda.codegen.vector_access import VectorAccess, vector_access
from aicf.backends.cuda.compiler.specializer import Snippet
from aicf.backends.cuda.families.loops.cells import Source, packed
from aicf.backends.cuda.families.loops.phases import PhaseCode
from aicf.backends.cuda.families.loops.spaces import TILE, tile_dims, tiled_inputs
from aicf.backends.cuda.target import ELEMENT_BYTES, PIECE_BYTES


class TileCode(PhaseCode):
    """Snippets of a kernel with strategy `tiles`; a point is a tuple of the indices along all dims."""

    def staged_inputs(self) -> list[int]:
        return tiled_inputs(self.nest, tile_dims(self.nest)[0])

    def coordinates(
        self, flat: str, dims: Sequence[int], number: int, lines: list[str], prefix: str
    ) -> list[str]:
        return [f"point[{dim}]" for dim in dims]

    def tile_start(self) -> Snippet:
        """Parameter tile; the result is the index along every dim where the block's tile starts."""
        dims, tiled = self.nest.dims, (*tile_dims(self.nest), len(self.nest.dims) - 1)
        lines = ["rest = tile"]
        for index in reversed(range(len(dims))):
            count = -(-dims[index].size // TILE) if index in tiled else dims[index].size
            lines.append(f"c{index} = {self.index}(rest % {count})")
            lines.append(f"rest = {self.index}(rest // {count})")
        starts = [f"{self.index}(c{d} * {TILE})" if d in tiled else f"c{d}" for d in range(len(dims))]
        return Snippet(("tile",), tuple(lines), packed(starts))

    def _point(self, down: str, across: str, width: int, height: int) -> tuple[list[str], list[str]]:
        """Indices `down` the tiled dim and `across` the last one, from `coordinates`: unclamped, and inside the nest.

        width, height: Elements that are touched from there, across and down.
        """
        (dim,), last = tile_dims(self.nest), len(self.nest.dims) - 1
        ahead = {dim: (down, height), last: (across, width)}
        free: list[str] = []
        clamped: list[str] = []
        for index, size in enumerate(d.size for d in self.nest.dims):
            by, count = ahead.get(index, ("0", 1))
            free.append(f"{self.index}(coordinates[{index}] + {by})")
            inside = index not in ahead or size % TILE == 0
            limit = f"{self.index}({size - count})"
            clamped.append(free[-1] if inside else f"{self.index}(min({free[-1]}, {limit}))")
        return free, clamped

    def tile_vector(self, number: int) -> VectorAccess:
        """How a tiled input is read: along the tiled dim."""
        (dim,), bytes_ = tile_dims(self.nest), ELEMENT_BYTES[self.nest.accesses[number].dtype]
        count = PIECE_BYTES // bytes_
        while self.nest.dims[dim].size % count or TILE * TILE % (count * self.spec.threads):
            count //= 2
        return vector_access(self.nest, number, dim, count, self.offsets[number])

    def tiles(self) -> Snippet:
        """No parameters; the result is one shared array for each tiled input, rows along the last dim."""
        size = TILE * (TILE + 1)
        arrays = [
            f"cuda.shared.array({size}, {_shared_dtype(self.nest.accesses[n].dtype)})" for n in self.tiled
        ]
        lines = [f"t{i} = {array}" for i, array in enumerate(arrays)]
        return Snippet((), tuple(lines), packed([f"t{i}" for i in range(len(arrays))]))

    def fetch(self, number: int) -> Snippet:
        """Parameters coordinates, number; the result is the words of vector `number` of a tiled input."""
        access = self.tile_vector(number)
        lines = _tile_position("number", TILE // access.count, access.count, self.index)
        _, clamped = self._point("inner", "outer", 1, access.count)
        lines.append(f"point = {packed(clamped)}")
        element = self.element(number, lines, "point", "0")
        words = self.load_words(access, f"a{number}", element, lines, "w")
        return Snippet(("coordinates", "number"), tuple(lines), packed(words))

    def keep(self, number: int) -> Snippet:
        """Parameters tiles, number, x: the words of `fetch` to shared memory."""
        access = self.tile_vector(number)
        lines = _tile_position("number", TILE // access.count, access.count, self.index)
        values = access.unpack([f"x[{i}]" for i in range(access.words)], lines, "e")
        tile = f"tiles[{self.tiled.index(number)}]"
        for i, value in enumerate(values):
            widened = f"cuda.selp({value}, i32(1), i32(0))" if access.dtype == "i1" else value
            lines.append(f"{tile}[outer * {TILE + 1} + inner + {i}] = {widened}")
        return Snippet(("tiles", "number", "x"), tuple(lines))

    def load_beside(self) -> Snippet:
        """Parameters coordinates, number; the result is the words of the inputs that are not tiled."""
        lines = _tile_position("number", TILE // self.spec.vector, self.spec.vector, self.index)
        _, clamped = self._point("outer", "inner", self.spec.vector, 1)
        lines.append(f"point = {packed(clamped)}")
        names: list[str] = []
        for number in self.cell_inputs:
            element = self.element(number, lines, "point", "0")
            names += self.load_words(self.accesses[number], f"a{number}", element, lines, f"w{number}_")
        return Snippet(("coordinates", "number"), tuple(lines), packed(names))

    def tile_cell(self) -> Snippet:
        """Parameters coordinates, number, x, tiles: computes and stores vector `number` of the tile."""
        lines = _tile_position("number", TILE // self.spec.vector, self.spec.vector, self.index)
        free, _ = self._point("outer", "inner", self.spec.vector, 1)
        lines.append(f"point = {packed(free)}")
        sources = self.cell_sources([])
        for index, number in enumerate(self.tiled):
            cells = [
                f"tiles[{index}][(inner + {lane}) * {TILE + 1} + outer]" for lane in range(self.spec.vector)
            ]
            if self.nest.accesses[number].dtype == "i1":
                cells = [f"({cell} != i32(0))" for cell in cells]
            sources[self.kernel.body.block.args[number]] = _reading(cells, f"t{number}_")
        stored = self.stored(sources, lines)
        for index in (len(self.nest.dims) - 1, *tile_dims(self.nest)):
            size = self.nest.dims[index].size
            if size % TILE:
                stored = [f"if point[{index}] < {size}:", *(f"    {line}" for line in stored)]
        return Snippet(("coordinates", "number", "x", "tiles"), (*lines, *stored))


def _tile_position(name: str, across: int, width: int, index: str) -> list[str]:
    """Where vector `name` of a tile lies: `outer` is its row, `inner` its first element in it."""
    return [f"inner = {index}({name} % {across} * {width})", f"outer = {index}({name} // {across})"]


def _shared_dtype(dtype: str) -> str:
    """What shared memory holds: registers, i1 as i32."""
    return {"bool": "i32"}.get(register := REGISTERS[dtype], register)


def _reading(cells: Sequence[str], prefix: str) -> Source:
    def source(lines: list[str]) -> list[str]:
        names = [f"{prefix}{lane}" for lane in range(len(cells))]
        lines.extend(f"{name} = {cell}" for name, cell in zip(names, cells, strict=True))
        return names

    return source
