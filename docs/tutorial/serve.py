"""Loads the classifier that build_and_run.py saved, and runs it without a compiler."""

import sys

import numpy as np

import aicf

exe = aicf.load("build/classify.aicf")
y = exe(np.load("build/x.npy"))
print(f"f32{list(y.shape)} for {', '.join(spec.name for spec in exe.inputs)}")
print("rows add up to 1:", np.allclose(y.sum(axis=1), 1))
print("compiler imported:", "xdsl" in sys.modules or "numba" in sys.modules)
