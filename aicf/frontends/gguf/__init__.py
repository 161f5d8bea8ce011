"""The GGUF frontend: reads a model file of llama.cpp, its settings and its tensors, which stay in the file's blocks."""
