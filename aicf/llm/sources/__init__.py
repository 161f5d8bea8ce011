"""Where a language model comes from: a GGUF file or a Hugging Face folder, behind one interface."""
