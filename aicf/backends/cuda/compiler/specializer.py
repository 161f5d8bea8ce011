"""Specialises kernel templates: a readable Python function and its constants become straight Python text for Numba.

Numba has no register arrays, no unrolled loops and no conditional compilation: a tuple indexed by a loop variable
turns into branches. So templates are specialized here, on the syntax tree, and what Numba sees has every index
literal. A template is an ordinary function of a module; it may use

    for i in unrolled(4): ...        the body once per value, `i` a literal (`unrolled(start, stop, step)` as `range`)
    acc = registers(8, f32(0.0))     eight locals; `acc[i]` (literal `i`) is one of them, `acc[0:4] = f()` unpacks into
                                     four, `f(*acc[0:4])` passes four
    if BIAS: ...  a if BIAS else b   decided here when the test is constant
    y = splice(EPILOGUE, acc[i], row, col)      the statements of a `Snippet` with its parameters bound; its result

and every name given as a constant (int, float, bool, str, tuple, dict, Snippet). Nothing else is touched. The text that
comes out is the whole identity of the kernel: the cubin cache and the symbol are keyed by it.
"""

from __future__ import annotations

import ast
import copy
import inspect
import operator
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from types import FunctionType
from typing import Any, NoReturn, TypeVar, cast

Constant = int | float | bool | str | tuple[Any, ...] | dict[Any, Any] | None


@dataclass(frozen=True)
class Snippet:
    """Statements that a template splices in.

    Args:
        params: Names that `splice` binds to its arguments.
        body: Python statements, one text line each, specialized like the template itself.
        result: The expression that `splice` stands for, empty for none.
    """

    params: tuple[str, ...]
    body: tuple[str, ...]
    result: str = ""


def constants_of(decisions: object) -> dict[str, Constant | Snippet]:
    """The fields of a data class, by their names in capitals."""
    return {name.upper(): value for name, value in vars(decisions).items()}


@cache
def part(function: Callable[..., object]) -> Snippet:
    """A snippet written as a function of a template module: its parameters, its statements and what it returns last.

    The text of a function never changes: it is made once.
    """
    node = _syntax(function)
    *body, last = node.body
    result = ""
    if isinstance(last, ast.Return) and last.value is not None:
        result = ast.unparse(last.value)
    else:
        body.append(last)
    return Snippet(tuple(argument.arg for argument in node.args.args), tuple(map(ast.unparse, body)), result)


def unrolled(*bounds: int) -> range:
    """Marks a loop that is unrolled when the template is specialized; never runs."""
    raise RuntimeError(f"unrolled{bounds} is a mark for specialization; it does not run")


def registers(count: int, initial: object) -> list[Any]:
    """Marks `count` locals that start as `initial`; never runs."""
    raise RuntimeError(f"registers({count}, {initial}) is a mark for specialization; it does not run")


def splice(snippet: Snippet, *arguments: object) -> Any:
    """Marks the place of a snippet; never runs."""
    raise RuntimeError(f"splice({snippet}, {arguments}) is a mark for specialization; it does not run")


class SpecializationError(Exception):
    """A template asks for what specialization cannot do. A defect of the template, not of the user's program."""


def stage(template: Callable[..., object], constants: Mapping[str, Constant | Snippet]) -> str:
    """The text of `template` with `constants` in place, loops unrolled and constant branches taken.

    The layers of a model ask for the same text again and again: it is made once.

    Raises SpecializationError if a register index is not constant, or a mark is used wrongly.
    """
    return _specialized(template, _Constants(repr(sorted(constants.items())), constants))


@dataclass(frozen=True)
class _Constants:
    """Constants as a key: by their text, since 1, 1.0 and True are equal and make different kernels."""

    text: str
    values: Mapping[str, Constant | Snippet] = field(compare=False)


@lru_cache(maxsize=1024)
def _specialized(template: Callable[..., object], constants: _Constants) -> str:
    function = _clone(_syntax(template))
    specializer = _Specializer(dict(constants.values))
    function.body = specializer.block(function.body)
    function.decorator_list, function.returns = [], None
    for argument in function.args.args:
        argument.annotation = None
    return ast.unparse(function) + "\n"


