"""What kernel records hold: one that gains, loses or renames an entry is another version of its kernel.

A tuning table, a policy and a program that was saved name a kernel's version, so that none of them is read as what it
is not. A row of `RECORDS` says what a version holds. Where a test fails, raise the kernel's version, then write its
row; a row whose version stays is never edited.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp
from xdsl.ir import Attribute

from aicf.backends.registry import get_kernels
from aicf.compilation.record import Options
from aicf.dialects.emit import ResolvedOp
from aicf.frontends.text import make_context, parse_module
from aicf.passes.pipelines.aicf_inference import AicfInferencePass
from aicf.passes.pipelines.aicf_training import AicfTrainingPass
from aicf.tuning.candidates import candidates, grouped
from tests.backends.cpu.programs import lower
from tests.gpu.cases import CASES
from tests.gpu.programs import packed_weights, rounded_weights
from tests.support.fused_graphs import fused_program
from tests.support.update_programs import Program, Tensor


def _inside(name: str, entries: str) -> str:
    """The entries of a record inside a record."""
    return " ".join([name, *(f"{name}.{entry}" for entry in entries.split())])


def _tensors(names: str) -> str:
    """The tensors of a library's call."""
    return " ".join(_inside(name, "sizes strides") for name in names.split())


_CUDNN = "dtype barred_notes rounding fixed_addresses library algorithm workspace_bytes combination_order"
_TILES = (
    "lanes tile_rows tile_vectors k_split k_unroll b_source b_element panel_group block_rows partition threads "
    "prefetch_lines prefetch_ahead epilogue_from combination_order"
)
_LOOPS = "lanes vector_dim unroll partition_dim threads sum_block rounding combination_order"
_PRODUCT = "transpose_a transpose_b batch_in_rows"
_CPU_GEMM = (
    f"{_TILES} pairs_of_k quads_of_k {_PRODUCT} {_inside('rows', _LOOPS)} rounding layouts may_alias "
    "workspace_bytes"
)
_CPU_ATTENTION = (
    f"{_inside('scores', _TILES)} {_inside('output', _TILES)} block_rows share threads key_steps scale causal past "
    "nan_as_zero empty_as_zero combination_order workspace_bytes"
).replace("scores.b_element ", "")
_CPU_CACHED = (
    f"{_inside('scores', _TILES)} {_inside('output', _TILES)} block_rows threads scale causal past position window "
    "softcap nan_as_zero empty_as_zero rotation combination_order workspace_bytes may_alias"
)
for _part in ("scores", "output"):
    _CPU_CACHED = _CPU_CACHED.replace(f"{_part}.b_element ", "")
_CPU_GEMM_NORM = (
    f"{_inside('product', f'{_TILES} {_PRODUCT}')} {_inside('rows', _LOOPS)} sums_bytes threads combination_order "
    "workspace_bytes"
)


def _of_dims(*names: str) -> str:
    """An entry for each of three dimensions."""
    return " ".join(f"{name}_{dim}" for name in names for dim in range(3))


_WINDOWS = _of_dims("stride", "dilation", "low")
_WIDE_TILES = " ".join(entry for entry in _TILES.split() if entry != "b_element")
_CPU_CONV = (
    f"{_WINDOWS} algorithm output_tile unit_channels groups padding_value block_rows copies lanes lanes_along "
    "tile_pixels tile_vectors partition prefetch_lines prepared layouts threads may_alias workspace_bytes "
    "combination_order rounding "
    + f"{_inside('product', _WIDE_TILES)} winograd winograd.block_rows {_inside('winograd.product', _WIDE_TILES)}"
)
_POOL = f"{_WINDOWS} {_of_dims('size', 'high')} mode count_include_pad threads combination_order"
_CPU_POOL = f"{_POOL} block_rows lanes lanes_along vectors"
_EARLY = "triggers early_reads rounding"
_LAUNCH = f"grid block cluster shared_bytes {_EARLY}"
_LAUNCHES = f"grids block cluster shared_bytes {_EARLY}"
_CUDA_GEMM = f"{_LAUNCH} transpose_a transpose_b combination_order"
_WGMMA = f"{_CUDA_GEMM} tile cluster_shape ring split_k may_alias workspace_bytes"
_CPU_WEIGHT_GRAD = (
    f"{_WINDOWS} algorithm output_tile groups block_rows copies lanes lanes_along tile_pixels tile_vectors "
    "prefetch_lines prepared partition unit_channels threads workspace_bytes combination_order"
)
_CUDA_CONV = f"{_LAUNCH} {_WINDOWS} groups layouts may_alias combination_order"
_CONV_MMA = (
    f"{_CUDA_CONV} tile tile_group warps stages blocks_per_sm split_k split_through sum_grid sum_block "
    + "workspace_bytes"
)
_WEIGHT_GRAD = (
    f"{_LAUNCH} {_WINDOWS} groups parts sum_grid sum_block may_alias workspace_bytes combination_order"
)
_WEIGHT_GRAD_MMA = f"{_WEIGHT_GRAD} tile tile_group warps stages blocks_per_sm split_k split_through"
_GEMM_MMA = (
    f"{_CUDA_GEMM} tile tile_group warps stages blocks_per_sm split_k split_through sum_grid sum_block "
    "workspace_bytes"
)
_CUDA_ATTENTION = f"{_LAUNCH} scale causal past nan_as_zero empty_as_zero combination_order fixed_addresses"

