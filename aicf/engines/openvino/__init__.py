"""OpenVINO as an engine: Intel's CPUs, GPUs and NPUs by the names that it gives them."""
