"""The gradients of attention by mma.sync, in two launches, on tensor cores from Ampere on."""
