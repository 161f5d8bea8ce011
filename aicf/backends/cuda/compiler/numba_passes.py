# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Steps of Numba's compiler in time linear in the length of a kernel, where its own are quadratic or repeat themselves.

A specialized kernel is thousands of statements in a row with hundreds of variables. Numba looks through all statements
once for each variable that is assigned twice (static single assignment), for each value that enters a loop or a
branch (what becomes of its phi nodes), and for each variable that is assigned in one block (variables that need no
memory); it passes all variables through all blocks until none is alive in one more (nine times a kernel); it defines
all variables anew for each block of a scope; and it works out the type of a call again at each site of the same
call. Here the statements that do not name the variable are passed over, a variable goes back through the blocks in
which it is alive and no others, variables are compared by name, assignments are counted once, a scope is filled once,
and a type is worked out once. What is decided stays the same, and so do the bytes of a cubin.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from aicf.backends.cuda.compiler.numba_lowering import terse_lowering
from aicf.backends.cuda.compiler.numba_repeats import fewer_repeats


@contextmanager
def linear_passes() -> Iterator[None]:
    """Compiles with these steps in place of Numba's."""
    from numba.cuda.core import analysis, ir, ssa, untyped_passes
    from numba.cuda.lowering import Lower

    steps = (
        (ssa, "_run_block_rewrite", _only_where_named()),
        (ir.Var, "__eq__", _is_same_variable),
        (ir.Block, "insert_after", _insert_after),
        (ssa._FixSSAVars, "_stmt_index", _index_in_block()),
        (analysis, "compute_live_map", _live_map),
        (untyped_passes, "fixup_var_define_in_scope", _define_in_scopes),
        (Lower, "_find_singly_assigned_variable", _find_singly_assigned_variable),
    )
    with ExitStack() as replaced:
        for owner, name, step in (*steps, *fewer_repeats(), *terse_lowering()):
            replaced.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, step)
        yield


def _is_same_variable(variable: Any, other: Any) -> bool:
    """Numba compares everything but location and scope, which leaves the name."""
    return type(variable) is type(other) and variable.name == other.name


def _insert_after(block: Any, statement: Any, other: Any) -> None:
    """Inserts a statement after another one of the block, found by identity; Numba compares for equality."""
    index = next(index for index, each in enumerate(block.body) if each is other)
    block.body.insert(index + 1, statement)


