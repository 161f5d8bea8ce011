"""The launch that adds the parts of a gradient in ascending order, and stores it where it lies."""
