"""What a pooling by the largest element passes back to its operand."""
