"""Passes of training steps: gradients, saved values, optimizers, counters."""
