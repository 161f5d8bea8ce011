"""The variants of one piece of work as a space: which are neighbours, and where a search begins.

A variant is a point whose coordinates are the entries of its spec; each number of a list, such as a tile, and each
entry of a record in it is a coordinate of its own. Kernels offer only what is legal, so the space has holes: a larger
tile may need fewer stages. A neighbour therefore has the next value of one coordinate, and is otherwise as near as
there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast


@dataclass(frozen=True)
class Space:
    """Variants, called by their numbers, of the kernels that can run one piece of work.

    Args:
        kernels: Of each variant, its kernel.
        specs: Of each variant, the entries that tell it from the others of its kernel.
        starts: Variants from which a search goes out, the most promising first.
    """

    kernels: tuple[str, ...]
    specs: tuple[Mapping[str, object], ...]
    starts: tuple[int, ...]
    _grids: dict[str, tuple[list[int], Grid]] = field(
        default_factory=dict[str, "tuple[list[int], Grid]"], compare=False
    )

    def neighbours(self, number: int) -> list[int]:
        """The variants of the same kernel that are one step away, those that the kernel lists first in front."""
        kernel = self.kernels[number]
        if kernel not in self._grids:
            own = [other for other, name in enumerate(self.kernels) if name == kernel]
            self._grids[kernel] = own, Grid.of([self.specs[other] for other in own])
        own, grid = self._grids[kernel]
        return [own[index] for index in grid.neighbours(own.index(number))]


@dataclass(frozen=True)
class Grid:
    """Points with whole coordinates: of each value its rank among the values that the points have.

    Args:
        points: The points, all with the same coordinates.
        ordered: Of each coordinate, whether its values are numbers, so that some are nearer than others.
    """

    points: tuple[tuple[int, ...], ...]
    ordered: tuple[bool, ...]

    @staticmethod
    def of(specs: Sequence[Mapping[str, object]]) -> Grid:
        """The grid of some specs; one may lack entries that others have."""
        values = [_coordinates(spec) for spec in specs]
        names = list(dict.fromkeys(name for each in values for name in each))
        columns = [[each.get(name) for each in values] for name in names]
        ranks = [_ranks(column) for column in columns]
        return Grid(tuple(zip(*ranks, strict=True)) or ((),) * len(specs), tuple(map(_are_numbers, columns)))

    def neighbours(self, at: int) -> list[int]:
        """The indices of the points that are one step from a point, in ascending order."""
        return sorted(set(self._steps(at)) - {at})

    def _steps(self, at: int) -> Iterator[int]:
        own = self.points[at]
        for axis, rank in enumerate(own):
            for there in {point[axis] for point in self.points}:
                if abs(there - rank) == 1 or (there != rank and not self.ordered[axis]):
                    found = (index for index, point in enumerate(self.points) if point[axis] == there)
                    yield min(found, key=lambda index: (*self._distance(own, self.points[index]), index))

    def _distance(self, first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, int]:
        """In how many coordinates two points differ, and by how many steps in all."""
        steps = [
            abs(one - other) if is_ordered else int(one != other)
            for one, other, is_ordered in zip(first, second, self.ordered, strict=True)
        ]
        return sum(step > 0 for step in steps), sum(steps)


def _coordinates(value: object, name: str = "") -> dict[str, object]:
    """The plain values in a spec by their paths."""
    found: dict[str, object] = {}
    if isinstance(value, Mapping):
        for key, each in cast("Mapping[str, object]", value).items():
            found |= _coordinates(each, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for index, each in enumerate(cast("list[object]", value)):
            found |= _coordinates(each, f"{name}[{index}]")
    else:
        found[name] = value
    return found


def _are_numbers(values: Sequence[object]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _ranks(values: Sequence[object]) -> list[int]:
    """Of each value its rank: of numbers by size, else by what comes first."""
    if _are_numbers(values):
        sizes = sorted({float(str(value)) for value in values})
        return [sizes.index(float(str(value))) for value in values]
    names = list(dict.fromkeys(repr(value) for value in values))
    return [names.index(repr(value)) for value in values]
