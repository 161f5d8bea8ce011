"""The CPU benchmark: against ONNX Runtime, OpenVINO, PyTorch and NumPy in the same run, and what compiling,
loading and memory cost.

    python benchmarks/cpu.py [--seconds 3] [--output benchmarks/results/cpu.json]

One thread each, interleaved, medians, random data. Each row has the figure it should reach; none is asserted.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

ROOT = Path(__file__).parent.parent
HOST = ROOT / "benchmarks" / "host"
# Python puts this folder first on its path, where cuda.py would hide the package that PyTorch looks for.
sys.path[0] = str(HOST)

import torch  # noqa: E402
from networks import NETWORKS  # noqa: E402
from overhead import replay_overhead  # noqa: E402
from rivals import PEERS, Case, aicf_bound, case_of, numpy  # noqa: E402
from stacks import BLOCKS, stack  # noqa: E402
from timing import interleaved, machine, write_result  # noqa: E402

import aicf  # noqa: E402
from aicf.dialects.logical import LogicalOp  # noqa: E402
from aicf.dialects.types import tensor_info  # noqa: E402
from aicf.frontends.text import make_context, parse_module, verify_module  # noqa: E402
from aicf.passes.bodies.workload import argument_attrs  # noqa: E402
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run  # noqa: E402

EXAMPLES = ROOT / "examples"
FRESH_RUNS = 5
PIPELINE_OPS = (1000, 2000, 5000)
TARGET = "cpu:x86-64-v3"
"""Of the pipeline: passes ask no machine."""
Row = dict[str, object]


def main() -> None:
    """Runs everything, prints the tables and writes the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each rival of each row")
    parser.add_argument("--sections", default=",".join(SECTIONS), help="which to run")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "cpu.json")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "threads": 1}
    torch.set_num_threads(1)
    with threadpool_limits(1):
        for name in arguments.sections.split(","):
            rows = list(SECTIONS[name](arguments.seconds))
            result[name] = rows
            show(name, rows)
    if "speed" in result:
        result["geometric_mean"] = geometric_mean(result["speed"])
        print(result["geometric_mean"])
    write_result(arguments.output, result)


def speed(seconds: float) -> Iterator[Row]:
    """Every network on bound memory, beside its rivals; the outputs of all agree."""
    for network in NETWORKS:
        case = case_of(network)
        rivals = {"aicf": aicf_bound, **PEERS, "numpy": numpy}
        runs = {name: make(case) for name, make in rivals.items()}
        expected = _exact(case)
        for rival in runs.values():
            for name, found in rival().items():
                np.testing.assert_allclose(found, expected[name], rtol=1e-3, atol=1e-4)
        times = interleaved(runs, seconds)
        best = min(PEERS, key=lambda peer: times[peer])
        ratio = times["aicf"] / times[best]
        yield {
            "network": network.name,
            **{f"{name}_us": round(value, 2) for name, value in times.items()},
            "best_peer": best,
            "ratio": round(ratio, 3),
            "reach": 1.0,
            "reached": ratio <= 1.0,
        }


def _exact(case: Case) -> dict[str, np.ndarray]:
    """The outputs in float64."""
    module = case.network.module().double()
    module.load_state_dict({name: value.double() for name, value in case.module.state_dict().items()})
    with torch.inference_mode():
        found = module.eval()(*(value.double() for value in case.inputs.values()))
    results = found if isinstance(found, tuple) else (found,)
    return dict(zip(case.network.outputs, (value.numpy() for value in results), strict=True))


def overhead(seconds: float) -> Iterator[Row]:
    """A replay of one instruction beside its native entry looped inside one call."""
    found = replay_overhead(seconds)
    yield {
        **{name: round(value, 3) for name, value in found.items()},
        "reach_us": 5.0,
        "reached": found["overhead_us"] <= 5,
    }


def cold_compile(seconds: float) -> Iterator[Row]:
    """Compiling each network in a new process, imports apart; the median of a few."""
    for number, network in enumerate(NETWORKS):
        command = [sys.executable, str(HOST / "compile_one.py"), str(number)]
        found = [
            float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            for _ in range(FRESH_RUNS)
        ]
        value = float(np.median(found))
        yield {"network": network.name, "seconds": round(value, 3), "reach": 2.5, "reached": value <= 2.5}


FRESH = {
    "compile of the digits MLP": (
        """
import time; start = time.perf_counter()
import aicf
exe = aicf.compile(sys.argv[1], sys.argv[2], "cpu", dims="N=1,540")
print(time.perf_counter() - start); exe.save(sys.argv[3])
""",
        2.5,
    ),
    "load of its artifact, after imports": (
        """
import time, aicf; aicf.load; import llvmlite.binding
start = time.perf_counter(); aicf.load(sys.argv[3]); print(time.perf_counter() - start)
assert "numba" not in sys.modules and "xdsl" not in sys.modules
""",
        0.1,
    ),
    "load of its artifact, with imports": (
        """
import time; start = time.perf_counter()
import aicf; aicf.load(sys.argv[3]); print(time.perf_counter() - start)
""",
        None,
    ),
}


