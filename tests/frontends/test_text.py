"""The textual frontend: locations, messages, and that no text gets anything but InvalidIR out of it."""

from __future__ import annotations

import contextlib
import gc
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import FileLineColLoc, NameLoc
from xdsl.ir import Operation

from aicf.errors import InvalidIR
from aicf.frontends.text import location_of, make_context, parse_module

pytestmark = pytest.mark.usefixtures("few_objects")

PROGRAM = """\
func.func @f(%x: tensor<2x3xf32> {logical.name = "x", logical.role = "input"})
    -> (tensor<2x3xf32> {logical.name = "y"}) {
  %c = logical.constant dense<0.5> : tensor<2x3xf32>
  %a = logical.add %x, %c : tensor<2x3xf32>
  %y = logical.relu %a {aicf.id = "act", aicf.src = ["act"]} : tensor<2x3xf32>
  func.return %y : tensor<2x3xf32>
}
"""
EMIT_PIECES = (
    ' emit.slot offset(0) !emit.buffer<64x784xf32, arena, strides [1, 4]> #emit.target<"cpu", "x", {}> '
)


def find(op: Operation, name: str) -> Operation:
    return next(inner for inner in op.walk() if inner.name == name)


def message(text: str | bytes, **options: int) -> str:
    with pytest.raises(InvalidIR) as caught:
        parse_module(text, "m.mlir", **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_operation_has_its_position():
    module = parse_module(PROGRAM, "m.mlir")
    assert location_of(find(module, "logical.add")) == "m.mlir:4:3"
    assert location_of(find(module, "func.func")) == "m.mlir:1:1"
    assert all(isinstance(op.location, FileLineColLoc) for op in module.walk())


def test_line_offset_is_added():
    assert location_of(find(parse_module(PROGRAM, "m.mlir", line_offset=10), "logical.add")) == "m.mlir:14:3"
    assert message("func.func @f() {\n  nonsense", line_offset=10).startswith(
        "m.mlir:12:3: unknown operation"
    )


def test_explicit_locations_are_kept():
    text = PROGRAM.replace("tensor<2x3xf32>\n  %a", 'tensor<2x3xf32> loc("w.py":3:4)\n  %a')
    text = text.replace("%c : tensor<2x3xf32>", '%c : tensor<2x3xf32> loc("sum")')
    module = parse_module(text, "m.mlir")
    assert location_of(find(module, "logical.constant")) == "w.py:3:4"
    named = find(module, "logical.add").location
    assert isinstance(named, NameLoc) and named.desc.data == "sum"
    assert location_of(find(module, "logical.add")) == "m.mlir:4:3"


def test_dialects_are_imported_when_mentioned():
    context = make_context()
    parse_module("func.func @f() {\n  func.return\n}", context=context)
    assert {dialect.name for dialect in context.loaded_dialects} <= {"builtin", "func"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "m.mlir:1:1: the program is empty: expected a builtin.module or a func.func"),
        ("// nothing\n", "m.mlir:2:1: the program is empty"),
        ("func.func @f( {", "m.mlir:1:15: expected argument or type, found '{'"),
        ("logical.mtmul", "m.mlir:1:1: unknown operation logical.mtmul; did you mean 'logical.matmul'"),
        (
            "tf.matmul",
            "m.mlir:1:1: unknown operation tf.matmul; the dialects are builtin, func, arith, math, logical",
        ),
        ("func.func @f() { func.return } }", "m.mlir:1:32: expected an operation, found '}'"),
        ("func.func @f() {\n  func.return %q : i32\n}", "m.mlir:2:15: %q is used but not defined"),
        (
            PROGRAM.replace("%c :", "%a :"),
            "m.mlir:4:3: logical.add: %a is used before its definition at m.mlir:4:3",
        ),
        (
            PROGRAM.replace("%c :", "%y :"),
            "m.mlir:4:3: logical.add: %y is used before its definition at m.mlir:5:3",
        ),
        (PROGRAM.replace("%a =", "%c ="), "m.mlir:4:3: %c is already defined at m.mlir:3:3; give one of"),
        (
            PROGRAM.replace("%c : tensor<2x3", "%c : tensor<2x4"),
            "m.mlir:4:20: %x is used with type tensor<2x4xf32>, "
            "but is defined with type tensor<2x3xf32> at m.mlir:1:14",
        ),
        (
            "func.func @f(%x: i32) -> i8 {\n  %z = arith.addi %y, %y : i8\n  %y = arith.addi %x, %x : i32\n}",
            "m.mlir:3:3: %y is defined with type i32, but was used with type i8 at m.mlir:2:19",
        ),
        (PROGRAM.replace("2x3xf32", "2x3xq7"), "m.mlir:1:29: unknown type 'q7'"),
        (
            PROGRAM.replace("2x3xf32", "2x3xFloat32", 1),
            "m.mlir:1:29: unknown type 'Float32'; did you mean 'f32'?",
        ),
        (PROGRAM.replace("tensor", "tensr", 1), "m.mlir:1:18: unknown type 'tensr'; did you mean 'tensor'?"),
        (
            PROGRAM.replace("2x3xf32", "2x3", 1),
            "m.mlir:1:28: expected 'x' and then a size or the element type, as in tensor<2x3xf32>",
        ),
        (
            PROGRAM.rstrip().removesuffix("}"),
            "m.mlir:7:1: expected an operation or '}': the program ends, and the '{' at m.mlir:2:47 has no '}'",
        ),
        (
            "func.func @f(",
            "m.mlir:1:14: expected argument or type: the program ends, and the '(' at m.mlir:1:13 has",
        ),
        ('func.func @f() attributes {"{" = "(", // <{\n', "m.mlir:2:1: "),
        (PROGRAM + "#-}", "m.mlir:8:1: expected an operation"),
        (
            b"func.func @f()\n {\xff",
            "m.mlir:2:3: the program is not UTF-8: byte 0xff; save the file as UTF-8",
        ),
    ],
)
def test_messages(text: str | bytes, expected: str):
    assert message(text).startswith(expected)


