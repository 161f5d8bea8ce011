"""Cases of attention and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from aicf.frontends.builder import Graph
from tests.gpu import programs
from tests.gpu.case_table.case import (
    ATTENTION,
    ATTENTION_SIMT,
    ATTENTION_STEP,
    ATTENTION_WGMMA,
    CACHED,
    CACHED_STEP,
    CACHED_WGMMA,
    Array,
    Case,
    program_of,
)
from tests.gpu.programs import Program


def attention_cases() -> dict[str, Case]:
    make, op, masked = programs.attention, programs.attention_op, programs.masked_attention
    exported, two = programs.exported_attention, programs.two_masks
    table: dict[str, tuple[str, Callable[[], Graph]]] = {
        "attention-f16": (ATTENTION, partial(make, "f16", 128, 128, 64, 64)),
        "attention-odd": (ATTENTION, partial(make, "bf16", 77, 51, 32, 48)),
        "attention-mask": (ATTENTION, partial(make, "f16", 64, 96, 64, 64, (2, 1, 1, 96))),
        "attention-full-mask": (ATTENTION, partial(make, "bf16", 33, 65, 64, 64, (33, 65))),
        "attention_simt-f32": (ATTENTION_SIMT, partial(make, "f32", 33, 50, 24, 20)),
        "attention_simt-mask": (ATTENTION_SIMT, partial(make, "f16", 20, 33, 20, 24, (2, 1, 1, 33))),
        "attention-causal": (ATTENTION, partial(op, "f16", 200, 200, 64, 4, 0)),
        "attention-causal-odd": (ATTENTION, partial(op, "bf16", 77, 151, 48, 4, 74)),
        "attention-grouped": (ATTENTION, partial(op, "f16", 50, 70, 64, 2)),
        "attention-grouped-causal": (ATTENTION, partial(op, "bf16", 1, 333, 128, 1, 332)),
        "attention-bool": (ATTENTION, partial(op, "f16", 65, 130, 64, 2, None, (65, 130))),
        "attention-bool-causal": (ATTENTION, partial(op, "f16", 65, 130, 32, 2, 65, (2, 1, 65, 130))),
        "attention_wgmma-f16": (ATTENTION_WGMMA, partial(op, "f16", 256, 256, 64, 4)),
        "attention_wgmma-odd": (ATTENTION_WGMMA, partial(op, "bf16", 77, 451, 128, 1)),
        "attention_wgmma-causal": (ATTENTION_WGMMA, partial(op, "f16", 400, 400, 64, 2, 0)),
        "attention_wgmma-causal-odd": (ATTENTION_WGMMA, partial(op, "bf16", 177, 251, 128, 4, 74)),
        "attention_wgmma-token": (ATTENTION_WGMMA, partial(op, "f16", 1, 333, 64, 2, 332)),
        "attention_wgmma-mask": (ATTENTION_WGMMA, partial(masked, "f16", 256, 256, 64, (256, 256), hidden=9)),
        "attention_wgmma-padding": (ATTENTION_WGMMA, partial(masked, "bf16", 200, 330, 64, (2, 1, 1, 330))),
        "attention_wgmma-mask-odd": (
            ATTENTION_WGMMA,
            partial(masked, "bf16", 77, 451, 128, (2, 4, 77, 451), None, 2, 5),
        ),
        "attention_wgmma-mask-causal": (
            ATTENTION_WGMMA,
            partial(masked, "f16", 300, 400, 128, (1, 4, 300, 400), 100, 2, 7),
        ),
        "attention_wgmma-bool": (ATTENTION_WGMMA, partial(op, "f16", 130, 260, 64, 2, None, (130, 260))),
        "attention_wgmma-bool-causal": (
            ATTENTION_WGMMA,
            partial(op, "bf16", 190, 190, 64, 4, 0, (2, 1, 190, 190)),
        ),
        "attention-zeros": (
            ATTENTION,
            partial(masked, "bf16", 130, 77, 64, (2, 1, 130, 77), hidden=3, zeros=True),
        ),
        "attention-all-zeros": (
            ATTENTION,
            partial(masked, "f16", 65, 130, 32, (2, 1, 65, 130), hidden=1, zeros=True),
        ),
        "attention_wgmma-zeros": (
            ATTENTION_WGMMA,
            partial(masked, "f16", 200, 330, 64, (2, 1, 200, 330), hidden=5, zeros=True),
        ),
        "attention_wgmma-all-zeros": (
            ATTENTION_WGMMA,
            partial(masked, "bf16", 128, 128, 64, (128, 128), hidden=1, zeros=True),
        ),
        "attention_simt-zeros": (
            ATTENTION_SIMT,
            partial(masked, "f32", 33, 50, 24, (33, 50), 17, 2, 4, True),
        ),
        "attention_step-zeros": (
            ATTENTION_STEP,
            partial(masked, "f16", 1, 333, 64, (2, 1, 1, 333), hidden=1, zeros=True),
        ),
        "attention_step-f16": (ATTENTION_STEP, partial(op, "f16", 1, 512, 64, 4)),
        "attention_step-odd": (ATTENTION_STEP, partial(op, "bf16", 1, 333, 128, 2, 301)),
        "attention_step-bool": (ATTENTION_STEP, partial(op, "f16", 1, 77, 32, 4, None, (2, 1, 1, 77))),
        "attention_step-mask": (ATTENTION_STEP, partial(make, "bf16", 1, 1000, 64, 64, (2, 1, 1, 1000))),
        "attention_simt-causal": (ATTENTION_SIMT, partial(op, "f32", 75, 100, 24, 4, 25)),
        "attention_simt-grouped": (ATTENTION_SIMT, partial(op, "f32", 33, 50, 40, 2, 17, (33, 50))),
        "attention-exported": (ATTENTION, partial(exported, "f16", 77, 100, 64, (77, 100), 5)),
        "attention-exported-tiles": (ATTENTION, partial(exported, "bf16", 130, 451, 48, broken=7)),
        "attention_wgmma-exported": (ATTENTION_WGMMA, partial(exported, "bf16", 200, 330, 64, broken=9)),
        "attention_wgmma-exported-mask": (
            ATTENTION_WGMMA,
            partial(exported, "f16", 130, 260, 128, (2, 1, 130, 260), 5, 7),
        ),
        "attention_step-exported": (
            ATTENTION_STEP,
            partial(exported, "f16", 1, 333, 64, (2, 3, 1, 333), 2),
        ),
        "attention_step-exported-plain": (ATTENTION_STEP, partial(exported, "bf16", 1, 500, 128)),
        "attention_simt-exported": (
            ATTENTION_SIMT,
            partial(exported, "f32", 33, 50, 24, (2, 1, 33, 50), 4, 6),
        ),
        "attention-two-masks": (ATTENTION, partial(two, "f16", 64, 96, 64)),
        "attention_simt-two-masks": (ATTENTION_SIMT, partial(two, "f32", 33, 50, 24)),
    }
    return {
        name: Case(program_of(name, build), (kernel,), {"kernels": {"attention": kernel}})
        for name, (kernel, build) in table.items()
    }


@dataclass(frozen=True)
class AttentionGradients:
    """Gradients of attention, see `programs.attention_gradients`."""

    dtype: str
    rows: int
    columns: int
    size: int
    past: int | None = None
    mask: Sequence[int] | None = None
    hidden: int = 0

    def program(self, name: str) -> Program:
        """The program of the case called `name`."""
        return program_of(name, partial(programs.attention_gradients, *vars(self).values()))()

    def added(self, mask: Array | None) -> Array | None:
        """What is added to the scores, given the operand `mask`."""
        if mask is None or not self.hidden:
            return mask
        is_hidden = np.arange(mask.shape[-2]) % self.hidden == self.hidden - 1
        return np.where(is_hidden[:, None], np.array(-np.inf, mask.dtype), mask)


_GRADIENTS = {
    "attention_backward": {
        "64": AttentionGradients("bf16", 64, 64, 64),
        "100": AttentionGradients("f16", 100, 100, 64),
        "128": AttentionGradients("bf16", 128, 128, 64),
        "257": AttentionGradients("f16", 257, 257, 64),
        "tall": AttentionGradients("f16", 300, 77, 64),
        "wide": AttentionGradients("bf16", 77, 300, 64),
        "causal": AttentionGradients("bf16", 257, 257, 64, 0),
        "causal-tall": AttentionGradients("f16", 300, 100, 64, 0),
        "past": AttentionGradients("f16", 100, 228, 64, 128),
        "hidden-keys": AttentionGradients("bf16", 100, 257, 64, 3),
        "padding": AttentionGradients("bf16", 128, 200, 64, None, (2, 1, 1, 200)),
        "mask": AttentionGradients("f16", 100, 257, 64, None, (1, 3, 100, 257)),
        "mask-causal": AttentionGradients("bf16", 257, 257, 64, 0, (1, 3, 257, 257)),
        "zeros": AttentionGradients("bf16", 128, 200, 64, None, (2, 1, 128, 200), 3),
        "zeros-causal": AttentionGradients("f16", 100, 257, 64, 157, (100, 257), 4),
        "all-zeros": AttentionGradients("bf16", 100, 100, 64, None, (100, 100), 1),
        "d128-64": AttentionGradients("f16", 64, 64, 128),
        "d128-100": AttentionGradients("bf16", 100, 100, 128),
        "d128-128": AttentionGradients("f16", 128, 128, 128),
        "d128-257": AttentionGradients("bf16", 257, 257, 128),
        "d128-past": AttentionGradients("f16", 100, 257, 128, 31),
        "d128-padding": AttentionGradients("f16", 128, 200, 128, None, (2, 1, 1, 200)),
        "d128-mask-causal": AttentionGradients("bf16", 100, 200, 128, 100, (1, 3, 100, 200)),
        "d32": AttentionGradients("bf16", 200, 133, 32, 5),
        "d96": AttentionGradients("f16", 130, 133, 96),
        "tiles-32": AttentionGradients("bf16", 257, 300, 64, 43),
        "two-tiles": AttentionGradients("f16", 257, 300, 64),
        "two-tiles-causal": AttentionGradients("bf16", 300, 257, 64, 0),
    },
    "attention_backward_wgmma": {
        "64": AttentionGradients("bf16", 64, 64, 64),
        "100": AttentionGradients("f16", 100, 100, 64),
        "257": AttentionGradients("f16", 257, 257, 64),
        "512": AttentionGradients("bf16", 512, 512, 64, 0),
        "tall": AttentionGradients("f16", 300, 77, 64),
        "wide": AttentionGradients("bf16", 77, 300, 64),
        "causal": AttentionGradients("bf16", 257, 257, 64, 0),
        "causal-tall": AttentionGradients("f16", 300, 100, 64, 0),
        "past": AttentionGradients("f16", 100, 228, 64, 128),
        "hidden-keys": AttentionGradients("bf16", 100, 257, 64, 3),
        "padding": AttentionGradients("bf16", 128, 200, 64, None, (2, 1, 1, 200)),
        "mask": AttentionGradients("f16", 100, 257, 64, None, (1, 3, 100, 257)),
        "mask-causal": AttentionGradients("bf16", 257, 257, 64, 0, (1, 3, 257, 257)),
        "zeros": AttentionGradients("bf16", 128, 200, 64, None, (2, 1, 128, 200), 3),
        "zeros-causal": AttentionGradients("f16", 100, 257, 64, 157, (100, 257), 4),
        "all-zeros": AttentionGradients("bf16", 100, 100, 64, None, (100, 100), 1),
        "d128": AttentionGradients("bf16", 257, 257, 128),
        "d128-past": AttentionGradients("f16", 100, 257, 128, 31),
        "d128-mask-causal": AttentionGradients("bf16", 100, 200, 128, 100, (1, 3, 100, 200)),
        "groups": AttentionGradients("bf16", 257, 300, 64, 43),
        "groups-mask": AttentionGradients("f16", 300, 257, 64, None, (2, 1, 1, 257)),
    },
    "attention_backward_short": {
        "64": AttentionGradients("bf16", 64, 64, 64),
        "100": AttentionGradients("f16", 100, 100, 64),
        "128": AttentionGradients("bf16", 128, 128, 64),
        "tall": AttentionGradients("f16", 128, 33, 64),
        "wide": AttentionGradients("bf16", 20, 128, 64),
        "one-block": AttentionGradients("bf16", 128, 128, 64),
        "causal": AttentionGradients("bf16", 128, 128, 64, 0),
        "past": AttentionGradients("f16", 60, 100, 64, 40),
        "hidden-keys": AttentionGradients("bf16", 50, 128, 64, 3),
        "padding": AttentionGradients("bf16", 128, 128, 64, None, (2, 1, 1, 128)),
        "padding-odd": AttentionGradients("f16", 128, 99, 64, None, (2, 1, 1, 99)),
        "mask": AttentionGradients("f16", 100, 77, 64, None, (1, 3, 100, 77)),
        "mask-causal": AttentionGradients("bf16", 128, 128, 64, 0, (1, 3, 128, 128)),
        "zeros": AttentionGradients("bf16", 128, 100, 64, None, (2, 1, 128, 100), 3),
        "zeros-causal": AttentionGradients("f16", 50, 64, 64, 14, (50, 64), 4),
        "all-zeros": AttentionGradients("bf16", 100, 100, 64, None, (100, 100), 1),
        "d128-64": AttentionGradients("f16", 64, 64, 128),
        "d128-100": AttentionGradients("bf16", 100, 100, 128, 0),
        "d128-mask": AttentionGradients("f16", 128, 128, 128, None, (1, 3, 128, 128)),
    },
}
ATTENTION_GRADIENTS = {
    f"{kernel}-{name}": made for kernel, cases in _GRADIENTS.items() for name, made in cases.items()
}
"""By case, whose name begins with that of the kernel; looked at by `test_attention_backward`."""

_BACKWARD_VARIANTS: dict[str, dict[str, object]] = {
    "tiles-32": {"query_tiles": 1, "tile": 32},
    "two-tiles": {"query_tiles": 2, "tile": 32},
    "two-tiles-causal": {"query_tiles": 2, "tile": 32},
    "one-block": {"blocks_per_sm": 1},
    "groups": {"query_groups": 2, "key_groups": 2, "stages": 3},
    "groups-mask": {"query_groups": 2, "key_groups": 2, "stages": 2},
}


def gradients_kernel(name: str) -> str:
    """The kernel that a case of `ATTENTION_GRADIENTS` runs."""
    return f"cuda.{name.partition('-')[0]}"


def attention_gradient_cases() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for name, made in ATTENTION_GRADIENTS.items():
        kernel, variant = gradients_kernel(name), _BACKWARD_VARIANTS.get(name.partition("-")[2])
        policy = {} if variant else {"kernels": {"attention_backward": kernel}}
        cases[name] = Case(partial(made.program, name), (kernel,), policy, variant)
    return cases


def attention_step_cases() -> dict[str, Case]:
    """Attention that writes a row of its keys and values first, into memory of its own."""
    make = programs.attention_step
    table: dict[str, Callable[[], Graph]] = {
        "step-f16": partial(make, "f16", 512, 64),
        "step-odd": partial(make, "bf16", 77, 128, "i32"),
        "step-mask": partial(make, "f16", 300, 32, "i64", (1, 300)),
    }
    cached = programs.cached_attention_step
    caches: dict[str, Callable[[], Graph]] = {
        "step-cached": partial(cached, "bf16", 2048, 64),
        "step-window": partial(cached, "f16", 333, 128, 3, 40),
        "step-filled": partial(cached, "f16", 500, 32, 4, writes=False),
        "step-turned": partial(cached, "bf16", 256, 64, 4, pairs="halves"),
        "step-turned-neighbours": partial(cached, "f16", 333, 128, 3, 40, pairs="neighbours"),
        "step-turned-long": partial(cached, "bf16", 9000, 128, 8, pairs="halves"),
        "step-long": partial(cached, "f16", 20000, 64, 1),
    }
    return {
        **{
            name: Case(
                program_of(name, build), (ATTENTION_STEP,), {"kernels": {"attention_step": ATTENTION_STEP}}
            )
            for name, build in table.items()
        },
        **{name: Case(program_of(name, build), (CACHED_STEP,)) for name, build in caches.items()},
        **_prompt_cases(),
    }


def _prompt_cases() -> dict[str, Case]:
    """Parts of prompts, by each kernel of tensor cores."""
    make = programs.cached_attention
    table: dict[str, tuple[str, Callable[[], Graph]]] = {
        "prompt-64": (CACHED, partial(make, "bf16", 64, 2048, 64, 4)),
        "prompt-odd": (CACHED, partial(make, "f16", 33, 333, 80, 3)),
        "prompt-wgmma": (CACHED_WGMMA, partial(make, "bf16", 512, 2048, 128, 4)),
        "prompt-wgmma-odd": (CACHED_WGMMA, partial(make, "f16", 300, 1000, 64, 2)),
        "prompt-wgmma-token": (CACHED_WGMMA, partial(make, "bf16", 1, 700, 128, 4)),
    }
    # Weights and results are rounded, and the first tokens of many see few keys: they are larger than most.
    return {
        name: Case(program_of(name, build), (kernel,), {"kernels": {"cached_attention": kernel}}, depth=2)
        for name, (kernel, build) in table.items()
    }
