"""QNN as an engine: Qualcomm's NPUs, by the execution provider of ONNX Runtime."""
