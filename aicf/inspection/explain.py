"""What was decided about a compiled program and why: the ledger joined with the plan by id.

Plain data and plain text; how a terminal shows it is the command line's affair. It reads no IR and decides nothing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from aicf.errors import InputMismatch, did_you_mean
from aicf.inspection.explain_precision import Precision, precision_in
from aicf.pass_files import passes_in
from aicf.runtime.capture_plan import ARENA, CapturePlan, Launch, ModulePlan, OperandRef
from aicf.runtime.graph import Bind, HostValue, Node
from aicf.runtime.tensors import describe, numpy_dtype, span_bytes
from aicf.support.arguments import text_from

ELIDES = "elide-concats"
"""The pass that makes instructions views of what others write."""

LAYS_OUT = "select-layouts"
"""The pass that says in which order results lie in memory."""
_USUAL_LAYOUT = "row_major"

_READS = "lower-onnx"
"""The pass that says what a model declares of its values and is not so."""
_SELECTS = "select-kernels"
_SAVES = "eliminate-saves"
_SAVE_CHOICES = ("keep", "alias", "recompute")
STEP = "train-step"
"""Who makes the entries of the ledger that say whose gradients a step has."""
_PLANS_MEMORY = "plan-memory"


@dataclass(frozen=True)
class Decision:
    """One entry of the ledger.

    Args:
        made_by: Name of the pass.
        subjects: Ids of the ops, or symbols of the programs, it is about.
        choice: What was decided.
        because: Why.
        rejected: Reason against each alternative.
        cost: Figures it rests on, the unit in the key.
    """

    made_by: str
    subjects: tuple[str, ...]
    choice: str
    because: str
    rejected: dict[str, object]
    cost: dict[str, object]

    @property
    def is_of_fusion(self) -> bool:
        """Whether a pass made it that forms instructions of several ops."""
        return self.made_by in passes_in("fusion")

    def lines(self) -> list[str]:
        """The decision in words: a line, then one for each rejected alternative."""
        figures = ", ".join(f"{key} {value}" for key, value in self.cost.items())
        head = f"{self.made_by} of {self.subjects[0]}: {self.choice}, because {self.because}"
        return [
            head + (f" ({figures})" if figures else ""),
            *(f"  {line}" for line in self.against()),
        ]

    def against(self) -> list[str]:
        """A line for each rejected alternative."""
        return [f"not {name}: {why}" for name, why in self.rejected.items()]


def wrong_declarations(decisions: Sequence[Decision]) -> list[Decision]:
    """Those that say what an ONNX model declares of its values and is not so."""
    return [decision for decision in decisions if decision.made_by == _READS]


def warning_of(wrong: Sequence[Decision]) -> str:
    """One line about such decisions, of which there is at least one."""
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return f"wrong declarations in the model, the inferred types hold: {wrong[0].because}{more}"


@dataclass(frozen=True)
class InstructionRow:
    """One instruction: what it is, which kernel runs it, and what was decided about it.

    Args:
        src: Ids of the ops it stands for.
        decisions: Choice and reason, of the group first and then of the kernel.
        expected_us: Microseconds, measured or predicted; None if no pass said.
        measured: Whether they were measured.
        rejected: A line for each kernel and variant that was not taken, with the reason.
        bytes: Bytes of its operands and results.
    """

    name: str
    kind: str
    kernel: str
    src: tuple[str, ...]
    decisions: tuple[tuple[str, str], ...]
    expected_us: float | None
    measured: bool
    rejected: tuple[str, ...]
    bytes: int

    @property
    def time(self) -> str:
        """The microseconds in words, empty if unknown."""
        if self.expected_us is None:
            return ""
        return f"{microseconds(self.expected_us)} us {'measured' if self.measured else 'predicted'}"

    @property
    def work(self) -> str:
        """What it stands for, its bytes and its time, in words."""
        time = f", {self.time}" if self.time else ""
        return f"for {', '.join(self.src)}: {self.bytes:,} bytes{time}"

    def lines(self) -> Iterator[str]:
        """The row in words, then its decisions, in lines of at most `WIDTH` letters."""
        yield from wrapped(f"{self.name} {self.kind} by {self.kernel} {self.work}", "")
        for choice, because in self.decisions:
            yield from wrapped(f"{choice}: {because}", "    ")


WIDTH = 110
"""Letters of a line of plain text."""


def wrapped(text: str, indent: str) -> list[str]:
    """A text in lines of at most `WIDTH` letters, where its words allow it."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def microseconds(us: float) -> str:
    """A time in figures: two decimals, a third where those would say little, and never zero."""
    if us < 0.001:
        return "<0.001"
    return f"{us:.3f}" if us < 0.1 else f"{us:.2f}"