RECORDS: Mapping[str, tuple[int, str]] = {
    "cpu.gemm_avx512": (5, _CPU_GEMM),
    "cpu.gemm_avx2": (5, _CPU_GEMM),
    "cpu.gemm_portable": (5, _CPU_GEMM),
    "cpu.gemm_blas": (1, f"{_PRODUCT} library threads combination_order"),
    "cpu.gemm_norm_avx512": (5, _CPU_GEMM_NORM),
    "cpu.gemm_norm_avx2": (5, _CPU_GEMM_NORM),
    "cpu.gemm_norm_portable": (5, _CPU_GEMM_NORM),
    "cpu.attention_avx512": (5, _CPU_ATTENTION),
    "cpu.attention_avx2": (5, _CPU_ATTENTION),
    "cpu.attention_portable": (5, _CPU_ATTENTION),
    "cpu.generated": (2, f"{_LOOPS} may_alias"),
    "cpu.copy": (1, "axis parts threads"),
    "cpu.cached_attention_avx512": (3, _CPU_CACHED),
    "cpu.cached_attention_avx2": (3, _CPU_CACHED),
    "cpu.cached_attention_portable": (3, _CPU_CACHED),
    "cpu.write_row": (1, "axis operands parts threads combination_order may_alias"),
    "cpu.concat": (1, "axis parts threads"),
    "cpu.pack": (4, "lanes threads nr k_dim element pairs quads shift"),
    "cpu.pack_quads": (1, "lanes threads nr shift"),
    "cpu.pack_winograd": (1, "lanes threads nr output_tile"),
    "cpu.pack_blocks": (2, "threads"),
    "cpu.matmul_blocks": (
        2,
        "arithmetic lanes tile_rows chunk_rows threads scheme workspace_bytes combination_order",
    ),
    "cpu.matmul_blocks_fused": (
        1,
        "arithmetic lanes tile_rows chunk_rows threads scheme products workspace_bytes combination_order "
        f"may_alias {_inside('rows', _LOOPS.replace('rounding ', ''))}",
    ),
    "cpu.rounded_matmul_blocks": (
        1,
        "lanes tile_rows chunk_rows threads prefetch_ahead scheme workspace_bytes combination_order",
    ),
    "cpu.dequantize_blocks": (1, "scheme threads"),
    "cpu.last_update": (1, "threads"),
    "cpu.scatter": (1, "mode parts threads combination_order"),
    "cpu.topk": (1, "axis smallest threads"),
    "cpu.conv_avx512": (7, _CPU_CONV),
    "cpu.conv_avx2": (7, _CPU_CONV),
    "cpu.conv_portable": (7, _CPU_CONV),
    "cpu.weight_grad_avx512": (1, _CPU_WEIGHT_GRAD),
    "cpu.weight_grad_avx2": (1, _CPU_WEIGHT_GRAD),
    "cpu.weight_grad_portable": (1, _CPU_WEIGHT_GRAD),
    "cpu.pool": (2, _CPU_POOL),
    "cpu.lstm": (1, "reverse lanes tile_rows k_split b_source threads workspace_bytes combination_order"),
    "cpu.non_max_suppression": (2, "centred threads fan_out lanes workspace_bytes combination_order"),
    "cpu.multi_tensor": (2, "parts subnormals threads may_alias"),
    "cuda.cublaslt": (
        1,
        f"{_inside('matrices', 'a b c d')} {_inside('operands', 'a b c bias')} transpose batch alpha beta dtype "
        "compute_type scale_type bias_type epilogue reduction rounding alignment fixed_addresses may_alias library "
        "algorithm workspace_bytes combination_order",
    ),
    "cuda.conv_cudnn": (
        1,
        f"{_CUDNN} {_tensors('x weight y')} {_inside('operands', 'x weight residual bias')} residual bias strides "
        "dilations low high activation layouts",
    ),
    "cuda.attention_cudnn": (
        1,
        f"{_CUDNN} {_tensors('q k v y')} {_inside('operands', 'q k v')} scale mask",
    ),
    "cuda.gemm_wgmma": (1, _WGMMA),
    "cuda.gemm_wgmma_tf32": (1, f"{_WGMMA} math"),
    "cuda.gemm_wgmma_int8": (1, f"{_WGMMA} math layouts"),
    "cuda.gemm_wgmma_fp8": (1, f"{_WGMMA} math"),
    "cuda.gemm_wgmma_sums": (1, f"{_WGMMA} summed"),
    "cuda.gemm_mma_fp8": (1, f"{_GEMM_MMA} math"),
    "cuda.gemm_norm": (1, _WGMMA),
    "cuda.gemm_mma": (1, _GEMM_MMA),
    "cuda.gemm_mma_tf32": (1, f"{_GEMM_MMA} math"),
    "cuda.conv_mma_int8": (1, f"{_CONV_MMA} math padding_value"),
    "cuda.conv_wgmma_int8": (
        1,
        f"{_CUDA_CONV} math padding_value tile cluster_shape ring split_k workspace_bytes",
    ),
    "cuda.gemm_mma_int8": (1, f"{_GEMM_MMA} math layouts"),
    "cuda.gemm_skinny": (1, f"{_CUDA_GEMM} tile stages blocks_per_sm"),
    "cuda.gemm_simt": (1, f"{_CUDA_GEMM} tile thread_tile depth tile_group stages blocks_per_sm split_k"),
    "cuda.gemv": (
        1,
        f"{_CUDA_GEMM} along k_parts row_groups rows_per_warp chains prologue_operands blocks_per_sm trigger_at",
    ),
    "cuda.attention_wgmma": (3, f"{_CUDA_ATTENTION} groups turns block_n stages"),
    "cuda.attention_step": (4, f"{_CUDA_ATTENTION} splits warps"),
    "cuda.cached_attention": (
        1,
        f"{_CUDA_ATTENTION} warpgroups warps_m warps_n block_m block_n stages position window softcap",
    ),
    "cuda.cached_attention_wgmma": (
        2,
        f"{_CUDA_ATTENTION} groups turns block_n stages position window softcap",
    ),
    "cuda.cached_attention_step": (
        2,
        f"{_CUDA_ATTENTION} splits warps position window softcap rotation may_alias",
    ),
    "cuda.attention": (3, f"{_CUDA_ATTENTION} warpgroups warps_m warps_n block_m block_n stages"),
    "cuda.attention_simt": (3, _CUDA_ATTENTION),
    "cuda.attention_backward": (
        2,
        f"{_CUDA_ATTENTION} keys_grid keys_block keys_shared_bytes workspace_bytes query_tiles key_tiles tile",
    ),
    "cuda.attention_backward_short": (1, f"{_CUDA_ATTENTION} tile blocks_per_sm"),
    "cuda.attention_backward_wgmma": (
        1,
        f"{_CUDA_ATTENTION} keys_grid keys_block keys_shared_bytes workspace_bytes query_groups key_groups stages",
    ),
    "cuda.generated": (
        1,
        f"{_LAUNCHES} strategy vector lanes threads unroll splits late blocks_per_sm may_alias combination_order",
    ),
    "cuda.matmul_blocks": (
        2,
        f"{_LAUNCH} scheme products prologue_operands k_parts panel_groups panel_rounds unroll tile_rows slice_tiles "
        "panels_ahead blocks_per_sm combination_order",
    ),
    "cuda.pack_blocks": (2, _LAUNCH),
    "cuda.dequantize_blocks": (1, f"{_LAUNCH} scheme"),
    "cuda.copy": (1, f"axis parts {_EARLY}"),
    "cuda.concat": (1, f"axis parts {_EARLY}"),
    "cuda.last_update": (1, _LAUNCHES),
    "cuda.scatter": (1, f"{_LAUNCHES} mode block_rows block_columns looks may_alias combination_order"),
    "cuda.scatter_sorted": (
        1,
        f"{_LAUNCHES} mode vector lanes items blocks looks may_alias workspace_bytes combination_order",
    ),
    "cuda.write_row": (1, f"{_LAUNCHES} axis operands combination_order may_alias"),
    "cuda.topk": (2, f"{_LAUNCHES} axis smallest parts unroll workspace_bytes"),
    "cuda.non_max_suppression": (1, f"{_LAUNCHES} centred workspace_bytes"),
    "cuda.pool": (1, f"{_LAUNCH} {_POOL} threads_along vector pixels lanes"),
    "cuda.pool_taps": (
        1,
        f"{_LAUNCH} {_WINDOWS} {_of_dims('size', 'high')} threads_along vector pixels lanes threads combination_order",
    ),
    "cuda.max_pool_grad": (
        1,
        f"{_LAUNCH} {_WINDOWS} {_of_dims('size')} threads_along vector threads combination_order",
    ),
    "cuda.conv_depthwise": (1, f"{_CUDA_CONV} threads_along vector pixels threads near blocks_per_sm"),
    "cuda.conv_mma": (1, _CONV_MMA),
    "cuda.conv_transpose_mma": (1, f"{_EARLY} {_WINDOWS} groups parts combination_order workspace_bytes"),
    "cuda.conv_transpose_wgmma": (
        1,
        f"{_LAUNCH} {_WINDOWS} groups may_alias combination_order tile cluster_shape ring split_k workspace_bytes",
    ),
    "cuda.conv_simt": (1, f"{_CUDA_CONV} tile thread_tile depth tile_group stages blocks_per_sm split_k"),
    "cuda.conv_mma_tf32": (1, f"{_CONV_MMA} math"),
    "cuda.conv_wgmma": (1, f"{_CUDA_CONV} tile cluster_shape ring split_k workspace_bytes"),
    "cuda.conv_wgmma_moments": (
        1,
        f"{_CUDA_CONV} tile cluster_shape ring split_k workspace_bytes sum_grid sum_block",
    ),
    "cuda.pack_windows": (
        1,
        f"{_LAUNCHES} strategy vector lanes threads unroll splits late blocks_per_sm combination_order",
    ),
    "cuda.weight_grad_wgmma": (1, f"{_WEIGHT_GRAD} tile cluster_shape ring split_k"),
    "cuda.weight_grad_mma": (1, _WEIGHT_GRAD_MMA),
    "cuda.weight_grad_mma_tf32": (1, f"{_WEIGHT_GRAD_MMA} math"),
    "cuda.weight_grad_simt": (
        1,
        f"{_WEIGHT_GRAD} tile thread_tile depth tile_group stages blocks_per_sm split_k",
    ),
    "cuda.weight_grad_depthwise": (1, f"{_WEIGHT_GRAD} rows pixels vector lanes threads"),
    "cuda.multi_tensor": (1, f"{_LAUNCH} vectors unroll may_alias"),
}
"""Kernel to its version and the entries that its records may have, beside `version` and `determinism`."""


