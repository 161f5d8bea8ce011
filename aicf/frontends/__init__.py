"""What reads a model: text IR, the Python builder, ONNX files, PyTorch graphs."""
