"""What `lower-precision` writes: casts, scales and integers around the ops of a model."""
