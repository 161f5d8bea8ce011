"""Which variants are neighbours, and in which order a search measures them."""

from __future__ import annotations

from itertools import product

from aicf.tuning.climb import NEAR, RESTARTS, Climb
from aicf.tuning.space import Grid, Space


def steps(specs: list[dict[str, object]], at: dict[str, object]) -> list[dict[str, object]]:
    return [specs[index] for index in Grid.of(specs).neighbours(specs.index(at))]


def test_neighbours_have_the_next_number_and_any_other_name():
    specs: list[dict[str, object]] = [
        {"tile": tile, "source": source} for tile, source in product((32, 64, 128, 256), "abc")
    ]
    assert steps(specs, {"tile": 64, "source": "b"}) == [
        {"tile": 32, "source": "b"},
        {"tile": 64, "source": "a"},
        {"tile": 64, "source": "c"},
        {"tile": 128, "source": "b"},
    ]
    assert steps(specs, {"tile": 256, "source": "a"}) == [
        {"tile": 128, "source": "a"},
        {"tile": 256, "source": "b"},
        {"tile": 256, "source": "c"},
    ]


def test_lists_and_records_have_a_coordinate_for_each_value():
    specs: list[dict[str, object]] = [
        {"tile": [rows, columns], "inner": {"split": split}}
        for rows, columns, split in product((1, 2, 3), (8, 16), (1, 4))
    ]
    assert steps(specs, {"tile": [2, 8], "inner": {"split": 1}}) == [
        {"tile": [1, 8], "inner": {"split": 1}},
        {"tile": [2, 8], "inner": {"split": 4}},
        {"tile": [2, 16], "inner": {"split": 1}},
        {"tile": [3, 8], "inner": {"split": 1}},
    ]


def test_where_the_next_value_is_not_legal_with_the_others_the_nearest_variant_has_it():
    """A large tile leaves room for few stages."""
    specs: list[dict[str, object]] = [
        {"tile": tile, "stages": stages} for tile, stages in ((64, 2), (64, 4), (64, 6), (128, 2), (128, 3))
    ]
    assert steps(specs, {"tile": 64, "stages": 6}) == [{"tile": 64, "stages": 4}, {"tile": 128, "stages": 3}]


def test_truth_values_are_names_and_a_missing_entry_is_one():
    specs: list[dict[str, object]] = [{"raster": True}, {"raster": False}, {}]
    assert steps(specs, {"raster": True}) == [{"raster": False}, {}]
    assert steps([{}], {}) == []


def line(count: int, kernel: str = "k") -> Space:
    return Space((kernel,) * count, tuple({"tile": tile} for tile in range(count)), (0,))


def climbed(space: Space, times: dict[int, float]) -> tuple[list[int], Climb]:
    """The variants that a search measures, in order; a better one is always believed."""
    climb, order = Climb(space, {}, set()), list[int]()
    while (number := next(climb.wishes(), None)) is not None:
        order.append(number)
        if climb.learn(number, times[number]) and number == climb.fastest():
            climb.best = number
    return order, climb


def test_a_search_goes_down_a_slope_and_ends_beyond_the_optimum():
    """The neighbours of the best (5) and of the three next best (4, 6, 3) are known then, the rest is left alone."""
    order, climb = climbed(line(20), {number: 1 + abs(number - 5) for number in range(20)})
    assert RESTARTS == 3 and climb.best == 5
    assert order == list(range(8))


def test_a_small_hill_is_left_by_a_restart_from_the_next_best():
    """Of two valleys the nearer one is less deep; the way to the other is through a variant that is slower."""
    order, climb = climbed(line(6), dict(enumerate([5.0, 3.0, 4.0, 2.0, 1.0, 2.0])))
    assert climb.best == 4 and order == [0, 1, 2, 3, 4, 5]


def test_the_best_of_another_kernel_is_a_start_while_it_is_near():
    space = Space(
        ("a",) * 8 + ("b",) * 3,
        (*({"tile": tile} for tile in range(8)), *({"stages": stages} for stages in range(3))),
        (0, 8),
    )
    times = {number: 1.0 + number / 100 for number in range(8)}
    near, _ = climbed(space, {**times, 8: NEAR - 0.01, 9: 0.5, 10: 0.4})
    far, _ = climbed(space, {**times, 8: NEAR + 0.01, 9: 0.5, 10: 0.4})
    assert {9, 10} <= set(near) and not {9, 10} & set(far)


def test_a_search_that_was_cut_goes_on_as_it_would_have():
    times = {number: float((number * 7) % 11) + 1 for number in range(11)}
    whole, climb = climbed(line(11), times)
    for cut in range(1, len(whole)):
        resumed = Climb(line(11), {number: times[number] for number in whole[:cut]}, set())
        assert next(resumed.wishes(), None) is not None
        rest = list[int]()
        while (number := next(resumed.wishes(), None)) is not None:
            rest.append(number)
            if resumed.learn(number, times[number]) and number == resumed.fastest():
                resumed.best = number
        assert sorted([*whole[:cut], *rest]) == sorted(whole) and resumed.best == climb.best


def test_what_fails_is_left_and_not_tried_again():
    climb = Climb(line(4), {}, set())
    assert next(climb.wishes()) == 0 and not climb.learn(0, 1.0)
    assert not climb.learn(1, None)
    assert list(climb.wishes()) == []
    climb.drop(0)
    assert climb.best is None and climb.failed == {0, 1} and list(climb.wishes()) == []
