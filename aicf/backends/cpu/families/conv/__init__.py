"""Convolutions: direct, depthwise, and as products."""
