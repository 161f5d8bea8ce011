"""Block-quantised weights become arithmetic on their bytes, and products with them those with the widened weight."""

from __future__ import annotations

from aicf.dialects import logical
from aicf.passes.legalize.expansions.base import OpExpansion, register
from aicf.passes.logical.lowerings import FORMULAS

register(
    OpExpansion(
        logical.DequantizeBlocksOp,
        ("dequantize_blocks",),
        FORMULAS[logical.DequantizeBlocksOp],
        "as arithmetic on bytes",
        copied=None,
    ),
    OpExpansion(
        logical.MatmulBlocksOp,
        ("matmul_blocks",),
        FORMULAS[logical.MatmulBlocksOp],
        "as a product with the widened weight",
        copied=(0,),
    ),
    OpExpansion(
        logical.RoundedMatmulBlocksOp,
        ("rounded_matmul_blocks",),
        FORMULAS[logical.RoundedMatmulBlocksOp],
        "as a product of rounded numbers in f32",
    ),
)
