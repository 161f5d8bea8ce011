"""What the kernels of every backend have in common: how they are described, and how their records are read."""
