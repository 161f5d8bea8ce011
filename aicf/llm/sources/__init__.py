"""A model's GGUF file or Hugging Face folder, behind one interface."""