class _Named:
    """Which statements of a block name a variable."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}  # by id, with the statement, so that no id is used twice
        self._naming: defaultdict[str, set[int]] = defaultdict(set)
        self._labels: defaultdict[str, set[Any]] = defaultdict(set)
        self._scanned: dict[Any, Sequence[Any]] = {}

    def indices(self, label: Any, body: Sequence[Any], name: str) -> list[int]:
        """Indices of the statements that name `name` in the body of block `label`."""
        if self._scanned.get(label) is not body:
            self._scan(label, body)
        if label not in self._labels[name]:
            return []
        naming = self._naming[name]
        return [index for index, statement in enumerate(body) if id(statement) in naming]

    def _scan(self, label: Any, body: Sequence[Any]) -> None:
        self._scanned[label] = body
        for statement in body:
            if id(statement) not in self._seen:
                self._seen[id(statement)] = statement
                for variable in statement.list_vars():
                    self._naming[variable.name].add(id(statement))
                    self._labels[variable.name].add(label)


def _only_where_named() -> Callable[..., Any]:
    """Numba's step that rewrites all blocks for one variable, on the statements that name it: its handlers leave the
    others as they are."""
    named = _Named()

    def rewrite(blocks: dict[Any, Any], states: dict[str, Any], handler: Any) -> dict[Any, Any]:
        from numba.cuda.core import ir

        rewritten: dict[Any, Any] = {}
        for label, block in blocks.items():
            states["label"], states["block"] = label, block
            body = block.body
            indices = named.indices(label, body, states["varname"])
            if indices:
                body = list(body)
            for index in indices:
                statement = body[index]
                is_assignment = isinstance(statement, ir.assign_types)
                handle = handler.on_assign if is_assignment else handler.on_other
                body[index] = handle(states, statement)
            rewritten[label] = ir.Block(scope=block.scope, loc=block.loc)
            rewritten[label].body = body
        return rewritten

    return rewrite


def _index_in_block() -> Callable[..., int]:
    """Numba's search for a statement of a block, by identity and before `stop`; the index past the last one if it is
    not there. The indices are noted when the search comes to another block."""
    indexed_block: Any = None
    indices: dict[int, int] = {}

    def index_in_block(_: Any, statement: Any, block: Any, stop: int = -1) -> int:
        nonlocal indexed_block, indices
        if indexed_block is not block:
            indexed_block = block
            indices = {id(each): index for index, each in enumerate(block.body)}
        past = len(block.body)
        index = indices.get(id(statement), past)
        return index if index < (stop if stop >= 0 else past + stop) else past

    return index_in_block


def _live_map(cfg: Any, blocks: Any, used: Any, defined: Any) -> dict[Any, set[str]]:
    """Variables that are alive at the start of each block: a variable goes back from the blocks that use it to where it
    is defined, through blocks that know it."""
    before = {label: [each for each, _ in cfg.predecessors(label)] for label in blocks}
    bit = {label: 1 << index for index, label in enumerate(blocks)}
    known = _blocks_that_know(cfg, bit, used, defined)
    live = {label: set(used[label]) for label in blocks}
    for label in blocks:
        for name in used[label]:
            arrived = [label]
            while arrived:
                for each in before[arrived.pop()]:
                    if name not in live[each] and name not in defined[each] and known[name] & bit[each]:
                        live[each].add(name)
                        arrived.append(each)
    return live


def _blocks_that_know(cfg: Any, bit: dict[Any, int], used: Any, defined: Any) -> dict[str, int]:
    """Of each variable that one block hands to another: the blocks that name it and all that follow them, as bits."""
    following = _following(cfg, bit)
    known = {name: 0 for names in used.values() for name in names}
    for named in (used, defined):
        for label, names in named.items():
            for name in names & known.keys():
                known[name] |= following[label]
    return known


def _following(cfg: Any, bit: dict[Any, int]) -> dict[Any, int]:
    """Each block and those that may run after it, as bits."""
    following: dict[Any, int] = {}
    grown = dict(bit)
    while grown != following:
        following = dict(grown)
        for label in reversed(bit):
            for after, _ in cfg.successors(label):
                grown[label] |= grown[after]
    return following


def _define_in_scopes(blocks: Any) -> None:
    """Defines all variables that are used in all scopes: once in each, however many blocks share it."""
    used = dict.fromkeys(
        variable
        for block in blocks.values()
        for statement in block.body
        for variable in statement.list_vars()
    )
    for scope in {id(block.scope): block.scope for block in blocks.values()}.values():
        for variable in used:
            if variable.name not in scope.localvars:
                scope.localvars.define(variable.name, variable)


def _find_singly_assigned_variable(lower: Any) -> None:
    """Finds the variables that are assigned once and used in that block alone: they are values, not memory."""
    from numba.cuda.core import ir
    from numba.cuda.core.analysis import compute_use_defs, must_use_alloca

    blocks = lower.func_ir.blocks
    found: set[str] = set()
    if not lower.func_ir.func_id.is_generator:
        use_defs = compute_use_defs(blocks)
        in_memory = must_use_alloca(blocks)
        defining = Counter(name for names in use_defs.defmap.values() for name in names)
        used = {name for names in use_defs.usemap.values() for name in names}
        for label, names in use_defs.defmap.items():
            counts = Counter(
                statement.target.name for statement in lower.blocks[label].find_insts(ir.assign_types)
            )
            found |= {
                name
                for name in names
                if name not in in_memory and defining[name] == 1 and name not in used and counts[name] == 1
            }
    lower._singly_assigned_vars = found
    lower._blk_local_varmap = {}