@dataclass(frozen=True)
class ProgramExplanation:
    """The instructions of one program, its memory, and the least memory any placement takes (None: unknown).

    `notes` has what was decided about it as a whole: whose gradients a step has.
    """

    name: str
    rows: tuple[InstructionRow, ...]
    arena_bytes: int
    lower_bound_bytes: int | None
    notes: tuple[str, ...] = ()

    @property
    def memory(self) -> str:
        """Arena and lower bound in words."""
        bound = self.lower_bound_bytes
        compared = "" if bound is None else f", lower bound {bound:,}"
        return f"arena {self.arena_bytes:,} bytes{compared}"


@dataclass(frozen=True)
class Saves:
    """Where the backward part of a training step takes what it reads of the forward part from.

    Args:
        kept: How many values have memory of their own until they are read, and its bytes.
        aliases: How many lie in memory that is there anyway.
        again: Those that are computed again, by the id of the save, with the reason.
    """

    kept: tuple[int, int]
    aliases: int
    again: Mapping[str, str]

    def __str__(self) -> str:
        count, size = self.kept
        return (
            f"saved for the backward part: {count} kept ({size:,} bytes), {self.aliases} in memory that is there "
            f"anyway, {len(self.again)} computed again"
        )

    def lines(self) -> Iterator[str]:
        """The counts, then what is computed again, in lines of at most `WIDTH` letters."""
        yield from wrapped(str(self), "")
        for name, because in self.again.items():
            yield from wrapped(f"{name}: {because}", "    ")


def saves_of(decisions: Sequence[Decision]) -> Saves | None:
    """What `eliminate-saves` decided; None if there was nothing to decide."""
    own = [each for each in decisions if each.made_by == _SAVES and each.choice in _SAVE_CHOICES]
    kept = [each for each in own if each.choice == "keep"]
    size = sum(int(bytes_) for each in kept if isinstance(bytes_ := each.cost.get("bytes"), int | float))
    again = {each.subjects[0]: each.because for each in own if each.choice == "recompute"}
    aliases = sum(each.choice == "alias" for each in own)
    return Saves((len(kept), size), aliases, again) if own else None


@dataclass(frozen=True)
class Explanation:
    """The instructions of all programs; `str()` is plain text."""

    title: str
    programs: tuple[ProgramExplanation, ...]
    saves: Saves | None = None
    precision: Precision | None = None

    def __str__(self) -> str:
        blocks = [self.title]
        if self.precision is not None:
            blocks.append("\n".join(each for line in self.precision.lines() for each in wrapped(line, "")))
        for program in self.programs:
            lines = [line for row in program.rows for line in row.lines()]
            notes = [line for entry in program.notes for line in wrapped(entry, "")]
            blocks.append("\n".join([f"@{program.name}: {program.memory}", *notes, *lines]))
        if self.saves is not None:
            blocks.append("\n".join(self.saves.lines()))
        return "\n\n".join(blocks)

    @property
    def rejected(self) -> str:
        """Every instruction with its kernel, and under it the kernels that were not taken, each with its reason."""
        blocks = [self.title]
        for program in self.programs:
            lines = [f"@{program.name}"]
            for row in program.rows:
                because = row.decisions[-1][1] if row.decisions else "it was given"
                lines.append(
                    f"{row.name}: {', '.join(filter(None, (row.kernel, row.time)))}, because {because}"
                )
                lines += [f"  {line}" for line in row.rejected]
            blocks.append("\n".join(lines))
        return "\n\n".join(blocks)


@dataclass(frozen=True)
class ValueExplanation:
    """What became of one value or op; `str()` is plain text.

    Args:
        became: What it is in the programs, one line each.
        decisions: Every decision about it, in the order they were made.
    """

    value: str
    became: tuple[str, ...]
    decisions: tuple[Decision, ...]

    @property
    def rejected(self) -> str:
        """The kernel of each instruction it became, and under it those that were not taken, each with its reason."""
        selected = [decision for decision in self.decisions if decision.made_by == _SELECTS]
        lines = [line for decision in selected for line in decision.lines()]
        return "\n".join([self.value, *(lines or ["no kernel was chosen for it"])])

    def __str__(self) -> str:
        lines = [self.value, "became:", *(f"  {line}" for line in self.became)]
        if self.decisions:
            lines.append("because:")
            lines += [f"  {line}" for decision in self.decisions for line in decision.lines()]
        return "\n".join(lines)


