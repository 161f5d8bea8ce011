"""`set-target`: writes what the module is compiled for into it, where every later pass reads it."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from aicf.backends.registry import get_backend, resolve_target, target_spec
from aicf.errors import PolicyError
from aicf.passes.bodies.workload import TARGET_ATTR, target_of
from aicf.passes.support.ledger import record_decision
from aicf.passes.support.policy import forget_read
from aicf.passes.support.works_on import ANYTHING, IS_FINAL, is_final


@dataclass(frozen=True)
class SetTargetPass(ModulePass):
    """Sets the module attribute `aicf.target`.

    `target` is `backend:level`, as in `cpu:x86-64-v3`. The level is written out because the output of a pass may not
    depend on the machine it runs on; the driver puts this machine's level in place of a bare backend name.

    Decisions that `raise-emit` read from programs for another backend are open again: they name its kernels.
    """

    name = "set-target"
    works_on = ANYTHING

    target: str
    threads: int = 1

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        backend, _, level = self.target.partition(":")
        if not level:
            here = get_backend(backend).resolve_arch(None)
            raise PolicyError(
                f"target '{self.target}' names no architecture level; write it out, "
                f'as in set-target{{target="{backend}:{here}"}} for this machine'
            )
        target = resolve_target(self.target, self.threads)
        if is_final(op) and op.attributes.get(TARGET_ATTR, target) != target:
            raise PolicyError(
                f"{IS_FINAL} for {target_spec(target_of(op))}; run raise-emit first to decide it again"
            )
        op.attributes[TARGET_ATTR] = target
        record_decision(op, self.name, ["module"], self.target, f"option target, threads {self.threads}")
        if (source := forget_read(op, target.backend.data)) is not None:
            because = f"they were read from programs for {source}, which has kernels of its own"
            record_decision(op, self.name, ["module"], "groups, kernels and streams are open again", because)
