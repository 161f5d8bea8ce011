"""Ops of users: what `logical.custom` may name, with what each computes. A registry, and no IR.

A definition is the meaning of an op in NumPy, the rule of its result type and, where there are some, a formula in ops
of the logical dialect and a gradient. Packages define ops as they are imported; those that are installed are found by
the entry point group `aicf.kernels`, whose entries name modules to import.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeAlias

from xdsl.dialects.builtin import DictionaryAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from aicf.dialects.dims import parse_size
from aicf.dialects.json_values import attribute_of, json_value
from aicf.dialects.types import AnyTensor, element_named, tensor, tensor_info
from aicf.errors import BackendUnavailable, PolicyError, UnsupportedOp, did_you_mean, quoted

ENTRY_POINTS = "aicf.kernels"
"""Group of entry points, each of which names a module that defines ops and kernels as it is imported."""
BUILT_IN = "logical."
"""What the names of AICF's own ops begin with; a definition of a user has another prefix."""

_NAME = re.compile(r"[A-Za-z_][\w-]*(\.[A-Za-z_][\w-]*)+")
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Values: TypeAlias = Mapping[str, object]
"""Attributes of an op as Python values: bool, int, float, str, and lists of those."""


@dataclass(frozen=True)
class TensorSpec:
    """The type of an operand or a result as a user's rule sees it.

    Args:
        shape: Sizes; a symbolic one is text, such as "N" or "4*N".
        dtype: Name of the element type, such as `f32`.
    """

    shape: tuple[int | str, ...]
    dtype: str

    @staticmethod
    def of(type_: Attribute) -> TensorSpec:
        """That of a tensor type."""
        info = tensor_info(type_)
        sizes = (size if isinstance(size, int) else str(size) for size in info.sizes)
        return TensorSpec(tuple(sizes), info.element.name)

    def type(self) -> AnyTensor:
        """The tensor type. Raises ValueError for an element type or a size that is none."""
        sizes = [parse_size(size) if isinstance(size, str) else size for size in self.shape]
        return tensor(sizes, element_named(self.dtype))


Meaning: TypeAlias = Callable[..., Any]
ResultRule: TypeAlias = Callable[..., TensorSpec]
Formula: TypeAlias = Callable[[Sequence[Attribute], Values], FuncOp]
"""From types of operands and attributes to a function of logical ops that computes the op."""


