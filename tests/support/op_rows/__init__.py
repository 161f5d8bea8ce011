"""Every op that is not elementwise, with ways to use it and what it gives; `elementwise_ops.py` has the others."""

from tests.support.op_rows import (
    clipping,
    contraction,
    convolution,
    counters,
    data_movement,
    detection,
    indexing,
    losses,
    normalization,
    pooling,
    quantised_blocks,
    random_numbers,
    recurrent,
    reduction,
)

FAMILIES = {
    "reduction": reduction.ROWS,
    "normalization": normalization.ROWS,
    "pooling": pooling.ROWS,
    "contraction": contraction.ROWS,
    "convolution": convolution.ROWS,
    "data_movement": data_movement.ROWS,
    "indexing": indexing.ROWS,
    "detection": detection.ROWS,
    "recurrent": recurrent.ROWS,
    "losses": losses.ROWS,
    "random_numbers": random_numbers.ROWS,
    "counters": counters.ROWS,
    "clipping": clipping.ROWS,
    "quantised_blocks": quantised_blocks.ROWS,
}
ROWS = tuple(row for rows in FAMILIES.values() for row in rows)