def test_a_function_inside_another_one_is_a_brace_that_is_missing():
    one = "func.func @{0}(%{0}: i32) {{\n  func.return\n"
    inside = "the function at m.mlir:4:1 begins inside the one at m.mlir:2:1: is a '}' missing before it?"
    text = "builtin.module {{\n" + one + "{1}}}\n}}"
    assert (
        message(text.format("f", one.format("g"))) == f"m.mlir:7:2: expected an operation or '}}'; {inside}"
    )
    text = text.format("f", '"func.func"() <{sym_name = "g", function_type = () -> ()}> ({\n}')
    assert message(text).endswith(inside)


def test_a_bracket_that_is_open_is_told_where_something_is_missing_and_nowhere_else():
    text = "func.func @f(%x: i32) {\n  %y = arith.addi %x, %x {a = [1,\n 2} : i32\n  func.return\n}"
    assert message(text).endswith("found '}'; is the ']' missing that closes the '[' at m.mlir:2:31?")
    assert message(text.replace("2}", "2]}").replace("%x, %x", "%x %x")).endswith("',', found '%x'")
    assert message("func.func @f() {\n  func.return\n") == (
        "m.mlir:3:1: expected an operation or '}': the program ends, and the '{' at m.mlir:1:16 has no '}'"
    )


def test_the_search_for_an_open_bracket_is_linear():
    """Also where the text has strings that are not closed, or many brackets."""
    for text in ('func.func @f() attributes {a = "' + "\\\\" * 4000, "func.func @f(" + "(<[{" * 4000):
        assert message(text).startswith("m.mlir:1:")


def test_an_operand_from_another_function_is_not_visible():
    text = "func.func @f(%x: i32) {\n  func.return\n}\nfunc.func @g() -> i32 {\n  func.return %x : i32\n}"
    assert message(text) == "m.mlir:5:15: %x is used but not defined"


def test_a_value_from_outside_of_a_function_is_refused_without_a_print():
    text = '%c = "arith.constant"() {value = 1 : i32} : () -> i32\nfunc.func @f() -> i32 {\n  func.return %c : i32\n}'
    with pytest.raises(
        InvalidIR, match="2:1: func.func: an operation in it uses a value from outside of it"
    ) as caught:
        parse_module(text, "m.mlir")
    assert len(str(caught.value)) < 200


def test_a_value_of_a_nested_region_is_not_visible():
    text = "func.func @f() -> i32 {\n  func.return %x : i32\n}\nfunc.func @g(%x: i32) {\n  func.return\n}"
    assert message(text) == "m.mlir:2:3: func.return: %x is used where its definition is not visible"


def test_verifier_errors_carry_the_operation_its_users_and_source():
    text = PROGRAM.replace(
        "logical.add %x, %c : tensor<2x3xf32>",
        "logical.reduce_sum %x {axes = [1]} : tensor<2x3xf32> -> tensor<2x3xf32>",
    )
    text = text.replace("{axes = [1]}", '{axes = [1], aicf.id = "s", aicf.src = ["total"]}')
    with pytest.raises(InvalidIR) as caught:
        parse_module(text, "m.mlir")
    assert str(caught.value).startswith("m.mlir:4:3: logical.reduce_sum: ")
    operation, user, source = caught.value.__notes__
    assert operation.startswith('operation: %a = "logical.reduce_sum"(%x)')
    assert user == "used by: logical.relu at m.mlir:5:3"
    assert source == 'source: ["total"]'


