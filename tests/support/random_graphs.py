"""Random logical programs with inputs, over the whole op set.

A program comes with concrete inputs, and every op is evaluated as it is added: an op whose values would leave the
range in which rewrites can be compared (large, not finite, near a discontinuity of a comparison or an integer cast)
is dropped and another is tried. So any two correct executions of a program agree closely. Everything follows from the
seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Region
from xdsl.utils.exceptions import VerifyException

from aicf.semantics import Mode, evaluate_block
from tests.support.random_steps import STEPS
from tests.support.random_steps.generator import MAX_MAGNITUDE, Generator

Array = NDArray
Step = Callable[[Generator], None]


@dataclass
class RandomProgram:
    """A module with one function ``@random`` and an array per argument."""

    module: ModuleOp
    inputs: dict[str, Array]


def random_program(
    seed: int,
    *,
    float_type: str = "f32",
    integers: tuple[str, ...] = ("i32", "i64"),
    steps: int = 12,
    taken: Sequence[Step] = STEPS,
) -> RandomProgram:
    """A program of about ``steps`` ops (helpers such as broadcasts and constants come on top).

    Args:
        seed: Decides everything.
        float_type: The element type of all floats.
        integers: Element types of integers.
        steps: Ops to try to add.
        taken: What adds them.
    """
    return RandomProgram(*_finish(grown(seed, float_type, integers, steps, taken)))


def grown(
    seed: int, float_type: str, integers: tuple[str, ...], steps: int, taken: Sequence[Step]
) -> Generator:
    """A program of about `steps` ops that nobody has finished yet."""
    g = Generator(np.random.default_rng(seed), float_type, integers)
    for _ in range(int(g.random.integers(1, 4))):
        g.argument(g.shape(), "input")
    added = 0
    for _ in range(20 * steps):
        before = len(g.arrays)
        try:
            g.choice(taken)(g)
        except (VerifyException, ValueError, IndexError):
            # The step found no fitting value, or a helper op of it was not tame.
            continue
        added += len(g.arrays) > before
        if added == steps:
            break
    return g


def _finish(g: Generator) -> tuple[ModuleOp, dict[str, Array]]:
    """The module, and its inputs."""
    computed = [value for value in g.arrays if value.owner is not g.block]
    unused = [value for value in computed if value.first_use is None]
    extra = [value for value in computed if value.first_use is not None and g.chance(0.1)]
    results = (unused[-4:] + extra[:2]) or list(g.block.args[:1])
    names = [DictionaryAttr({"logical.name": StringAttr(f"output{i}")}) for i in range(len(results))]
    g.block.add_op(ReturnOp(*results))
    types = [argument.type for argument in g.block.args], [result.type for result in results]
    function = FuncOp(
        "random", types, Region(g.block), arg_attrs=ArrayAttr(g.interface), res_attrs=ArrayAttr(names)
    )
    return ModuleOp([function]), g.inputs


def run_program(module: ModuleOp, inputs: Mapping[str, Array], mode: Mode = "exact") -> dict[str, Array]:
    """Run the one function of a logical module by the semantics; results by name (updates as ``updates:<name>``)."""
    (function,) = (op for op in module.body.block.ops if isinstance(op, FuncOp))
    assert function.arg_attrs is not None and function.res_attrs is not None
    arguments = [inputs[entry.data["logical.name"].data] for entry in function.arg_attrs]  # type: ignore[union-attr]
    results = evaluate_block(function.body.block, arguments, mode)
    return {_result_name(entry): result for entry, result in zip(function.res_attrs, results, strict=True)}


def _result_name(entry: DictionaryAttr) -> str:
    name = entry.data.get("logical.name")
    if isinstance(name, StringAttr):
        return name.data
    target = entry.data["logical.updates"]
    assert isinstance(target, StringAttr)
    return f"updates:{target.data}"


def assert_same_results(expected: Mapping[str, Array], actual: Mapping[str, Array]) -> None:
    """Equal names, shapes and values, to 1e-12 of the largest magnitude the generator allows; NaN never passes."""
    assert expected.keys() == actual.keys()
    for name, wanted in expected.items():
        found = actual[name]
        assert found.shape == wanted.shape, name
        difference = np.max(np.abs(found.astype(np.float64) - wanted.astype(np.float64)))
        assert difference <= 1e-12 * MAX_MAGNITUDE, f"{name}: {difference}"
