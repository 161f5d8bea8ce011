"""The GGUF frontend: reads a model file of llama.cpp; tensors stay in the file's blocks."""
