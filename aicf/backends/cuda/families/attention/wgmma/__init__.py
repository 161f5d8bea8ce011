"""Attention on Hopper: bulk copies and warpgroup products."""
