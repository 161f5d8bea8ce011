"""How a package defines ops and kernels; what they are stands in `dialects/custom_ops.py` and `user_kernel.py`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation

from aicf.backends.common.user_code import UserCode
from aicf.backends.common.user_kernel import LaunchShape, Number, Problem, Rule, UserKernel, define_kernel
from aicf.backends.registry import forget_kernels
from aicf.dialects.custom_ops import Formula, Meaning, OpDefinition, ResultRule, TensorSpec, Values, define
from aicf.dialects.kinds import KINDS
from aicf.dialects.logical import ConstantOp, Internal, Logical, LogicalOp, ViewLike
from aicf.dialects.traits import TrainingOnly
from aicf.errors import AicfError, PolicyError, UnsupportedOp, did_you_mean, quoted
from aicf.frontends.builder import Graph, Value

_ID = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)+")


def custom_op(
    name: str,
    meaning: Meaning,
    *,
    result: ResultRule | None = None,
    formula: Callable[..., Value] | None = None,
    pointwise: bool = False,
    gradient: Callable[..., Value | Sequence[Value | None]] | None = None,
    version: int = 1,
) -> OpDefinition:
    """Defines an op. `Graph.op` and `logical.custom` then know it by its name.

    Args:
        name: `package.op`, such as "acme.top_p".
        meaning: What it computes, on NumPy arrays. A positional parameter is an operand, a keyword-only one an
            attribute: a bool, int, float, str, or a list of those; its default and annotation say which. It gives a
            new array, and is what the `reference` backend runs and kernels are held to. Floats come as float64, or as
            float32 in place of f16 and bf16.
        result: From the `TensorSpec` of each operand, and the attributes, to that of the result, whose sizes may be
            symbolic; by default the type of the first operand. It raises ValueError for what the op is not defined for.
        formula: The op in others, `formula(graph, *operands, **attributes)` in the calls of `aicf.Graph`: what targets
            run that have no kernel for the op, and what its gradient follows from.
        pointwise: Whether an element of the result depends on the same element of the operands alone. Then the formula
            is written from the start, and fused as all arithmetic is; no kernel runs the op as a whole.
        gradient: `gradient(graph, *operands, grad, **attributes)` gives the derivative by each operand, None for one
            that it does not depend on; in place of the formula's.
        version: Raised whenever the meaning changes: a program names the version it was written for.

    Raises:
        PolicyError: the name is none, or another module has an op of this name.
    """
    module = sys._getframe(1).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage]
    written = None if formula is None else _formula(name, formula, 0)
    derived = None if gradient is None else _formula(f"{name}.gradient", gradient, 1)
    return define(OpDefinition(name, meaning, result, version, written, pointwise, derived, module))


def _formula(name: str, function: Callable[..., Any], derivatives: int) -> Formula:
    """A function of the builder as a function of types.

    Args:
        derivatives: How many of the last operands are derivatives by a result: it gives one value for each other one.
    """

    def write(operands: Sequence[Attribute], attributes: Values) -> FuncOp:
        graph = Graph(name)
        specs = [TensorSpec.of(type_) for type_ in operands]
        values = [graph.input(f"x{index}", spec.shape, spec.dtype) for index, spec in enumerate(specs)]
        try:
            given = function(graph, *values, **attributes)
        except AicfError:
            raise
        except Exception as error:  # a function of a user may raise anything
            raise UnsupportedOp(f"{name}: its formula raises {type(error).__name__}: {error}") from error
        results: list[Value | None] = [given] if isinstance(given, Value) else list(given)
        wanted = values[: len(values) - derivatives] if derivatives else [None]
        if len(results) != len(wanted):
            raise UnsupportedOp(f"{name}: it gives {len(results)} values; it gives {len(wanted)}")
        for index, (value, like) in enumerate(zip(results, wanted, strict=True)):
            graph.output(value or _zeros(graph, like), f"y{index}")
        function_op = graph.module().body.block.first_op
        assert isinstance(function_op, FuncOp)
        return function_op

    return write


def _zeros(graph: Graph, like: Value | None) -> Value:
    """The derivative by an operand that the result does not depend on."""
    if like is None:
        raise UnsupportedOp(f"{graph.name}: its formula gives None; it gives a value of the graph")
    return graph.constant(0, like.shape, like.dtype)


def kernel(
    id: str,
    *,
    runs: str,
    code: UserCode,
    cost_us: Callable[[Problem], float] | None = None,
    legal: Callable[[Problem], str | None] | None = None,
    arguments: Rule[Sequence[Number]] = (),
    launch: Rule[LaunchShape] | None = None,
    workspace_bytes: Rule[int] = 0,
    in_place: Sequence[tuple[int, int]] = (),
    strided: bool = False,
    dtypes: Sequence[str] | None = None,
    alignment: int = 1,
    determinism: str = "bitwise",
    order: str | None = None,
    version: int = 1,
) -> UserKernel:
    """Defines a kernel. Passes then choose it as one of AICF's own: by policy, by measured or by predicted time.

    Where an argument may be a function, it gets the `Problem`: shapes, strides, element types, attributes and level.

    Args:
        id: `package.kernel`, such as "acme.top_p_cpu"; policies and reports call it so.
        runs: What it runs: an op of a user ("acme.top_p"), an op of AICF in one piece ("logical.rms_norm"), or a kind
            of instruction ("softmax"), whose attributes are those of the kind.
        code: `CpuFunction` or `SharedFunction` for processors, `CudaFunction` or `CudaSource` for GPUs. It takes
            operands, results and workspace, in this order, and then `arguments`.
        cost_us: Predicted microseconds. For an op of a user it may be left out: then as if it read and wrote memory.
        legal: None if it runs a problem, else the reason why not, in a user's words.
        arguments: Numbers that the code is given by value: whole ones as 64-bit integers, others as f64.
        launch: The `LaunchShape` on a GPU.
        workspace_bytes: Of memory that it writes before it reads; then the code takes one more pointer.
        in_place: Pairs of a result and an operand that it may overwrite: it reads an element before it writes it.
        strided: Whether it takes tensors that are not row-major and dense; `arguments` passes their strides on.
        dtypes: Element types that it takes; all that its code can if None.
        alignment: Bytes that addresses must be multiples of, as far as the compiler knows: offsets in buffers, which
            begin at multiples of 16 on a GPU and of an element on a processor.
        determinism: "bitwise" if the same inputs give the same bits always, else "unordered".
        order: In which order it combines the terms of a result, in words, if that does not depend on the batch:
            what policies with `determinism: batch_invariant` ask for.
        version: Raised whenever `arguments`, `launch` or `legal` change; a change of the code is noticed by itself.

    Raises:
        PolicyError: an argument is no such thing, or another module has a kernel of this id.
    """
    if not _ID.fullmatch(id):
        raise PolicyError(f"a kernel is called {quoted(id)}; an id is package.kernel, as in acme.top_p_cpu")
    _check_runs(id, runs)
    module = sys._getframe(1).f_globals.get("__name__", "")  # pyright: ignore[reportPrivateUsage]
    spec = define_kernel(
        UserKernel(
            id,
            runs,
            code,
            cost_us,
            legal,
            arguments,
            launch,
            workspace_bytes,
            tuple(in_place),
            strided,
            None if dtypes is None else tuple(dtypes),
            alignment,
            determinism,
            order,
            version,
            module,
        )
    )
    forget_kernels()
    return spec


_NEVER_WHOLE = (Internal, TrainingOnly, ViewLike)
"""What is said of ops that passes make, replace, or turn into strides."""


def _may_stay_whole(op: type[Operation]) -> bool:
    """Whether an op of AICF may be one instruction of a kernel of a package."""
    if not issubclass(op, LogicalOp) or op.HAS_MORE_RESULTS or op is ConstantOp:
        return False
    return not any(op.has_trait(trait) for trait in _NEVER_WHOLE)


def _check_runs(id: str, runs: str) -> None:
    """Raises PolicyError for what is no op and no kind of instruction; an op of a user may be defined later."""
    built_in = [op.name for op in Logical.operations if _may_stay_whole(op)]
    if runs in KINDS or runs in built_in or (_ID.fullmatch(runs) and not runs.startswith("logical.")):
        return
    hint = did_you_mean(runs, (*KINDS, *built_in)) or "give package.op, logical.op, or a kind such as softmax"
    raise PolicyError(f"kernel '{id}': runs is {quoted(runs)}; {hint}")
