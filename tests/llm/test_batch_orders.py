"""Programs for cuda that may not depend on the batch: one token, a part of a prompt and a batch sum in one order."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from aicf.dialects.json_values import json_value
from aicf.frontends.gguf.reader import parsed
from aicf.frontends.text import make_context
from aicf.llm.families.llama import Llama
from aicf.llm.sources.gguf import GgufSource
from aicf.passes.emit.read_decisions import members_by_instruction
from aicf.passes.pipelines.aicf_inference import AicfInferencePass, run
from tests.llm.small_llama import small_llama
from tests.test_batch_invariant import order_of

UP_TO_LOGITS = ("blk.", "rms_norm", "head")
"""Of the model's ops. After them there is a maximum, which is exact in any order."""


def orders(is_batch: bool, size: int) -> dict[str, set[str]]:
    """What the bits of sums follow from, by the ops of the model that an instruction computes."""
    source = GgufSource(parsed(small_llama(np.random.default_rng(5), layers=1).file(), Path("small.gguf")))
    module = Llama(source).decoder("small", 64, is_batch=is_batch).module()
    policy = {"kernel": {"determinism": "batch_invariant"}, "precision": {"to": "bf16"}}
    pipeline = AicfInferencePass("cuda:sm_90a", json.dumps(policy), dims=f"T={size}")
    run(pipeline.passes(), make_context(), module)
    found: dict[str, set[str]] = {}
    for op, members in members_by_instruction(module).items():
        assert op.kernel is not None
        record = json_value(op.kernel.record)
        assert isinstance(record, dict)
        kernel, entries = order_of(op.kernel.kernel.data, record)
        if entries.get("combination_order", "none") != "none":
            for name in (member.partition("@")[0] for member in members if member.startswith(UP_TO_LOGITS)):
                found.setdefault(name, set()).add(f"{kernel} {entries}")
    return found


def test_all_programs_sum_in_one_order() -> None:
    alone, prompt, batch = orders(False, 1), orders(False, 64), orders(True, 32)
    sums = [name for name in alone if name in batch and name in prompt]
    assert sum("matmul" in order or "gemm" in order for name in sums for order in alone[name]) >= 8
    for part in ("head", "rms_norm2", "blk.0.attention", "blk.0.attn_q", "blk.0.ffn_down"):
        assert any(name.startswith(part) for name in sums), part
    for name in sums:
        assert alone[name] == prompt[name] == batch[name], name
