"""Programs whose kernel records were edited by hand: `verify-emit` names the instruction, the entry and the way out."""

from __future__ import annotations

from functools import cache

import pytest
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp

from aicf.compilation.record import Options
from aicf.compilation.sources import policy_text, read_model
from aicf.compilation.stages import passes_of, print_module
from aicf.dialects.emit import ResolvedOp
from aicf.dialects.emit_types import KernelAttr
from aicf.dialects.json_values import attribute_of
from aicf.errors import InvalidIR
from aicf.frontends.text import make_context, parse_module
from aicf.passes.pipelines.text import apply_pass
from aicf.passes.support.policy import POLICY_ATTR
from aicf.passes.verify.verify_emit import VerifyEmitPass
from tests.gpu.cases import CASES


@cache
def final(case: str) -> str:
    """The final program of a GPU case that the prior decides."""
    context = make_context()
    source = read_model(CASES[case].make().module, context)
    for step in passes_of(source, Options("cuda:sm_90a", policy_text(CASES[case].policy), "", 1, "")):
        apply_pass(step, context, source.module)
    return print_module(source.module)


def edited(case: str, entry: str, value: object) -> ModuleOp:
    """The program of a case with another value in the record of the first instruction that runs on its kernel; None
    takes the entry out."""
    module = parse_module(final(case))
    op = next(
        op
        for op in module.walk()
        if isinstance(op, ResolvedOp) and op.kernel and op.kernel.kernel.data == CASES[case].kernels[0]
    )
    assert op.kernel is not None
    record = dict(op.kernel.record.data)
    if value is None:
        del record[entry]
    else:
        record[entry] = attribute_of(value)
    op.properties["kernel"] = KernelAttr(op.kernel.kernel.data, DictionaryAttr(record))
    return module


EDITS: dict[str, tuple[tuple[str, object, str], ...]] = {
    "row_reductions-f32": (
        ("grids", [[1, 1, 1]], "its 'grids' is [[1, 1, 1]], legal:"),
        ("block", [64, 2, 1], "its 'block' is [64, 2, 1], legal:"),
        ("lanes", 3, "its 'lanes' is 3, legal: 1, 2, 4, 8"),
        ("strategy", "magic", "its 'strategy' is magic, legal:"),
        ("early_reads", [0], "its 'early_reads' is [0], legal: []"),
        ("triggers", False, "its 'triggers' is False, legal: True"),
        ("rounding", "never", "'rounding' is never, legal: fused, strict"),
        ("grids", None, "it lacks 'grids'"),
    ),
    "moves-f32": (
        ("parts", [], "its 'parts' has 0 records, legal: 1"),
        ("axis", 3, "kernel 'cuda.copy' cannot run it as its record says"),
    ),
    "gemv-dense-f16": (
        ("grid", [1, 1, 1], "its 'grid' is [1, 1, 1], legal:"),
        ("k_parts", 64, "its 'k_parts' is 64, legal: 1 to 16"),
        ("trigger_at", "end", "its 'trigger_at' is end, legal: start, wait, loaded"),
        ("chains", 0, "its 'chains' is 0, legal: 1 to 8"),
        ("along", "diagonals", "'along' is diagonals, legal: rows, tiles, columns"),
        ("early_reads", [0, 1], "its 'early_reads' is [0, 1], legal: [1]"),
    ),
    "mma-dense-f16": (
        ("grid", [1, 1, 1], "its 'grid' is [1, 1, 1], legal:"),
        ("cluster", [2, 1, 1], "its 'cluster' is [2, 1, 1]"),
        ("tile", [24, 64, 64], "its 'tile[0]' is 24, legal: 16 to 256 in steps of 16"),
        ("warps", [3, 1, 1], "does not divide over its warps"),
        ("tile", [64, 64], "its 'tile' is [64, 64], legal: 3 values"),
        ("stages", 1, "its 'stages' is 1, legal: 2 to 8"),
        ("shared_bytes", 1, "its 'shared_bytes' is 1, legal:"),
        ("blocks_per_sm", 9, "its 'blocks_per_sm' is 9"),
        ("combination_order", "any", "its 'combination_order' is any"),
        ("transpose_b", False, "its 'transpose_b' is False"),
    ),
    "tf32-dense-relu": (
        ("math", None, "it lacks 'math', legal: tf32"),
        ("math", "f32", "its 'math' is f32, legal: tf32"),
    ),
    "simt-dense-f32": (
        ("block", [1024, 1, 1], "its 'block' is [1024, 1, 1]"),
        ("thread_tile", [3, 4], "its 'thread_tile[0]' is 3, legal: 4, 8, 16, 32"),
        ("thread_tile", [32, 4], "does not divide over its threads; 'thread_tile' is [32, 4], legal: "),
        ("shared_bytes", 1 << 30, "its 'shared_bytes' is 1073741824"),
    ),
    "wgmma-dense-bf16": (
        ("cluster", [2, 1, 1], "its 'cluster' is [2, 1, 1]"),
        ("fixed_addresses", [0], "it has an entry 'fixed_addresses', which means nothing here"),
    ),
    "attention-f16": (
        ("grid", [1, 1, 1], "its 'grid' is [1, 1, 1]"),
        ("warps_m", 3, "its 'warps_m' is 3, legal: 1, 2, 4, 8, 12"),
        ("warps_m", 12, "there is no code for tiles of"),
        ("scale", 2.0, "its 'scale' is 2.0, legal:"),
    ),
    "attention_simt-f32": (("shared_bytes", 16, "its 'shared_bytes' is 16"),),
}
"""By case: an entry, what it is changed to, and what is said."""


@pytest.mark.parametrize("case", EDITS)
def test_a_record_that_cannot_work_is_refused(case: str) -> None:
    """Nothing that contradicts the rest of a record, or the body, comes as far as a launch."""
    VerifyEmitPass(meaning=False).apply(make_context(), parse_module(final(case)))
    for entry, value, reason in EDITS[case]:
        with pytest.raises(InvalidIR) as found:
            VerifyEmitPass(meaning=False).apply(make_context(), edited(case, entry, value))
        assert reason in found.value.message, (entry, found.value.message)
        assert "instruction '" in found.value.message and "\n" not in found.value.message
        assert "select-kernels" in found.value.message


def test_a_record_of_tf32_needs_a_policy_that_allows_it() -> None:
    """The policy stays in a final program; a record that was written by hand does not speak for it."""
    module = parse_module(final("tf32-dense-relu"))
    assert module.attributes.pop(POLICY_ATTR) == attribute_of({"tf32": True})
    with pytest.raises(InvalidIR, match="rounds f32 operands to TF32, the policy has not allowed that"):
        VerifyEmitPass(meaning=False).apply(make_context(), module)


@pytest.mark.parametrize(
    ("case", "entry", "value"),
    [("mma-dense-f16", "shared_bytes", 200 << 10), ("simt-dense-f32", "blocks_per_sm", 1)],
)
def test_a_record_that_only_takes_more_room_is_fine(case: str, entry: str, value: object) -> None:
    """Decisions that a user may change without others."""
    VerifyEmitPass(meaning=False).apply(make_context(), edited(case, entry, value))


def test_a_kernel_of_another_kind_is_refused() -> None:
    """A record of attention does not make an addition attention."""
    module = parse_module(
        final("row_reductions-f32").replace('kernel("cuda.generated"', 'kernel("cuda.attention"')
    )
    with pytest.raises(
        InvalidIR, match="kernel 'cuda.attention' cannot run it as its record says: it runs no"
    ):
        VerifyEmitPass(meaning=False).apply(make_context(), module)