PROGRAMS = (
    "norm-rows_normed-ln",
    "gemv-normed_dense-f16",
    "places-rows",
    "places-topk-f32",
    "bool_operations-i1",
    "detection-f32",
    "attention_step-f16",
    "step-cached",
    "prompt-64",
    "prompt-wgmma",
    "attention_backward-64",
    "wgmma-product-f16",
    "mma-wide",
    "skinny-gated-bf16",
    "int8-u8-i8",
    "int8wg-u8-i8",
    "int8windows-split",
    "pooling-f32",
    "max-pool-gradients-rows-f32",
    "depthwise-mobile",
    "windows-wide",
    "weight_grad-layer1",
    "weight_grad-mobile",
    "transposed-step",
    "fp8-e4m3",
    "fp8wg-deep",
)
"""Cases of the GPU's table; together with the fused programs they have work for every kernel of either backend."""

ON_CPU = ("convolutions-f32", "recurrent-f32")
"""Those for whose kernels cuda has none."""

FUSED = ("attention", "cached_attention", "norm_product", "gated")

PACKED = """func.func @f(%x : tensor<1x8xf16> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xf16> {logical.name = "w", logical.role = "param"}) -> (tensor<1x8xf16> {logical.name = "y"}) {
  %y = logical.matmul %x, %w : (tensor<1x8xf16>, tensor<8x8xf16>) -> tensor<1x8xf16>
  func.return %y : tensor<1x8xf16>
}"""
RECURRENT = """func.func @f(%x : tensor<3x1x64xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<64x16xf32> {logical.name = "w", logical.role = "param"},
    %f : tensor<2x1x16xf32> {logical.name = "f", logical.role = "input"})
    -> (tensor<2x3x1x16xf32> {logical.name = "y"}) {
  %y = logical.lstm %x, %w, %f : (tensor<3x1x64xf32>, tensor<64x16xf32>, tensor<2x1x16xf32>) -> tensor<2x3x1x16xf32>
  func.return %y : tensor<2x3x1x16xf32>
}"""
TILES = """func.func @f(%x : tensor<1x32x16x16xf32> {logical.name = "x", logical.role = "input"},
    %w : tensor<32x32x3x3xf32> {logical.name = "w", logical.role = "param"})
    -> (tensor<1x32x14x14xf32> {logical.name = "y"}) {
  %y = logical.conv %x, %w {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1], groups = 1}
    : (tensor<1x32x16x16xf32>, tensor<32x32x3x3xf32>) -> tensor<1x32x14x14xf32>
  func.return %y : tensor<1x32x14x14xf32>
}"""
PAIRS = """func.func @f(%x : tensor<1x8xi16> {logical.name = "x", logical.role = "input"},
    %w : tensor<8x8xi8> {logical.name = "w", logical.role = "param"}) -> (tensor<1x8xi32> {logical.name = "y"}) {
  %y = logical.matmul %x, %w {widening} : (tensor<1x8xi16>, tensor<8x8xi8>) -> tensor<1x8xi32>
  func.return %y : tensor<1x8xi32>
}"""
QUADS = PAIRS.replace("i16", "i8")
CHANNELS = (
    TILES.replace("xf32>", "xi8>")
    .replace("14x14xi8>", "14x14xi32>")
    .replace("groups = 1}", "groups = 1, widening}")
)
PACKED_MLP = """
func.func @mlp(
    %x : tensor<2x32xf32> {logical.name = "x", logical.role = "input"},
    %scale : tensor<32xf32> {logical.name = "scale", logical.role = "param"},
    %wg : tensor<64x18xui8> {logical.name = "wg", logical.role = "param"},
    %wu : tensor<64x18xui8> {logical.name = "wu", logical.role = "param"},
    %wd : tensor<32x36xui8> {logical.name = "wd", logical.role = "param"})
    -> (tensor<2x32xf32> {logical.name = "y"}) {
  %rows = logical.rms_norm %x, %scale {axis = 1} : (tensor<2x32xf32>, tensor<32xf32>) -> tensor<2x32xf32>
  %gate = logical.matmul_blocks %rows, %wg {scheme = "Q4_0"} : (tensor<2x32xf32>, tensor<64x18xui8>) -> tensor<2x64xf32>
  %up = logical.matmul_blocks %rows, %wu {scheme = "Q4_0"} : (tensor<2x32xf32>, tensor<64x18xui8>) -> tensor<2x64xf32>
  %hidden = logical.mul %gate, %up : tensor<2x64xf32>
  %down = logical.matmul_blocks %hidden, %wd {scheme = "Q4_0"}
      : (tensor<2x64xf32>, tensor<32x36xui8>) -> tensor<2x32xf32>
  %y = logical.add %x, %down : tensor<2x32xf32>
  func.return %y : tensor<2x32xf32>
}"""
LIBRARY = PACKED.replace("f16", "f32").replace('"param"', '"input"')


