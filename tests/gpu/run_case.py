"""Runs one case, or one control, on the GPU: what a checker is given, which looks at whole processes.

    python -m tests.gpu.run_case CASE

The last line says which kernels ran. A case must also give the right results: kernels that did nothing would be clean.
(Those of a program that updates its weights take more than a run to tell, see `test_runtime`.)
"""

from __future__ import annotations

import sys

from tests.gpu.artifacts import obtained
from tests.gpu.cases import RANDOM_OP_CASES, STATELESS
from tests.gpu.controls import CONTROLS, obtained_control
from tests.gpu.harness import POISONS, assert_right, poison, program, results


def main(name: str) -> None:
    """Runs the program on poisoned memory, first instruction by instruction and then as a graph."""
    control = CONTROLS.get(name)
    case = name if control is None else control.case
    graph_exec = (obtained(case) if control is None else obtained_control(name)).instantiate()
    graph_exec.fill(program(case).inputs)
    for value in POISONS:
        poison(graph_exec, value)
        graph_exec.replay()
        graph_exec.synchronize()
    if name in STATELESS or name in RANDOM_OP_CASES:
        assert_right(case, results(graph_exec))
    print(*sorted({launch.kernel for launch in graph_exec.plan.launches}))


if __name__ == "__main__":
    main(*sys.argv[1:])
