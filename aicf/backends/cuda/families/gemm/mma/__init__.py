"""Products on tensor cores from Ampere on: cp.async, ldmatrix, mma.sync."""
