"""The tables of docs/cuda.md from the JSON result of the GPU benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from criteria import PEERS
from page_tables import aims, between_marks, microseconds, sections, table

START = "<!-- benchmark tables: made by benchmarks/cuda.py table -->"

PROGRAMS = {
    "mlp_chain": "12 x (LayerNorm, 768-3072-768 GELU MLP, residual), f16, one token",
    "bert_1x128": "BERT-base encoder, f16, 1 x 128",
    "bert_8x128": "BERT-base encoder, f16, 8 x 128",
    "gemm_bias_relu_4096": "GEMM + bias + ReLU, bf16, 4096^3",
    "gemm_4096": "GEMM, bf16, 4096^3",
    "gemm_8192": "GEMM, bf16, 8192^3",
    "swiglu_2048": "SwiGLU, bf16, 2048 tokens, 4096 to 11008",
    "pointwise_256MB": "pointwise, f32, 256 MB",
    "softmax_256MB": "softmax, f32, 256 MB",
    "layer_norm_256MB": "layer_norm, f32, 256 MB",
    "attention_512": "attention, f16, 8 x 12 heads x 512 x 64",
    "attention_512_causal": "causal attention, f16, 8 x 12 heads x 512 x 64",
    "gpt2_block": "GPT-2 small block, f16, one token, 512 cached, weights in L2",
    "gpt2_12_blocks": "12 of these blocks, weights from memory",
    "gather_256MB": "gather of 65536 rows, f32, 256 MB",
    "scatter_set_256MB": "scatter of 65536 rows, f32, 256 MB",
    "scatter_add_256MB": "scatter-add of 65536 rows, f32, 256 MB",
    "topk_256MB": "32 largest of 16384 rows, f32, 256 MB",
    "topk_long_256MB": "64 largest of 8 rows, f32, 256 MB",
    "cumsum_256MB": "cumsum along 16384 rows, f32, 256 MB",
    "cumsum_long_256MB": "cumsum along one row, f32, 256 MB",
    "pad_256MB": "pad of 16384 rows, f32, 256 MB",
}
RIVALS = {
    "aicf": "AICF",
    "wgmma": "our wgmma kernel",
    "cublaslt": "cublasLt",
    "torch_eager": "PyTorch",
    "torch_graph": "in a CUDA Graph",
    "torch_compile": "torch.compile, max-autotune, in a CUDA Graph",
    "jax": "JAX",
    "copy": "device copy",
}


def tables(result: Mapping[str, Any]) -> str:
    """All tables that have a measurement, between the marks."""
    rows: Sequence[Mapping[str, Any]] = result["rows"]
    made = {
        'Microseconds of a replay, back to back; "-" was not run:': _times(rows, "us", ("aicf", *PEERS)),
        "The same, with pauses of five times the measured length:": _times(
            rows, "us_with_pauses", ("aicf", *PEERS)
        ),
        "Compared with kernels pinned by policy, and with a device copy:": _times(
            rows, "us", ("aicf", "wgmma", "cublaslt", "copy")
        ),
        "Targets:": aims("program", PROGRAMS, result["criteria"]),
    }
    return sections(START, made)


def with_tables(page: str, result: Mapping[str, Any]) -> str:
    """The page with these tables between its marks. ValueError if it has no marks."""
    return between_marks(page, START, tables(result))


def update(page: Path, result: Mapping[str, Any]) -> None:
    """Rewrites a file."""
    page.write_text(with_tables(page.read_text("utf-8"), result), "utf-8")


def _times(rows: Sequence[Mapping[str, Any]], field: str, rivals: Sequence[str]) -> str:
    """Times by program and rival, of the programs that have a time of a rival; "" if there is none."""
    others = [rival for rival in rivals if rival != "aicf"]
    timed = [row for row in rows if any(rival in row.get(field, {}) for rival in others)]
    body = [[PROGRAMS[row["name"]], *(_us(row[field].get(rival)) for rival in rivals)] for row in timed]
    return table(["program", *(RIVALS[rival] for rival in rivals)], body) if body else ""


def _us(us: float | None) -> str:
    return "-" if us is None else microseconds(us)
