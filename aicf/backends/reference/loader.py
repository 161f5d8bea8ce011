"""Loads reference code, which is the module's IR text, and runs its programs on a pointer table."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from aicf.backends.native import NativeCode
from aicf.backends.reference.interpreter import Array, Buffers, element_span, run_instructions
from aicf.dialects.emit import BindOp, ProgramOp, SlotOp, symbols
from aicf.dialects.emit_types import BufferType
from aicf.dialects.types import element_of
from aicf.errors import ArtifactError


def load_native(native: NativeCode) -> ReferenceCode:
    """Parses the module. Raises ArtifactError if it does not parse."""
    try:
        module = Parser(_context(), native.code.decode("utf-8"), "<reference code>").parse_module()
        module.verify()
    except (ParseError, VerifyException, UnicodeDecodeError, ValueError) as error:
        raise ArtifactError(f"reference code does not parse ({type(error).__name__}): compile the program again") from error
    return ReferenceCode(module)
