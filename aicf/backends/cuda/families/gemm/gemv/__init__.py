"""Products with few rows, which read the weights once at memory speed."""