@dataclass(frozen=True)
class OpDefinition:
    """An op of a user.

    Args:
        name: `package.op`.
        meaning: What it computes, on NumPy arrays: one positional parameter an operand, one keyword-only parameter an
            attribute. Floats come as float64, or as float32 in place of f16 and bf16; the result is rounded.
        result: From the types of the operands, and the attributes, to the type of the result; None where that is the
            type of the first operand.
        version: Raised whenever the meaning changes; programs name the version they were written for.
        formula: What computes it in logical ops, for targets without a kernel; None if there is none.
        pointwise: Whether element i of the result depends on element i of the operands alone: it is written as its
            formula from the start, and fused like all arithmetic.
        gradient: From the types of the operands and the attributes to a function of the operands, and the derivative by
            the result, that gives the derivatives by the operands; None if there is none.
        module: Where it was defined.
    """

    name: str
    meaning: Meaning
    result: ResultRule | None = None
    version: int = 1
    formula: Formula | None = None
    pointwise: bool = False
    gradient: Formula | None = None
    module: str = ""
    parameters: Mapping[str, inspect.Parameter] = field(init=False, repr=False)
    operand_count: int | None = field(init=False)
    """How many operands it takes; None for any number of them."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name.startswith(BUILT_IN):
            raise PolicyError(f"an op is named {quoted(self.name)}; a name is package.op, as in acme.top_p")
        if self.pointwise and self.formula is None:
            raise PolicyError(f"op '{self.name}' is pointwise: give its formula, which is what is fused")
        found = inspect.signature(self.meaning).parameters.values()
        kinds = [parameter.kind for parameter in found]
        several = inspect.Parameter.VAR_POSITIONAL in kinds
        count = None if several else sum(kind in _POSITIONAL for kind in kinds)
        named = {each.name: each for each in found if each.kind is inspect.Parameter.KEYWORD_ONLY}
        object.__setattr__(self, "operand_count", count)
        object.__setattr__(self, "parameters", named)

    def attributes(self, given: Values) -> DictionaryAttr:
        """All attributes in their canonical form, those with a default included.

        Raises ValueError for one that is unknown or missing, or a value of another type.
        """
        known = ", ".join(self.parameters) or "none"
        if unknown := [name for name in given if name not in self.parameters]:
            raise ValueError(f"op '{self.name}' has no attribute '{unknown[0]}'; it has: {known}")
        values = {name: self._value(parameter, given) for name, parameter in self.parameters.items()}
        return DictionaryAttr({name: attribute_of(value) for name, value in values.items()})

    def _value(self, parameter: inspect.Parameter, given: Values) -> object:
        """The value of an attribute; whole numbers are floats where the default or the annotation is one."""
        name, default = parameter.name, parameter.default
        if name not in given and default is inspect.Parameter.empty:
            raise ValueError(f"op '{self.name}' needs attribute '{name}'")
        value = given.get(name, default)
        is_float = isinstance(default, float) or parameter.annotation in (float, "float")
        if is_float and isinstance(value, int) and not isinstance(value, bool):
            with suppress(OverflowError):
                return float(value)
        if is_float and not isinstance(value, float):
            raise ValueError(
                f"attribute '{name}' of op '{self.name}' is {quoted(value)}; it is a number of f64"
            )
        return value

    def result_type(self, operands: Sequence[Attribute], attributes: DictionaryAttr) -> AnyTensor:
        """The type of the result.

        Raises ValueError: it takes another number of operands, or its rule refuses them; the message is of one line.
        """
        if self.operand_count not in (None, len(operands)) or not operands:
            wanted = "at least one" if self.operand_count is None else str(self.operand_count)
            raise ValueError(f"op '{self.name}' takes {wanted} operands, given are {len(operands)}")
        specs = [TensorSpec.of(type_) for type_ in operands]
        if self.result is None:
            return specs[0].type()
        try:
            found = self.result(*specs, **plain_values(attributes))
            return found.type()
        except Exception as error:  # a rule of a user may raise anything
            raise ValueError(f"op '{self.name}': its result rule refuses the operands: {error}") from error


def plain_values(attributes: DictionaryAttr) -> dict[str, Any]:
    """The attributes of an op as Python values."""
    return {name: json_value(value) for name, value in attributes.data.items()}


DEFINED: dict[str, OpDefinition] = {}
"""By name, in this process."""
OWN = {"aicf.draw": "aicf.llm.draw"}
"""Ops that AICF defines as packages do, and the modules that do so, imported once a program names one."""


def define(definition: OpDefinition) -> OpDefinition:
    """Adds an op, or replaces it by a newer definition from the same module.

    Raises PolicyError: another module defines an op of this name.
    """
    known = DEFINED.get(definition.name)
    if known is not None and known.module != definition.module:
        raise PolicyError(
            f"op '{definition.name}' is defined by {known.module} and by {definition.module}: rename one of the two"
        )
    DEFINED[definition.name] = definition
    return definition


def definition_of(name: str) -> OpDefinition | None:
    """The definition of an op; None if nothing that is imported or installed defines it."""
    if name not in DEFINED:
        import_packages()
        if (module := OWN.get(name)) is not None:
            import_module(module)
    return DEFINED.get(name)


def require_definition(name: str) -> OpDefinition:
    """The definition of an op. Raises UnsupportedOp if there is none here."""
    if (found := definition_of(name)) is None:
        known = did_you_mean(name, DEFINED) or "import or install the package that defines it"
        raise UnsupportedOp(f"op '{name}' is not defined here: {known}")
    return found


@cache
def import_packages() -> None:
    """Imports the modules that installed packages name, once.

    Raises BackendUnavailable: one of them does not import.
    """
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.value):
        try:
            point.load()
        except PolicyError:
            raise  # a definition that is none says so itself
        except Exception as error:  # a module of a package may raise anything
            package = point.value if point.dist is None else point.dist.name
            raise BackendUnavailable(
                f"the kernels of package '{package}' do not import: {error}; repair or uninstall it"
            ) from error
