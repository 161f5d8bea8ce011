"""Updates of many tensors by one instruction."""
