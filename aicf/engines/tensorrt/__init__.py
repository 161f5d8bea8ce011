"""TensorRT as an engine: plans for one NVIDIA GPU, built, kept and run."""
