"""What a replay costs beyond the native code: one instruction, replayed from Python and looped in one native call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
from timing import interleaved

import aicf
from aicf.backends.cpu.runtime.loader import load_object

ELEMENTS = 64
LOOPS = 1000

LOOP = """
define void @loop(i64 %count, ptr %entry, ptr %table) {
start:
  br label %again
again:
  %number = phi i64 [ 0, %start ], [ %next, %again ]
  call void %entry(i64 0, i64 1, ptr %table)
  %next = add i64 %number, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %again, label %end
end:
  ret void
}
"""


def replay_overhead(seconds: float) -> dict[str, float]:
    """Microseconds: a replay, the same entry looped inside one call, and the difference."""
    graph = aicf.Graph("one")
    graph.output(graph.relu(graph.input("x", (ELEMENTS,))), "y")
    exe = aicf.compile(graph)
    assert len(exe.plan.programs[0].launches) == 1
    x = np.random.default_rng(0).standard_normal(ELEMENTS).astype(np.float32)
    y = np.empty_like(x)
    replay = exe.bind(x=x, y=y).replay
    times = interleaved({"replay": replay, "looped": native_loop(exe, x, y)}, seconds)
    looped = times["looped"] / LOOPS
    return {"replay_us": times["replay"], "looped_us": looped, "overhead_us": times["replay"] - looped}


def native_loop(exe: aicf.CompiledModel, x: np.ndarray, y: np.ndarray) -> Callable[[], None]:
    """A call that runs the only program of `exe` `LOOPS` times on `x` and `y`, and checks that it did."""
    plan = exe.plan.programs[0]
    assert [bind.name for bind in plan.graph.binds] == ["x", "y"] and plan.arena_bytes == 0
    assert not exe.native.functions
    code = load_object(exe.native.code)
    addresses = [0, x.ctypes.data, y.ctypes.data]
    table = (ctypes.c_void_p * len(addresses))(*addresses)
    target = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(LOOP), target)
    engine.finalize_object()
    loop = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(
        engine.get_function_address("loop")
    )
    entry = code.address(plan.entry)

    def run(keep: object = (engine, code, x, y)) -> None:
        loop(LOOPS, entry, ctypes.addressof(table))

    y.fill(-1)
    run()
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    return run
