"""Whether the generated programs of a module compute what the bodies of their instructions mean.

Bodies are logical ops, run by their meanings; programs are run by `kernel_interpreter`. So nothing is compared with
itself, and no device is needed: programs for any target run here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.traits import IsTerminator

from aicf.backends.reference import interpreter
from aicf.dialects import logical
from aicf.dialects.emit import ProgramOp, ResolvedOp, symbols
from aicf.dialects.emit_kernels import KernelOp
from aicf.semantics import Mode, evaluate
from tests.support.kernel_interpreter import run_kernel

Array = NDArray[Any]
Values = dict[SSAValue, Array]

_TOLERANCE = 1e-12
"""Of the largest number of a body: sums are added in another order."""


def check_codes(module: ModuleOp, feeds: Mapping[str, Array], where: str = "") -> int:
    """Runs a module of emit programs; gives how many generated programs were compared.

    Raises AssertionError if one gives something else than its body, with `where` and the name of the instruction.
    """
    runs: list[tuple[Block, Values]] = []

    def recorded(block: Block, args: Sequence[Array], mode: Mode) -> list[Array]:
        values: Values = dict(zip(block.args, args, strict=True))
        runs.append((block, values))
        for op in block.ops:
            if op.has_trait(IsTerminator):
                return [values[value] for value in op.operands]
            operands = [values[operand] for operand in op.operands]
            values.update(zip(op.results, evaluate(op, operands, mode), strict=True))
        raise AssertionError("a body ends with emit.yield")

    with patch.object(interpreter, "evaluate_block", recorded):
        interpreter.run_module(module, feeds, "exact")
    table = symbols(module)
    of_body = {interpreter.body_of(op, table): op for op in _instructions(module)}
    return sum(_check(of_body[block], values, table, where) for block, values in runs)


def _instructions(module: ModuleOp) -> list[ResolvedOp]:
    return [
        op
        for program in module.body.block.ops
        if isinstance(program, ProgramOp)
        for op in program.instructions
    ]


def _check(instruction: ResolvedOp, values: Values, table: Mapping[str, Operation], where: str) -> int:
    code, prologue = (_program(symbol, table) for symbol in (instruction.code, instruction.prologue))
    if code is None:
        return 0
    name = instruction.instruction.data
    body = interpreter.body_of(instruction, table)
    largest = max((_largest(value) for value in values.values() if value.dtype.kind == "f"), default=1.0)
    if any(isinstance(op, logical.MatmulOp | logical.ConvOp) for op in body.ops):
        pairs = _products(body, code, prologue, values)
    else:
        results = [values[value] for value in _yielded(body)]
        found = run_kernel(code, [values[argument] for argument in body.args], _shapes(results))
        pairs = list(zip(found, results, strict=True))
    for found, wanted in pairs:
        np.testing.assert_allclose(
            found.astype(np.float64),
            wanted.astype(np.float64),
            rtol=0,
            atol=_TOLERANCE * largest if wanted.dtype.kind == "f" else 0,
            err_msg=f"{where}: {name}",
        )
    return 1


def _program(symbol: SymbolRefAttr | None, table: Mapping[str, Operation]) -> KernelOp | None:
    found = None if symbol is None else table[symbol.root_reference.data]
    assert found is None or isinstance(found, KernelOp)
    return found


def _yielded(body: Block) -> Sequence[SSAValue]:
    assert body.last_op is not None
    return body.last_op.operands


def _shapes(arrays: Sequence[Array]) -> list[tuple[int, ...]]:
    return [array.shape for array in arrays]


def _largest(array: Array) -> float:
    numbers = np.abs(array.astype(np.float64))
    return max(1.0, float(np.max(numbers, initial=1.0, where=np.isfinite(numbers))))


def _products(
    body: Block, code: KernelOp, prologue: KernelOp | None, values: Values
) -> list[tuple[Array, Array]]:
    """What programs around products give, with what they should.

    Operands are the left one, or what the prologue makes it of, the right ones, the prologue's others, and then those
    of the epilogue: of each in turn, if there is one for each product.
    """
    matmuls = [op for op in body.ops if isinstance(op, logical.MatmulOp | logical.ConvOp)]
    given = [values[argument] for argument in body.args]
    rest, pairs = given[1 + len(matmuls) :], list[tuple[Array, Array]]()
    if prologue is not None:
        others = len(prologue.ins) - 1
        left = values[matmuls[0].operands[0]]
        pairs += zip(run_kernel(prologue, [given[0], *rest[:others]], [left.shape]), [left], strict=True)
        rest = rest[others:]
    sums = [values[matmul.result] for matmul in matmuls]
    results = [values[value] for value in _yielded(body)]
    apart = len(results) > len(code.outs)
    for number in range(len(results) if apart else 1):
        here, own = (sums[number : number + 1], results[number : number + 1]) if apart else (sums, results)
        count = len(code.ins) - len(here)
        operands = [*here, *rest[number * count : (number + 1) * count]]
        pairs += zip(run_kernel(code, operands, _shapes(own)), own, strict=True)
    return pairs
