"""A step whose convolutions read weights that it casts from parameters, which it updates."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from aicf.frontends.text import parse_module

WEIGHTS = {"stem": (16, 3, 3, 3), "w": (24, 16, 3, 3), "v": (40, 24, 1, 5), "u": (40, 40, 1, 1)}
"""Shapes of the weights of convolutions, one after the other."""


def step() -> ModuleOp:
    """Convolutions of bf16 whose weights are cast from parameters that the step updates."""
    arguments, results, ops = (
        [f"%x : {_tensor(2, 3, 12, 12)} {_entry('x', 'input')}"],
        list[str](),
        list[str](),
    )
    value, image = "%x", _tensor(2, 3, 12, 12)
    for name, shape in WEIGHTS.items():
        wide, narrow, before = _tensor(*shape, dtype="f32"), _tensor(*shape), image
        image, low = _tensor(2, shape[0], 12, 12), [tap // 2 for tap in shape[2:]]
        windows = f"strides = [1, 1], low = {low}, high = {low}, dilations = [1, 1], groups = 1"
        arguments.append(f"%{name} : {wide} {_entry(name, 'param')}")
        arguments.append(f"%{name}.new : {wide} {_entry(f'{name}.new', 'input')}")
        results.append(f'{wide} {{logical.updates = "{name}"}}')
        ops.append(f"%{name}.low = logical.cast %{name} : {wide} -> {narrow}")
        types = f"({before}, {narrow}) -> {image}"
        ops.append(f"%{name}.conv = logical.conv {value}, %{name}.low {{{windows}}} : {types}")
        value = f"%{name}.conv"
    given = ", ".join([value, *(f"%{name}.new" for name in WEIGHTS)])
    types = ", ".join([image, *(_tensor(*shape, dtype="f32") for shape in WEIGHTS.values())])
    lines = "\n".join([*ops, f"func.return {given} : {types}"])
    outputs = ", ".join([f'{image} {{logical.name = "y"}}', *results])
    return parse_module(f"func.func @step({', '.join(arguments)}) -> ({outputs}) {{\n{lines}\n}}")


def _tensor(*sizes: int, dtype: str = "bf16") -> str:
    return f"tensor<{'x'.join(map(str, sizes))}x{dtype}>"


def _entry(name: str, role: str) -> str:
    return f'{{logical.name = "{name}", logical.role = "{role}"}}'
