"""Attention on tensor cores from Ampere on: mma.sync, or wgmma straight from shared memory."""
