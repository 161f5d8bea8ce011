"""The architectures of language models, one small file each, on the builder."""
