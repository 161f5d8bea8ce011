"""Writes a traced graph of PyTorch as a logical program, op by op, through the ATen op map.

Views of arguments that are results stay views: the program does not copy what PyTorch can return as it is. Arguments
whose memory is dense in another order of dimensions, such as channels-last images, are read in that order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from xdsl.dialects.builtin import ArrayAttr, FileLineColLoc, NameLoc, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from aicf.dialects.logical import ID_ATTR, MAX_CONSTANT_ELEMENTS, SRC_ATTR
from aicf.errors import AicfError, InvalidIR, UnsupportedOp
from aicf.frontends.builder import Graph, Value
from aicf.frontends.builder.core import last_op, ops_since, saved, write_from
from aicf.frontends.torch.layouts import has_dense_strides, is_view, memory_order, root_of, viewed
from aicf.frontends.torch.locations import line_of, module_path, text_of
from aicf.frontends.torch.nodes import (
    NO_OPS,
    check_ops,
    gives_tensors,
    is_getitem,
    is_node,
    is_op,
    is_random_state,
    is_tensor,
    items,
    op_name,
    overload_of,
    short_name,
    unsupported,
    used_results,
)
from aicf.frontends.torch.ops import EMPTY_ROWS, ROWS, Lower, Tensor, Writer, listed
from aicf.frontends.torch.ops.base import Empty, Memory
from aicf.frontends.torch.program import (
    Alias,
    Computed,
    Lowered,
    NoTensor,
    Output,
    Passed,
    Port,
    PortRole,
    Roles,
    View,
    Void,
)
from aicf.frontends.torch.provenance import Provenance
from aicf.frontends.torch.sizes import number_of, shape_of
from aicf.support.torch_types import SEED, name_of

DROPPED = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking", "generator"})
"""Arguments about device and memory layout, which the program chooses itself."""


def lower_graph(
    graph: Any, name: str, bindings: Mapping[str, int] | None = None, roles: Roles | None = None
) -> Lowered:
    """Writes a graph for one choice of sizes.

    Args:
        graph: A `torch.fx.Graph` of functional ATen ops.
        name: Of the program.
        bindings: The value of each symbolic size, by the name of its symbol.
        roles: What the placeholders are; inputs if it is None.

    Raises:
        UnsupportedOp: an op, an element type or a tensor has no counterpart; it names the node and the user's line.
        PolicyError: a symbolic size has no value.
    """
    return _Walk(graph, name, bindings or {}, roles or Roles()).run()


Known: TypeAlias = "Value | Empty | list[Any] | Any"
"""The value of a node: a value of the program, a tensor without elements, a list of these, or a Python number."""


class _Walk:
    def __init__(self, graph: Any, name: str, bindings: Mapping[str, int], roles: Roles) -> None:
        self._graph, self._nodes = graph, list[Any](graph.nodes)
        self._bindings, self._roles = bindings, roles
        self._builder = Graph(name)
        self._values: dict[Any, Known] = {}
        self._placeholders = [node for node in self._nodes if node.op == "placeholder"]
        self._index = {node: index for index, node in enumerate(self._placeholders)}
        self._updated: dict[int, Any] = {}
        self._ports: dict[int, Port] = {}
        self._arguments: dict[int, Value] = {}
        self._seed: Value | None = None
        self._counters = 0
        self._saves: dict[SSAValue, Value] = {}
        self._names = Counter[str]()
        self._taken = set[str]()
        self._notes: list[tuple[str, str]] = []
        self._last_ops: list[tuple[str, Operation | None]] = []

    def run(self) -> Lowered:
        """See `lower_graph`."""
        self._find_updates()
        check_ops(self._graph)
        for node in self._nodes:
            match node.op:
                case "placeholder":
                    self._argument(node)
                case "get_attr":
                    self._values[node] = self._constant(node)
                case "call_function":
                    self._call(node)
                    self._last_ops.append((node.name, last_op(self._builder)))
                case "output":
                    pass
                case _:
                    raise unsupported(node, f"a node {node.op}", "trace the model with torch.export")
        outputs = self._outputs()
        self._write_updates()
        computes = any(isinstance(output, Computed | View) for output in outputs) or bool(self._updated)
        write_from(self._builder, None)
        return Lowered(
            self._builder.module() if computes else None,
            [self._ports[index] for index in sorted(self._ports)],
            outputs,
            sorted(self._updated),
            self._seed is not None,
            self._notes,
            self._provenance(),
        )

    def _provenance(self) -> Provenance:
        values = [(node.name, value.ssa) for node, value in self._values.items() if isinstance(value, Value)]
        return Provenance.of(ops_since(self._builder, None), self._last_ops, values)

    # Updates

    def _find_updates(self) -> None:
        by_name = {node.name: node for node in self._nodes}
        for index, name in self._roles.updates.items():
            self._updated[index] = by_name[name]
        for node in self._nodes:
            if overload_of(node) != "copy_.default":
                continue
            target = node.args[0]
            if target in self._index:
                self._updated[self._index[target]] = node.args[1]
            elif is_view(target) or len(target.users) > 1:
                raise unsupported(
                    node,
                    "a write into a tensor that is not an argument and has other readers",
                    "trace the model with torch.export and run_decompositions(), which leave no such writes",
                )

    def _write_updates(self) -> None:
        for index, node in sorted(self._updated.items()):
            if index not in self._arguments:
                continue
            value, target = self._values[node], self._arguments[index]
            port = self._ports[index]
            if isinstance(value, Value):
                value = self._builder.broadcast_to(
                    self._cast(value, port.tensor.dtype), list(port.tensor.shape)
                )
                self._builder.update(target, self._stored(value, port.order))

    # Arguments

    def _argument(self, node: Any) -> None:
        index = self._index[node]
        fake = node.meta.get("val")
        if not is_tensor(fake):
            self._values[node] = self._number(node, fake) if fake is not None else None
            return
        if not node.users and index not in self._updated:
            self._values[node] = None
            return
        tensor = self._tensor_of(node, fake)
        if not tensor.count:
            self._values[node] = Empty(tensor)
            return
        self._check_layout(node, fake)
        strides = shape_of(fake.stride(), self._bindings)
        order = self._order(tensor.shape, strides)
        role: PortRole = "param" if index in self._roles.params else "input"
        if index in self._updated:
            role = "state"
        name = self._fresh(self._roles.names.get(index, node.name))
        port = Port(name, index, role, tensor, strides, order, fake.device)
        make = {"input": self._builder.input, "param": self._builder.param, "state": self._builder.state}[
            role
        ]
        write_from(self._builder, line_of(node.meta))
        argument = make(name, port.stored_shape, tensor.dtype)
        self._ports[index], self._arguments[index] = port, argument
        self._values[node] = self._logical_order(argument, order)

    def _order(self, shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
        return tuple(range(len(shape))) if self._roles.is_alone else memory_order(shape, strides)

    def _check_layout(self, node: Any, fake: Any) -> None:
        if str(getattr(fake, "layout", "torch.strided")) != "torch.strided":
            raise unsupported(node, f"a tensor of layout {fake.layout}", "make it dense with .to_dense()")
        if getattr(fake, "is_quantized", False):
            raise unsupported(node, "a quantized tensor", "dequantize it first")

    def _tensor_of(self, node: Any, fake: Any) -> Tensor:
        dtype = name_of(fake.dtype)
        if dtype is None and str(fake.dtype) == "torch.uint64" and is_random_state(node):
            dtype = "i64"  # the same bits; only the backward op of that attention reads them
        if dtype is None:
            raise unsupported(
                node, f"element type {fake.dtype}", "use a floating-point, integer or bool type that AICF has"
            )
        return Tensor(shape_of(fake.shape, self._bindings), dtype)

    def _logical_order(self, stored: Value, order: Sequence[int]) -> Value:
        """A tensor in PyTorch's order of dimensions, from the order in memory."""
        if list(order) == sorted(order):
            return stored
        return self._builder.transpose(stored, [list(order).index(axis) for axis in range(len(order))])

    def _stored(self, value: Value, order: Sequence[int]) -> Value:
        """A tensor in the order in memory, from PyTorch's order of dimensions."""
        return value if list(order) == sorted(order) else self._builder.transpose(value, list(order))

    def _cast(self, value: Value, dtype: str) -> Value:
        return value if value.dtype == dtype else self._builder.cast(value, dtype)

    def _constant(self, node: Any) -> Known:
        """A constant tensor of the graph, from a number or a list in the user's code, such as `x[[1, 0]]`."""
        held: Any = self._graph.owning_module
        for part in str(node.target).split("."):
            held = getattr(held, part, None)
        if not is_tensor(held) or hasattr(held, "fake_mode"):
            raise unsupported(node, f"an attribute {node.target}", "trace the model with torch.export")
        tensor = self._tensor_of(node, held)
        if tensor.count > MAX_CONSTANT_ELEMENTS:
            raise unsupported(
                node,
                f"a constant of {tensor.count} elements; it has {MAX_CONSTANT_ELEMENTS} at most",
                "make it a buffer of the module",
            )
        if not tensor.count:
            return Empty(tensor)
        write_from(self._builder, line_of(node.meta))
        return self._builder.constant(held.detach().cpu().tolist(), tensor.shape, tensor.dtype)

    # Nodes

    def _call(self, node: Any) -> None:
        if not is_op(node):
            self._values[node] = self._python_call(node)
            return
        overload = overload_of(node)
        if overload == "copy_.default" and node.users:
            overload = "copy.default"
        if overload in NO_OPS or not gives_tensors(node):
            if (fake := node.meta.get("val")) is not None and not is_tensor(fake):
                self._values[node] = self._number(node, fake)
            return
        location = line_of(node.meta)
        write_from(self._builder, location)
        last = last_op(self._builder)
        try:
            found = self._lowered(node, overload, location)
        except (InvalidIR, VerifyException, ValueError, IndexError, TypeError, KeyError) as error:
            message = error.message if isinstance(error, AicfError) else str(error)
            raise InvalidIR(
                f"{op_name(node)} (node '{node.name}'): {message}", location=text_of(location)
            ) from error
        except UnsupportedOp as error:
            if error.location is None and location is not None:
                error.locate(cast(str, text_of(location)))
            raise
        self._name(node, last)
        self._values[node] = found

    def _python_call(self, node: Any) -> Known:
        """A Python function: an item of several results, or arithmetic on sizes."""
        if is_getitem(node):
            return cast("Sequence[Known]", self._values[node.args[0]])[node.args[1]]
        fake = node.meta.get("val")
        if fake is not None and not is_tensor(fake):
            return self._number(node, fake)
        raise unsupported(
            node, f"a call of {getattr(node.target, '__name__', node.target)}", "trace the model to ATen ops"
        )

    def _lowered(self, node: Any, overload: str, location: FileLineColLoc | None) -> Known:
        fakes = node.meta.get("val")
        several = isinstance(fakes, list | tuple)
        tensors = [self._tensor_of(node, fake) if is_tensor(fake) else None for fake in items(fakes)]
        known = [tensor or Tensor((), "f32") for tensor in tensors]
        if all(tensor is None or not tensor.count for tensor in tensors):
            empty = [None if tensor is None else Empty(tensor) for tensor in tensors]
            return empty if several else empty[0]
        used = used_results(node) if several else frozenset({0})
        writer = Writer(
            self._builder,
            op_name(node),
            known,
            used,
            self._random_seed,
            self._random_counters,
            lambda: self._memory_of(node.args[0]),
            text_of(location),
            self._roles.is_differentiated,
            next(fake.device.type for fake in items(fakes) if is_tensor(fake)),
        )
        positional, named = self._arguments_of(node, node.name in self._roles.backward)
        lower = self._row(node, overload, [*positional, *named.values()])
        results = listed(lower(writer, *positional, **named))
        self._notes.extend((node.name, note) for note in writer.notes)
        self._check_results(node, tensors, results, used)
        filled = [
            Empty(tensor) if tensor is not None and not tensor.count else value
            for tensor, value in zip(tensors, [*results, *[None] * len(tensors)], strict=False)
        ]
        return filled if several else filled[0]

    def _memory_of(self, node: Any) -> Memory:
        """Strides and offset of the tensor of a node."""
        fake = node.meta["val"]
        strides = shape_of(fake.stride(), self._bindings)
        return Memory(strides, int(number_of(fake.storage_offset(), self._bindings)))

    def _row(self, node: Any, overload: str, arguments: Sequence[Any]) -> Lower:
        if not any(map(_has_empty, arguments)):
            return ROWS[overload]
        if (lower := EMPTY_ROWS.get(overload)) is None:
            raise unsupported(node, "an operand has no elements", "give it at least one")
        return lower

    def _check_results(
        self,
        node: Any,
        tensors: Sequence[Tensor | None],
        results: Sequence[Value | None],
        used: frozenset[int],
    ) -> None:
        """Checks the results of a row against PyTorch's shapes and types, so that a defect of a row is found here."""
        for index, tensor in enumerate(tensors):
            value = results[index] if index < len(results) else None
            if tensor is None or not tensor.count or (value is None and index not in used):
                continue
            found = None if value is None else Tensor(value.info.shape, value.dtype)
            if found != tensor:
                raise unsupported(
                    node,
                    f"its row gives {_describe(found)} as result {index}, PyTorch {_describe(tensor)}",
                    "this is a defect of AICF: report it with the model",
                )

    def _arguments_of(self, node: Any, is_backward: bool) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a node: positional ones in the order of the schema, and keyword-only ones by name."""
        schema = node.target._schema.arguments
        passed = {
            argument.name: value for argument, value in zip(schema, node.args, strict=False)
        } | node.kwargs
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for argument in schema:
            if argument.name in DROPPED:
                continue
            value = (
                self._argument_value(passed[argument.name], is_backward)
                if argument.name in passed
                else argument.default_value
            )
            if argument.kwarg_only:
                if argument.name in passed:
                    named[argument.name] = value
            else:
                positional.append(value)
        return positional, named

    def _argument_value(self, value: Any, is_backward: bool) -> Any:
        if is_node(value):
            known = self._values[value]
            if is_backward and value.name not in self._roles.backward and isinstance(known, Value):
                return self._saved(known)
            return known
        if isinstance(value, list | tuple):
            return [self._argument_value(item, is_backward) for item in cast("Sequence[Any]", value)]
        if type(value).__name__ == "dtype":
            return name_of(value)
        return number_of(value, self._bindings)

    def _saved(self, value: Value) -> Value:
        """A value of the forward part as the backward part reads it."""
        if value.ssa not in self._saves:
            self._saves[value.ssa] = saved(self._builder, value)
        return self._saves[value.ssa]

    def _number(self, node: Any, fake: Any) -> Any:
        """A number that depends on sizes."""
        if isinstance(fake, list | tuple):
            return [self._number(node, item) for item in cast("Sequence[Any]", fake)]
        try:
            return number_of(fake, self._bindings)
        except UnsupportedOp as error:
            error.locate(text_of(line_of(node.meta)) or f"node '{node.name}'")
            raise

    def _random_seed(self) -> Value:
        if self._seed is None:
            self._seed = self._builder.input(SEED, (), "i64")
        return self._seed

    def _random_counters(self, count: int) -> int:
        """Reserves counters of the random stream, and returns the first."""
        first = self._counters
        self._counters += count
        return first

    # Names

    def _fresh(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _name(self, node: Any, last: Operation | None) -> None:
        """Gives the ops of a node names by the path of its module: the last one its own, others with their kind."""
        ops = ops_since(self._builder, last)
        if not ops:
            return
        path = f"{module_path(node.meta)}.".removeprefix(f"{self._roles.root}.").strip(".")
        stem = f"{path}.{short_name(node)}" if path else short_name(node)
        self._names[stem] += 1
        if (number := self._names[stem]) > 1:
            stem += f"_{number}"
        kinds = Counter[str]()
        for op in ops:
            kind = op.name.partition(".")[2]
            kinds[kind] += 1
            part = stem if op is ops[-1] else f"{stem}.{kind}{kinds[kind] if kinds[kind] > 1 else ''}"
            if suffix := self._roles.suffix:
                op.attributes |= {ID_ATTR: StringAttr(part + suffix), SRC_ATTR: ArrayAttr([StringAttr(part)])}
            else:
                op.location = NameLoc(StringAttr(part), op.location)

    # Results

    def _outputs(self) -> list[Output]:
        (returned,) = next(node for node in reversed(self._nodes) if node.op == "output").args
        results = items(returned)
        outputs: list[Output] = []
        written: dict[Any, Output] = {}
        self._find_shared(results)
        for index, result in enumerate(results):
            if index in self._roles.hidden:
                outputs.append(NoTensor(None))
                continue
            if not is_node(result):
                outputs.append(NoTensor(number_of(result, self._bindings)))
                continue
            # A program that runs alone has each result under its own name.
            if result not in written or self._roles.is_alone:
                written[result] = self._output(index, result)
            outputs.append(written[result])
        return outputs

    def _output(self, index: int, node: Any) -> Output:
        fake = node.meta.get("val")
        value = self._values.get(node)
        is_alone = self._roles.is_alone or self._roles.copies
        if isinstance(value, Empty):
            if self._roles.is_alone:
                raise unsupported(node, "a result has no elements", "return it from outside of the model")
            return Void(value.info, fake.device)
        if node in self._index and is_tensor(fake) and not is_alone:
            return Passed(self._index[node])
        if not isinstance(value, Value):
            return NoTensor(value)
        tensor = self._tensor_of(node, fake)
        strides = shape_of(fake.stride(), self._bindings)
        source = None if is_alone else viewed(node, self._index)
        if source is not None and self._index[source] not in self._updated:
            theirs = source.meta["val"]
            start = number_of(fake.storage_offset(), self._bindings)
            offset = int(start) - int(number_of(theirs.storage_offset(), self._bindings))
            return Alias(self._index[source], tensor.shape, strides, offset)
        base = node if is_alone else root_of(node)
        if base in self._shared and (port := self._shared_port(index, base)) is not None:
            offset = fake.storage_offset() - base.meta["val"].storage_offset()
            return View(port, tensor.shape, strides, int(number_of(offset, self._bindings)))
        return Computed(self._computed(index, node, value))

    def _find_shared(self, results: Sequence[Any]) -> None:
        """Finds tensors that several results are views of: these share memory, as in eager mode."""
        nodes = {node: root_of(node) for node in results if is_node(node)}
        counts = Counter(root for node, root in nodes.items() if isinstance(self._values.get(node), Value))
        shared = [root for root, count in counts.items() if count > 1 and root not in self._index]
        self._shared: dict[Any, Port | None] = dict.fromkeys(shared)

    def _shared_port(self, index: int, base: Any) -> Port | None:
        """The result that is written for a tensor with several views; None if it is not dense."""
        value, port = self._values.get(base), self._shared[base]
        if port is not None or not isinstance(value, Value):
            return port
        tensor = self._tensor_of(base, base.meta["val"])
        strides = shape_of(base.meta["val"].stride(), self._bindings)
        probe = Port("", index, "input", tensor, strides, memory_order(tensor.shape, strides))
        if not has_dense_strides(probe):
            return None
        self._shared[base] = self._computed(index, base, value)
        return self._shared[base]

    def _computed(self, index: int, node: Any, value: Value) -> Port:
        """Writes a result of the program."""
        fake = node.meta["val"]
        tensor = self._tensor_of(node, fake)
        strides = shape_of(fake.stride(), self._bindings)
        order = self._order(tensor.shape, strides)
        name = self._roles.results.get(index, node.name if self._roles.is_alone else f"out.{node.name}")
        port = Port(self._fresh(name), index, "input", tensor, strides, order, fake.device)
        last = last_op(self._builder)
        write_from(self._builder, line_of(node.meta))
        stored = self._stored(value, order)
        self._name(node, last)
        self._builder.output(stored, port.name)
        return port


def _describe(tensor: Tensor | None) -> str:
    return "nothing" if tensor is None else f"{tensor.dtype}{list(tensor.shape)}"


def _has_empty(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_empty, cast("list[Any]", value)))
    return isinstance(value, Empty)
