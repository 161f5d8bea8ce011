"""Kernels of users: what a package says of one, and what all backends ask of it. No code generator is imported here.

A backend that can run them gives the class that makes a `Kernel` of each (`UserKernelBackend`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, prod
from types import FunctionType
from typing import Any, TypeAlias, TypeVar, cast

from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FloatAttr, StringAttr, f64
from xdsl.ir import Attribute

from aicf.backends.common.kernel import UndecidedKernel
from aicf.backends.common.record import Record, RecordError, integer
from aicf.backends.common.user_code import UserCode, function_digest
from aicf.backends.common.workload import OperandInfo, Workload
from aicf.dialects.custom_ops import DEFINED as DEFINED_OPS
from aicf.dialects.custom_ops import OWN, import_packages, plain_values
from aicf.dialects.emit_types import DETERMINISM, TargetAttr, contiguous_strides
from aicf.dialects.json_values import json_value
from aicf.dialects.kinds import KINDS
from aicf.dialects.logical import CustomOp
from aicf.dialects.types import element_named
from aicf.errors import BackendUnavailable, PolicyError, quoted

CUSTOM = "custom"
"""Kind of the instructions of ops of users, and of ops that are kept whole."""
CODE = "code"
"""Entry of a record: the digest of the code."""

Number: TypeAlias = int | float
Value = TypeVar("Value")


@dataclass(frozen=True)
class Tensor:
    """An operand, a result or a workspace as the functions of a user's kernel see it.

    Args:
        shape: Sizes.
        dtype: Name of the element type, such as `f32`.
        strides: Elements between neighbours, one a dimension.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * element_named(self.dtype).bytes


@dataclass(frozen=True)
class Problem:
    """What a kernel is asked to run.

    Args:
        operands, results: As it reads and writes them.
        attributes: Those of the op, or of the kind of the instruction.
        arch: The target's level, such as `x86-64-v4` or `sm_90a`.
    """

    operands: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    attributes: Mapping[str, Any]
    arch: str

    @property
    def traffic_bytes(self) -> int:
        """Bytes of all operands and results."""
        return sum(tensor.nbytes for tensor in (*self.operands, *self.results))


@dataclass(frozen=True)
class LaunchShape:
    """How a kernel is launched on a GPU: blocks, threads of a block, and bytes of dynamic shared memory."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0


Rule: TypeAlias = Callable[[Problem], Value] | Value
"""A value, or what gives it for a problem."""


@dataclass(frozen=True)
class UserKernel:
    """What a package says of a kernel; `aicf.kernel` explains the arguments."""

    id: str
    runs: str
    code: UserCode
    cost_us: Callable[[Problem], float] | None = None
    legal: Callable[[Problem], str | None] | None = None
    arguments: Rule[Sequence[Number]] = ()
    launch: Rule[LaunchShape] | None = None
    workspace_bytes: Rule[int] = 0
    in_place: tuple[tuple[int, int], ...] = ()
    strided: bool = False
    dtypes: tuple[str, ...] | None = None
    alignment: int = 1
    determinism: str = "bitwise"
    order: str | None = None
    version: int = 1
    module: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.code, UserCode):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PolicyError(  # pyright: ignore[reportUnreachable]
                f"kernel '{self.id}': code is {quoted(self.code)}; give a CpuFunction, SharedFunction, CudaFunction or "
                "CudaSource"
            )
        if self.determinism not in DETERMINISM:
            raise PolicyError(
                f"kernel '{self.id}': determinism is {quoted(self.determinism)}; legal: {', '.join(DETERMINISM)}"
            )
        if self.backend == "cuda" and self.launch is None:
            raise PolicyError(f"kernel '{self.id}' runs on a GPU: give its launch, a LaunchShape")
        if self.cost_us is None and not self.runs_custom_op:
            raise PolicyError(
                f"kernel '{self.id}' competes with others for {self.runs}: give cost_us, its predicted microseconds"
            )

    @property
    def backend(self) -> str:
        """The backend that it is for."""
        return self.code.backend

    @property
    def kind(self) -> str:
        """The kind of instruction that it runs."""
        return self.runs if self.runs in KINDS else CUSTOM

    @property
    def runs_custom_op(self) -> bool:
        """Whether it runs an op of a user, which has no other kernel but those of users."""
        return self.kind == CUSTOM and not self.runs.startswith("logical.")

    def ask(self, rule: Rule[Value], problem: Problem) -> Value:
        """The value of a rule. Raises PolicyError, with the kernel's name, for a function that raises."""
        if not callable(rule):
            return rule
        try:
            return cast("Callable[[Problem], Value]", rule)(problem)
        except Exception as error:  # a function of a user may raise anything
            raise PolicyError(
                f"kernel '{self.id}': a rule of its definition raises {type(error).__name__}: {error}"
            ) from error


