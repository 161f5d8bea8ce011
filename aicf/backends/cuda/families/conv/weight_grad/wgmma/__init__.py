"""Gradients of weights by warpgroup products out of bulk tensor copies."""
