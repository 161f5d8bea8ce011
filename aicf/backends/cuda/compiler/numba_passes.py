# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Steps of Numba's compiler in time linear in the length of a kernel, where its own are quadratic or repeat themselves.

A specialized kernel is thousands of statements in a row with hundreds of variables. Numba looks through all statements
once for each variable that is assigned twice (static single assignment), for each value that enters a loop or a
branch (what becomes of its phi nodes), and for each variable that is assigned in one block (variables that need no
memory); it passes all variables through all blocks until none is alive in one more; it defines all variables anew for
each block of a scope; and it takes all blocks for dominators of each until it knows better. Here the statements and
blocks that do not name the variable are passed over, a variable goes back through the blocks in which it is alive and
no others, variables are compared by name, assignments are counted once, a scope is filled once, and dominators are
found from the entry on. What is decided stays the same, and so do the bytes of a cubin.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from operator import is_
from typing import Any

from aicf.backends.cuda.compiler.numba_lowering import terse_lowering
from aicf.backends.cuda.compiler.numba_repeats import fewer_repeats


@contextmanager
def linear_passes() -> Iterator[None]:
    """Compiles with these steps in place of Numba's."""
    from numba.cuda.core import analysis, ir, ssa, untyped_passes
    from numba.cuda.core.controlflow import CFGraph
    from numba.cuda.lowering import Lower

    steps = (
        (ssa, "_run_block_rewrite", _only_where_named()),
        (ir.Var, "__eq__", _is_same_variable),
        (ir.Block, "insert_after", _insert_after),
        (ssa._FixSSAVars, "_stmt_index", _index_in_block()),
        (analysis, "compute_live_map", _live_map),
        (CFGraph, "_find_dominators_internal", _dominators),
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
        self._places: defaultdict[str, defaultdict[Any, set[int]]] = defaultdict(lambda: defaultdict(set))

    def note(self, label: Any, body: Sequence[Any]) -> None:
        """Notes all statements of a block that is new, and of a known one those at its front."""
        known = self._bodies.get(label, ())
        if known is body:
            return
        added = len(body) - len(known)
        if added < 0 or not all(map(is_, body[added:], known)):
            self._forget(label)
            added = len(body)
        self._first[label] = self._first.get(label, added) - added
        self._bodies[label] = body
        for index in range(added):
            self._note(label, index, body[index])

    def indices(self, name: str) -> dict[Any, list[int]]:
        """Indices of the statements that name `name`, by the label of their block."""
        places = self._places.get(name, {})
        return {label: [place - self._first[label] for place in sorted(places[label])] for label in places}

    def replace(self, label: Any, body: Sequence[Any], changed: Mapping[int, Any]) -> None:
        """Takes `body` as that of the block: what it had, with other statements at some indices."""
        self._bodies[label] = body
        for index, statement in changed.items():
            self._note(label, index, statement)

    def _forget(self, label: Any) -> None:
        self._first.pop(label, None)
        for places in self._places.values():
            places.pop(label, None)

    def _note(self, label: Any, index: int, statement: Any) -> None:
        for variable in statement.list_vars():
            self._places[variable.name][label].add(self._first[label] + index)


def _only_where_named() -> Callable[..., Any]:
    """Numba's step that rewrites all blocks for one variable, on the statements that name it: its handlers leave the
    others as they are, and so do the blocks without one stay."""
    named = _Named()

    def rewrite(blocks: dict[Any, Any], states: dict[str, Any], handler: Any) -> dict[Any, Any]:
        from numba.cuda.core import ir

        for label, block in blocks.items():
            named.note(label, block.body)
        rewritten = dict(blocks)
        indices = named.indices(states["varname"])
        for label in [label for label in blocks if label in indices]:
            block = states["block"] = blocks[label]
            states["label"] = label
            changed: dict[int, Any] = {}
            for index in indices[label]:
                statement = block.body[index]
                handle = handler.on_assign if isinstance(statement, ir.assign_types) else handler.on_other
                if (new := handle(states, statement)) is not statement:
                    changed[index] = new
            if changed:
                rewritten[label] = ir.Block(scope=block.scope, loc=block.loc)
                rewritten[label].body = [changed.get(i, each) for i, each in enumerate(block.body)]
                named.replace(label, rewritten[label].body, changed)
        return rewritten

    return rewrite


def _dominators(graph: Any, post: bool = False) -> dict[Any, set[Any]]:
    """Nodes that dominate each node of a control flow graph, or post-dominate it. Numba starts with all nodes for each;
    in reverse postorder two rounds are enough for most graphs."""
    before, after = (graph._succs, graph._preds) if post else (graph._preds, graph._succs)
    entries = set(graph._exit_points) if post else {graph._entry_point}
    dominators = {entry: {entry} for entry in entries}
    order = [node for node in _reverse_postorder(entries, after) if node not in entries]
    is_changing = True
    while is_changing:
        is_changing = False
        for node in order:
            found = {node}.union(set.intersection(*(dominators[p] for p in before[node] if p in dominators)))
            if dominators.get(node) != found:
                dominators[node] = found
                is_changing = True
    unreached = {node: set(graph._nodes) for node in graph._nodes if node not in dominators}
    return {**dominators, **unreached}


def _reverse_postorder(entries: Iterable[Any], after: Mapping[Any, Iterable[Any]]) -> list[Any]:
    """All nodes that the entries reach, each before those that it reaches but for loops."""
    order: list[Any] = []
    seen: set[Any] = set()
    for entry in entries:
        seen.add(entry)  # no entry is reached from another one
        path = [(entry, iter(after[entry]))]
        while path:
            node, rest = path[-1]
            found = next((each for each in rest if each not in seen), None)
            if found is None:
                order.append(node)
                path.pop()
            else:
                seen.add(found)
                path.append((found, iter(after[found])))
    return order[::-1]


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
