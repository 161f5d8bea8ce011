"""Products of at most 32 rows on tensor cores, which stream the weights and sum as products of many rows do."""
