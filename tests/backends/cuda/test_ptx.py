"""The PTX layer has every instruction whose name a code generator makes from a number or a type, and no other one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aicf.backends.cuda.codegen import vector_access
from aicf.backends.cuda.compiler import ptx
from aicf.backends.cuda.families.attention.wgmma.kernel import Spec
from aicf.backends.cuda.families.gemm.simt.kernel import SUMS
from aicf.backends.cuda.families.gemm.wgmma import schedule as wgmma_spec

CUDA = Path(ptx.__file__).parents[2]
HALVES, FLOAT8 = ("f16", "bf16"), ("f8E4M3FN", "f8E5M2")
WIDTHS = {tile_n for _, tile_n in (*wgmma_spec._TILES, *wgmma_spec._ROW_TILES)}  # pyright: ignore[reportPrivateUsage]
KEYS = (64, 128)
"""Of a tile of attention by warpgroups, and elements of a value."""


def made() -> set[str]:
    """Names that are put together where kernels are written."""
    names = {load for by_count in vector_access._LOADS.values() for load in by_count.values()}  # pyright: ignore[reportPrivateUsage]
    names |= {name.replace("load", "store") for name in names}
    for dtype in HALVES:
        names |= {
            f"wgmma_{width}_{dtype}{layout}" for width in WIDTHS for layout in ("", "_01", "_10", "_11")
        }
        names |= {f"wgmma_of_{from_}_{keys}_{dtype}" for from_ in ("registers", "ready") for keys in KEYS}
        names |= {f"pack_{dtype}", f"unpack_{dtype}", f"{dtype}_to_f32", f"f32_to_{dtype}"}
        names |= {f"max_nan_{dtype}x2"}
    names |= {f"wgmma_{width}_tf32" for width in WIDTHS}
    names |= {f"wgmma_result_{width}" for width in WIDTHS}
    names |= {f"wgmma_{state}_{keys}" for state in ("start", "older", "ready") for keys in KEYS}
    names |= {f"copy_tensor_{rank}d{many}" for rank in (2, 3, 4, 5) for many in ("", "_multicast")}
    names |= {f"copy_windows_{rank}d{many}" for rank in (3, 4, 5) for many in ("", "_multicast")}
    names |= {f"store_async_{dtype}" for dtype in ("f32", "f64", "i32", "i64")}
    shares = [Spec(groups, 128, 2, False).registers for groups in (1, 2, 3)]
    shares += [(40, 216), (40, 232)]  # of matrix products
    names |= {
        f"{what}_registers_{count}"
        for share in shares
        for what, count in zip(("fewer", "more"), share, strict=True)
    }
    names |= of_integers()
    names |= {f"wgmma_{width}_{a}_{b}" for width in WIDTHS for a in FLOAT8 for b in FLOAT8}
    for stored, summed in SUMS.items():
        names |= {f"zeros_{summed}"} | ({f"widen_rows_{stored}"} if stored != summed else set())
        names |= {f"{what}_groups_{summed}" for what in ("load", "load_cluster", "store")}
    return names


def of_integers() -> set[str]:
    """The same of products of 8-bit integers: their operands, sums of i32, and what is stored of them."""
    types = ("i8", "u8")
    names = {f"mma_tile_{a}_{b}" for a in types for b in types}
    names |= {f"wgmma_{width}_{a}_{b}" for width in WIDTHS for a in types for b in types}
    names |= {f"wgmma_result_{width}_i32" for width in WIDTHS}
    names |= {f"unpack_{dtype}x4" for dtype in types} | {f"load_u{bits}_or_zero" for bits in (8, 16)}
    return names | {"load_shared_i32x4", "store_cluster_i32x2", "store_i32x2", "store_i32x4"}


def intrinsics() -> set[str]:
    """Every instruction of the layer."""
    return {name for name, value in vars(ptx).items() if type(value).__name__ == "_Intrinsic"}


def test_names_that_are_made_exist() -> None:
    assert made() <= intrinsics()


@pytest.mark.parametrize("capability", [80, 89, 90])
def test_every_gpu_has_what_floats_of_8_bits_take(capability: int) -> None:
    names = {f"mma_tile_{a}_{b}" for a in FLOAT8 for b in FLOAT8}
    for dtype in FLOAT8:
        names |= {f"pack_{dtype}", f"unpack_{dtype}", f"{dtype}_to_f32", f"f32_to_{dtype}"}
    assert ptx.float8_intrinsics(capability).keys() == names


def test_no_instruction_is_without_use() -> None:
    """Each is made, or written out in a template or a code generator."""
    files = (path for path in CUDA.rglob("*.py") if path.parent.name != "ptx")
    written = set(re.findall(r"\w+", "\n".join(path.read_text() for path in files)))
    assert intrinsics() - made() - written == set()


@pytest.mark.parametrize("name", ["cuda", "f32", "u64", "ALL_LANES", "NEGATIVE_INFINITY"])
def test_texts_may_name_types_and_constants(name: str) -> None:
    assert hasattr(ptx, name)
