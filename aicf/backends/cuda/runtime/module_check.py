"""Whether a stored device module is whole: counts, orders and places agree before anything is loaded or launched.

What only a damaged or edited file can break; whether the program is right was proved when it was compiled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from aicf.backends.cuda.runtime.device_program import (
    Address,
    DeviceModule,
    DeviceProgram,
    KernelNode,
    LibraryNode,
    TensorMap,
)
from aicf.errors import ArtifactError

_SCALARS = frozenset({"i32", "i64", "f32", "f64"})


def check_module(module: DeviceModule, symbols: Collection[str]) -> None:
    """Raises ArtifactError for the first contradiction of `module`, whose cubins are called `symbols`."""
    entries = [program.entry for program in module.programs]
    if len(set(entries)) != len(entries):
        raise _damaged("two programs of the code have one entry")
    if len(symbols) != len(module.cubins):
        raise _damaged("two kernels of the code have one symbol")
    for program in module.programs:
        for problem in _program_problems(program, symbols):
            raise _damaged(problem)


def _damaged(problem: str) -> ArtifactError:
    return ArtifactError(f"{problem}; the file is corrupt: compile the program again")


def _program_problems(program: DeviceProgram, symbols: Collection[str]) -> Iterator[str]:
    counts = {"k": len(program.kernels), "l": len(program.libraries)}
    if {letter: program.order.count(letter) for letter in {*program.order, "k", "l"}} != counts:
        yield f"the order of entry '{program.entry}' does not fit its nodes"
        return
    nodes = program.nodes()
    for number, node in enumerate(nodes):
        for problem in (*_node_problems(node, program), *_edge_problems(number, nodes)):
            yield f"instruction '{node.name}' {problem}"
        if isinstance(node, KernelNode):
            for problem in _kernel_problems(node, symbols):
                yield f"instruction '{node.name}' {problem}"


def _node_problems(node: KernelNode | LibraryNode, program: DeviceProgram) -> Iterator[str]:
    if any(not 0 <= address.base < program.table_size for address in _addresses(node)):
        yield "uses an address outside the table"


def _addresses(node: KernelNode | LibraryNode) -> tuple[Address | TensorMap, ...]:
    """Where the memory lies that a node uses."""
    if isinstance(node, LibraryNode):
        return node.addresses
    in_tables = (address for table in node.tables for address in table.addresses)
    return *node.addresses, *node.maps, *in_tables


def _edge_problems(number: int, nodes: list[KernelNode | LibraryNode]) -> Iterator[str]:
    for dependency in nodes[number].after:
        if not 0 <= dependency.node < number:
            yield "waits for a node that is not before it"
        elif dependency.programmatic and LibraryNode in {type(nodes[number]), type(nodes[dependency.node])}:
            yield "has a programmatic edge to or from a library call"


def _kernel_problems(node: KernelNode, symbols: Collection[str]) -> Iterator[str]:
    if node.symbol not in symbols:
        yield f"has no code '{node.symbol}'"
    kinds = {"a": node.addresses, "m": node.maps, "s": node.scalars, "t": node.tables}
    counts = {letter: len(arguments) for letter, arguments in kinds.items()}
    if {letter: node.order.count(letter) for letter in {*node.order, *counts}} != counts:
        yield "has arguments that its order does not list"
    if not {scalar.type for scalar in node.scalars} <= _SCALARS:
        yield "has an argument of an unknown type"
    if min(*node.grid, *node.block, *node.cluster) < 1 or node.shared_bytes < 0:
        yield "has a launch of no size"
    if any(blocks % cluster for blocks, cluster in zip(node.grid, node.cluster, strict=True)):
        yield "has a grid that is no whole number of clusters"
