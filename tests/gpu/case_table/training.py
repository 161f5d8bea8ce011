"""Cases of training steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.dialects.func import FuncOp

from aicf.frontends.text import parse_module
from tests.gpu.case_table.case import GENERATED, ROOT, SIMT, Case, differentiate
from tests.gpu.programs import Program, arguments, random_arrays
from tests.support import cast_weights, training_graphs, update_programs
from tests.support.meta_programs import regression_batch, regression_program, regression_start
from tests.support.update_programs import Tensor

STEP = "step-of-descent"
"""The case that updates its parameters."""
UPDATES = "updates"
"""The case of all optimizers."""
CASTS = "turned-casts"
"""The case of weights that are cast and laid channels-last at every step."""
METAS = {who: f"metas-{who}" for who in ("device", "host")}
"""The cases of a step that is checked, by who computes its counter, rate and corrections."""


def step_program() -> Program:
    module = parse_module((ROOT / "examples" / "sgd" / "step.mlir").read_text())
    return Program(module, {**random_arrays(module, "step"), "lr": np.array(0.125, np.float32)})


def gradient_cases() -> dict[str, Case]:
    """Losses and the parameters and states after a step, as outputs: a step that can be taken again."""
    return {
        "gradients-mlp": Case(partial(_differentiated, training_graphs.mlp), (GENERATED, SIMT), depth=4),
        "gradients-encoder": Case(
            partial(_differentiated, partial(training_graphs.encoder, layers=1, dropout=0.25)),
            (GENERATED, SIMT),
            depth=8,
        ),
    }


def _differentiated(make: Callable[[], training_graphs.Program]) -> Program:
    module, arrays = make()
    differentiate(module)
    (function,) = (op for op in module.ops if isinstance(op, FuncOp))
    assert function.res_attrs is not None
    named = [
        DictionaryAttr({"logical.name": StringAttr(f"new {next(iter(entry.data.values())).data}")})
        for entry in function.res_attrs
    ]
    function.properties["res_attrs"] = ArrayAttr(named)
    return Program(module, dict(arrays))


_OPTIMIZERS: tuple[Tensor, ...] = (
    *(Tensor((33, 7)), Tensor((257, 3), "adamw {weight_decay = 0.1 : f64}"), Tensor((5,), "sgd", ())),
    Tensor((70, 2), "sgd {momentum = 0.9 : f64, nesterov}", ("momentum_buffer",)),
)


def updates_program() -> Program:
    """Tensors that each have an optimizer; states are zeros, and the first step comes."""
    module = parse_module(update_programs.Program(_OPTIMIZERS).text())
    arrays = random_arrays(module, UPDATES)
    zeros = {
        name: np.zeros_like(arrays[name]) for name, role, _ in arguments(module) if role in ("state", "meta")
    }
    return Program(module, {**arrays, **zeros})


def casts_program() -> Program:
    module = cast_weights.step()
    return Program(module, random_arrays(module, CASTS))


def metas_program() -> Program:
    """A step after dropout, whose counter the program or the executable keeps; from its beginning."""
    random = np.random.default_rng(59)
    arrays = regression_start(random) | regression_batch(random)
    return Program(regression_program().module(), arrays)