def fresh_process(seconds: float) -> Iterator[Row]:
    """Compile and load, each in new processes; the median of a few."""
    with tempfile.TemporaryDirectory() as folder:
        weights, artifact = Path(folder) / "w.safetensors", Path(folder) / "m.aicf"
        safetensors.numpy.save_file(_example_weights(), weights)
        arguments = [str(EXAMPLES / "digits" / "mlp.mlir"), str(weights), str(artifact)]
        for what, (program, reach) in FRESH.items():
            command = [sys.executable, "-c", f"import sys\n{program}", *arguments]
            found = [
                float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                for _ in range(FRESH_RUNS)
            ]
            value = float(np.median(found))
            yield {
                "what": what,
                "seconds": round(value, 4),
                "reach": reach,
                "reached": None if reach is None else value <= reach,
            }


def _example_weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"fc1": (128, 64), "fc2": (64, 128), "fc3": (10, 64)}
    matrices = {f"{name}.weight": shape for name, shape in shapes.items()}
    vectors = {f"{name}.bias": shape[:1] for name, shape in shapes.items()}
    return {
        name: rng.standard_normal(shape).astype(np.float32) for name, shape in (matrices | vectors).items()
    }


def memory(seconds: float) -> Iterator[Row]:
    """Arena against the heaviest set of values that are alive together under happens-before."""
    rng = np.random.default_rng(0)
    programs: dict[str, tuple[Path | aicf.Graph, dict[str, Any]]] = {
        "digits MLP": (EXAMPLES / "digits" / "mlp.mlir", {"dims": "N=1,540"}),
        "pre-norm block": (EXAMPLES / "block" / "block.mlir", {}),
        "pre-norm block, two streams": (EXAMPLES / "block" / "block.mlir", {"policy": {"streams": 2}}),
        "SGD step": (EXAMPLES / "sgd" / "step.mlir", {}),
        **{network.name: (network.build(), {}) for network in NETWORKS},
    }
    for name, (model, options) in programs.items():
        exe = _compile_with_any_weights(model, options, rng)
        for program in exe.explain().programs:
            bound = program.lower_bound_bytes
            if bound is None or program.name == "prepare":
                continue
            ratio = program.arena_bytes / bound if bound else 1.0
            yield {
                "model": name,
                "program": program.name,
                "arena_bytes": program.arena_bytes,
                "lower_bound_bytes": bound,
                "ratio": round(ratio, 3),
                "reach": 1.1,
                "reached": ratio <= 1.1,
            }


def _compile_with_any_weights(
    model: Path | aicf.Graph, options: dict[str, Any], rng: np.random.Generator
) -> Any:
    """Compiles with random weights of the shapes that the program's text gives."""
    module = model.module() if isinstance(model, aicf.Graph) else parse_module(model.read_text(), str(model))
    weights: dict[str, np.ndarray] = {}
    for function in (op for op in module.body.block.ops if isinstance(op, FuncOp)):
        for index, argument in enumerate(function.args):
            attributes = argument_attrs(function, index)
            if attributes["logical.role"].data != "input":
                shape = tensor_info(argument.type).shape
                weights[attributes["logical.name"].data] = rng.standard_normal(shape).astype(np.float32)
    return aicf.compile(module, weights, "cpu", **options)


def pipeline(seconds: float) -> Iterator[Row]:
    """The whole pipeline, past parsing, on networks of growing size; `lowered` counts the primitive ops they become."""
    for block in BLOCKS:
        for ops in PIPELINE_OPS:
            module = stack(block, ops).module()
            verify_module(module)
            counts: list[int] = []
            started = time.perf_counter()
            run(
                AicfInferencePass(target=TARGET).passes(),
                make_context(),
                module,
                partial(_count_lowered, counts),
            )
            elapsed = time.perf_counter() - started
            reach = 8.0 if ops == max(PIPELINE_OPS) else None
            yield {
                "blocks of": block,
                "ops": ops,
                "lowered": counts[0],
                "seconds": round(elapsed, 3),
                "us_per_op": round(elapsed / ops * 1e6, 1),
                "reach": reach,
                "reached": None if reach is None else elapsed <= reach,
            }


def _count_lowered(counts: list[int], done: ModulePass, module: ModuleOp) -> None:
    if done.name == "fold-transposes":
        counts.append(sum(1 for op in module.walk() if isinstance(op, LogicalOp)))


SECTIONS: dict[str, Callable[[float], Iterator[Row]]] = {
    "speed": speed,
    "overhead": overhead,
    "cold_compile": cold_compile,
    "fresh_process": fresh_process,
    "memory": memory,
    "pipeline": pipeline,
}


def geometric_mean(rows: list[Row]) -> Row:
    """Of the times over those of the best peer."""
    mean = math.exp(sum(math.log(float(str(row["ratio"]))) for row in rows) / len(rows))
    return {"ratio": round(mean, 3), "reach": 0.8, "reached": mean <= 0.8}


def show(title: str, rows: list[Row]) -> None:
    """One section as a table."""
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*("" if value is None else f"{value}" for value in row.values()))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


if __name__ == "__main__":
    main()
