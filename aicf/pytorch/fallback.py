"""`options={"fallback": "eager"}`: ops without a counterpart run in eager mode, the parts between them are compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.utils._pytree import tree_leaves

from aicf.frontends.torch.nodes import is_getitem, is_supported
from aicf.support.torch_types import name_of

Run: TypeAlias = Callable[[list[Any]], Sequence[Any]]
"""Runs a graph on a list of arguments, which it empties; returns the results."""
MakePart: TypeAlias = Callable[[torch.fx.GraphModule, int], Run]
"""Compiles a part of a graph, given its number."""


def is_compiled(node: torch.fx.Node) -> bool:
    """Whether a node has a counterpart, judging by its op and the types of its tensors."""
    if node.op == "output":
        return True
    values = [node.meta.get("val"), *(operand.meta.get("val") for operand in node.all_input_nodes)]
    tensors = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
    return is_supported(node) and all(
        name_of(tensor.dtype) is not None and tensor.layout == torch.strided for tensor in tensors
    )


class _Compiled(OperatorSupportBase):
    """Puts nodes with a row into compiled parts, except mutations, which PyTorch runs in their order."""

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        """See `OperatorSupportBase`."""
        if node.op != "call_function" or str(node.target) == "aten.copy_.default":
            return False
        if is_getitem(node):
            source = node.args[0]
            return isinstance(source, torch.fx.Node) and is_compiled(
                source
            )  # an item belongs to the part of its op
        return is_compiled(node)


class _Part(torch.nn.Module):
    """A compiled part, as a module that the graph calls."""

    def __init__(self, run: Run, is_single: bool) -> None:
        super().__init__()
        self._run, self._is_single = run, is_single

    def forward(self, *args: Any) -> Any:
        """The results of the part."""
        results = self._run(list(args))
        return results[0] if self._is_single else tuple(results)


class PartlyCompiled:
    """A graph with some ops that run in eager mode.

    Args:
        name: Of its programs.
        module: The traced graph.
    """

    def __init__(self, name: str, module: torch.fx.GraphModule) -> None:
        self._boxed_call = True  # see `CompiledGraph`
        self.name = name
        self.eager = tuple(
            f"{node.target} (node '{node.name}')" for node in module.graph.nodes if not is_compiled(node)
        )
        self._module, self.parts = module, 0

    def compile(self, make: MakePart) -> None:
        """Compiles the parts between these ops with `make`."""
        partitioner = CapabilityBasedPartitioner(self._module, _Compiled(), allows_single_node_partition=True)
        self._module = partitioner.fuse_partitions(partitioner.propose_partitions())
        for node in self._module.graph.nodes:
            if node.op == "call_module":
                self._replace(str(node.target), make)
        self._module.recompile()

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        """Runs the graph on its arguments."""
        arguments = list(args)
        args.clear()
        return self._module(*arguments)

    def _replace(self, name: str, make: MakePart) -> None:
        part = self._module.get_submodule(name)
        assert isinstance(part, torch.fx.GraphModule)
        (results,) = part.graph.output_node().args
        is_single = not isinstance(results, list | tuple)
        setattr(self._module, name, _Part(make(part, self.parts), is_single))
        self.parts += 1
