"""Code of `cuda.gemv`: the kernel text of a record. The templates say how it runs, this says with which operands."""

from __future__ import annotations

from aicf.backends.base import Launch
from aicf.backends.cuda.compiler.code import KernelCode
from aicf.backends.cuda.compiler.launches import KernelLaunch, address_of, launch_in
from aicf.backends.cuda.compiler.specializer import Constant, Snippet, constants_of, part, stage
from aicf.backends.cuda.families.gemm.gemv import template as templates
from aicf.backends.cuda.families.gemm.gemv.epilogue import PointEpilogue, chosen_base
from aicf.backends.cuda.families.gemm.gemv.kernel import read_spec
from aicf.backends.cuda.families.gemm.gemv.prologue import UNPACK, row_program, share_of
from aicf.backends.cuda.families.gemm.gemv.schedule import (
    ColumnsSpec,
    GemvProblem,
    RowsSpec,
    Spec,
    TilesSpec,
    read_problem,
)
from aicf.backends.cuda.families.records import Rounding, is_programmatic, read_rounding, read_shape
from aicf.backends.cuda.target import ELEMENT_BYTES

_PARTS: dict[str, Constant | Snippet] = {
    function.__name__.upper(): part(function)
    for function in (
        templates.weights_along_k,
        templates.weights_along_n,
        templates.extras_of_rounds,
        templates.finish_rounds,
    )
}


def emit(launch: Launch) -> list[KernelLaunch]:
    """The one launch of an instruction."""
    problem, spec = read_problem(launch.kind, launch.record, launch.ins), read_spec(launch.record)
    text = _Text(launch, problem, spec)
    names = [
        "x",
        *(f"in{i}" for i in range(1, len(launch.ins))),
        *(f"out{o}" for o in range(len(launch.outs))),
    ]
    match spec:
        case RowsSpec():
            template, constants = templates.gemv_rows, text.rows(spec)
        case ColumnsSpec():
            template, constants = templates.gemv_columns, text.columns(spec)
        case TilesSpec():
            template, constants = templates.gemv_tiles, text.tiles(spec)
    programmatic = {"PROGRAMMATIC": is_programmatic(launch.record)}
    source = stage(template, {**_PARTS, **text.shared(), **constants, **programmatic})
    source = source.replace("(pointers)", f"({', '.join(names)})", 1)
    code = KernelCode(template.__name__, source, ("ptr",) * len(names), spec.threads, spec.blocks_per_sm)
    arguments = tuple(address_of(ref) for ref in (*launch.ins, *launch.outs))
    return [launch_in(read_shape(launch.record), code, arguments)]


