"""Printing IR to text: xDSL's printer, faster, and character for character the same.

Programs are printed for artifacts, for keys and for the ledger's readers, and printing was a tenth of a small compile.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO

from xdsl.ir import Attribute, Operation, TypeAttribute
from xdsl.printer import Printer

from aicf.dialects.kept import kept

_PLAIN = re.compile(rb"[ !#-\[\]-~]*")
"""Bytes that a string literal shows as they are: printable ASCII but quotes and backslashes."""


def text_of(op: Operation) -> str:
    """The text of an op with all that is in it, as `str(op)`."""
    stream = StringIO()
    FastPrinter(stream).print_op(op)
    return stream.getvalue()


class FastPrinter(Printer):
    """Writes strings at once, and each type as text that is made once."""

    def __init__(self, stream: StringIO) -> None:
        super().__init__(stream)
        self._write: Callable[[str], object] = stream.write

    def print_string(self, text: str, *, indent: int | None = None) -> None:
        """See `Printer`."""
        if "\n" in text:
            super().print_string(text, indent=indent)
            return
        self._current_column += len(text)
        self._write(text)

    def print_bytes_literal(self, bytestring: bytes) -> None:
        """See `Printer`, which writes each byte by itself."""
        if _PLAIN.fullmatch(bytestring):
            self.print_string(f'"{bytestring.decode()}"')
        else:
            super().print_bytes_literal(bytestring)

    def print_attribute(self, attribute: Attribute) -> None:
        """See `Printer`."""
        if isinstance(attribute, TypeAttribute):
            self.print_string(_text_of_type(attribute))
        else:
            super().print_attribute(attribute)


@kept
def _text_of_type(type_: TypeAttribute) -> str:
    return str(type_)
