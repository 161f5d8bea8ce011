"""From graphs of the onnx dialect to logical IR."""
