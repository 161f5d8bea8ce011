"""What is true of ops is said at the ops: passes hold no lists of op classes (traits are in `dialects/traits.py`), and
the PyTorch packages hold no lists of names of ATen's ops (facts are arguments of the rows in `frontends/torch/ops`).

A dictionary from op classes to functions or to other ops is no such list: a table of lowerings or gradients, whose rows
are the subject of the pass.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from pathlib import Path

from aicf.frontends.torch.ops import ROWS

ROOT = Path(__file__).parents[2]

ALLOWED = {
    "passes/bodies/attention.py _INSTEAD": "what to write in place of an op that no attention has, for the message",
    "passes/bodies/matching.py _IOTA_LIKE": "what the analysis of coordinates computes with, not all such ops",
    "passes/emit/raise_emit.py isinstance": "what a module of programs holds, which the pass itself takes apart",
    "passes/fusion/why_not_fusible.py isinstance": "the ops of an attention that read views",
    "passes/logical/pads.py Padded": "a type: the ops that the pass gives the amounts of a pad to",
    "passes/logical/lowerings/normalization.py _WithEpsilon": "a type: the ops with this property",
    "passes/onnx/ops/reductions.py _OF_FLOATS": "which of its own steps round integers, as ONNX Runtime does",
}
"""File and name of each list of op classes that is the pass's own subject, with the reason."""

ALLOWED_NAMES = {
    "aicf/frontends/torch/nodes.py NO_OPS": "ops that have no row, as no result of theirs is a tensor",
    "aicf/frontends/torch/ops/bits.py _OPERATORS": "rows: a method and its names each",
    "aicf/frontends/torch/ops/comparison.py _PREDICATES": "rows: a name and its predicate each",
    "aicf/frontends/torch/ops/creation.py _ONES": "one row with many names",
    "aicf/frontends/torch/ops/creation.py _ZEROS": "one row with many names",
    "aicf/frontends/torch/ops/functions.py _FUNCTIONS": "rows: a name and its method each",
    "aicf/frontends/torch/ops/functions.py _ROUNDINGS": "rows: a name and its formula each",
    "aicf/frontends/torch/ops/reductions.py _MOMENTS_OF_NOTHING": "rows for operands without elements",
    "aicf/frontends/torch/ops/reductions.py _OF_NOTHING": "rows for operands without elements",
    "aicf/frontends/torch/ops/scattering.py _OF_TRUTH": "ways to combine elements, some with names of ops",
    "aicf/frontends/torch/ops/scattering.py _REDUCTIONS": "ways to combine elements, some with names of ops",
    "aicf/frontends/torch/ops/upsampling.py _WEIGHTED": "rows: a name and its kernel each",
}
"""The same for names of ATen's ops."""

FEW = 2
"""Classes that a pass may name together: of a pattern that it matches."""


def is_op(node: ast.AST) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.endswith("Op") and name[:1].isupper()


def classes(node: ast.AST) -> list[ast.AST]:
    """The op classes that a tuple, a list, a set, a frozenset or a union holds; none of other expressions."""
    match node:
        case ast.Tuple() | ast.List() | ast.Set():
            return [entry for each in node.elts for entry in ([each] if is_op(each) else classes(each))]
        case ast.BinOp(op=ast.BitOr()):
            sides = (node.left, node.right)
            return [entry for side in sides for entry in ([side] if is_op(side) else classes(side))]
        case ast.Call(func=ast.Name("frozenset" | "set" | "tuple"), args=[entries]):
            return classes(entries)
        case ast.Starred():
            return classes(node.value)
        case _:
            return []


def lists_of(source: str) -> Iterator[tuple[str, int]]:
    """Name, or `isinstance`, and line of each list of more than `FEW` logical ops."""
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if len(classes(node.value)) > FEW:
                yield ast.unparse(target), node.lineno
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("isinstance"), args=[_, kinds]) if len(classes(kinds)) > FEW:
                yield "isinstance", node.lineno
            case _:
                pass


def names_compared(source: str) -> Iterator[tuple[str, int]]:
    """Each name of an op that the name of some op is compared with, and its line."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(left=ast.Attribute(attr="name"), comparators=[ast.Constant(str() as text)]):
                if text.startswith(("logical.", "emit.", "arith.", "math.")):
                    yield text, node.lineno
            case _:
                pass


OVERLOAD = re.compile(r"[A-Za-z_]\w*\.[A-Za-z]\w*")


def lists_of_names(source: str, bases: Set[str]) -> Iterator[tuple[str, int]]:
    """Name and line of each value of a module with more than `FEW` names of ATen's ops, with overload or without."""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        texts = {
            each.value
            for each in ast.walk(node.value)
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        }
        found = [text for text in texts if text in bases or OVERLOAD.fullmatch(text)]
        if len(found) > FEW and target != "__all__":
            yield target, node.lineno


def test_ops_are_compared_by_class_and_not_by_name():
    paths = [path for folder in ("passes", "aicf") for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [
        f"{path.relative_to(ROOT)}:{line}: '{name}'"
        for path in paths
        for name, line in names_compared(path.read_text("utf-8"))
    ]
    assert len(paths) > 300 and not found, "use isinstance: " + "; ".join(found)


def test_passes_hold_no_lists_of_ops():
    found = {
        f"{path.relative_to(ROOT).as_posix()} {name}": line
        for path in sorted((ROOT / "passes").rglob("*.py"))
        for name, line in lists_of(path.read_text("utf-8"))
    }
    new = [f"{name}, line {line}" for name, line in found.items() if name not in ALLOWED]
    assert not new, "say it at the ops, as a trait of dialects/traits.py: " + "; ".join(new)
    assert found.keys() >= ALLOWED.keys(), "an entry that is not needed"


def test_pytorch_packages_hold_no_lists_of_names():
    bases = {overload.rpartition(".")[0] for overload in ROWS}
    found = {
        f"{path.relative_to(ROOT).as_posix()} {name}": line
        for folder in ("aicf/frontends/torch", "aicf/pytorch")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name, line in lists_of_names(path.read_text("utf-8"), bases)
    }
    new = [f"{name}, line {line}" for name, line in found.items() if name not in ALLOWED_NAMES]
    assert not new, "say it at the rows, as an argument of `row`: " + "; ".join(new)
    assert found.keys() >= ALLOWED_NAMES.keys(), "an entry that is not needed"


def test_the_scan_of_names_sees_them_in_every_form():
    source = """
A = frozenset({"add.Tensor", "sub.Tensor", "mul.Tensor"})
B: Mapping[str, str] = {"view": "a", "expand": "b", "select": "c"}
C = ("view", "expand")
D = (*("view", "expand"), "copy_.default")
E = ("f32", "f16", "bf16")
"""
    assert list(lists_of_names(source, {"view", "expand", "select"})) == [("A", 2), ("B", 3), ("D", 5)]


def test_the_scan_sees_lists_in_every_form():
    source = """
A = (logical.AddOp, logical.SubOp, logical.MulOp)
B: frozenset[type[Operation]] = frozenset({AddOp, SubOp, MulOp})
C = AddOp | SubOp | MulOp
D = (AddOp, SubOp)
E = {AddOp: _add, SubOp: _sub, MulOp: _mul}
def f(op):
    return isinstance(op, (AddOp, SubOp, *(MulOp, DivOp))) or op.name == "logical.cast" or op.name == "x"
"""
    assert list(lists_of(source)) == [("A", 2), ("B", 3), ("C", 4), ("isinstance", 8)]
    assert list(names_compared(source)) == [("logical.cast", 8)]
