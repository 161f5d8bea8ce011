"""What a parse error says where xDSL's own text helps little: brackets that are not closed, unknown types.

It words errors that the parser has found, from the source and the position. It finds none itself.
"""

from __future__ import annotations

import re

from xdsl.utils.exceptions import ParseError
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from aicf.errors import did_you_mean

_CLOSERS = {
    MLIRTokenKind.L_BRACE: MLIRTokenKind.R_BRACE,
    MLIRTokenKind.L_PAREN: MLIRTokenKind.R_PAREN,
    MLIRTokenKind.L_SQUARE: MLIRTokenKind.R_SQUARE,
    MLIRTokenKind.LESS: MLIRTokenKind.GREATER,
}
CLOSING = {"{": "}", "(": ")", "[": "]", "<": ">"}
"""Opening brackets and what closes them."""

_TYPES = (
    *("f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2", "i1", "i8", "i16", "i32", "i64", "ui8"),
    *("index", "tensor", "memref", "vector", "tuple", "none", "complex"),
)
"""The types of programs; of the builtin ones no operation takes any other."""

_FOREIGN_TYPES = {
    "bool": "i1",
    "byte": "ui8",
    "half": "f16",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8E4M3FN",
    "f8e4m3fn": "f8E4M3FN",
    "float8_e5m2": "f8E5M2",
    "f8e5m2": "f8E5M2",
    "float": "f32",
    "float32": "f32",
    "double": "f64",
    "float64": "f64",
    "int8": "i8",
    "int16": "i16",
    "int": "i32",
    "int32": "i32",
    "int64": "i64",
    "uint8": "ui8",
    "u8": "ui8",
}
"""Names of types in other languages, and what they are called here."""

_EXPECTS_A_TYPE = ("type expected", "Expected shape type.")
_WORD = re.compile(r"[A-Za-z_]\w*")

_REWORDED = {
    "End of file reached before closing string literal.": "string literal is not closed on its line, "
    'or has an escape other than \\n, \\t, \\\\, \\" and two hex digits',
    " in block definition": "expected an operation or '}'",
}
_REWORDED_PREFIXES = {
    "Expected 'x' in shape delimiter": "expected 'x' and then a size or the element type, as in tensor<2x3xf32>",
}


def reworded(error: ParseError) -> str | None:
    """The message in our words, or None where xDSL's says enough."""
    found = error.span.content
    if error.msg in _EXPECTS_A_TYPE and isinstance(found, str) and _WORD.fullmatch(found):
        return f"unknown type '{found[:40]}'{_similar_types(found)}"
    if error.msg in _REWORDED:
        return _REWORDED[error.msg]
    return next(
        (text for prefix, text in _REWORDED_PREFIXES.items() if error.msg.startswith(prefix)),
        None,
    )


def _similar_types(name: str) -> str:
    if name.lower() in _FOREIGN_TYPES:
        return f"; did you mean '{_FOREIGN_TYPES[name.lower()]}'?"
    close = did_you_mean(name, _TYPES)
    return f"; {close}" if close else ""


def innermost_open_bracket(lexer: MLIRLexer) -> int | None:
    """Offset of the innermost bracket that is open where the text of `lexer` ends; None if all are closed, or if the
    text cannot be read as tokens."""
    opened: list[tuple[MLIRTokenKind, int]] = []
    try:
        while (token := lexer.lex()).kind != MLIRTokenKind.EOF:
            if token.kind in _CLOSERS:
                opened.append((_CLOSERS[token.kind], token.span.start))
            else:
                _close(opened, token.kind)
    except ParseError:
        return None
    return opened[-1][1] if opened else None


def _close(opened: list[tuple[MLIRTokenKind, int]], kind: MLIRTokenKind) -> None:
    """Closes the innermost bracket of this kind. A `<` may also be a comparison, so that others close across it."""
    for depth in reversed(range(len(opened))):
        closer = opened[depth][0]
        if closer == kind:
            del opened[depth:]
            return
        if closer != MLIRTokenKind.GREATER:
            return