class _Text:
    """The constants of the templates for one instruction."""

    def __init__(self, launch: Launch, problem: GemvProblem, spec: Spec):
        self.launch, self.problem, self.spec = launch, problem, spec
        self.rounding: Rounding = read_rounding(launch.record)
        self.epilogue = PointEpilogue(
            launch, problem.products, problem.epilogue, problem.row_shape, self.rounding, spec.early
        )

    def shared(self) -> dict[str, Constant | Snippet]:
        """What all templates name in capitals."""
        problem, spec = self.problem, self.spec
        share = share_of(problem, spec)
        program = row_program(self.launch, problem, spec, share, self.rounding)
        totals = program.totals * spec.groups * spec.parts * share.lines
        return {
            "M": problem.m,
            "N": problem.n,
            "K": problem.k,
            "VEC": problem.vector,
            "X_WORDS": problem.vector * ELEMENT_BYTES[problem.x_dtype] // 4,
            "X_ROWS": tuple(row * ELEMENT_BYTES[problem.x_dtype] for row in problem.x_rows),
            "PRODUCTS": problem.products,
            "CHUNKS": share.chunks,
            "K_TAIL": share.masked,
            "EARLY_WEIGHTS": all(weight in spec.early for weight in problem.weights),
            "EXTRAS": len(self.epilogue.early) + len(self.epilogue.late),
            "EARLY_EXTRAS": len(self.epilogue.early),
            "WEIGHTS": Snippet((), (), self._weights()),
            "STREAM": _load("stream_u32x4", share.masked),
            "LOAD": _load("load_u32x4", share.masked),
            "UNPACK_W": UNPACK[problem.dtype],
            "UNPACK_X": UNPACK[problem.x_dtype],
            "LOAD_EARLY_EXTRAS": self.epilogue.loads(self.epilogue.early),
            "LOAD_LATE_EXTRAS": self.epilogue.loads(self.epilogue.late),
            "FINISH": self.epilogue.finish(),
            "EARLY_ROW_OPERANDS": Snippet((), program.early),
            "LATE_ROW_OPERANDS": Snippet((), program.late),
            "ROW_PROGRAM": Snippet((), program.body),
            "TOTALS": max(4, -(-totals // 4) * 4),
            "GIVEN": program.given,
            "WORDS": program.words,
        }

    def rows(self, spec: RowsSpec) -> dict[str, Constant | Snippet]:
        """What `gemv_rows` names beside them."""
        problem = self.problem
        return {
            **constants_of(spec),
            "W_ROW_BYTES": problem.w_steps[0] * ELEMENT_BYTES[problem.dtype],
            "SPLIT": spec.parts,
            "COUNT": spec.count(problem),
        }

    def columns(self, spec: ColumnsSpec) -> dict[str, Constant | Snippet]:
        """What `gemv_columns` names beside them."""
        problem = self.problem
        return {
            "W_ROW_BYTES": problem.w_steps[1] * ELEMENT_BYTES[problem.dtype],
            "COLUMNS": spec.columns(problem),
            "LANES_N": spec.lanes,
            "LANES_K": 32 // spec.lanes,
            "LANE_BITS": (32 // spec.lanes).bit_length() - 1,
            "WARPS": spec.parts,
            "THREADS": spec.threads,
            "SHARES": spec.shares,
            "UNROLL": spec.unroll,
            "STEPS": spec.steps(problem),
            "K_PADDED": spec.padded(problem),
            "ROUNDS": -(-problem.m * spec.columns(problem) // spec.threads),
        }

    def tiles(self, spec: TilesSpec) -> dict[str, Constant | Snippet]:
        """What `gemv_tiles` names beside them."""
        problem = self.problem
        step = problem.x_rows[1] - problem.x_rows[0] if problem.m > 1 else 0
        accumulator = tuple(f"c{i}" for i in range(4))
        factors = ("a0", "a1", "a2", "a3", "b0", "b1")
        call = f"mma_{problem.dtype}(({', '.join(accumulator)}), {', '.join(factors)})"
        return {
            **constants_of(spec),
            "W_ROW_BYTES": problem.w_steps[0] * 2,
            "X_ROW_BYTES": step * 2,
            "SPLIT": spec.parts,
            "COLUMNS": spec.columns,
            "SLOTS": spec.slots(problem),
            "STEPS": spec.steps(problem),
            "THREADS": spec.threads,
            "ROUNDS": -(-problem.m * spec.columns // spec.threads),
            "PROLOGUE": self.launch.prologue is not None,
            "PACK": Snippet(("low", "high"), (), f"pack_{problem.dtype}(low, high)"),
            "PRODUCT": Snippet((*accumulator, *factors), (), call),
        }

    def _weights(self) -> str:
        """The weights that this block reads, as a tuple."""
        if self.problem.gated:
            return f"({', '.join(f'in{w}' for w in self.problem.weights)},)"
        return f"({chosen_base([f'in{w}' for w in self.problem.weights])},)"


def _load(intrinsic: str, masked: bool) -> Snippet:
    """16 bytes at an address; with `masked`, zeros unless `inside`."""
    text = f"{intrinsic}_or_zero(address, inside)" if masked else f"{intrinsic}(address)"
    return Snippet(("address", "inside"), (), text)