@cache
def made() -> Mapping[str, frozenset[str]]:
    """Every kernel that has work in the programs, and the entries of all its records."""
    found: dict[str, set[str]] = {}
    for kernel, record in _records():
        found.setdefault(kernel, set()).update(_names(record))
    return {kernel: frozenset(names) - {"version", "determinism"} for kernel, names in found.items()}


def _records() -> Iterator[tuple[str, Mapping[str, Attribute]]]:
    for target, own in (("cpu:x86-64-v4", "cpu.gemm_norm_avx512"), ("cuda:sm_90a", "cuda.gemm_norm")):
        for dtype in ("f16", "f32"):
            for family in FUSED:
                yield from _offered(fused_program(family, 1, dtype).module, target, {})
        for name in PROGRAMS:
            yield from _offered(CASES[name].make().module, target, {})
        # Norms join their products where a policy asks for it: of these sizes they take less apart.
        yield from _offered(CASES[PROGRAMS[0]].make().module, target, {"kernels": {"gemm_norm": own}})
    for name in ON_CPU:
        yield from _offered(CASES[name].make().module, "cpu:x86-64-v4", {})
    for name in ("windows-split", "multi-linear_gradients-bf16"):
        yield from _offered(CASES[name].make().module, "cuda:sm_90a", {})
    moments = CASES["moments-packed"]
    yield from _offered(moments.make().module, "cuda:sm_90a", dict(moments.policy))
    for name in ("simt-dense-f32", "convolutions-f32", "convolve-tf32-last", "weight_grad-tf32"):
        yield from _offered(CASES[name].make().module, "cuda:sm_90a", {"tf32": True})
    yield from _offered(parse_module(TILES), "cpu:x86-64-v4", {})
    yield from _offered(parse_module(QUADS), "cpu:x86-64-v4+avx512vnni", {})
    policy = {"kernels": {"gemm": "cpu.gemm_blas"}}
    for module in (
        lower(PACKED, "x86-64-v4"),
        lower(TILES, "x86-64-v4"),
        lower(CHANNELS, "x86-64-v4+avx512vnni"),
        *(lower(PAIRS, level) for level in ("x86-64-v4", "x86-64-v3", "x86-64-v2")),
        lower(QUADS, "x86-64-v4+avx512vnni"),
        lower(RECURRENT, "x86-64-v4"),
        lower(str(packed_weights()), "x86-64-v4"),
        lower(PACKED_MLP, "x86-64-v4"),
        lower(str(rounded_weights()), "x86-64-v4"),
        lower(RECURRENT.replace('"param"', '"input"'), "x86-64-v4"),
        lower(LIBRARY, "x86-64-v4", policy=policy, library="0.3 Prescott"),
        *map(_update, ("cpu:x86-64-v4", "cuda:sm_90a")),
        _with_packed_weight("windows-split"),
        _with_packed_weight("int8windows-split"),
        _with_packed_weight("depthwise-mobile"),
        _with_packed_weight("blocks-Q4_0"),
        _with_packed_weight("blocks-mlp-float"),
    ):
        for op in module.walk():
            if isinstance(op, ResolvedOp) and op.kernel is not None:
                yield op.kernel.kernel.data, {**op.kernel.record.data, **op.constraints.data}


