"""Block-quantised weights, laid out ahead in tiles for products."""
