"""The gradients of attention for queries, keys and values, on tensor cores from Ampere on."""
