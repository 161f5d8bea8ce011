# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# numba-cuda ships no types, and its module `numba.cuda` is found by an import hook.
"""Two steps of Numba's compiler in time linear in the length of a kernel, where Numba's own are quadratic.

A staged kernel is thousands of statements in a row with hundreds of variables. Numba looks through all statements once
for each variable that is assigned twice (static single assignment), and once for each that is assigned in one block
(variables that need no memory). Here the statements that do not name the variable are passed over, and assignments are
counted once. What is decided stays the same, and so do the bytes of a cubin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def linear_passes() -> Iterator[None]:
    """Compiles with these steps in place of Numba's."""
    from numba.cuda.core import ssa
    from numba.cuda.lowering import Lower

    steps = _only_where_named(ssa._run_ssa_block_pass)
    with ExitStack() as replaced:
        for owner, name, step in (
            (ssa, "_run_ssa_block_pass", steps),
            (Lower, "_find_singly_assigned_variable", _find_singly_assigned_variable),
        ):
            replaced.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, step)
        yield


def _only_where_named(each: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Numba's step over the statements of a block, with only those that name the variable it is about.

    All rewriting steps leave the others as they are; those that only look are about no variable.
    """
    names: dict[
        int, tuple[Any, frozenset[str]]
    ] = {}  # by id, with the statement, so that no id is used twice

    def named(statement: Any) -> frozenset[str]:
        known = names.get(id(statement))
        if known is None:
            known = names[id(statement)] = (
                statement,
                frozenset(variable.name for variable in statement.list_vars()),
            )
        return known[1]

    def step(states: dict[str, Any], block: Any, handler: Any) -> Iterator[Any]:
        from numba.cuda.core import ir

        wanted = states.get("varname")
        if wanted is None:
            yield from each(states, block, handler)
            return
        for statement in block.body:
            if wanted not in named(statement):
                yield statement
            elif isinstance(statement, ir.assign_types):
                yield handler.on_assign(states, statement)
            else:
                yield handler.on_other(states, statement)

    return step


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
