"""Products with block-quantised weights, which stay packed in memory."""
