"""What a random program may do next, by family of ops; a step named twice is taken twice as often."""

from tests.support.random_steps import (
    attention,
    clipping,
    contraction,
    convolution,
    counters,
    data_movement,
    detection,
    elementwise,
    indexing,
    losses,
    pooling,
    quantised_blocks,
    random_numbers,
    recurrent,
    reduction,
)

OF_MODELS = (
    *elementwise.STEPS,
    *contraction.STEPS,
    *convolution.STEPS,
    *reduction.STEPS,
    *pooling.STEPS,
    *data_movement.STEPS,
    *indexing.STEPS,
    *attention.STEPS,
    *detection.STEPS,
    *quantised_blocks.STEPS,
    *recurrent.STEPS,
    *random_numbers.STEPS,
)
OF_TRAINING = (*losses.STEPS, *counters.STEPS, *clipping.STEPS)

STEPS = (*OF_MODELS, *OF_TRAINING)