class UserKernelBase(UndecidedKernel):
    """What kernels of users are on every backend; a subclass says what its code takes, and how it is launched."""

    TRAFFIC_BYTES_PER_US: float = 5_000.0
    """For the price of a kernel without one: as if it only read and wrote memory, slowly."""

    def __init__(self, spec: UserKernel) -> None:
        self.spec = spec
        self.id = spec.id
        self.version = spec.version
        self.kinds = frozenset({spec.kind})
        self.determinism = spec.determinism
        self.library = "user"

    @cached_property
    def digest(self) -> str:
        """Of the code; worked out once, for it may be that of a large file."""
        return self.spec.code.digest

    def is_for(self, work: Workload) -> bool:
        """See `Kernel`: of the op that it runs."""
        return work.kind == self.spec.kind and (work.kind != CUSTOM or op_label(work) == self.spec.runs)

    def code_reason(self, problem: Problem) -> str | None:
        """Why the code cannot take operands of these types; None if it can."""
        return None

    def more_entries(self, problem: Problem) -> dict[str, Attribute]:
        """Entries of the record that only this backend has."""
        return {}

    def legal(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: of the op that it is for, with operands as its definition wants them."""
        if not self.is_for(work):
            return f"it runs {self.spec.runs}, this is {op_label(work)}"
        if any(info.layout is not None for info in work.operands):
            return "it reads plain memory"
        problem = problem_of(work, target)
        tensors = (*problem.operands, *problem.results)
        if not self.spec.strided and (wrong := next(filter(_is_strided, tensors), None)) is not None:
            return f"it takes row-major tensors, one of shape {list(wrong.shape)} has strides {list(wrong.strides)}"
        if self.spec.dtypes is not None:
            wrong = next((each for each in tensors if each.dtype not in self.spec.dtypes), None)
            if wrong is not None:
                return f"element type {wrong.dtype} is not one of {', '.join(self.spec.dtypes)}"
        if not all(_is_aligned(info, self.spec.alignment) for info in (*work.operands, *work.results)):
            return f"it takes addresses that are multiples of {self.spec.alignment} bytes"
        if (reason := self.code_reason(problem)) is not None:
            return reason
        return None if self.spec.legal is None else self.spec.ask(self.spec.legal, problem)

    def cost_us(self, work: Workload, target: TargetAttr) -> float:
        """See `Kernel`: as its definition says."""
        problem = problem_of(work, target)
        if self.spec.cost_us is None:
            return problem.traffic_bytes / self.TRAFFIC_BYTES_PER_US
        cost = float(self.spec.ask(self.spec.cost_us, problem))
        if not isfinite(cost) or cost < 0:
            raise PolicyError(f"kernel '{self.id}': cost_us gives {cost}; it is a number of microseconds")
        return cost

    def record_of(self, work: Workload, target: TargetAttr, schedule: None) -> dict[str, Attribute]:
        """See `Kernel`: which code it is, and the numbers that it is given."""
        spec, problem = self.spec, problem_of(work, target)
        workspace = spec.ask(spec.workspace_bytes, problem)
        return {
            "runs": StringAttr(spec.runs),
            CODE: StringAttr(self.digest),
            "arguments": _numbers(spec, problem),
            **({"workspace_bytes": integer(workspace)} if workspace else {}),
            **({"may_alias": _pairs(spec.in_place)} if spec.in_place else {}),
            **({"combination_order": StringAttr(spec.order)} if spec.order is not None else {}),
            **self.more_entries(problem),
        }

    def read(self, work: Workload, record: Record, target: TargetAttr) -> None:
        """See `Kernel`. Raises RecordError for a record of other code."""
        found = record.get(CODE)
        if found != StringAttr(self.digest):
            text = found.data if isinstance(found, StringAttr) else "none"
            raise RecordError(
                f"its '{CODE}' is {text[:12]}, and kernel '{self.id}' has {self.digest[:12]} here: it was edited since"
            )

    def fixed_order(self, work: Workload, target: TargetAttr) -> str | None:
        """See `Kernel`: as its definition says."""
        return self.spec.order


def problem_of(work: Workload, target: TargetAttr) -> Problem:
    """A piece of work as a user's functions see it."""
    op = _custom_op(work)
    attributes = DictionaryAttr(dict(work.attrs)) if op is None else op.parameters
    return Problem(
        tuple(map(_tensor, work.operands)),
        tuple(map(_tensor, work.results)),
        plain_values(attributes),
        target.arch.data,
    )


def op_label(work: Workload) -> str:
    """The name of the op of a `custom` instruction."""
    op = _custom_op(work)
    return work.kind if op is None else op.label


def _custom_op(work: Workload) -> CustomOp | None:
    return next((op for op in work.body.ops if isinstance(op, CustomOp)), None)


def _tensor(info: OperandInfo) -> Tensor:
    return Tensor(info.shape, info.dtype, info.strides)


def _is_strided(tensor: Tensor) -> bool:
    """Whether the elements lie otherwise than row-major and dense."""
    return tensor.strides != contiguous_strides(tensor.shape)


def _is_aligned(info: OperandInfo, alignment: int) -> bool:
    return info.offset * element_named(info.dtype).bytes % alignment == 0


def _numbers(spec: UserKernel, problem: Problem) -> ArrayAttr[Attribute]:
    """The numbers that the code is given, by value. Raises PolicyError for what is no number."""
    found: list[Attribute] = []
    for value in spec.ask(spec.arguments, problem):
        match value:
            case bool() | int():
                found.append(integer(int(value)))
            case float():
                found.append(FloatAttr(value, f64))
            case _:
                raise PolicyError(
                    f"kernel '{spec.id}': arguments gives {quoted(value)}; they are whole numbers and floats"
                )
    return ArrayAttr(found)


def _pairs(pairs: Sequence[tuple[int, int]]) -> ArrayAttr[Attribute]:
    return ArrayAttr([ArrayAttr([integer(result), integer(operand)]) for result, operand in pairs])


def read_numbers(record: Record) -> list[Number]:
    """The numbers that a record gives the code. Raises RecordError if it has none."""
    entry = record.get("arguments")
    values = json_value(entry) if entry is not None else None
    found = cast("list[object]", values) if isinstance(values, list) else [None]
    numbers = [each for each in found if isinstance(each, int | float)]
    if len(numbers) != len(found):
        raise RecordError("it lacks 'arguments', a list of numbers")
    return numbers


# The kernels that were defined

DEFINED: dict[str, UserKernel] = {}
"""By id, in this process."""


def define_kernel(spec: UserKernel) -> UserKernel:
    """Adds a kernel, or replaces it by a newer definition from the same module.

    Raises PolicyError: another module defines a kernel of this id.
    """
    known = DEFINED.get(spec.id)
    if known is not None and known.module != spec.module:
        raise PolicyError(
            f"kernel '{spec.id}' is defined by {known.module} and by {spec.module}: rename one of the two"
        )
    DEFINED[spec.id] = spec
    return spec


def defined_kernels(backend: str) -> tuple[UserKernel, ...]:
    """The kernels that packages defined for a backend, by id."""
    return tuple(DEFINED[id_] for id_ in sorted(DEFINED) if DEFINED[id_].backend == backend)


def definitions_stamp() -> list[str]:
    """What programs depend on besides AICF: ops of packages by name and version, and kernels with all their code."""
    import_packages()
    ops = [f"{name} {DEFINED_OPS[name].version}" for name in sorted(DEFINED_OPS) if name not in OWN]
    return [*ops, *(_stamp(DEFINED[id_]) for id_ in sorted(DEFINED) if DEFINED[id_].runs not in OWN)]


def _stamp(spec: UserKernel) -> str:
    rules = (spec.cost_us, spec.legal, spec.arguments, spec.launch, spec.workspace_bytes)
    texts = [function_digest(rule) if isinstance(rule, FunctionType) else repr(rule) for rule in rules]
    fixed = (
        spec.runs,
        spec.in_place,
        spec.strided,
        spec.dtypes,
        spec.alignment,
        spec.determinism,
        spec.order,
    )
    try:
        code = spec.code.digest
    except BackendUnavailable:
        code = "not here"
    return f"{spec.id} {spec.version} {code} {fixed} {texts}"