@cache
def _syntax(template: Callable[..., object]) -> ast.FunctionDef:
    source = textwrap.dedent(inspect.getsource(cast(FunctionType, template)))
    node = ast.parse(source).body[0]
    if not isinstance(node, ast.FunctionDef):
        raise SpecializationError(f"{template} is no plain function")
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        node.body = node.body[1:]
    return node


_MISSING = object()
_LITERALS = (int, float, bool, str, tuple, type(None))


class _Specializer(ast.NodeTransformer):
    """Rewrites statements in order; `names` maps what is constant here to its value."""

    def __init__(self, names: dict[str, Any]):
        self.names = names
        self.arrays: dict[str, int] = {}
        self.spliced = 0

    # Statements

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The specialized statements; `pass` if nothing is left."""
        specialized = [new for statement in statements for new in self._statement(statement)]
        return specialized or [ast.Pass()]

    def _statement(self, node: ast.stmt, *, is_own: bool = False) -> list[ast.stmt]:
        """What stands for a statement; one that `is_own` is nobody else's, and may be changed."""
        match node:
            case ast.For(iter=ast.Call(func=ast.Name("unrolled"))):
                return self._unroll(node)
            case ast.If():
                return self._branch(node)
            case ast.Assign(targets=[ast.Name(name)], value=ast.Call(func=ast.Name("registers")) as call):
                return self._declare(name, call)
            case ast.Assign(targets=[target], value=ast.Call(func=ast.Name("splice")) as call):
                statements, result = self._splice(call)
                return [*statements, ast.Assign([self.visit(_clone(target))], result, lineno=0)]
            case ast.Expr(value=ast.Call(func=ast.Name("splice")) as call):
                return self._splice(call)[0]
            case ast.For() | ast.While():
                node = copy.copy(node)
                if isinstance(node, ast.For):
                    node.iter = self.visit(node.iter)
                    node.target = self.visit(node.target)
                else:
                    node.test = self.visit(node.test)
                node.body = self.block(node.body)
                return [node]
            case _:
                return [self.visit(node if is_own else _clone(node))]

    def _unroll(self, node: ast.For) -> list[ast.stmt]:
        if not isinstance(node.target, ast.Name) or node.orelse:
            self._fail(node, "an unrolled loop has one name and no else")
        call = cast(ast.Call, node.iter)
        bounds = [self._value(argument) for argument in call.args]
        if _MISSING in bounds:
            self._fail(node, "the bounds of an unrolled loop are not constant")
        name = node.target.id
        outer = self.names.get(name, _MISSING)
        specialized: list[ast.stmt] = []
        for value in range(*bounds):
            self.names[name] = value
            for statement in node.body:
                specialized += self._statement(statement)
        if outer is _MISSING:
            self.names.pop(name, None)
        else:
            self.names[name] = outer
        return specialized

    def _branch(self, node: ast.If) -> list[ast.stmt]:
        test = self.visit(_clone(node.test))
        value = self._value(test)
        if value is not _MISSING:
            return [
                new
                for statement in (node.body if value else node.orelse)
                for new in self._statement(statement)
            ]
        orelse = [new for statement in node.orelse for new in self._statement(statement)]
        return [ast.If(test, self.block(node.body), orelse)]

    def _declare(self, name: str, call: ast.Call) -> list[ast.stmt]:
        count = self._value(call.args[0])
        if not isinstance(count, int):
            self._fail(call, "the number of registers is not constant")
        self.arrays[name] = count
        initial = call.args[1]
        return [
            ast.Assign([ast.Name(f"{name}_{i}", ast.Store())], self.visit(_clone(initial)), lineno=0)
            for i in range(count)
        ]

    def _splice(self, call: ast.Call) -> tuple[list[ast.stmt], ast.expr]:
        snippet = self._value(call.args[0])
        if not isinstance(snippet, Snippet) or len(call.args) != len(snippet.params) + 1:
            self._fail(call, "splice takes a Snippet and one argument for each of its parameters")
        prefix = f"s{self.spliced}_"
        self.spliced += 1
        parsed = _parsed(snippet)
        renamed = {name: prefix + name for name in (*snippet.params, *parsed.assigned)}
        bound: list[ast.stmt] = []
        for name, argument in zip(snippet.params, call.args[1:], strict=True):
            specialized_argument = self.visit(_clone(argument))
            value = self._value(specialized_argument)
            if value is not _MISSING:
                self.names[renamed[name]] = value
            else:
                bound.append(
                    ast.Assign([ast.Name(renamed[name], ast.Store())], specialized_argument, lineno=0)
                )
        specialized = [
            new
            for statement in parsed.body
            for new in self._statement(_clone(statement, renamed), is_own=True)
        ]
        return [*bound, *specialized], self.visit(_clone(parsed.result, renamed))

    # Expressions

    def visit(self, node: ast.AST) -> Any:
        """As that of the standard library, which looks up a name for every node."""
        kind = type(node)
        if kind is ast.Constant or not kind._fields:
            return node
        own = _VISITED.get(kind)
        return self.generic_visit(node) if own is None else getattr(self, own)(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """As that of the standard library, for trees in which nothing becomes None."""
        held = node.__dict__
        for name in node._fields:
            value = held.get(name)
            if isinstance(value, ast.AST):
                held[name] = self.visit(value)
            elif isinstance(value, list):
                items = cast(list[object], value)
                held[name] = [self.visit(item) if isinstance(item, ast.AST) else item for item in items]
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A constant's value in place of its name."""
        if isinstance(node.ctx, ast.Load) and node.id in self.names:
            value = self.names[node.id]
            if isinstance(value, _LITERALS):
                return _literal(cast(object, value))
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """A register, several of them, or an element of a constant."""
        if isinstance(node.value, ast.Name) and node.value.id in self.arrays:
            return self._register(node, node.value.id)
        node.slice = self.visit(node.slice)
        folded = self._folded(node)  # before a tuple is written out for one of its elements
        return self._folded(self.generic_visit(node)) if folded is node else folded

    def _register(self, node: ast.Subscript, name: str) -> ast.expr:
        count = self.arrays[name]
        if isinstance(node.slice, ast.Slice):
            parts = [node.slice.lower, node.slice.upper, node.slice.step]
            values = [None if part is None else self._value(self.visit(_clone(part))) for part in parts]
            if _MISSING in values:
                self._fail(node, "a range of registers is not constant")
            chosen = range(count)[slice(*values)]
            return ast.Tuple([ast.Name(f"{name}_{i}", node.ctx) for i in chosen], node.ctx)
        index = self._value(self.visit(_clone(node.slice)))
        if not isinstance(index, int) or not 0 <= index < count:
            self._fail(node, f"register index of '{name}' is not a constant below {count}")
        return ast.Name(f"{name}_{index}", node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Starred registers become arguments of their own; marks are statements."""
        if isinstance(node.func, ast.Name) and node.func.id in ("unrolled", "registers", "splice"):
            self._fail(node, f"{node.func.id} stands alone or right of one '='")
        node = cast(ast.Call, self.generic_visit(node))
        arguments: list[ast.expr] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Tuple):
                arguments += argument.value.elts
            else:
                arguments.append(argument)
        node.args = arguments
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Arithmetic on constants is done here."""
        return self._folded(self.generic_visit(node))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """As `visit_BinOp`."""
        return self._folded(self.generic_visit(node))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """As `visit_BinOp`."""
        return self._folded(self.generic_visit(node))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """As `visit_BinOp`; leading constants decide, or are dropped: `True or x` is True, `False or x` is x."""
        node = cast(ast.BoolOp, self.generic_visit(node))
        decisive = isinstance(node.op, ast.Or)
        while len(node.values) > 1 and (value := self._value(node.values[0])) is not _MISSING:
            node.values = node.values[:1] if bool(value) is decisive else node.values[1:]
        return self._folded(node.values[0] if len(node.values) == 1 else node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """The branch taken, if the test is constant; the other one is not even looked at."""
        value = self._value(self.visit(_clone(node.test)))
        if value is not _MISSING:
            return self.visit(node.body if value else node.orelse)
        return cast(ast.expr, self.generic_visit(node))

    def _folded(self, node: ast.AST) -> ast.expr:
        value = self._value(cast(ast.expr, node))
        if isinstance(value, _LITERALS):
            return _literal(cast(object, value))
        return cast(ast.expr, node)

    def _value(self, node: ast.expr) -> Any:
        """The value of an expression of constants, `_MISSING` for any other."""
        match node:  # most are one of these
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.names.get(node.id, _BUILT_INS.get(node.id, _MISSING))
            case ast.BinOp() if type(node.op) in _OPERATORS:
                return self._computed(_OPERATORS[type(node.op)], node.left, node.right)
            case ast.UnaryOp() if type(node.op) in _OPERATORS:
                return self._computed(_OPERATORS[type(node.op)], node.operand)
            case ast.Compare(ops=[compare]) if type(compare) in _OPERATORS:
                return self._computed(_OPERATORS[type(compare)], node.left, *node.comparators)
            case ast.Subscript(slice=ast.Constant() | ast.Name() | ast.BinOp()):
                return self._computed(operator.getitem, node.value, node.slice)
            case ast.Tuple():
                return self._computed(lambda *values: values, *node.elts)
            case _:
                pass
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id not in self.names and inner.id not in _BUILT_INS:
                return _MISSING
            if isinstance(inner, ast.Call) and not (
                isinstance(inner.func, ast.Name) and inner.func.id in _BUILT_INS
            ):
                return _MISSING
        expression = ast.fix_missing_locations(ast.Expression(_clone(node)))
        return eval(
            compile(expression, "<template>", "eval"), {"__builtins__": {}}, {**_BUILT_INS, **self.names}
        )

    def _computed(self, function: Callable[..., Any], *operands: ast.expr) -> Any:
        """A function of the values of some expressions, `_MISSING` if one has none."""
        values: list[Any] = []
        for operand in operands:
            if (value := self._value(operand)) is _MISSING:
                return _MISSING
            values.append(value)
        return function(*values)

    def _fail(self, node: ast.AST, why: str) -> NoReturn:
        raise SpecializationError(f"{why}: {ast.unparse(ast.fix_missing_locations(node))[:120]}")


_VISITED: dict[type[ast.AST], str] = {
    getattr(ast, name.removeprefix("visit_")): name
    for name in vars(_Specializer)
    if name.startswith("visit_")
}
"""Nodes that are not only gone through, and the method of each."""

_BUILT_INS: dict[str, Any] = {"min": min, "max": max, "len": len, "abs": abs, "range": range}


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,  # pyright: ignore[reportUnknownMemberType]
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
"""What is computed here at once; the rest is compiled and run, which takes longer."""


_Node = TypeVar("_Node", bound=ast.AST)


_NO_NAMES: Mapping[str, str] = {}


def _clone(node: _Node, names: Mapping[str, str] = _NO_NAMES) -> _Node:
    """A copy of a syntax tree with other names for some, in a fraction of the time of `copy.deepcopy`. It has no
    positions but the lines without which statements cannot be written as text. Nodes in which there is nothing to
    change, as operators and constants, stay shared."""
    if isinstance(node, ast.Name):
        return cast(_Node, ast.Name(names.get(node.id, node.id), node.ctx))
    kind = type(node)
    if not kind._fields or kind is ast.Constant:
        return node
    clone = kind()
    fields, given = clone.__dict__, node.__dict__
    for name in kind._fields:
        value = given.get(name)
        if isinstance(value, ast.AST):
            value = _clone(value, names)
        elif isinstance(value, list):
            items = cast(list[object], value)
            value = [_clone(item, names) if isinstance(item, ast.AST) else item for item in items]
        fields[name] = value
    if isinstance(clone, ast.stmt):
        clone.lineno = 0
    return clone


@dataclass(frozen=True)
class _Parsed:
    """A snippet as syntax, and the names that it assigns to."""

    body: Sequence[ast.stmt]
    result: ast.expr
    assigned: Sequence[str]


@lru_cache(maxsize=4096)
def _parsed(snippet: Snippet) -> _Parsed:
    body = ast.parse("\n".join(snippet.body)).body
    return _Parsed(body, ast.parse(snippet.result or "None", mode="eval").body, _assigned(body))


def _assigned(body: Sequence[ast.stmt]) -> list[str]:
    names = [
        node.id
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    return list(dict.fromkeys(names))


def _literal(value: object) -> ast.expr:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise SpecializationError(f"{value} has no literal; use the constants of ptx")
    if isinstance(value, tuple):
        return ast.Tuple([_literal(item) for item in cast(tuple[object, ...], value)], ast.Load())
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(cast(Any, value))