@pytest.mark.parametrize(
    "text",
    [
        "func.func @f() {" * 3000,
        '"builtin.module"() ({' * 3000,
        "func.func @f(%x: " + "tuple<" * 3000,
        "module attributes {a = " + "[" * 3000,
        "module attributes {a = " + "{b = " * 3000,
        "module attributes {a = affine_map<(d0) -> (" + "(" * 3000,
    ],
    ids=["functions", "modules", "types", "arrays", "dictionaries", "maps"],
)
def test_deep_nesting(text: str):
    gc.collect()  # what other tests left is not given back where no frame is left for it
    text = text.replace("module attributes", "builtin.module attributes")
    assert message(text).startswith("m.mlir:1:")


@pytest.mark.parametrize(
    "text",
    [
        "builtin.module attributes {a = " + "9" * 5000 + "} {}",
        "builtin.module attributes {a = " + "9" * 400 + " : i64} {}",
        "builtin.module attributes {a = 0x" + "f" * 5000 + " : i64} {}",
        "builtin.module attributes {a = 1e" + "9" * 400 + " : i8} {}",
        "builtin.module attributes {a = 1 : i" + "9" * 5000 + "} {}",
        "builtin.module attributes {a = dense<1> : tensor<" + "9" * 5000 + "xi8>} {}",
        "%0:" + "9" * 5000 + ' = "builtin.module"() : () -> ()',
        '%0:99999999 = "builtin.module"() ({}) : () -> ()',
        'builtin.module attributes {a = "\\FF"} {}',
        'builtin.module attributes {a = dense<"0xZZ"> : tensor<2xi8>} {}',
        "builtin.module attributes {a = array<i8: 300>} {}",
        'func.func @f() { func.return } loc("a":' + "9" * 5000 + ":1)",
    ],
)
def test_extreme_numbers_and_literals(text: str):
    try:
        parse_module(text, "m.mlir")
    except InvalidIR as error:
        assert str(error).startswith("m.mlir:1:")


def test_a_string_that_is_not_closed_takes_no_time():
    text = 'builtin.module attributes {a = "' + "name." * 20_000 + "\n} {}"
    assert message(text).startswith("m.mlir:1:32: string literal is not closed on its line")


def test_a_huge_splat_takes_no_memory():
    text = PROGRAM.replace("2x3xf32", "1000000x1000000xf32")
    tracemalloc.start()
    with contextlib.suppress(InvalidIR):
        parse_module(text, "m.mlir")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6


def test_locations_cost_a_linear_pass():
    body = "".join(f"  %v{i} = logical.relu %x : tensor<2x3xf32>\n" for i in range(2000))
    module = parse_module(PROGRAM.replace("  %c =", body + "  %c ="), "m.mlir")
    assert location_of(find(module, "logical.add")) == "m.mlir:2004:3"


# Fuzz

TOKENS = sorted(
    {*PROGRAM.split(), *EMIT_PIECES.split(), *'(){}[]<>=:,#!@%^"->?*+/-0x', "loc(", "dense<", "-1", "1.5"}
)
SEEDS = [
    PROGRAM,
    *(path.read_text() for path in sorted((Path(__file__).parents[2] / "lit_tests").rglob("*.mlir"))),
]
FUZZ = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])


def parse_or_refuse(text: str | bytes) -> None:
    try:
        parse_module(text, "m.mlir")
    except InvalidIR as error:
        assert error.location is not None and error.location.startswith("m.mlir:")
        assert "\n" not in str(error)


@FUZZ
@given(st.lists(st.sampled_from(TOKENS), max_size=40), st.sampled_from([" ", "\n", ""]))
def test_random_tokens(tokens: list[str], separator: str):
    parse_or_refuse(separator.join(tokens))


@FUZZ
@given(st.data())
def test_edited_programs(data: st.DataObject):
    text = data.draw(st.sampled_from(SEEDS))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 20)))
        piece = data.draw(st.one_of(st.sampled_from(TOKENS), st.text(max_size=4)))
        text = text[:start] + piece + text[stop:]
    parse_or_refuse(text)


@FUZZ
@given(st.binary(max_size=100))
@example(b"\xff\xfe")
@example(b"\x00")
def test_random_bytes(text: bytes):
    parse_or_refuse(text)
