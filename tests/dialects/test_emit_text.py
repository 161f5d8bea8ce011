"""The text of emit IR: what is printed reads back as the same program, and broken text gives one kind of error."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import (
    ArrayAttr,
    BytesAttr,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    f32,
)
from xdsl.ir import Operation
from xdsl.printer import Printer

from aicf.dialects.emit import (
    BindOp,
    BufferType,
    DecisionOp,
    EdgeAttr,
    KernelAttr,
    LedgerOp,
    ProgramOp,
    ResolvedOp,
    SlotOp,
)
from aicf.dialects.types import dense_array, element_named
from aicf.errors import InvalidIR
from aicf.frontends.text import parse_module

LIT = Path(__file__).parents[2] / "lit_tests" / "dialects" / "emit"
PROGRAMS = sorted((LIT / "programs").glob("*.mlir"))
WEIRD = 'é → "quoted" \\ \n\t\x00\x7f'


def text_of(module: ModuleOp, *, generic: bool = False) -> str:
    stream = StringIO()
    Printer(stream, print_generic_format=generic).print_op(module)
    return stream.getvalue() + "\n"


def reread(op: Operation) -> Operation:
    """`op`, verified, printed, parsed and printed again to the same text."""
    module = ModuleOp([op])
    module.verify()
    text = text_of(module)
    again = parse_module(text)
    assert text_of(again) == text
    first = again.body.block.first_op
    assert first is not None
    return first


@pytest.mark.parametrize("path", [LIT / "roundtrip.mlir", *PROGRAMS], ids=lambda path: path.stem)
def test_print_parse_print_is_byte_identical(path: Path) -> None:
    text = text_of(parse_module(path.read_bytes()))
    assert text_of(parse_module(text)) == text


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_programs_stand_in_the_printed_form(path: Path) -> None:
    module = parse_module(path.read_bytes())
    assert path.read_text("utf-8").endswith(text_of(module))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_generic_form_is_byte_identical_and_the_same_program(path: Path) -> None:
    module = parse_module(path.read_bytes())
    generic = text_of(module, generic=True)
    again = parse_module(generic)
    assert text_of(again, generic=True) == generic
    assert text_of(again) == text_of(module)


# Constants


def _bits(name: str, values: list[float]) -> np.ndarray:
    return np.array(values, dtype=element_named(name).dtype)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize(
    "values",
    [[np.nan] * 3, [np.inf] * 3, [-np.inf, np.nan, -0.0], [0.1, 1 / 3, 1e22], [-np.nan, 1e-45, 6e-8]],
)
def test_constants_keep_their_bits(dtype: str, values: list[float]) -> None:
    with np.errstate(over="ignore"):
        array = _bits(dtype, values)
    element = element_named(dtype).type
    value = DenseIntOrFPElementsAttr(TensorType(element, [3]), BytesAttr(array.tobytes()))
    program = ProgramOp("p")
    program.body.block.add_op(BindOp("const", "c", BufferType([3], element, "const"), value=value))
    again = reread(program)
    assert isinstance(again, ProgramOp)
    found = again.binds[0].value
    assert found is not None
    assert np.broadcast_to(dense_array(found), (3,)).tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_bits_of_a_constant_survive(dtype: str, data: st.DataObject) -> None:
    """Signalling NaNs and payloads included: a value is its bits."""
    row = element_named(dtype)
    shape = data.draw(st.lists(st.integers(1, 3), max_size=3))
    count = int(np.prod(shape))
    nans = [number.to_bytes(row.bytes, "little") for number in _nan_patterns(dtype)]
    pattern = st.binary(min_size=row.bytes, max_size=row.bytes) | st.sampled_from(nans)
    raw = b"".join(data.draw(st.lists(pattern, min_size=count, max_size=count)))
    program = ProgramOp("p")
    value = DenseIntOrFPElementsAttr(TensorType(row.type, shape), BytesAttr(raw))
    program.body.block.add_op(BindOp("const", "c", BufferType(shape, row.type, "const"), value=value))
    again = reread(program)
    assert isinstance(again, ProgramOp) and again.binds[0].value is not None
    found = again.binds[0].value.data.data
    assert found * (len(raw) // len(found)) == raw


def _nan_patterns(dtype: str) -> tuple[int, int]:
    """A quiet and a signalling NaN, both with a payload."""
    return {
        "f64": (0x7FF8000000000001, 0x7FF0000000000001),
        "f32": (0x7FC00001, 0x7F800001),
        "f16": (0x7E01, 0x7C01),
        "bf16": (0x7FC1, 0x7F81),
    }[dtype]


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "i64", "i1", "u8"])
def test_long_constants_keep_their_bits(dtype: str) -> None:
    """xDSL writes more than a hundred elements as bytes."""
    row = element_named(dtype)
    array = np.random.default_rng(1).integers(0, 2 if dtype == "i1" else 100, 300).astype(row.dtype)
    raw = array.tobytes().replace(b"\x01", b"\xff") if dtype == "i1" else array.tobytes()
    program = ProgramOp("p")
    value = DenseIntOrFPElementsAttr(TensorType(row.type, [300]), BytesAttr(raw))
    program.body.block.add_op(BindOp("const", "c", BufferType([300], row.type, "const"), value=value))
    again = reread(program)
    assert isinstance(again, ProgramOp)
    found = again.binds[0].value
    assert found is not None
    assert np.array_equal(dense_array(found), array)


# Strings


def test_strings_of_a_decision_are_any_text() -> None:
    cost = {WEIRD: ArrayAttr([StringAttr(WEIRD), DictionaryAttr({WEIRD: StringAttr(WEIRD)})])}
    decision = DecisionOp(WEIRD, [WEIRD], WEIRD, WEIRD, {WEIRD: WEIRD}, cost)
    decision.attributes["aicf.note"] = StringAttr(WEIRD)
    again = reread(LedgerOp([decision]))
    assert isinstance(again, LedgerOp)
    assert again.decisions[0].properties == decision.properties
    assert again.decisions[0].attributes == decision.attributes


def test_strings_of_an_instruction_are_any_text() -> None:
    version = parse_module("builtin.module attributes {v = 1 : i64} {}").attributes["v"]
    record = KernelAttr(
        WEIRD, {"version": version, "determinism": StringAttr("bitwise"), WEIRD: StringAttr(WEIRD)}
    )
    program = ProgramOp(WEIRD)
    slot = SlotOp(BufferType([4], f32, "arena"))
    bind = BindOp("input", WEIRD, BufferType([4], f32, "bound"))
    op = ResolvedOp(
        "relu",
        WEIRD,
        [WEIRD],
        [bind.buffer],
        [slot.buffer],
        body=WEIRD,
        code=WEIRD,
        kernel=record,
        hints={WEIRD: StringAttr(WEIRD)},
        after=[EdgeAttr(WEIRD + "other")],
    )
    op.attributes["aicf.src"] = ArrayAttr([StringAttr(WEIRD)])
    program.body.block.add_ops([bind, slot, op])
    program.properties["graphs"] = ArrayAttr([ArrayAttr([StringAttr(WEIRD)])])
    again = reread(program)
    assert isinstance(again, ProgramOp)
    assert again.properties == program.properties
    assert again.instructions[0].properties == op.properties
    assert again.instructions[0].attributes == op.attributes
    assert again.binds[0].properties == bind.properties


@pytest.mark.parametrize("generic", [False, True])
def test_fields_of_a_program_print_in_one_order(generic: bool) -> None:
    text = 'emit.program @p attributes {graphs = [], arena_bytes = 0 : i64, phase = "final"} {\n}'
    printed = text_of(parse_module(text), generic=generic)
    assert text_of(parse_module(printed), generic=generic) == printed


# Broken text

_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|[%@#!^]?[\w.$-]+|->|\S')
_STRANGE = (
    *(
        "true",
        "-1",
        "0",
        "99999999999999999999",
        '""',
        "{}",
        "[]",
        "%q",
        "@q",
        "?",
        "0x1",
        "1.5",
        "dense<1>",
        "unit",
    ),
    *(
        "i32",
        "index",
        "none",
        "tensor<*xf32>",
        "memref<4xf32>",
        "()",
        "<",
        ">",
        "-",
        '"\\FF"',
        '"\\C3\\A9"',
        "é",
    ),
    *(
        "affine_map<(d0) -> (d0 mod 0)>",
        "#emit.edge",
        "!emit.buffer",
        "attributes {a = 1 : i64}",
        "\x00",
        "strides",
    ),
)


def _chunks() -> list[str]:
    """The top-level ops of the programs, in both forms; small ones, so that a case is quick."""
    found: list[str] = []
    for path in PROGRAMS:
        for op in parse_module(path.read_bytes()).body.block.ops:
            for generic in (False, True):
                stream = StringIO()
                Printer(stream, print_generic_format=generic).print_op(op)
                found.append(stream.getvalue())
    return sorted({text for text in found if len(text) < 4000})


CHUNKS = _chunks()
WORDS = sorted({*_STRANGE, *(word for chunk in CHUNKS for word in _TOKEN.findall(chunk))})


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(CHUNKS))
    for _ in range(draw(st.integers(1, 3))):
        tokens = list(_TOKEN.finditer(text))
        token = tokens[draw(st.integers(0, len(tokens) - 1))]
        before, word, after = text[: token.start()], token.group(), text[token.end() :]
        match draw(st.sampled_from(("drop", "replace", "replace", "repeat", "insert", "cut"))):
            case "drop":
                text = before + after
            case "replace":
                text = before + draw(st.sampled_from(WORDS)) + after
            case "repeat":
                text = f"{before}{word} {word}{after}"
            case "insert":
                text = f"{before}{draw(st.sampled_from(WORDS))} {word}{after}"
            case _:
                text = before
        if not _TOKEN.search(text):
            break
    return text


@settings(max_examples=400, deadline=None, derandomize=True)
@given(_mutated())
def test_mutated_programs_are_refused_or_read_back(text: str) -> None:
    try:
        module = parse_module(text)
    except InvalidIR:
        return
    printed = text_of(module)
    assert text_of(parse_module(printed)) == printed
