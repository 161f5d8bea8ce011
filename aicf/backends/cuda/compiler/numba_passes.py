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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import is_
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
    """Where the statements of a block name a variable.

    A statement has the same place for good: the one that replaces it takes its place, and phi nodes go to the front, at
    places below 0. What a replaced statement named stays noted.
    """

    def __init__(self) -> None:
        self._bodies: dict[Any, Sequence[Any]] = {}
        self._first: dict[Any, int] = {}
        self._places: dict[Any, defaultdict[str, set[int]]] = {}

    def indices(self, label: Any, body: Sequence[Any], name: str) -> list[int]:
        """Indices of the statements that name `name` in the body of block `label`."""
        if self._bodies.get(label) is not body:
            self._scan(label, body)
        first = self._first[label]
        return [place - first for place in sorted(self._places[label].get(name, ()))]

    def replace(self, label: Any, body: Sequence[Any], changed: Mapping[int, Any]) -> None:
        """Takes `body` as that of the block: what it had, with other statements at some indices."""
        self._bodies[label] = body
        for index, statement in changed.items():
            self._note(label, index, statement)

    def _scan(self, label: Any, body: Sequence[Any]) -> None:
        """Notes all statements of a block that is new, and of a known one those at its front."""
        known = self._bodies.get(label, ())
        added = len(body) - len(known)
        if not known or added < 0 or not all(map(is_, body[added:], known)):
            added = len(body)
            self._first[label], self._places[label] = added, defaultdict(set)
        self._first[label] -= added
        self._bodies[label] = body
        for index in range(added):
            self._note(label, index, body[index])

    def _note(self, label: Any, index: int, statement: Any) -> None:
        places = self._places[label]
        for variable in statement.list_vars():
            places[variable.name].add(self._first[label] + index)


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
            changed: dict[int, Any] = {}
            for index in named.indices(label, body, states["varname"]):
                handle = handler.on_assign if isinstance(body[index], ir.assign_types) else handler.on_other
                statement = handle(states, body[index])
                if statement is not body[index]:
                    changed[index] = statement
            if changed:
                body = list(body)
                for index, statement in changed.items():
                    body[index] = statement
                named.replace(label, body, changed)
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
