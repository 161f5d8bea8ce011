"""What batch invariance costs on a GPU: a token of each sequence of a batch, in the shapes of Llama with random weights
in bf16, with the policy `determinism: batch_invariant` and without it.

    python benchmarks/llm_cuda_batch.py 8B [--sequences 8] [--context 1024] [--filled 768] [--layers 32]

A step is one replay, which takes the tokens that the last one chose. Both programs take turns, from the same position
on; times are medians of rounds, in microseconds, with the least and the most. `--compile-only` runs nothing and needs
no GPU: it prints what is predicted.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from llm_cuda import COMMON, SHAPES, Shapes, random_weights

ROOT = Path(__file__).parent.parent
sys.path[0] = str(ROOT)

import aicf  # noqa: E402
from aicf.dialects.emit import ProgramOp  # noqa: E402
from aicf.frontends.text import make_context  # noqa: E402
from aicf.llm.batch_state import LIMIT, batch_states  # noqa: E402
from aicf.llm.families.llama import Llama  # noqa: E402
from aicf.llm.sampling import Sampling  # noqa: E402
from aicf.llm.token_state import HISTORY, LENGTH  # noqa: E402
from aicf.passes.emit.read_decisions import members_by_instruction  # noqa: E402
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run  # noqa: E402
from aicf.runtime.graph_exec import GraphExec  # noqa: E402

POLICIES: Mapping[str, Mapping[str, str]] = {"free": {}, "invariant": {"determinism": "batch_invariant"}}
PREPARE = "prepare"


def predicted_us(family: Llama, context: int, sequences: int, policy: Mapping[str, str]) -> float:
    """Of all instructions of a step, one after the other."""
    module = family.decoder("llama", context, "bf16", is_batch=True).module()
    run(
        AicfInferencePass("cuda:sm_90a", json.dumps(policy), dims=f"T={sequences}").passes(),
        make_context(),
        module,
    )
    times = [
        op.expected_us.value.data
        for op in members_by_instruction(module)
        if op.expected_us is not None
        and isinstance(program := op.parent_op(), ProgramOp)
        and program.sym_name.data != PREPARE
    ]
    return sum(times)


def stepper(family: Llama, context: int, sequences: int, filled: int, policy: Mapping[str, str]) -> GraphExec:
    """A step of a batch whose sequences have `filled` tokens each."""
    graph = family.decoder("llama", context, "bf16", is_batch=True)
    states = batch_states(family.states(context, "bf16"), sequences)
    random = np.random.default_rng(1)
    states[LENGTH][:] = filled
    states[HISTORY][:] = random.integers(0, family.vocabulary, states[HISTORY].shape)
    weights = {**random_weights(graph), **states}
    step = aicf.compile(graph, weights, "cuda", dims={"T": [sequences]}, policy=dict(policy)).attach(
        T=sequences
    )
    feeds = {name: np.repeat(feed, sequences) for name, feed in Sampling().feeds().items()}
    step.fill({**feeds, LIMIT: np.full(sequences, context)})
    return step


def times_us(step: GraphExec, tokens: int) -> float:
    """Of a step, the mean of `tokens` of them."""
    start = time.perf_counter()
    step.replay(tokens)
    step.synchronize()
    return (time.perf_counter() - start) * 1e6 / tokens


def main(
    shape: Annotated[str, typer.Argument(help="1B or 8B.")],
    sequences: Annotated[int, typer.Option(min=1, max=32)] = 8,
    context: Annotated[int, typer.Option(min=1, help="Positions of the cache.")] = 1024,
    filled: Annotated[int, typer.Option(min=0, help="Tokens that sequences begin with.")] = 768,
    tokens: Annotated[int, typer.Option(min=1, help="Steps of a round.")] = 24,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds.")] = 9,
    layers: Annotated[int | None, typer.Option(min=1, help="Of the model, if not all.")] = None,
    compile_only: Annotated[bool, typer.Option(help="Predicts, and times nothing.")] = False,
    output: Annotated[Path | None, typer.Option(help="Result as JSON.")] = None,
) -> None:
    """Prints what a step takes with and without the policy, as JSON."""
    if shape not in SHAPES:
        raise typer.BadParameter(f"shape is {shape}; there are {', '.join(SHAPES)}")
    if filled + tokens * (rounds + 1) > context:
        raise typer.BadParameter(f"{tokens} * ({rounds} + 1) tokens after {filled} are more than {context}")
    settings: dict[str, Any] = {**COMMON, **SHAPES[shape]}
    if layers is not None:
        settings["num_hidden_layers"] = layers
    family = Llama(Shapes(settings))
    result: dict[str, Any] = {"shape": shape, "layers": family.layers, "sequences": sequences}
    result |= {"context": context, "filled": filled}
    predicted = {name: predicted_us(family, context, sequences, policy) for name, policy in POLICIES.items()}
    result["predicted_us"] = {name: round(us, 1) for name, us in predicted.items()}
    result["predicted_price"] = round(predicted["invariant"] / predicted["free"] - 1, 4)
    if not compile_only:
        result |= {"tokens": tokens, "rounds": rounds, "device": aicf.devices("cuda")[0].name}
        steps = {
            name: stepper(family, context, sequences, filled, policy) for name, policy in POLICIES.items()
        }
        # The first run of each goes instruction by instruction.
        found = [{name: times_us(step, tokens) for name, step in steps.items()} for _ in range(rounds + 1)][
            1:
        ]
        by_name = {name: sorted(each[name] for each in found) for name in steps}
        result["step_us"] = {
            name: [round(us, 1) for us in (statistics.median(own), own[0], own[-1])]
            for name, own in by_name.items()
        }
        free, fixed = (statistics.median(by_name[name]) for name in POLICIES)
        result["price"] = round(fixed / free - 1, 4)
    text = json.dumps(result, indent=2)
    print(text)
    if output is not None:
        output.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    typer.run(main)
