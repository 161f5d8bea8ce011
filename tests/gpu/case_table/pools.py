"""Cases of poolings."""

from __future__ import annotations

from functools import partial

from tests.gpu import programs
from tests.gpu.case_table.case import COPY, MAX_POOL_GRAD, POOL, POOL_TAPS, Case, program_of
from tests.gpu.pools import POOL_POLICY, DrawnPool, Lies, drawn_pools, pool_layer, pools


def pool_cases() -> dict[str, Case]:
    """Poolings: drawn ones in every layout, and variants that are not taken at these sizes."""
    cases: dict[str, Case] = {}
    for lies, policy in POOL_POLICY.items():
        for number in range(DRAWN_POOLS):
            cases[f"pools-{lies}-{number}"] = Case(
                partial(drawn_pools, lies, number), (POOL,), policy, depth=4
            )
    image, small = (2, 64, 21, 26), (3, 40, 9, 10)
    table: dict[str, tuple[DrawnPool, Lies, dict[str, object]]] = {
        "two": (pool_layer("max_pool", "f16", image, 3, 2), "last", {"pixels": 2}),
        "four": (pool_layer("avg_pool", "bf16", image, 3, 1), "last", {"pixels": 4}),
        "four-rows": (pool_layer("max_pool", "f32", image, 5, 1), "rows", {"pixels": 4}),
        "two-rows": (pool_layer("avg_pool", "f16", small, 3, 2), "rows", {"pixels": 2, "threads": 128}),
        "wide": (pool_layer("avg_pool", "f32", small, 7, 1), "last", {"vector": 4, "threads": 256}),
        "block": (pool_layer("max_pool", "i8", (1, 32, 5, 6, 7), 3, 1), "last", {"pixels": 2}),
    }
    for what, (drawn, lies, variant) in table.items():
        make = partial(pools, lies, [drawn])
        cases[f"pools-{what}"] = Case(make, (POOL,), POOL_POLICY[lies], variant, depth=4)
    return {**cases, **_gradients()}


def _gradients() -> dict[str, Case]:
    """Those of poolings by the largest element and by means, in each order of memory."""
    orders: tuple[Lies, ...] = ("rows", "last")
    cases: dict[str, Case] = {}
    for lies in orders:
        for dtype in ("f32", "bf16", "f64"):
            name = f"max-pool-gradients-{lies}-{dtype}"
            make = program_of(name, partial(programs.max_pool_gradients, dtype, lies == "last"))
            cases[name] = Case(make, (POOL_TAPS, MAX_POOL_GRAD), POOL_POLICY[lies], depth=4)
        for dtype in ("f32", "bf16"):
            name = f"mean-gradients-{lies}-{dtype}"
            make = program_of(name, partial(programs.mean_gradients, dtype, lies == "last"))
            cases[name] = Case(make, (POOL, COPY), POOL_POLICY[lies], depth=4)
    return cases


DRAWN_POOLS = 4
"""Programs of drawn poolings in each layout."""
