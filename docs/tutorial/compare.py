"""Holds `build/fast/probabilities.npy` against the formula, in NumPy and float64."""

import numpy as np
from safetensors.numpy import load_file

weights = load_file("build/classify.safetensors")
x = np.load("build/x.npy").astype(np.float64)
act = np.maximum(x @ weights["fc.weight"].astype(np.float64).T + weights["fc.bias"], 0)
exact = np.exp(act - act.max(axis=1, keepdims=True))
exact /= exact.sum(axis=1, keepdims=True)
difference = np.abs(np.load("build/fast/probabilities.npy") - exact).max()
print("largest difference from NumPy in float64 is below 1e-6:", difference < 1e-6)
