"""Training: a model, a loss and an optimizer become one program that makes a step, and what users hold of it.

    step = aicf.train_step(model, "cross_entropy", aicf.optimizers.Adam(lr=1e-3))
    for x, y in batches:
        step(x, y)
    step.losses()               # one number a step
    step.save("digits.ckpt")

Nothing here differentiates or updates: `step_graph` writes a logical program that says so, and the passes of
`aicf-training` do the rest. Losses, optimizers and schedules are descriptions, with the names and defaults of PyTorch.
"""

from aicf.training import losses, optimizers, schedules
from aicf.training.build import train_step
from aicf.training.initial import initial_weights
from aicf.training.train_step import TrainStep

__all__ = ["TrainStep", "initial_weights", "losses", "optimizers", "schedules", "train_step"]
