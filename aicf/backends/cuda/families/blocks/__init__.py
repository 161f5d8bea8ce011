"""Products with block-quantised weights, which stay packed in memory, and rows of them in f32."""
