"""Updates of many tensors by one launch."""
