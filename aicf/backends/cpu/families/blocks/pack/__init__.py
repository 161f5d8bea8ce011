"""Block-quantised weights laid out in panels for their products."""
