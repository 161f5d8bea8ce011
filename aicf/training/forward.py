"""The model of a training step, before it is one: its function and what goes in and out, by name and role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import SSAValue

from aicf.compilation.compiling import check_strict
from aicf.compilation.sources import Model, read_model
from aicf.dialects import logical
from aicf.dialects.logical import NAME_ATTR, ROLE_ATTR, UPDATES_ATTR, LogicalOp
from aicf.dialects.types import TensorInfo, tensor_info
from aicf.errors import InvalidIR
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import argument_attrs, result_attrs
from aicf.passes.logical.assign_ids import AssignIdsPass
from aicf.passes.logical.specialize_shapes import SpecializeShapesPass
from aicf.passes.logical.to_evaluation import drawing_metas
from aicf.passes.support.identity import op_id, part_id, set_identity, sources
from aicf.passes.verify.verify_logical import VerifyLogicalPass
from aicf.runtime.tensors import Array
from aicf.training.onnx_forward import lower_forward


def shape_of(info: TensorInfo) -> tuple[int | str, ...]:
    """The sizes, symbolic ones as text."""
    return tuple(size if isinstance(size, int) else str(size) for size in info.sizes)


@dataclass(frozen=True)
class Argument:
    """A tensor that the model reads, by the roles of logical IR."""

    name: str
    role: str
    info: TensorInfo
    value: SSAValue


@dataclass(frozen=True)
class Result:
    """A tensor that the model gives: an output, or the new value of the argument that it updates."""

    name: str
    is_update: bool
    info: TensorInfo


@dataclass(frozen=True)
class Forward:
    """A verified model whose ops have ids.

    Args:
        function: Its ops.
        name: Of the model.
        weights: Values that came with it.
        fixed: Names of parameters that are not trained, whatever a user says.
        has_sizes: Whether its sizes are numbers because `dims` says so.
        readers: Of each parameter of an ONNX model the nodes that read it.
        drawing: Names of metas that the model has no use for in evaluation, such as the seed of its dropouts.
    """

    function: FuncOp
    name: str
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]
    weights: Mapping[str, Array] = field(default_factory=dict[str, Array])
    fixed: frozenset[str] = frozenset()
    has_sizes: bool = False
    readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    drawing: frozenset[str] = frozenset()

    def with_role(self, role: str) -> list[Argument]:
        """The arguments of a role."""
        return [argument for argument in self.arguments if argument.role == role]

    @property
    def outputs(self) -> list[Result]:
        """What it gives, updates left out."""
        return [result for result in self.results if not result.is_update]

    @property
    def is_static(self) -> bool:
        """Whether all sizes of its arguments are numbers."""
        return all(argument.info.is_static for argument in self.arguments)

    def ops(self) -> list[LogicalOp]:
        """Its ops in order."""
        return [op for op in self.function.body.block.ops if isinstance(op, LogicalOp)]

    def copy_for(self, batch: int) -> FuncOp:
        """The function with ids of a micro-batch of its own: op `fc1` is `fc1@batch2`, and stands for `fc1`."""
        copy = self.function.clone()
        for op in copy.body.block.ops:
            if not isinstance(op, ReturnOp):
                set_identity(op, part_id(op_id(op) or op.name, batch), sources(op))
        return copy


def read_forward(
    model: Model, dims: str = "", *, bind: bool = False, untie: Sequence[str] = (), strict: bool = False
) -> Forward:
    """Reads a model.

    Args:
        dims: Sizes of its symbolic dimensions, one each where they are bound here.
        bind: Whether they are; else they stay symbolic. Those of an ONNX model are bound in any case.
        untie: Names or patterns of initializers of an ONNX model of which each reader has a copy.
        strict: Whether an ONNX model that declares wrong types or shapes of its values is refused.

    Raises:
        InvalidIR: it does not verify, is no single function of logical IR, or is a training step already.
        PolicyError: the sizes do not fit it, or it is no ONNX model and `strict` is given.
    """
    context = make_context()
    source = read_model(model, context, training=True, untie=untie)
    check_strict(source, strict)
    if untie and not source.is_onnx:
        raise InvalidIR(
            "untie is for ONNX models, whose exporters merge weights; give each layer its own parameter"
        )
    if source.is_emit or source.has_groups:
        raise InvalidIR(f"'{source.name}' is compiled or lowered; a training step is made of logical IR")
    AssignIdsPass().apply(context, source.module)
    VerifyLogicalPass().apply(context, source.module)
    fixed: frozenset[str] = frozenset()
    if is_onnx := source.is_onnx:
        fixed = lower_forward(source, dims, context, strict=strict)
    elif bind and dims:
        SpecializeShapesPass(dims).apply(context, source.module)
    function = _only_function(source.module, source.name)
    arguments = _arguments(function)
    read = {argument.name for argument in arguments}
    weights = {name: array for name, array in source.weights.items() if name in read}
    forward = Forward(
        function,
        source.name,
        arguments,
        _results(function),
        weights,
        fixed & read,
        has_sizes=is_onnx or (bind and bool(dims)),
        readers=source.readers,
        drawing=frozenset(argument.name for argument in arguments if argument.role == "meta")
        if is_onnx
        else frozenset(drawing_metas(function)),
    )
    _check_untrained(forward)
    return forward


def _only_function(module: ModuleOp, name: str) -> FuncOp:
    functions = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
    if len(functions) != 1:
        raise InvalidIR(
            f"'{name}' has {len(functions)} functions; a training step is made of one, for one size of each dimension"
        )
    return functions[0]


def _arguments(function: FuncOp) -> tuple[Argument, ...]:
    found: list[Argument] = []
    for index, value in enumerate(function.body.block.args):
        entry = argument_attrs(function, index)
        found.append(Argument(entry[NAME_ATTR].data, entry[ROLE_ATTR].data, tensor_info(value.type), value))
    return tuple(found)


def _results(function: FuncOp) -> tuple[Result, ...]:
    found: list[Result] = []
    for index, type_ in enumerate(function.function_type.outputs):
        entry = result_attrs(function, index)
        name = entry[UPDATES_ATTR if UPDATES_ATTR in entry else NAME_ATTR].data
        found.append(Result(name, UPDATES_ATTR in entry, tensor_info(type_)))
    return tuple(found)


def _check_untrained(forward: Forward) -> None:
    params = {argument.name for argument in forward.with_role("param")}
    updated = next(
        (result.name for result in forward.results if result.is_update and result.name in params), None
    )
    trains = any(isinstance(op, logical.GradientOp | logical.OptimizerOp) for op in forward.ops())
    if updated is not None or trains:
        what = f"it updates '{updated}'" if updated is not None else "it has gradients or an optimizer"
        raise InvalidIR(f"'{forward.name}' is a training step already: {what}; give it to aicf.compile")
