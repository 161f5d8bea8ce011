"""Products with block-quantised weights, with a row program before them and an epilogue after them."""
