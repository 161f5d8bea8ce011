"""Work that tests of one process do again and again, done once: each is a fixture of all tests.

What is kept follows from its key alone. That another process comes to the same is what tests with processes of their
own hold.
"""

from __future__ import annotations

import hashlib
import sys
import typing
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import pytest

_KEPT_OBJECTS = 1000
"""Of LLVM, of some 30 kB each: what repeats, repeats within a file of tests."""


@pytest.fixture(autouse=True, scope="session")
def llvm_compiles_a_text_once() -> Iterator[None]:
    """A seventh of LLVM's time goes to texts that an earlier test compiled for the same level."""
    from aicf.backends.cpu.compiler import module

    compile_text, objects = module._compile, dict[bytes, bytes]()

    def compile_once(text: str, linked: Sequence[str], level: object) -> bytes:
        key = hashlib.sha256(repr((text, linked, level)).encode()).digest()
        found = objects.get(key)
        if found is None:
            if len(objects) == _KEPT_OBJECTS:
                objects.clear()
            found = objects[key] = compile_text(text, linked, level)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_compile", compile_once)
        yield


@pytest.fixture(autouse=True, scope="session")
def pytorch_looks_up_composite_ops_once() -> Iterator[None]:
    """Each export looks up PyTorch's thousand composite ops once per namespace of ops. What was looked up stays there;
    ops that come later are looked up as well.

    It also registers kernels of hundreds of ops, and evaluates the annotations of a function for each. `Callable[...]`
    of `typing` is cached, that of `collections.abc` is not. Both took a fifth of the time of sessions of exports."""
    if "torch" not in sys.modules:  # no test that was collected needs it
        yield
        return
    ops, utils = import_module("torch._ops"), import_module("torch._export.utils")
    registered, look_up = (
        ops.torch._C._dispatch_get_registrations_for_dispatch_key,
        utils._materialize_cpp_cia_ops,
    )
    known: set[Any] = set()

    def look_up_new() -> None:
        found = set(registered("CompositeImplicitAutograd"))
        if not found <= known:
            look_up()
            known.update(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "_materialize_cpp_cia_ops", look_up_new)
        patch.setattr(ops, "Callable", typing.Callable)
        yield