def format_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned plain text."""
    table = [columns, *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def explain_programs(title: str, plan: ModulePlan, decisions: Sequence[Decision]) -> Explanation:
    """The instruction table of every program, `@prepare` last."""
    rows = tuple(_explain_program(program, decisions) for program in plan.all_programs)
    return Explanation(title, rows, saves_of(decisions), precision_in(decisions))


def _explain_program(plan: CapturePlan, decisions: Sequence[Decision]) -> ProgramExplanation:
    rows = tuple(
        _row(node, launch, plan, decisions)
        for node, launch in zip(plan.graph.nodes, plan.launches, strict=True)
    )
    notes = tuple(
        f"{decision.choice}: {decision.because}"
        for decision in decisions
        if _is_about(decision, STEP, plan.name)
    )
    return ProgramExplanation(plan.name, rows, plan.arena_bytes, lower_bound_of(plan.name, decisions), notes)


def lower_bound_of(program: str, decisions: Sequence[Decision]) -> int | None:
    """The least bytes that any placement of a program's intermediates takes; None if the ledger does not say."""
    costs = [decision.cost for decision in decisions if _is_about(decision, _PLANS_MEMORY, program)]
    bound = costs[0].get("lower_bound_bytes") if costs else None
    return int(bound) if isinstance(bound, int | float) else None


def _is_about(decision: Decision, made_by: str, subject: str) -> bool:
    return decision.made_by == made_by and subject in decision.subjects


def _layout_of(name: str, decisions: Sequence[Decision]) -> Iterator[tuple[str, str]]:
    """How the results of an instruction lie in memory, if that was a question: in full where the ledger has it first,
    and short for those that were decided with it and lie otherwise than by default."""
    for decision in decisions:
        if _is_about(decision, LAYS_OUT, name):
            first, layout = decision.subjects[0], decision.choice.partition(" ")[0]
            if first == name:
                yield decision.choice, decision.because
            elif layout != _USUAL_LAYOUT:
                yield layout, f"with {first}"


def _row(node: Node, launch: Launch, plan: CapturePlan, decisions: Sequence[Decision]) -> InstructionRow:
    own = [decision for decision in decisions if decision.subjects[:1] == (node.name,)]
    fused = [decision for decision in own if decision.is_of_fusion]
    selected = next((decision for decision in reversed(own) if decision.made_by == _SELECTS), None)
    telling = [*fused, *([selected] if selected else own[:1])]
    laid_out = _layout_of(node.name, decisions)
    expected = selected.cost.get("expected_us") if selected else None
    return InstructionRow(
        name=node.name,
        kind=node.kind,
        kernel=launch.kernel,
        src=node.src,
        decisions=(*((decision.choice, decision.because) for decision in telling), *laid_out),
        expected_us=float(expected) if isinstance(expected, int | float) else None,
        measured=selected is not None and "cold_us" in selected.cost,
        rejected=tuple(selected.against()) if selected else (),
        bytes=moved_bytes(node.kind, launch, plan),
    )


def moved_bytes(kind: str, launch: Launch, plan: CapturePlan) -> int:
    """Bytes of the operands and results of an instruction of a kind, each once; of matrices that indices choose, one
    for each index, and no more than there are."""
    ins = [_touched_bytes(operand, plan) for operand in launch.ins]
    if kind == "matmul_blocks" and len(ins) == 3:
        _, matrices, indices = launch.ins
        count = matrices.shape[0]
        ins[1] = ins[1] * min(count, prod(indices.shape)) // max(count, 1)
    return sum(ins) + sum(_touched_bytes(operand, plan) for operand in launch.outs)


def _touched_bytes(operand: OperandRef, plan: CapturePlan) -> int:
    if operand.layout is not None:
        return plan.graph.binds[operand.base - 1].nbytes
    each = numpy_dtype(operand.dtype).itemsize * prod(
        operand.shape
    )  # of a strided part, not what lies between its rows
    return min(each, span_bytes(operand.shape, operand.strides, operand.dtype))


# One value


