"""``specialize-shapes{dims="N=1,540"}``: a static program per bucket of symbolic sizes, and the table of them.

Every function with symbolic dimensions is copied once per combination of the given sizes
(``dims="N=1,32;M=4"``), its shapes become numbers and its ids get the bucket as suffix; weights are named by
symbols, so the copies share them. In the function's place stands ``logical.dispatch``, an exact lookup.
Programs without symbolic dimensions stay as they are.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.dims import NAME_PATTERN, Poly
from aicf.dialects.logical import WHOLE, DispatchOp, SliceOp, int_values, ints
from aicf.dialects.onnx import GraphOp
from aicf.dialects.types import bind_names, is_tensor, tensor_info
from aicf.errors import PolicyError
from aicf.passes.onnx.values import Values, bind_sizes, bind_values, check_inputs, parse_values
from aicf.passes.support.identity import invalid, op_id, set_identity, sources
from aicf.passes.support.works_on import MODELS

_MOST_DIGITS = 19
"""Of a size; one more may exceed 64 bits."""

Buckets: TypeAlias = Mapping[str, Sequence[int]]
"""Dimension name to the sizes wanted."""


@dataclass(frozen=True)
class SpecializeShapesPass(ModulePass):
    """Binds the symbolic dimensions: ``dims`` gives sizes per name, names apart by ``;`` or ``,``, sizes by ``,``.

    ``values`` binds inputs of ONNX graphs, ``{"shape": [2, 3]}``: they become constants, and no inputs any more.
    """

    name = "specialize-shapes"
    works_on = MODELS

    dims: str = ""
    values: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        buckets = parse_dims(self.dims)
        _bind_values(op, parse_values(self.values), buckets)
        programs = [
            (inner, symbolic_names(inner))
            for inner in op.body.block.ops
            if isinstance(inner, FuncOp | GraphOp)
        ]
        _check_names(buckets, [name for _, names in programs for name in names])
        for program, names in programs:
            if names:
                _specialize(program, names, buckets)


def _bind_values(module: ModuleOp, values: Values, buckets: dict[str, tuple[int, ...]]) -> None:
    """Binds inputs of ONNX graphs; sizes that their shapes settle need not be in the buckets."""
    graphs = [inner for inner in module.body.block.ops if isinstance(inner, GraphOp)]
    check_inputs(values, graphs)
    for graph in graphs:
        settled = bind_values(graph, values)
        bind_sizes(graph, settled)
        for name, size in settled.items():
            if buckets.pop(name, (size,)) != (size,):
                raise PolicyError(f"dims: the values settle that {name} is {size}; leave it out of the sizes")


def parse_dims(text: str) -> dict[str, tuple[int, ...]]:
    """Read ``N=1,32;M=4``; a ``,`` may also stand before the next name, as in ``N=1,32,M=4``.

    Raises:
        PolicyError: it is malformed, or a name or size is repeated.
    """
    buckets: dict[str, tuple[int, ...]] = {}
    for part in filter(None, (part.strip() for part in re.split(_NEXT_NAME, text))):
        name, equals, sizes = (piece.strip() for piece in part.partition("="))
        words = [word.strip() for word in sizes.split(",")]
        if not equals or not NAME_PATTERN.fullmatch(name) or not all(_is_size(word) for word in words):
            raise PolicyError(f"dims: cannot read '{part}'; write sizes per name, as in N=1,32;M=4")
        values = tuple(int(word) for word in words)
        if name in buckets or len(set(values)) != len(values):
            raise PolicyError(f"dims: '{part}' repeats a name or a size; give each once")
        buckets[name] = values
    return buckets


_NEXT_NAME = re.compile(r";|,(?=[^,;=]*=)")
"""What ends the sizes of a name: a `;`, or the `,` before another name."""


def _is_size(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < _MOST_DIGITS


def symbolic_names(program: FuncOp | GraphOp) -> list[str]:
    """The symbolic dimensions of a program's interface and body, in order of first mention."""
    if isinstance(program, GraphOp):
        infos = [program.argument_info(index) for index in range(len(program.block.args))]
    else:
        types: list[Attribute] = [*program.function_type.inputs, *program.function_type.outputs]
        types += [result.type for op in program.walk() for result in op.results]
        infos = [tensor_info(type_) for type_ in types if is_tensor(type_)]
    names: dict[str, None] = {}
    for info in infos:
        for size in info.sizes:
            names.update(dict.fromkeys(sorted(size.names) if isinstance(size, Poly) else ()))
    return list(names)


def _check_names(buckets: Buckets, names: Sequence[str]) -> None:
    listed = ", ".join(dict.fromkeys(names)) or "none"
    unknown = [name for name in buckets if name not in names]
    if unknown:
        raise PolicyError(
            f"dims: the program has no symbolic dimension {unknown[0]}; its dimensions are: {listed}"
        )
    unbound = [name for name in dict.fromkeys(names) if name not in buckets]
    if unbound:
        example = ";".join(f"{name}=1" for name in unbound)
        raise PolicyError(
            f'unbound symbolic dimensions: {", ".join(unbound)}; give sizes for each, as in dims="{example}" '
            f"(--dims '{example}' on the command line)"
        )


def _specialize(program: FuncOp | GraphOp, names: Sequence[str], buckets: Buckets) -> None:
    rows: list[tuple[tuple[int, ...], str]] = []
    copies: list[FuncOp | GraphOp] = []
    for sizes in itertools.product(*(buckets[name] for name in names)):
        bindings = dict(zip(names, sizes, strict=True))
        suffix = "@" + ",".join(f"{name}={size}" for name, size in bindings.items())
        copy = program.clone()
        copy.properties["sym_name"] = StringAttr(program.sym_name.data + suffix)
        if isinstance(copy, GraphOp):
            _bind_graph(copy, bindings, suffix)
        else:
            _bind(copy, bindings, suffix)
        copies.append(copy)
        rows.append((sizes, copy.sym_name.data))
    dispatch = DispatchOp(program.sym_name.data, names, rows)
    dispatch.location = program.location
    Rewriter.replace_op(program, [dispatch, *copies], new_results=[])


def _bind_graph(graph: GraphOp, bindings: Mapping[str, int], suffix: str) -> None:
    """Nodes have no types to bind: theirs follow from the arguments', which `lower-onnx` works out."""
    bind_sizes(graph, bindings)
    for op in graph.walk():
        if (identity := op_id(op)) is not None:
            set_identity(op, identity + suffix, sources(op))


def _bind(function: FuncOp, bindings: Mapping[str, int], suffix: str) -> None:
    for argument in function.args:
        Rewriter.replace_value_with_new_type(argument, _bound_type(function, argument.type, bindings))
    for op in function.body.block.ops:
        for result in op.results:
            Rewriter.replace_value_with_new_type(result, _bound_type(op, result.type, bindings))
        if isinstance(op, SliceOp):
            _bind_slice(op)
        identity = op_id(op)
        if identity is not None:
            set_identity(op, identity + suffix, sources(op))
    function.update_function_type()


def _bind_slice(op: SliceOp) -> None:
    """A dimension taken whole now has a number to take."""
    taken = zip(int_values(op.sizes), op.info.shape, strict=True)
    op.properties["sizes"] = ints([whole if size == WHOLE else size for size, whole in taken])


def _bound_type(op: Operation, type_: Attribute, bindings: Mapping[str, int]) -> Attribute:
    try:
        return bind_names(type_, bindings)
    except VerifyException as error:
        raise invalid(op, str(error)) from error
