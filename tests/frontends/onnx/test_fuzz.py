"""Models with damaged bytes: what comes of them is a program or an `AicfError`, in bounded memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aicf.compilation.sources import read_model
from aicf.errors import AicfError
from aicf.frontends.text import make_context, verify_module
from aicf.passes.pipelines.aicf_inference import front_passes
from aicf.passes.pipelines.text import apply_pass
from tests.support.onnx_samples import SAMPLES

BYTES = {name: make().SerializeToString() for name, make in SAMPLES.items()}
MEMORY = 2 << 30
"""What the whole process may take more than it has when the first case runs."""


@pytest.fixture(scope="module")
def bounded_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


edits = st.lists(
    st.tuples(
        st.sampled_from(["set", "flip", "insert", "drop", "repeat", "cut"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 255),
    ),
    min_size=1,
    max_size=4,
)


def damaged(data: bytes, changes: list[tuple[str, float, int]]) -> bytes:
    """The bytes after some edits, each at a place given as a part of the length."""
    for kind, part, value in changes:
        at = int(part * len(data))
        match kind:
            case "set":
                data = data[:at] + bytes([value]) + data[at + 1 :]
            case "flip":
                data = data[:at] + bytes([data[at] ^ (1 << value % 8)]) + data[at + 1 :] if data else data
            case "insert":
                data = data[:at] + bytes([value]) + data[at:]
            case "drop":
                data = data[:at] + data[at + 1 + value % 8 :]
            case "repeat":
                data = data[:at] + data[at : at + value] + data[at:]
            case _:
                data = data[:at] if value < 64 else data
    return data


def lower(data: bytes) -> None:
    """Everything that looks at the model, with a size for the names that the damage left."""
    context = make_context()
    source = read_model(data, context)
    names = sorted({size for size in ("batch", "n") if f'"{size}"' in str(source.module)})
    dims = ";".join(f"{name}=2" for name in names)
    for step in front_passes("reference:typed", "", dims, 1):
        try:
            apply_pass(step, context, source.module)
        except AicfError as error:
            # A fault of ours arrives as a plain AicfError with the exception's name.
            assert type(error) is not AicfError, error
            raise
    verify_module(source.module)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_themselves(name: str) -> None:
    lower(BYTES[name])


@pytest.mark.usefixtures("bounded_memory")
@pytest.mark.parametrize("name", SAMPLES)
@settings(
    max_examples=440,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(changes=edits)
def test_damaged_bytes(name: str, changes: list[tuple[str, float, int]]) -> None:
    data = damaged(BYTES[name], changes)
    try:
        lower(data)
    except AicfError as error:
        assert "\n" not in str(error)