def explain_value(plan: ModulePlan, decisions: Sequence[Decision], value: str) -> ValueExplanation:
    """What `value` became: an op id (`fc1`, with or without its bucket), an instruction, an input, output or weight.

    Raises:
        InputMismatch: nothing has that name; the message lists the closest ones.
    """
    text_from(value, InputMismatch, "the name to explain")
    plans = plan.all_programs
    named = {s for d in decisions for s in d.subjects if stands_for(s, value)}
    groups = {d.subjects[0] for d in decisions if d.is_of_fusion and named.intersection(d.subjects)}
    became: list[str] = []
    for program in plans:
        became += _became_bind(program, value)
        for node, launch in zip(program.graph.nodes, program.launches, strict=True):
            if value in node.src or stands_for(node.name, value) or node.name in groups:
                became.append(_describe_instruction(node, launch, program))
                named.add(node.name)
    about = tuple(d for d in decisions if named.intersection(d.subjects))
    if not became and not about:
        raise unknown(plans, decisions, value)
    return ValueExplanation(value, tuple(became) or ("no instruction: a pass removed it",), about)


def stands_for(identity: str, value: str) -> bool:
    """Whether an id is `value`, one of its buckets, or one of the ops it was lowered to."""
    stem = identity.partition("@")[0]
    return identity == value or stem == value or stem.startswith(f"{value}.")


def _became_bind(plan: CapturePlan, value: str) -> Iterator[str]:
    for index, bind in enumerate(plan.graph.binds, ARENA + 1):
        # A prepared weight is called after the weight.
        if bind.name == value or (bind.role == "derived" and bind.name.partition(":")[0] == value):
            yield _describe_bind(plan, bind, index)


def _describe_bind(plan: CapturePlan, bind: Bind, index: int) -> str:
    readers = [
        launch.name for launch in plan.launches if any(operand.base == index for operand in launch.ins)
    ]
    writers = [
        launch.name for launch in plan.launches if any(operand.base == index for operand in launch.outs)
    ]
    parts = [f"@{plan.name}: {bind.role} {describe(bind.shape, bind.dtype)}"]
    parts += [f"bound {_binding(bind)}"] if bind.binding else []
    parts += [_host_text(bind.host)] if bind.host is not None else []
    parts += [f"prepared as {bind.layout}"] if bind.layout else []
    parts += [f"read by {', '.join(readers)}"] if readers else []
    parts += [f"written by {', '.join(writers)}"] if writers else []
    return ", ".join(parts)


def _host_text(host: HostValue) -> str:
    """How the executable computes a meta, in words."""
    if host.formula is None:
        return f"kept by the executable: for the next run what '{host.next}' is in this one"
    of = " and ".join(f"'{operand}'" if isinstance(operand, str) else str(operand) for operand in host.of)
    numbers = "".join(f", {name} {value}" for name, value in host.numbers.items())
    return f"set by the executable before each run: {host.formula} of {of}{numbers}"


def _binding(bind: Bind) -> str:
    if bind.binding == "staged":
        return f"staged: copied through {bind.nbytes:,} bytes of ours"
    return f"{bind.binding}" + (f" at a multiple of {bind.align} bytes" if bind.align else "")


def _describe_instruction(node: Node, launch: Launch, plan: CapturePlan) -> str:
    results = ", ".join(describe_operand(operand, plan) for operand in launch.outs)
    others = f", with {', '.join(node.src)}" if len(node.src) > 1 else ""
    return f"@{plan.name}: instruction {node.name}, {node.kind} by {launch.kernel}{others}, into {results}"


def describe_operand(operand: OperandRef, plan: CapturePlan) -> str:
    """An operand's tensor and its memory, in words."""
    tensor = describe(operand.shape, operand.dtype)
    if operand.base == ARENA:
        return f"{tensor} at byte {operand.offset} of the arena"
    bind = plan.graph.binds[operand.base - ARENA - 1]
    return f"{tensor} in {bind.role} '{bind.name}'"


def unknown(plans: Sequence[CapturePlan], decisions: Sequence[Decision], value: str) -> InputMismatch:
    """The error for a name that nothing in the program has, with the closest that there are."""
    known = dict.fromkeys(source for plan in plans for node in plan.graph.nodes for source in node.src)
    known |= dict.fromkeys(bind.name for plan in plans for bind in plan.graph.binds)
    known |= dict.fromkeys(node.name for plan in plans for node in plan.graph.nodes)
    known |= dict.fromkeys(subject for decision in decisions for subject in decision.subjects)
    hint = did_you_mean(value, known) or f"it has {', '.join(list(known)[:24])}"
    return InputMismatch(f"the program has no value or op '{value}'; {hint}")
