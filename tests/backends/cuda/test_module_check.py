"""Damaged device modules: each contradiction is told before a GPU is asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aicf.backends.cuda.runtime.device_program import (
    Address,
    Dependency,
    DeviceProgram,
    LibraryNode,
    Scalar,
    Table,
)
from aicf.backends.cuda.runtime.loader import load_native
from aicf.backends.cuda.runtime.storage import read, stored
from aicf.errors import ArtifactError
from tests.backends.cuda.device_programs import cuda_code, device_executable
from tests.backends.cuda.fake_driver import FakeDriver
from tests.backends.cuda.test_device_graph import node
from tests.runtime.support import ADD_RELU

FIRST = node("first", "aa", addresses=(Address(1, 0), Address(2, 0)))
CALL = LibraryNode("call", "cublasLt.matmul", "1.2.3", {}, (Address(2, 0),), (Dependency(0),))
LAST = node("last", "as", Dependency(1), addresses=(Address(3, 0),), scalars=(Scalar("i32", 1),))
WHOLE = DeviceProgram("entry", 4, (FIRST, LAST), (CALL,), "klk")


def last(**changes: object) -> DeviceProgram:
    """The program with another last kernel."""
    return replace(WHOLE, kernels=(FIRST, replace(LAST, **changes)))


DAMAGES: dict[str, tuple[DeviceProgram, str]] = {
    "a node too many": (replace(WHOLE, order="klkk"), "the order of entry 'entry' does not fit its nodes"),
    "a node too few": (replace(WHOLE, order="kl"), "the order of entry 'entry' does not fit its nodes"),
    "kinds swapped": (replace(WHOLE, order="kll"), "the order of entry 'entry' does not fit its nodes"),
    "an unknown kind": (replace(WHOLE, order="klkx"), "the order of entry 'entry' does not fit its nodes"),
    "an address outside": (
        last(addresses=(Address(4, 0),)),
        "instruction 'last' uses an address outside the table",
    ),
    "an address outside, in a table": (
        last(order="ast", tables=(Table((1,), (Address(4, 0),)),)),
        "instruction 'last' uses an address outside the table",
    ),
    "a table too many": (
        last(tables=(Table((1,), ()),)),
        "instruction 'last' has arguments that its order does not list",
    ),
    "a later node": (
        last(after=(Dependency(2),)),
        "instruction 'last' waits for a node that is not before it",
    ),
    "a negative node": (
        last(after=(Dependency(-1),)),
        "instruction 'last' waits for a node that is not before it",
    ),
    "early behind a call": (
        last(after=(Dependency(1, True),)),
        "instruction 'last' has a programmatic edge to or from a library call",
    ),
    "an early call": (
        replace(WHOLE, libraries=(replace(CALL, after=(Dependency(0, True),)),)),
        "instruction 'call' has a programmatic edge to or from a library call",
    ),
    "an argument too many": (
        last(order="aas"),
        "instruction 'last' has arguments that its order does not list",
    ),
    "an unknown argument": (
        last(order="asx"),
        "instruction 'last' has arguments that its order does not list",
    ),
    "an unknown type": (
        last(scalars=(Scalar("f16", 1),)),
        "instruction 'last' has an argument of an unknown type",
    ),
    "no threads": (last(block=(0, 1, 1)), "instruction 'last' has a launch of no size"),
    "half a cluster": (
        last(cluster=(4, 1, 1)),
        "instruction 'last' has a grid that is no whole number of clusters",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_module_is_refused(damage: str, gpu: FakeDriver) -> None:
    program, problem = DAMAGES[damage]
    with pytest.raises(ArtifactError) as error:
        load_native(cuda_code([program]))
    assert error.value.message == f"{problem}; the file is corrupt: compile the program again"
    assert not gpu.calls


def test_code_that_is_missing_is_told(gpu: FakeDriver) -> None:
    """The kernel whose symbol has no cubin is named by its instruction."""
    native = cuda_code([WHOLE])
    module, cubins = read(native.code)
    kept = tuple(
        replace(entry, symbol="other") if entry.symbol == "last" else entry for entry in module.cubins
    )
    code = stored(replace(module, cubins=kept), b"".join(cubins[entry.symbol] for entry in module.cubins))
    with pytest.raises(ArtifactError, match="instruction 'last' has no code 'last'"):
        load_native(replace(native, code=code))


def test_code_of_another_program_is_refused(gpu: FakeDriver) -> None:
    """The instructions that the code names are those of the plan, or nothing is allocated."""
    exe = device_executable(gpu, ADD_RELU, {"b": np.ones(6, np.float32)})
    module, cubins = read(exe.native.code)
    (program,) = module.programs
    other = replace(program, kernels=(replace(program.kernels[0], name="other"), *program.kernels[1:]))
    code = stored(replace(module, programs=(other,)), b"".join(cubins.values()))
    broken = type(exe)(exe.plan, replace(exe.native, code=code), exe.weights)
    with pytest.raises(
        ArtifactError, match="the code runs 'other' where the plan has 'sum'; the file is corrupt"
    ):
        broken(np.ones((4, 6), np.float32))
    assert not gpu.named("allocate")
