"""Writes what the pages compute with: `build/x.npy`, an input, and `build/classify.safetensors`, the weights."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

rng = np.random.default_rng(7)
Path("build").mkdir(exist_ok=True)
np.save("build/x.npy", rng.standard_normal((16, 64), dtype=np.float32))
weights = {
    "fc.weight": rng.standard_normal((32, 64), dtype=np.float32) / 8,
    "fc.bias": rng.standard_normal(32, dtype=np.float32),
}
save_file(weights, "build/classify.safetensors")
print("build/x.npy, build/classify.safetensors")
