"""The ONNX frontend: turns a file into a module of the onnx dialect, and its weights.

Nothing is computed or lowered here; sizes stay symbolic. What is wrong with a model leaves as one line that names the
file and the node.
"""

from aicf.frontends.onnx.reading import OnnxModel, read_onnx

__all__ = ["OnnxModel", "read_onnx"]
