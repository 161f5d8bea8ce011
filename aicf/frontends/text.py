"""The textual frontend: program text to a verified module, with a source location on every operation.

Everything xDSL can raise on malformed input leaves here as one :class:`InvalidIR` that says
``file:line:col``. Nothing is decided or rewritten here, and no pass runs; ``aicf-opt`` and
:func:`aicf.compile` share this entry.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from itertools import islice

from xdsl.context import Context
from xdsl.dialects.builtin import (
    ArrayAttr,
    FileLineColLoc,
    FunctionType,
    FusedLoc,
    IntAttr,
    ModuleOp,
    NameLoc,
    NoneAttr,
    StringAttr,
    UnknownLoc,
)
from xdsl.ir import Attribute, AttributeInvT, Block, Dialect, Operation, Region, SSAValue
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.parser.core import ForwardDeclaredValue
from xdsl.parser.generic_parser import ParserState
from xdsl.printer import Printer
from xdsl.traits import NoTerminator
from xdsl.utils.exceptions import ParseError, VerifyException
from xdsl.utils.lexer import Input, Span, Token
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind, StringLiteral

from aicf.errors import AicfError, InvalidIR, did_you_mean
from aicf.frontends.parse_messages import CLOSING, innermost_open_bracket, reworded

_DIALECTS = {
    "builtin": ("xdsl.dialects.builtin", "Builtin"),
    "func": ("xdsl.dialects.func", "Func"),
    "arith": ("xdsl.dialects.arith", "Arith"),
    "math": ("xdsl.dialects.math", "Math"),
    "logical": ("aicf.dialects.logical", "Logical"),
    "emit": ("aicf.dialects.emit", "Emit"),
    "onnx": ("aicf.dialects.onnx", "Onnx"),
}
_MAX_USERS_SHOWN = 4
_MAX_OP_TEXT = 400


def make_context() -> Context:
    """A context with the dialects an AICF program may use, each imported when the text first mentions it."""
    context = Context()
    for name, (module_name, variable) in _DIALECTS.items():
        context.register_dialect(name, _dialect_factory(module_name, variable))
    return context


def _dialect_factory(module_name: str, variable: str) -> Callable[[], Dialect]:
    def load() -> Dialect:
        return getattr(import_module(module_name), variable)

    return load


def parse_module(
    text: str | bytes,
    filename: str = "<string>",
    *,
    context: Context | None = None,
    line_offset: int = 0,
    verify: bool = True,
    implicit_module: bool = True,
) -> ModuleOp:
    """Parse and verify a program.

    Args:
        text: The program; bytes must be UTF-8.
        filename: Name used in locations and errors.
        context: Dialects to parse with; :func:`make_context` by default.
        line_offset: Lines before ``text`` in its file, added to every location.
        verify: Whether to run the verifiers (:func:`verify_module`).
        implicit_module: Whether a program may omit its ``builtin.module``.

    Raises:
        InvalidIR: The text does not parse or does not verify.
    """
    source = _decode(text, filename, line_offset)
    context = make_context() if context is None else context
    module = _parse(source, filename, context, line_offset, implicit_module)
    if verify:
        verify_module(module)
    return module


def _decode(text: str | bytes, filename: str, line_offset: int) -> str:
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        before = text[: error.start]
        line = before.count(b"\n") + 1 + line_offset
        column = error.start - (before.rfind(b"\n") + 1) + 1
        way_out = (
            "an ONNX model is no text: `aicf compile` takes it, and aicf.compile(...).ir('logical') is its text"
            if filename.endswith(".onnx")
            else "save the file as UTF-8 text"
        )
        raise InvalidIR(
            f"the program is not UTF-8: byte 0x{text[error.start]:02x}; {way_out}",
            location=f"{filename}:{line}:{column}",
        ) from None


def _parse(source: str, filename: str, context: Context, line_offset: int, implicit_module: bool) -> ModuleOp:
    position = f"{filename}:{line_offset + 1}:1"
    parser: LocatedParser | None = None
    try:
        parser = LocatedParser(context, source, filename, line_offset)
        return parser.parse_module(implicit_module)
    except AicfError as error:
        if error.location is not None:
            raise
        raise type(error)(error.message, location=parser.here() if parser else position) from error
    except ParseError as error:
        at = _LineTable(error.span.input.content, line_offset).format(error.span.start)
        hint = parser.hint(error) if parser else ""
        raise InvalidIR(_parse_message(error) + hint, location=f"{filename}:{at}") from None
    except RecursionError:
        # The parser's own frames are unwound, so that its position is where it gave up.
        raise InvalidIR(
            "the program is nested too deeply to parse; flatten nested regions or attributes",
            location=parser.here() if parser else position,
        ) from None
    except ImportError:
        raise
    except Exception as error:
        # xDSL parses attributes and custom formats with plain int(), indexing and constructors: what they
        # raise on malformed text is a property of the text, whatever its class.
        raise InvalidIR(_foreign_message(error), location=parser.here() if parser else position) from error


def _parse_message(error: ParseError) -> str:
    found = error.span.content[:40]
    if (own := reworded(error)) is not None:
        return own + _found(found, own)
    message = error.msg if error.msg[1:2].isupper() else error.msg[:1].lower() + error.msg[1:]
    if message == "could not parse entire input!":
        message = "expected an operation" if found else "expected an operation, found the end of the program"
    message = message.rstrip("!.")
    return message + _found(found, message)


def _found(text: str | bytes, message: str) -> str:
    """What was there in place of what is expected, if the message does not say it."""
    if isinstance(text, str) and text.strip() and text not in message:
        return f", found {text.splitlines()[0]!r}"
    return ""


def _foreign_message(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, VerifyException) and text:
        return text
    return f"malformed program: {type(error).__name__}: {text}"


class _LineTable:
    """Offsets to ``line:col`` in logarithmic time; xDSL counts the newlines before every span."""

    def __init__(self, source: str | bytes, line_offset: int = 0) -> None:
        newline = "\n" if isinstance(source, str) else b"\n"
        self.line_offset = line_offset
        self.starts = [0]
        position = source.find(newline)  # pyright: ignore[reportArgumentType]
        while position >= 0:
            self.starts.append(position + 1)
            position = source.find(newline, position + 1)  # pyright: ignore[reportArgumentType]

    def line_col(self, position: int) -> tuple[int, int]:
        line = bisect_right(self.starts, position)
        return line + self.line_offset, position - self.starts[line - 1] + 1

    def format(self, position: int) -> str:
        line, column = self.line_col(position)
        return f"{line}:{column}"


class _LinearLexer(MLIRLexer):
    """xDSL's lexer, without the exponential search for the end of a string literal that is never closed, and with
    strings of any characters: the printer escapes what is not ASCII, which xDSL's lexer then takes for bytes.
    """

    _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]++|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')

    def _lex_string_literal(self, start_pos: int) -> Token[MLIRTokenKind]:
        token = super()._lex_string_literal(start_pos)
        if token.kind is MLIRTokenKind.BYTES_LIT:
            with suppress(UnicodeDecodeError):
                StringLiteral.from_span(token.span).bytes_contents.decode()
                return Token(MLIRTokenKind.STRING_LIT, token.span)
        return token


@dataclass(frozen=True)
class _OpenRegion:
    """Offsets of a `{` that is not closed yet, and of the operation that it belongs to."""

    operation: int
    brace: int


_NEVER_NESTED = ("func.func", '"func.func"', "emit.program", '"emit.program"')
"""Operations with a region that none of their kind is written in."""


class LocatedParser(Parser):
    """xDSL's parser, which also records ``file:line:col`` on every operation.

    An explicit ``loc(...)`` is kept; a bare name, ``loc("fc1")``, gets the position inside.
    """

    def __init__(self, ctx: Context, input: str, name: str = "<string>", line_offset: int = 0) -> None:
        self._lines = _LineTable(input, line_offset)
        self._source = input
        self._file = StringAttr(name)
        self._operation_start = 0
        self._written: dict[SSAValue, Span[str]] = {}
        """Where each value is defined, or used first if that comes before."""
        self._open_regions: list[_OpenRegion] = []
        self._nested: tuple[_OpenRegion, _OpenRegion] | None = None
        """A function that began inside another one, and that one."""
        super().__init__(ctx, "", name)
        self._parser_state = ParserState(_LinearLexer(Input(input, name)))

    def parse_operation(self) -> Operation:
        start = self._operation_start = self._current_token.span.start
        op = super().parse_operation()
        explicit = op.location
        if isinstance(explicit, UnknownLoc):
            op.location = self._file_location(start)
        elif isinstance(explicit, NameLoc) and isinstance(explicit.location, NoneAttr):
            op.location = NameLoc(explicit.desc, self._file_location(start))
        return op

    def resolve_operand(self, operand: UnresolvedOperand, type: AttributeInvT) -> SSAValue[AttributeInvT]:
        known = self._known(operand)
        if known is not None and known.type != type:
            name = operand.span.text + (f"#{operand.index}" if operand.index else "")
            how = "was used" if isinstance(known, ForwardDeclaredValue) else "is defined"
            self.raise_error(
                f"{name} is used with type {type}, but {how} with type {known.type}{self._location_of(known)}",
                operand.span,
            )
        value = super().resolve_operand(operand, type)
        self._written.setdefault(value, operand.span)
        return value

    def _known(self, operand: UnresolvedOperand) -> SSAValue | None:
        """The value that the operand names, or what stands for it until its definition."""
        name, index = operand.operand_name, operand.index
        if (values := self.ssa_values.get(name)) is not None:
            return values[index] if index < len(values) else None
        return self.forward_ssa_references.get(name, {}).get(index)

    def _register_ssa_definition(self, name: str, values: Sequence[SSAValue], span: Span[str]) -> None:
        if earlier := self.ssa_values.get(name):
            way_out = "" if self._nested else "; give one of the two another name"
            self.raise_error(f"%{name} is already defined{self._location_of(earlier[0])}{way_out}", span)
        for index, used in self.forward_ssa_references.get(name, {}).items():
            if index < len(values) and used.type != values[index].type:
                self.raise_error(
                    f"%{name} is defined with type {values[index].type}, but was used with type {used.type}"
                    f"{self._location_of(used)}",
                    span,
                )
        super()._register_ssa_definition(name, values, span)
        self._written.update(dict.fromkeys(values, span))

    def _location_of(self, value: SSAValue) -> str:
        span = self._written.get(value)
        return "" if span is None else f" at {self._location(span.start)}"

    def _location(self, position: int) -> str:
        return f"{self._file.data}:{self._lines.format(position)}"

    def parse_optional_region(self, arguments: Iterable[Parser.Argument] | None = None) -> Region | None:
        if self._current_token.kind != MLIRTokenKind.L_BRACE:
            return super().parse_optional_region(arguments)
        region = _OpenRegion(self._operation_start, self._current_token.span.start)
        outer = next((each for each in reversed(self._open_regions) if self._is_function(each)), None)
        if outer is not None and self._is_function(region) and self._nested is None:
            self._nested = region, outer
        self._open_regions.append(region)
        parsed = super().parse_optional_region(arguments)
        self._open_regions.pop()
        self._operation_start = region.operation
        return parsed

    def _is_function(self, region: _OpenRegion) -> bool:
        return self._source.startswith(_NEVER_NESTED, region.operation)

    def hint(self, error: ParseError) -> str:
        """What may be the cause of an error: a bracket that is not closed, with its location; empty if nothing is."""
        if self._nested is not None:
            inner, outer = (self._location(region.operation) for region in self._nested)
            return f"; the function at {inner} begins inside the one at {outer}: is a '}}' missing before it?"
        if error.span.start != self._current_token.span.start:
            return ""  # it is about what was read before, not about what is missing here
        at_end = error.span.start >= len(self._source.rstrip())
        opened = innermost_open_bracket(_LinearLexer(Input(self._source[: error.span.start], "")))
        if opened is None:
            return ""
        bracket = self._source[opened]
        if at_end:
            return f": the program ends, and the '{bracket}' at {self._location(opened)} has no '{CLOSING[bracket]}'"
        is_region = any(region.brace == opened for region in self._open_regions)
        if is_region or "\n" not in self._source[opened : error.span.start]:
            return ""
        return (
            f"; is the '{CLOSING[bracket]}' missing that closes the '{bracket}' at {self._location(opened)}?"
        )

    def _file_location(self, position: int) -> FileLineColLoc:
        line, column = self._lines.line_col(position)
        return FileLineColLoc(self._file, IntAttr(line), IntAttr(column))

    def parse_module(self, allow_implicit_module: bool = True) -> ModuleOp:
        if self._at_end():
            self.raise_error("the program is empty: expected a builtin.module or a func.func")
        try:
            module = super().parse_module(allow_implicit_module)
        except ParseError as error:
            if error.msg.startswith("values used but not defined"):
                name, uses = next(iter(self.forward_ssa_references.items()))
                first = self._written[next(iter(uses.values()))]
                self.raise_error(f"%{name} is used but not defined", first)
            raise
        if not self._at_end():
            self.raise_error("expected the end of the program")
        if isinstance(module.location, UnknownLoc):
            module.location = self._file_location(0)
        return module

    def _at_end(self) -> bool:
        return self._current_token.kind == MLIRTokenKind.EOF

    def _get_op_by_name(self, name: str) -> type[Operation]:
        if (
            op_type := self.ctx.get_optional_op(name, dialect_stack=self._parser_state.dialect_stack)
        ) is None:
            self.raise_error(f"unknown operation {name}{self._similar_ops(name)}", self._operation_start)
        return op_type

    def _similar_ops(self, name: str) -> str:
        dialect = name.split(".", 1)[0]
        if dialect in self.ctx.registered_dialect_names and "." in name:
            known = [op.name for op in self.ctx.loaded_ops if op.dialect_name() == dialect]
            close = did_you_mean(name, known)
            return f"; {close}" if close else ""
        return f"; the dialects are {', '.join(_DIALECTS)}"

    def here(self) -> str:
        """``file:line:col`` of the token that is next."""
        return self._location(self._current_token.span.start)


def verify_module(module: ModuleOp) -> None:
    """Run every verifier of a module, definitions before uses included.

    xDSL's own ``verify`` accepts a use before its definition, and its errors carry a print of the whole
    module; here the error's notes hold the failing operation, its users and its source ids.

    Raises:
        InvalidIR: At the first operation that does not verify, innermost first.
    """
    try:
        _verify_definitions(module)
        for op in module.walk(region_first=True):
            _verify_op(op)
    except RecursionError:
        raise InvalidIR("the program is nested too deeply to verify; flatten nested regions") from None


def _verify_op(op: Operation) -> None:
    try:
        _verify_blocks(op)
        _verify_returned(op)
        op.verify(verify_nested_ops=False)
    except RecursionError:
        raise
    except Exception as error:
        raise _invalid_op(op, _verify_message(error)) from None


def _verify_blocks(op: Operation) -> None:
    for region in op.regions:
        if len(region.blocks) == 1 and region.block.is_empty and not op.has_trait(NoTerminator):
            raise VerifyException("its region is empty: expected at least a terminator")


def _verify_returned(op: Operation) -> None:
    """Refuses a result of another type than its function declares, with the location of both."""
    function = op.parent_op()
    if op.name != "func.return" or function is None:
        return
    declared = function.properties.get("function_type")
    if not isinstance(declared, FunctionType) or len(declared.outputs) != len(op.operands):
        return
    for value, type_ in zip(op.operands, declared.outputs, strict=True):
        if value.type != type_:
            raise VerifyException(
                f"{_value_name(value)} is of type {value.type}, but the function{_at(function)} returns {type_}"
            )


def _verify_message(error: Exception) -> str:
    # xDSL prints the module while it raises; where a broken module fails to print, the cause is the context.
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, VerifyException):
        cause = cause.__context__
    if cause is None:
        return f"{type(error).__name__}: {error}"
    message = " ".join(str(cause).split())
    # xDSL's own text goes on with a print of the operation.
    return (
        _FROM_OUTSIDE
        if message.startswith("Operation using value defined out of its IsolatedFromAbove")
        else message
    )


_FROM_OUTSIDE = (
    "an operation in it uses a value from outside of it, which nothing may; give it as an argument or a bind"
)


def _verify_definitions(module: ModuleOp) -> None:
    """Every operand is defined earlier in its block or in an enclosing one.

    Between blocks of one region only visibility is checked: our dialects have no branches.
    """
    position = {op: index for index, op in enumerate(module.walk())}
    for op in position:
        for operand in op.operands:
            user = _ancestor_in(op, operand)
            if user is None:
                raise _invalid_op(op, f"{_value_name(operand)} is used where its definition is not visible")
            definition = operand.owner
            if not isinstance(definition, Operation) or user.parent is not definition.parent:
                continue
            if position[user] <= position[definition]:
                name, location = _value_name(operand), _at(definition)
                raise _invalid_op(
                    op, f"{name} is used before its definition{location}; move the definition up"
                )


def _ancestor_in(op: Operation, operand: SSAValue) -> Operation | None:
    """The operation around ``op`` (or itself) that sits in the region that defines ``operand``."""
    definition = operand.owner
    region = definition.parent if isinstance(definition, Block) else definition.parent_region()
    current: Operation | None = op
    while current is not None and current.parent_region() is not region:
        current = current.parent_op()
    return current


def _invalid_op(op: Operation, message: str) -> InvalidIR:
    if not message.startswith(op.name):
        message = f"{op.name}: {message}"
    error = InvalidIR(message, location=location_of(op))
    error.add_note(f"operation: {_op_text(op)}")
    uses = (use.operation for result in op.results for use in result.uses)
    users = list(islice(uses, _MAX_USERS_SHOWN + 1))
    for user in users[:_MAX_USERS_SHOWN]:
        error.add_note(f"used by: {user.name}{_at(user)}")
    if len(users) > _MAX_USERS_SHOWN:
        error.add_note("used by: more operations")
    if (source := op.attributes.get("aicf.src")) is not None:
        error.add_note(f"source: {source}")
    return error


def _op_text(op: Operation) -> str:
    stream = StringIO()
    try:
        Printer(stream, print_generic_format=True).print_op(op)
    except Exception:
        return f"{op.name} (its attributes or operands cannot be printed)"
    text = stream.getvalue()
    first, *rest = text.split("\n", 1)
    return first[:_MAX_OP_TEXT] + (" ..." if rest or len(first) > _MAX_OP_TEXT else "")


def _value_name(value: SSAValue) -> str:
    return f"%{value.name_hint}" if value.name_hint else "a value"


def _at(op: Operation) -> str:
    location = location_of(op)
    return f" at {location}" if location else ""


def location_of(op: Operation) -> str | None:
    """``file:line:col`` of an operation, or of the innermost operation around it that has one."""
    current: Operation | None = op
    while current is not None:
        if (location := _format_location(current.location)) is not None:
            return location
        current = current.parent_op()
    return None


def _format_location(location: Attribute) -> str | None:
    match location:
        case FileLineColLoc():
            return f"{location.filename.data}:{location.line.data}:{location.column.data}"
        case NameLoc():
            return _format_location(location.location)
        case FusedLoc(locations=ArrayAttr() as parts):
            return next((text for part in parts if (text := _format_location(part))), None)
        case _:
            return None
