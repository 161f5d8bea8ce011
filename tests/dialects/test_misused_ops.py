"""Every attribute and every operand of every op, misused: one line that names the op, in a user's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from xdsl.dialects.builtin import (
    ArrayAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    UnitAttr,
    f32,
    f64,
    i1,
    i32,
    i64,
)
from xdsl.ir import Attribute, Block

from aicf.dialects import logical
from aicf.dialects.logical import LogicalOp, ints
from aicf.errors import InvalidIR
from aicf.frontends.builder import Graph
from aicf.frontends.text import verify_module
from aicf.tools.op_samples import function_of, samples

WRONG: tuple[Attribute | None, ...] = (
    *(StringAttr("x"), ArrayAttr([StringAttr("x")]), UnitAttr(), None),
    *(FloatAttr(0.5, f32), FloatAttr(float("nan"), f64), FloatAttr(-1.5, f64)),
    *(IntegerAttr(-1, i64), IntegerAttr(10**6, i64), IntegerAttr(1, i32)),
    *(ints([]), ints([7, -1])),
)
TYPES: tuple[Attribute, ...] = (
    TensorType(f32, []),
    TensorType(i1, [3]),
    TensorType(i64, [2, 3, 4, 5, 6]),
    f32,
)
OF_XDSL = re.compile("constraint|base attribute|should be of|expected [a-z]+ operand|Traceback")


def misused(op: LogicalOp) -> Iterator[LogicalOp]:
    """Each attribute with each wrong value or none, each operand with each other type."""
    types = list(op.operand_types)
    for name in type(op).get_irdl_definition().properties:
        if name != "operandSegmentSizes":
            for wrong in WRONG:
                properties = {key: value for key, value in op.properties.items() if key != name}
                yield made(op, types, properties if wrong is None else {**properties, name: wrong})
    for index in range(len(types)):
        for type_ in TYPES:
            yield made(op, [*types[:index], type_, *types[index + 1 :]], dict(op.properties))


def made(op: LogicalOp, types: Sequence[Attribute], properties: dict[str, Attribute]) -> LogicalOp:
    operands = Block(arg_types=types).args
    return type(op).create(operands=operands, result_types=[op.result.type], properties=properties)


@pytest.mark.parametrize("family", logical.FAMILIES, ids=lambda family: family.__name__.rpartition(".")[2])
def test_misuse_is_said_in_one_line(family) -> None:
    """What is no misuse of the op at hand verifies; everything else is refused, and nothing else is raised."""
    for op_class in logical.ops_of(family):
        for op in misused(next(iter(samples()[op_class].values()))) if op_class in samples() else ():
            try:
                verify_module(ModuleOp([function_of(op)]))
            except InvalidIR as error:
                line = str(error).split("\noperation:")[0]
                assert "\n" not in line and not OF_XDSL.search(line), line
                assert op.name in line or "tensor" in line, line


def _graph() -> tuple[Graph, dict]:
    g = Graph("f")
    given = {
        "x": g.input("x", (4, 6)),
        "n": g.input("n", (4, 6), "i32"),
        "i": g.input("i", (3,), "i64"),
        "s": g.input("s", (), "i64"),
        "q": g.input("q", (2, 5, 8)),
        "v": g.input("v", (7,)),
    }
    return g, given


MISUSES: dict[str, tuple[Callable, str]] = {
    "iota": (lambda g, x, **_: g.iota((4,), 1), "iota: axis 1 is out of range for rank 1"),
    "iota-type": (lambda g, **_: g.iota((4,), 0, "i1"), "iota: not defined for i1"),
    "pad": (lambda g, x, **_: g.pad(x, [1], [1, 0]), r"pad: low \[1\] has 1 value for the 2 dimensions"),
    "pad-mode": (lambda g, x, **_: g.pad(x, [0, 6], [0, 0], mode="reflect"), "from 0 to 5"),
    "gather": (lambda g, x, i, **_: g.gather(x, i, 2), "gather: axis 2 is out of range for rank 2"),
    "gather-indices": (lambda g, x, v, **_: g.gather(x, v), "gather: indices are f32; cast them"),
    "flip": (lambda g, x, **_: g.flip(x, []), r"flip: axes \[\] name one dimension or more"),
    "tile": (lambda g, x, **_: g.tile(x, [2, 0]), r"tile: repeats \[2, 0\] has a value below 1"),
    "one_hot": (lambda g, i, **_: g.one_hot(i, 0), "one_hot: depth is 0; it is at least 1"),
    "scatter": (
        lambda g, x, i, **_: g.scatter(x, i, x),
        "scatter: updates have shape 4x6, the indices ask for 3x6",
    ),
    "scatter-mode": (lambda g, x, i, **_: g.scatter(x, i, x, "mean"), "use one of set, add, max, min"),
    "topk": (lambda g, x, **_: g.topk(x, 7), "topk_indices: k is 7; dimension 1 of 4x6 allows 1 to 6"),
    "cumsum": (lambda g, x, **_: g.cumsum(x, 2), "cumsum: axis 2 is out of range for rank 2"),
    "argmax": (lambda g, x, **_: g.argmax(x, 5), "argmax: axis 5 is out of range for rank 2"),
    "reduce": (lambda g, n, **_: g.reduce_mean(n, [0]), "reduce_mean: not defined for i32"),
    "softmax": (lambda g, n, **_: g.softmax(n), "softmax: not defined for i32"),
    "rms_norm": (lambda g, x, v, **_: g.rms_norm(x, v), "rms_norm: scale is 7xf32, but dimensions 1 to 1"),
    "group_norm": (
        lambda g, x, v, **_: g.group_norm(x, v, v, 2),
        "group_norm: scale is 7xf32, but the channels",
    ),
    "max_pool": (
        lambda g, q, **_: g.max_pool(q, [9]),
        "max_pool: dimension 2 of 2x5x8 is smaller than a window, padding included",
    ),
    "avg_pool": (
        lambda g, q, **_: g.avg_pool(q, [2], [1, 1]),
        r"avg_pool: strides \[1, 1\] has 2 values for 1 spatial dimension",
    ),
    "lp_pool": (
        lambda g, q, **_: g.lp_pool(q, 0, [2]),
        "lp_pool: p is 0; it is a whole number of at least 1",
    ),
    "max_pool_indices": (lambda g, x, **_: g.max_pool_indices(x, [2]), "operand 4x6xf32 has rank 2"),
    "attention": (lambda g, q, x, **_: g.attention(q, x, q), "attention: key 4x6xf32 has rank 2"),
    "attention-past": (lambda g, q, **_: g.attention(q, q, q, past=1), "past without causal has no meaning"),
    "philox": (
        lambda g, s, i, **_: g.philox(i, s, (4,)),
        "philox: the seed is 3xi64; it is one i64 of rank 0",
    ),
    "philox-form": (lambda g, s, **_: g.philox(s, s, (4,), "gamma"), "use one of bits, uniform, normal"),
    "philox-bits": (lambda g, s, **_: g.philox(s, s, (4,), "bits", "f32"), "philox: bits are i32, not f32"),
    "philox-type": (
        lambda g, s, **_: g.philox(s, s, (4,), dtype="i32"),
        "numbers of form uniform are floats",
    ),
    "philox-seed": (lambda g, s, **_: g.philox(2**64, s, (4,)), "18446744073709551616"),
    "philox_word": (lambda g, s, n, **_: g.philox_word(s, s, n), "philox_word: operand types differ"),
    "dropout": (
        lambda g, x, s, **_: g.dropout(x, s, s, 1.0),
        "dropout: rate is 1.0; it is at least 0 and below 1",
    ),
    "dropout-nan": (lambda g, x, s, **_: g.dropout(x, s, s, np.nan), "dropout: rate is nan"),
    "python-integer": (lambda g, x, **_: g.topk(x, 2.5), "topk: k is 2.5; it is an integer"),
    "python-number": (
        lambda g, x, v, **_: g.rms_norm(x, v, epsilon="a"),
        "rms_norm: epsilon is 'a'; it is a number",
    ),
    "python-flag": (
        lambda g, x, **_: g.reduce_sum(x, [1], keepdims="no"),
        "keepdims is 'no'; it is True or False",
    ),
    "python-string": (lambda g, x, **_: g.gelu(x, 3), "gelu: approximate is 3; it is a string"),
    "python-list": (lambda g, x, **_: g.tile(x, 2), "tile: repeats is 2; it is a list of integers"),
    "python-fraction": (
        lambda g, x, **_: g.transpose(x, [0.5, 1]),
        r"permutation is \[0.5, 1\]; it is a list",
    ),
    "python-axis": (lambda g, x, **_: g.softmax(x, "a"), "axis is 'a'; it is an integer"),
    "python-axes": (lambda g, x, **_: g.reduce_sum(x, 1), "axes is 1; it is a list of integers"),
    "python-bound": (lambda g, x, **_: g.clamp(x, "a"), "clamp: min is 'a'; it is a number"),
    "python-operand": (lambda g, x, **_: x + None, "constant: None is no number of type f32"),
    "python-type": (lambda g, s, **_: g.philox(s, s, (4,), dtype=3), "philox: dtype is 3; it is a string"),
    "array": (lambda g, x, **_: g.relu(np.zeros(3)), "an operand is a Python ndarray, no value of the graph"),
    "number-matrix": (lambda g, x, **_: x @ 3, "an operand is a Python int, no value of the graph"),
    "negative-size": (
        lambda g, x, **_: g.reshape(x, (-1,)),
        r"the shape is \(-1,\); a size is not negative",
    ),
    "no-shape": (lambda g, **_: g.input("y", 3), "the shape is 3; it is a list of sizes"),
    "no-name": (lambda g, **_: g.input(3, (2,)), "the name is 3; give a string"),
    "one-part": (lambda g, x, **_: g.concat(x, 0), "one value is no list of values; write"),
    "pad-unknown": (
        lambda g, x, **_: g.pad(x, [1, 0], [0, 1], mode="wrap"),
        "mode is 'wrap'; use one of constant",
    ),
    "expand_dims": (lambda g, x, **_: g.expand_dims(x, 9), "expand_dims: axis 9 is out of range"),
    "split": (lambda g, x, **_: g.split(x, 3, 0), "sizes is 3; it is a list of integers"),
    "dropout-type": (lambda g, n, s, **_: g.dropout(n, s, s, 0.5), "dropout: not defined for i32"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_misuse_in_python_names_the_line(name: str) -> None:
    """The builder's error has the place in the caller's source, and what the verifier of the text says."""
    call, message = MISUSES[name]
    g, given = _graph()
    with pytest.raises(InvalidIR, match=message) as caught:
        call(g, **given)
    assert str(caught.value).startswith("tests/dialects/test_misused_ops.py:")