def _with_packed_weight(case: str) -> ModuleOp:
    """A convolution or a product whose weight is packed for it."""
    module = CASES[case].make().module
    AicfInferencePass("cuda:sm_90a").apply(make_context(), module)
    return module


def _update(target: str) -> ModuleOp:
    """A training step that updates two tensors."""
    module = parse_module(Program([Tensor((40, 8)), Tensor((8,))]).text())
    AicfTrainingPass(target).apply(make_context(), module)
    return module


def _offered(
    module: ModuleOp, target: str, policy: dict[str, Any]
) -> Iterator[tuple[str, Mapping[str, Attribute]]]:
    """The first record of every legal kernel for every group."""
    options = Options(target, json.dumps(policy), "", 1)
    for candidate in candidates(grouped(module, options, make_context(), lambda _: None), 1):
        yield candidate.kernel.id, candidate.record.record.data


def _names(record: Mapping[str, Attribute], prefix: str = "") -> Iterator[str]:
    for name, value in record.items():
        yield prefix + name
        if isinstance(value, DictionaryAttr):
            yield from _names(value.data, f"{prefix}{name}.")


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_every_kernel_has_a_row(backend: str) -> None:
    """But for those of ops of their own, which are registered as a user's are, and have no record."""
    kernels = {name for name in get_kernels(backend) if name.startswith(f"{backend}.")}
    assert {name for name in RECORDS if name.startswith(f"{backend}.")} == kernels
    assert kernels <= made().keys(), "a program with work for the kernel is missing"


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_that_changes_is_another_version(name: str) -> None:
    version, entries = RECORDS[name]
    kernel = get_kernels(name.partition(".")[0])[name]
    came, gone = (
        sorted(names) for names in (made()[name] - {*entries.split()}, {*entries.split()} - made()[name])
    )
    assert not came and not gone, f"{name}: came {came}, gone {gone}: raise its version, then write its row"
    assert kernel.version == version, f"{name}: write the row of version {kernel.version}"


def test_the_row_of_a_kernel_names_each_entry_once() -> None:
    for name, (_, entries) in RECORDS.items():
        assert len(entries.split()) == len(set(entries.split())), name
