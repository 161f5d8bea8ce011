"""Methods of the builder that follow from the ops: one an op, with the arguments of its constructor and its docstring.

Operands of an elementwise op with several are broadcast together, and may be Python numbers. A method that does more
than make one op is written by hand in another file. Editors and type checkers read `derived.pyi`, which `make docs`
writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aicf.frontends.builder.checking import argument_check
from aicf.frontends.builder.constructors import Constructor, constructors
from aicf.frontends.builder.core import GraphCore, Value


class DerivedOps(GraphCore):
    """One method an op; a negative axis counts from the last dimension."""

    def _construct(self, constructor: Constructor, given: Mapping[str, Any]) -> list[Value]:
        op_class, arguments = constructor.op_class, constructor.arguments
        values = {each.own.name: given[each.taken.name] for each in arguments if each.taken.name in given}
        if names := [each.own.name for each in arguments if each.together]:
            joint = self._broadcast_together(constructor.method, [values[name] for name in names])
            values.update(zip(names, joint, strict=True))
        for each in arguments:
            if each.own.name in values:
                values[each.own.name] = self._converted(each.stated, values[each.own.name])
        return self._insert_all(op_class.name, given.get("name"), lambda: op_class(**values))

    def _converted(self, stated: str, value: Any) -> Any:
        """What a method was given for an argument, as the constructor takes it by its annotation."""
        match stated:
            case "Operand":
                return self._own(value)
            case "Operand | None":
                return None if value is None else self._own(value)
            case "Sequence[Operand]":
                return [self._own(part) for part in self._parts(value)]
            case "Counter":
                return self._own(value if isinstance(value, Value) else self.constant(value, (), "i64"))
            case "Sequence[Size]":
                return self._sizes(value)
            case _:
                return value


def _method(constructor: Constructor) -> Callable[..., Any]:
    name, op_class, signature = constructor.method, constructor.op_class, constructor.signature
    check = argument_check(name, signature, op_class.__init__.__globals__)

    def method(self: DerivedOps, *values: Any, **named: Any) -> Value | list[Value]:
        try:
            given = signature.bind(self, *values, **named).arguments
        except TypeError as error:
            raise TypeError(f"{name}: {error}") from None
        check(self, given)
        made = self._construct(constructor, given)  # pyright: ignore[reportPrivateUsage]
        return made if op_class.HAS_MORE_RESULTS else made[0]

    method.__name__, method.__qualname__ = name, f"Graph.{name}"
    method.__doc__ = op_class.__doc__
    method.__dict__["__signature__"] = signature
    return method


for _constructor in constructors():
    setattr(DerivedOps, _constructor.method, _method(_constructor))
