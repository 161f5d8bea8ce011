"""What a saved module returns: its containers as plain data, and how the tensors of a call are put into them.

PyTorch's registry of trees (`torch.utils._pytree`) says how a class is taken apart and put together. Reading imports no
module: a class is looked up among the modules that are there.
"""

from __future__ import annotations

import json
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast

from torch import Tensor
from torch.utils import _pytree as pytree

from aicf.errors import ArtifactError, UnsupportedOp

Described: TypeAlias = Any
"""`"tensor"`, `["constant", value]`, or a container: its `type`, what PyTorch keeps for it, and what it is of."""
Make: TypeAlias = Callable[[Iterator[Tensor]], Any]
"""Makes a part of what a call returns from the tensors that are left."""


def described(program: Any) -> Described:
    """What the module of a `torch.export.ExportedProgram` returns, as JSON.

    Raises:
        UnsupportedOp: a result is neither a tensor nor a constant, or a class cannot be found by its name.
    """
    specs = program.graph_signature.output_specs
    return _described(
        program.call_spec.out_spec, (spec.arg for spec in specs if spec.kind.name == "USER_OUTPUT")
    )


def _described(spec: Any, leaves: Iterator[Any]) -> Described:
    if spec is None or spec.is_leaf():
        return _leaf(next(leaves))
    is_named = spec.type is namedtuple  # PyTorch has one entry for all named tuples
    cls = spec.context if is_named else spec.type
    return {
        "type": _name_of(cls),
        "context": None if is_named else _written(cls, spec.context),
        "of": [_described(child, leaves) for child in spec.children()],
    }


def _leaf(argument: Any) -> Described:
    kind = type(argument).__name__
    if kind == "TensorArgument":
        return "tensor"
    if kind != "ConstantArgument":
        raise UnsupportedOp(
            f"the module returns '{argument.name}', which is no tensor and changes with the inputs; return it as a "
            "tensor, or leave it out"
        )
    return ["constant", argument.value]


def _name_of(cls: Any) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    if _class_named(name) is not cls:
        raise UnsupportedOp(
            f"the module returns a {cls.__qualname__}, which {cls.__module__} does not have under that name; define "
            "the class at the top of a module"
        )
    return name


def _written(cls: Any, context: Any) -> Any:
    node = pytree.SUPPORTED_SERIALIZED_TYPES.get(cls)
    if node is not None and node.to_dumpable_context is not None:
        context = node.to_dumpable_context(context)
    if not _survives(context):
        raise UnsupportedOp(
            f"the module returns a {cls.__qualname__} with keys or fields that JSON does not have: {context!r}; return "
            "tensors under keys that are text"
        )
    return context


def _survives(context: Any) -> bool:
    """Whether JSON has it; keys that are tuples would come back as lists."""
    try:
        text = json.dumps(context)
    except (TypeError, ValueError):
        return False
    return not isinstance(context, list) or bool(json.loads(text) == context)


def maker(tree: Described, count: int) -> Make:
    """What makes the result of a call, from what `described` gave and the number of tensors.

    Raises:
        ArtifactError: a class is not there, or PyTorch's registry does not have it.
        ValueError: it is not what `described` gives.
    """
    if (found := _tensors_in(tree)) != count:
        raise ValueError(f"it has {found} tensors, and the programs {count}")
    return _maker(tree)


def _tensors_in(tree: Described) -> int:
    if isinstance(tree, dict):
        return sum(map(_tensors_in, cast("dict[str, Any]", tree)["of"]))
    return int(tree == "tensor")


def _maker(tree: Described) -> Make:
    match tree:
        case "tensor":
            return next
        case ["constant", value]:
            return lambda _: value
        case {"type": str(name), "context": context, "of": parts}:
            put_together, makers = _container(name, context), list(map(_maker, parts))
            return lambda tensors: put_together([make(tensors) for make in makers])
        case _:
            raise ValueError(f"{tree!r} is no part of a result")


def _container(name: str, context: Any) -> Callable[[Sequence[Any]], Any]:
    """What makes a container of its parts."""
    cls = _class_named(name)
    if isinstance(cls, type) and pytree.is_namedtuple_class(cls):
        return lambda parts: cls(*parts)
    if not isinstance(cls, type) or cls not in pytree.SUPPORTED_NODES:
        where, _, own = name.partition(":")
        raise ArtifactError(
            f"the saved module returns a {own} of {where}, which is not here, or not known to PyTorch; import "
            "and register the class before loading, as before saving"
        )
    unflatten = pytree.SUPPORTED_NODES[cls].unflatten_fn
    node = pytree.SUPPORTED_SERIALIZED_TYPES.get(cls)
    if node is not None and node.from_dumpable_context is not None:
        context = node.from_dumpable_context(context)
    return lambda parts: unflatten(parts, context)


def _class_named(name: str) -> Any:
    where, _, path = name.partition(":")
    found: Any = sys.modules.get(where)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found
