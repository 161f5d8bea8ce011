"""`verify-order`: no instruction reads what nobody wrote, in programs of every kind that the passes make.

What the passes make is accepted. Then operands, writers and workspaces are changed, one at a time, and a simulator of
bytes says which programs read or leave what nobody wrote: those are refused. Others are accepted, but for slots that
would have to be placed again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from aicf.errors import InvalidIR
from aicf.frontends.text import make_context, parse_module
from aicf.passes.analysis.strided import StridedBytes
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from aicf.passes.support.programs import programs
from aicf.passes.verify.verify_order import VerifyOrderPass
from tests.support.concat_programs import PROGRAMS as CONCATS
from tests.support.plan_mutations import Original, put_buffers_first, value_mutations
from tests.support.race_simulator import find_race
from tests.support.random_convnets import random_convnet
from tests.support.random_graphs import random_program
from tests.support.random_steps.concats import STEPS as CONCAT_STEPS
from tests.support.random_training import random_training_program

TARGETS = ("cpu:x86-64-v3", "cuda:sm_90a")
DRAWN = 12
"""Mutations of each kind that a program is tried with."""

KINDS = ("other operand", "dropped writer", "taken as workspace")
SHARED = "share bytes of the arena but are alive together"

MAKERS: dict[str, Callable[[int], ModuleOp]] = {
    "inference": lambda seed: random_program(seed, steps=8).module,
    "concatenations": lambda seed: random_program(seed, steps=6, taken=CONCAT_STEPS).module,
    "training": lambda seed: random_training_program(seed, steps=4).module,
    "convolutions": lambda seed: random_convnet(seed).module(),
    "blocks": lambda seed: list(CONCATS.values())[seed % len(CONCATS)]().build(),
}


def compiled(kind: str, seed: int) -> ModuleOp:
    """A final module; targets and numbers of streams take turns."""
    module, target = MAKERS[kind](seed), TARGETS[seed % 2]
    make = AicfTrainingPass if kind == "training" else AicfInferencePass
    make(target, policy=f'{{"streams": {1 + seed % 3}}}').apply(make_context(), module)
    return module


def refusal(module: ModuleOp) -> str | None:
    """What `verify-order` says; None if it accepts."""
    try:
        VerifyOrderPass().apply(Context(), module)
    except InvalidIR as error:
        return error.message
    return None


@pytest.mark.parametrize("kind", MAKERS)
def test_what_reads_or_leaves_unwritten_bytes_is_refused(kind: str) -> None:
    found = Counter[str]()
    for seed in range(6):
        module, pick = compiled(kind, seed), random.Random(seed)
        assert refusal(module) is None and not any(map(find_race, programs(module)))
        for program in programs(module):
            put_buffers_first(program)
            original, every = Original(program), value_mutations(program)
            for each in KINDS:
                of_kind = [mutation for mutation in every if mutation.kind == each]
                for mutation in pick.sample(of_kind, min(DRAWN, len(of_kind))):
                    mutation.apply()
                    race, said = find_race(program), refusal(module)
                    original.restore()
                    what = f"seed {seed}, {each}: {mutation.name}"
                    if race is not None and race.kind != "overlap":
                        assert said is not None, f"accepted, though {race}: {what}"
                        found[each if race.kind == "unwritten" else race.kind] += 1
                    elif race is None:
                        assert said is None or SHARED in said, f"refused by '{said}': {what}"
                        found["harmless"] += said is None
        assert refusal(module) is None
    print(f"\n{kind}: {dict(found)}")
    assert found.keys() >= {"other operand", "dropped writer", "harmless"}


def parts(count: int) -> ModuleOp:
    """A slot that as many instructions write as read it, each a column of its own, on three streams."""
    outside, whole = "!emit.buffer<8xf32, bound>", f"!emit.buffer<8x{count}xf32, arena>"
    column = f"!emit.buffer<8xf32, arena, strides [{count}]>"
    buffers = [f'%x = emit.bind input "x" : {outside}', f"%a = emit.slot : {whole}"]
    instructions: list[str] = []
    for number in range(2 * count):
        slot = number % count
        if number < count:
            buffers.append(f"%v{slot} = emit.view %a offset({slot}) : {whole} to {column}")
            buffers.append(f'%y{slot} = emit.bind output "y{slot}" : {outside}')
            operands = f"ins(%x : {outside}) outs(%v{slot} : {column})"
        else:
            operands = f"ins(%v{slot} : {column}) outs(%y{slot} : {outside})"
        after = f'"i{number - 3}" full' if number >= 3 else ""
        instructions.append(
            f'emit.resolved "relu" id(1) name("i{number}") src(["i{number}"]) {operands} '
            f"stream({number % 3}) after([{after}])"
        )
    text = "\n".join(['emit.program @parts attributes {phase = "scheduled"} {', *buffers, *instructions, "}"])
    return parse_module(text, "parts.mlir")


def test_the_work_grows_with_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an access touches is worked out a fixed number of times, however many parts a buffer has."""
    calls = 0
    original = StridedBytes.of

    def counted(lowest: int, shape: Sequence[int], strides: Sequence[int], width: int) -> StridedBytes:
        nonlocal calls
        calls += 1
        return original(lowest, shape, strides, width)

    monkeypatch.setattr(StridedBytes, "of", counted)
    counts: list[int] = []
    for count in (60, 120):
        module, calls = parts(count), 0
        assert refusal(module) is None
        counts.append(calls)
    assert 0 < counts[1] < 2.5 * counts[0]
