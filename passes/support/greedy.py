"""A worklist driver for rewrite patterns that folds and removes no op by itself.

xDSL's greedy applier deletes unused pure ops and has no limit. Here only the patterns change the program, an op is
looked at again only when something around it changed, and a set of patterns that never settles is an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from aicf.errors import AicfError

PatternTable = Mapping[type[Operation], Sequence[RewritePattern]]
"""Op class to the patterns that may match it, in order of preference."""

REWRITES_PER_OP = 16
"""Budget: on average no op is rewritten more often before the patterns are held to run in circles."""


def apply_patterns(module: ModuleOp, patterns: PatternTable) -> int:
    """Apply patterns to all ops of a module until none matches.

    Returns:
        The number of rewrites done.

    Raises:
        AicfError: the patterns did not settle within the budget.
    """
    worklist = _Worklist(op for op in module.walk() if type(op) in patterns)
    budget = REWRITES_PER_OP * max(len(worklist), 1)
    rewrites = 0
    while (op := worklist.pop()) is not None:
        if not _rewrite(op, patterns[type(op)], worklist, patterns):
            continue
        rewrites += 1
        if rewrites > budget:
            raise AicfError(
                f"rewriting did not settle after {budget} rewrites, last at {op.name}; two patterns undo "
                "each other"
            )
    return rewrites


def _rewrite(
    op: Operation, candidates: Sequence[RewritePattern], worklist: _Worklist, patterns: PatternTable
) -> bool:
    def revisit(changed: Operation) -> None:
        if type(changed) in patterns:
            worklist.push(changed)

    def revisit_users(replaced: Operation, values: Sequence[SSAValue | None]) -> None:
        for value in values:
            if value is not None and isinstance(value.owner, Operation):
                revisit(value.owner)

    for pattern in candidates:
        rewriter = PatternRewriter(op)
        rewriter.operation_insertion_handler.append(revisit)
        rewriter.operation_modification_handler.append(revisit)
        rewriter.operation_replacement_handler.append(revisit_users)
        rewriter.operation_removal_handler.append(worklist.remove)
        pattern.match_and_rewrite(op, rewriter)
        if rewriter.has_done_action:
            return True
    return False


class _Worklist:
    """First in, first out; an op is in it once."""

    def __init__(self, ops: Iterable[Operation]) -> None:
        self._queue = deque(ops)
        self._waiting = set(self._queue)

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, op: Operation) -> None:
        if op not in self._waiting:
            self._waiting.add(op)
            self._queue.append(op)

    def remove(self, op: Operation) -> None:
        self._waiting.discard(op)

    def pop(self) -> Operation | None:
        while self._queue:
            op = self._queue.popleft()
            if op in self._waiting:
                self._waiting.remove(op)
                return op
        return None
