"""Compares the probabilities of `build/fast` with those of `build/reference`."""

import numpy as np

fast, reference = (np.load(f"build/{name}/probabilities.npy") for name in ("fast", "reference"))
print("build/fast and build/reference agree to 1e-6:", np.abs(fast - reference).max() < 1e-6)
