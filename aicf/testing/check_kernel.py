"""`check_kernel`: one kernel of a package against the meaning of what it runs, on random operands, run after run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from aicf.backends.common.user_kernel import CUSTOM, UserKernel
from aicf.backends.native import DeviceMemory
from aicf.compilation.compiled import CompiledModel
from aicf.compilation.compiler import compile as compile_model
from aicf.dialects.custom_ops import TensorSpec
from aicf.dialects.types import TensorInfo, element_of_dtype, tensor_info
from aicf.errors import AicfError, PolicyError
from aicf.frontends.builder import Graph, Value
from aicf.runtime import GraphExec
from aicf.runtime.on_device.array import DeviceArray
from aicf.runtime.tensors import Array
from aicf.testing.guarded import GUARD_BYTES, DeviceBuffer, GuardedBuffer, HostBuffer

Operand = Array | TensorSpec | Sequence[int]
Program = Callable[..., Value]

_RELATIVE = {"f64": 1e-10, "f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}
"""How far a result may be from the meaning, in parts of the largest element: what sums of some thousand terms lose."""
_BACKGROUNDS = (0x5A, 0xC3)
"""Bytes that results hold before a run: what a kernel leaves as it was differs between runs."""


class KernelMistake(AicfError, AssertionError):
    """A kernel does what it must not: another result, other bits, writes outside, elements left out."""


@dataclass(frozen=True)
class KernelCheck:
    """What a check found of a kernel that is right.

    Args:
        kernel: Its id.
        target: Where it ran.
        runs: How often.
        largest_error: Of an element, next to the meaning in float64, in parts of the largest element.
        guarded_bytes: Bytes around operands and results that were watched.
    """

    kernel: str
    target: str
    runs: int
    largest_error: float
    guarded_bytes: int


def check_kernel(
    kernel: UserKernel,
    *operands: Operand,
    attributes: Mapping[str, object] | None = None,
    program: Program | None = None,
    target: str | None = None,
    tolerance: float | None = None,
    runs: int = 4,
    bounds: bool = False,
    seed: int = 0,
) -> KernelCheck:
    """Compiles a program of the one op that a kernel runs, runs it, and compares with the op's meaning.

    Args:
        kernel: What `aicf.kernel` gave.
        operands: Arrays, or types to draw random ones of: a `TensorSpec`, or a shape of f32.
        attributes: Of the op.
        program: `program(graph, *operands)` gives the value to check, for kernels of a kind of instruction, such as
            ``lambda graph, x: graph.softmax(x)``; by default the op by its name.
        target: As in `aicf.compile`; this machine's by default.
        tolerance: Largest error, in parts of the largest element of the result; by default by its type.
        runs: How often it runs. The bits are the same in each, unless the kernel is declared `unordered`.
        bounds: Whether to put guard zones around all operands and results, and to say what it writes there. Its
            workspace lies in the arena, which has none; reads outside are not seen, but for their effect.
        seed: Of the random operands.

    Returns:
        How far it was from the meaning.

    Raises:
        KernelMistake: what is wrong, in one line.
        AicfError: the kernel cannot run the op: its `legal` refuses it, or it does not compile.
    """
    if runs < 2:
        raise PolicyError(f"runs is {runs}; it takes 2 to tell whether the bits are the same")
    arrays = _arrays(operands, seed)
    write = program or _program_of(kernel, attributes or {})
    check = _Check(kernel, arrays, write, target or kernel.backend, tolerance)
    found = check.run(runs, bounds)
    if (
        kernel.in_place and kernel.kind == CUSTOM
    ):  # what surrounds an instruction of another kind is fused with it
        check.run_in_place()
    return found


def _arrays(operands: Sequence[Operand], seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [each if isinstance(each, np.ndarray) else _random(each, rng) for each in operands]


def _random(operand: TensorSpec | Sequence[int], rng: np.random.Generator) -> Array:
    spec = operand if isinstance(operand, TensorSpec) else TensorSpec(tuple(operand), "f32")
    info = tensor_info(spec.type())
    if info.element.is_float:
        return rng.standard_normal(info.shape).astype(info.element.dtype)
    return rng.integers(0, 2 if info.element.kind == "bool" else 100, info.shape).astype(info.element.dtype)


def _program_of(kernel: UserKernel, attributes: Mapping[str, object]) -> Program:
    """The op that the kernel runs, in the calls of the builder."""
    method = "op" if kernel.runs_custom_op else kernel.runs.removeprefix("logical.")
    first = (kernel.runs,) if kernel.runs_custom_op else ()
    if method == kernel.runs:
        raise PolicyError(
            f"kernel '{kernel.id}' runs instructions of kind {kernel.runs}: give a program that has one"
        )

    def write(graph: Graph, *values: Value) -> Value:
        return getattr(graph, method)(*first, *values, name="checked", **attributes)

    return write


@dataclass(frozen=True)
class _Check:
    kernel: UserKernel
    arrays: Sequence[Array]
    write: Program
    target: str
    tolerance: float | None

    def run(self, runs: int, bounds: bool) -> KernelCheck:
        """The op alone, on the buffers of the caller."""
        graph = self._graph(lambda graph, values: self.write(graph, *values))
        exe = self._compiled(graph)
        expected = self._expected(graph)
        info = TensorInfo(expected.shape, element_of_dtype(expected.dtype))
        with ExitStack() as cleanup:
            memory = _memory_of(exe)
            inputs = [_buffer(_info_of(array), memory, cleanup) for array in self.arrays]
            output = _buffer(info, memory, cleanup)
            given = {f"x{index}": buffer.argument for index, buffer in enumerate(inputs)}
            bound = exe.bind(given, y=output.argument)
            results = [self._once(bound, inputs, output, number, bounds) for number in range(runs)]
        self._compare_runs(results)
        error = self._compare(results[0], expected)
        guarded = 2 * GUARD_BYTES * (len(inputs) + 1) if bounds else 0
        return KernelCheck(self.kernel.id, self.target, runs, error, guarded)

    def run_in_place(self) -> None:
        """The op between two others, so that its result may overwrite an operand."""
        if not all(_info_of(array).element.is_float for array in self.arrays):
            return
        graph = self._graph(
            lambda graph, values: graph.neg(self.write(graph, *(graph.mul(value, 0.5) for value in values)))
        )
        exe = self._compiled(graph)
        given = {f"x{index}": array for index, array in enumerate(self.arrays)}
        self._compare(
            np.asarray(exe.run(given)["y"]), self._expected(graph), "where it may overwrite an operand, "
        )

    def _graph(self, write: Callable[[Graph, Sequence[Value]], Value]) -> Graph:
        graph = Graph("check")
        infos = [_info_of(array) for array in self.arrays]
        values = [graph.input(f"x{index}", info.shape, info.element.name) for index, info in enumerate(infos)]
        graph.output(write(graph, values), "y")
        return graph

    def _compiled(self, graph: Graph) -> CompiledModel:
        """The program by this kernel. Raises PolicyError if another one runs it."""
        policy = {"kernels": {"checked": self.kernel.id}, "determinism": "any"}
        if not (self.kernel.runs_custom_op or self.kernel.runs.startswith("logical.")):
            policy["kernels"] = {self.kernel.kind: self.kernel.id}
        exe = compile_model(graph, target=self.target, policy=policy)
        ran = {launch.kernel for each in exe.plan.programs for launch in each.launches}
        if self.kernel.id not in ran:
            raise PolicyError(
                f"kernel '{self.kernel.id}' does not run the program: {', '.join(sorted(ran))} does"
            )
        return exe

    def _expected(self, graph: Graph) -> Array:
        given = {f"x{index}": array for index, array in enumerate(self.arrays)}
        return np.asarray(compile_model(graph, target="reference").run(given)["y"])

    def _once(
        self,
        bound: GraphExec,
        inputs: Sequence[GuardedBuffer],
        output: GuardedBuffer,
        number: int,
        bounds: bool,
    ) -> Array:
        """The bits of a run, on operands and memory written anew."""
        for buffer, array in zip(inputs, self.arrays, strict=True):
            buffer.write(array)
        output.write(_BACKGROUNDS[number // 2 % 2])
        bound.replay()
        bound.synchronize()
        result = output.array()
        for index, (buffer, array) in enumerate(zip(inputs, self.arrays, strict=True)):
            if buffer.array().tobytes() != np.ascontiguousarray(array).tobytes():
                raise self._mistake(f"it changes operand {index}, which it may only read")
        if bounds:
            named = [
                *((f"operand {index}", buffer) for index, buffer in enumerate(inputs)),
                ("its result", output),
            ]
            for name, buffer in named:
                if (damage := buffer.damage()) is not None:
                    raise self._mistake(f"around {name} ({buffer.nbytes} bytes) it writes {damage}")
        return result

    def _compare_runs(self, results: Sequence[Array]) -> None:
        """The first two runs find the same bytes in the result before they begin, the third finds others."""
        first = results[0]
        same = [result.tobytes() == first.tobytes() for result in results]
        if not same[1] and self.kernel.determinism == "bitwise":
            raise self._mistake(
                f"two runs differ in {_differing(first, results[1])} elements: it is not deterministic; fix the order "
                "in which it combines terms, or declare it determinism='unordered'"
            )
        if not all(same) and self.kernel.determinism == "bitwise":
            other = results[same.index(False)]
            raise self._mistake(
                f"{_differing(first, other)} elements of the result follow from what was in its memory before: it "
                "leaves them unwritten, or adds to them"
            )

    def _compare(self, result: Array, expected: Array, where: str = "") -> float:
        """The largest error. Raises KernelMistake if it is too large."""
        if result.dtype.kind in "iub":
            if wrong := int((result != expected).sum()):
                raise self._mistake(f"{where}{wrong} of {result.size} elements are not those of the meaning")
            return 0.0
        ours, theirs = result.astype(np.float64), expected.astype(np.float64)
        finite = np.isfinite(theirs)
        if wrong := int((_special(ours, finite) != _special(theirs, finite)).sum()):
            raise self._mistake(
                f"{where}{wrong} elements are not NaN or infinite where the meaning is, or are elsewhere"
            )
        largest = float(np.abs(theirs[finite]).max(initial=0.0))
        error = float(np.abs(ours[finite] - theirs[finite]).max(initial=0.0)) / (largest or 1.0)
        legal = self.tolerance or _RELATIVE[element_of_dtype(expected.dtype).name]
        if error > legal:
            at = np.unravel_index(int(np.argmax(np.where(finite, np.abs(ours - theirs), -1.0))), ours.shape)
            raise self._mistake(
                f"{where}element {[int(index) for index in at]} is {ours[at]:.6g}, the meaning gives {theirs[at]:.6g}: "
                f"an error of {error:.2g} of the largest element, above {legal:.2g}"
            )
        return error

    def _mistake(self, message: str) -> KernelMistake:
        return KernelMistake(f"kernel '{self.kernel.id}' on {self.target}: {message}")


def _special(array: Array, finite: Array) -> Array:
    """What is not finite, as text, and nothing where `finite`."""
    return np.where(finite & np.isfinite(array), "", array.astype(str))


def _differing(first: Array, second: Array) -> int:
    size = first.dtype.itemsize
    as_bytes = [np.frombuffer(array.tobytes(), np.uint8).reshape(-1, size) for array in (first, second)]
    return int((as_bytes[0] != as_bytes[1]).any(axis=1).sum())


def _info_of(array: Array) -> TensorInfo:
    return TensorInfo(array.shape, element_of_dtype(array.dtype))


def _memory_of(exe: CompiledModel) -> DeviceMemory | None:
    """The memory of the device that runs the program; None on the host."""
    output = exe.instantiate()["y"]
    return output.memory if isinstance(output, DeviceArray) else None


def _buffer(info: TensorInfo, memory: DeviceMemory | None, cleanup: ExitStack) -> GuardedBuffer:
    if memory is None:
        return HostBuffer(info)
    buffer = DeviceBuffer(info, memory)
    cleanup.callback(buffer.close)
    return buffer
