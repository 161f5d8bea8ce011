# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Steps of Numba's compiler in time linear in the length of a kernel, where its own are quadratic or repeat themselves.

A staged kernel is thousands of statements in a row with hundreds of variables. Numba looks through all statements once
for each variable that is assigned twice (static single assignment), for each value that enters a loop or a branch (what
becomes of its phi nodes), and for each variable that is assigned in one block (variables that need no memory); and it
works out the type of a call again at each place of the same call. Here the statements that do not name the variable are
passed over, variables are compared by name, assignments are counted once, and a type is worked out once. What is
decided stays the same, and so do the bytes of a cubin.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def linear_passes() -> Iterator[None]:
    """Compiles with these steps in place of Numba's."""
    from numba.core.types.functions import BaseFunction
    from numba.cuda.core import ir, ssa
    from numba.cuda.lowering import Lower

    steps = (
        (ssa, "_run_block_rewrite", _only_where_named()),
        (ir.Var, "__eq__", _is_same_variable),
        (ir.Block, "insert_after", _insert_after),
        (Lower, "_find_singly_assigned_variable", _find_singly_assigned_variable),
        (BaseFunction, "get_call_type", _remembered(BaseFunction.get_call_type)),
    )
    with ExitStack() as replaced:
        for owner, name, step in steps:
            replaced.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, step)
        yield


def _remembered(call_type: Callable[..., Any]) -> Callable[..., Any]:
    """Numba's resolution of a call by function and types of arguments, each done once. What fails is not kept."""
    known: dict[Any, tuple[Any, ...]] = {}

    def remembered(function: Any, context: Any, args: Any, kws: Any) -> Any:
        # By identity: a function notes how it is implemented for the types that it was asked for.
        key = (id(function), id(context), args, tuple(kws.items()))
        found = known.get(key)
        if found is None:
            found = known[key] = (call_type(function, context, args, kws), function, context)
        return found[0]

    return remembered


def _is_same_variable(variable: Any, other: Any) -> bool:
    """Numba compares everything but place and scope, which leaves the name."""
    return type(variable) is type(other) and variable.name == other.name


def _insert_after(block: Any, statement: Any, other: Any) -> None:
    """Puts a statement behind another one of the block: that one itself, where Numba looks for one that is equal."""
    place = next(place for place, each in enumerate(block.body) if each is other)
    block.body.insert(place + 1, statement)


class _Named:
    """Which statements name a variable."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}  # by id, with the statement, so that no id is used twice
        self._naming: defaultdict[str, set[int]] = defaultdict(set)

    def places(self, body: Sequence[Any], name: str) -> list[int]:
        """Places of the statements of a block that name `name`."""
        seen = self._seen
        for statement in body:
            if id(statement) not in seen:
                seen[id(statement)] = statement
                for variable in statement.list_vars():
                    self._naming[variable.name].add(id(statement))
        naming = self._naming[name]
        return [place for place, statement in enumerate(body) if id(statement) in naming]


def _only_where_named() -> Callable[..., Any]:
    """Numba's step that rewrites all blocks for one variable, on the statements that name it: its handlers leave the
    others as they are."""
    named = _Named()

    def rewrite(blocks: dict[Any, Any], states: dict[str, Any], handler: Any) -> dict[Any, Any]:
        from numba.cuda.core import ir

        rewritten: dict[Any, Any] = {}
        for label, block in blocks.items():
            states["label"], states["block"] = label, block
            body = list(block.body)
            for place in named.places(block.body, states["varname"]):
                statement = body[place]
                is_assignment = isinstance(statement, ir.assign_types)
                handle = handler.on_assign if is_assignment else handler.on_other
                body[place] = handle(states, statement)
            rewritten[label] = ir.Block(scope=block.scope, loc=block.loc)
            rewritten[label].body = body
        return rewritten

    return rewrite


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
