"""Code for depthwise convolutions in vectors of pixels of a channel."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.backends.cpu.codegen.ir_builder import I32, Value, ir
from aicf.backends.cpu.codegen.scalar.ops import Scalars, convert
from aicf.backends.cpu.families.conv.template_base import ConvCode, Image
from aicf.backends.cpu.families.gemm.template import Tile
from aicf.backends.cpu.families.loops.template import share_of


class Planes(ConvCode):
    """Vectors of pixels: images, channels, rows of pixels, vectors of a row, windows."""

    def run(self) -> None:
        em, p, spec = self.em, self.p, self.spec

        @em.each(0, p.batch)
        def image(n: Value) -> None:
            x = em.moved(self.pointers.x, n, p.x_strides[0], self.element)
            groups = share_of(em, p.groups, *self.threads) if spec.threads > 1 else (0, p.groups)

            @em.each(*groups)
            def group(g: Value) -> None:
                own = em.moved(x, g, p.x_strides[1], self.element)
                seen = self.image(own, em.index(0), p.counts[0], 1)

                @em.each(0, p.outputs)
                def output(number: Value) -> None:
                    self.channel(n, em.b.add(em.scaled(g, p.outputs), number), seen)

    def channel(self, n: Value, channel: Value, image: Image) -> None:
        """All pixels of one output channel."""
        em, p, spec = self.em, self.p, self.spec
        window = p.taps[0] * p.taps[1]
        start = em.moved(self.pointers.weight, channel, window, p.weight_element)
        weights = [
            em.splat(self.weight(em.address(start, number, p.weight_element)), spec.lanes)
            for number in range(window)
        ]
        chunk = spec.lanes * spec.tile_vectors
        full = p.counts[1] // chunk * chunk
        rest = p.counts[1] - full

        @em.each(0, p.counts[0])
        def row(number: Value) -> None:
            line = em.moved(image.start, number, p.strides[0] * image.row, self.dtype)
            first = em.scaled(number, p.counts[1])

            def vectors(at: Value, active: tuple[int, ...]) -> None:
                from_ = em.moved(line, at, p.strides[1] * image.column, self.dtype)
                acc = self.sums(from_, image, weights, active)
                where = (channel, em.b.add(first, at))
                self.epilogue(em, Tile((n,), *where, spec.lanes, active, [acc], self.dtype))

            @em.each(0, full, chunk)
            def body(at: Value) -> None:
                vectors(at, (spec.lanes,) * spec.tile_vectors)

            if rest:
                vectors(
                    em.index(full),
                    tuple(min(spec.lanes, rest - at) for at in range(0, rest, spec.lanes)),
                )

    def sums(
        self, start: Value, image: Image, weights: Sequence[Value], active: tuple[int, ...]
    ) -> list[Value]:
        """The sums of neighbouring vectors of pixels."""
        em, p, spec = self.em, self.p, self.spec
        acc: list[Value] = []
        for vector, lanes in enumerate(active):
            total: Value | None = None
            for number, weight in enumerate(weights):
                row, column = divmod(number, p.taps[1])
                at = row * p.dilations[0] * image.row + column * p.dilations[1] * image.column
                at += vector * spec.lanes * p.strides[1] * image.column
                pixels = self.pixels(em.address(start, at, self.dtype), lanes)
                total = self.product(pixels, weight, total)
            acc.append(total)
        return acc

    def weight(self, address: Value) -> Value:
        """An element of the weight in the type of the sums."""
        loaded = self.em.load(address, self.p.weight_element, 1)
        return convert(Scalars(self.em, 1), loaded, self.p.weight_element, self.dtype)

    def product(self, pixels: Value, weight: Value, total: Value | None) -> Value:
        """A product, added to what there is."""
        if total is not None:
            return self.units.multiply_add(pixels, weight, total)
        multiply = self.em.b.fmul if self.dtype in ("f32", "f64") else self.em.b.mul
        return multiply(pixels, weight)

    def pixels(self, address: Value, active: int) -> Value:
        """A vector of pixels, `strides[1]` apart in a row."""
        em, lanes, step = self.em, self.spec.lanes, self.p.strides[1]
        if step != 2 or lanes == 1:
            return em.load_strided(address, step, self.dtype, lanes, active)
        # Two loads and a shuffle; memory after the last pixel is not touched.
        needed = 2 * active - 1
        halves = [
            em.load(
                em.address(address, half * lanes, self.dtype),
                self.dtype,
                lanes,
                min(lanes, needed - half * lanes),
            )
            if needed > half * lanes
            else self.zero(lanes)
            for half in range(2)
        ]
        order = ir.Constant(ir.VectorType(I32, lanes), [2 * lane for lane in range(lanes)])
        return em.b.shuffle_vector(*halves, order)
