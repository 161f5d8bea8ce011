"""Products of block-quantised weights with numbers that are rounded to 8 bits."""
