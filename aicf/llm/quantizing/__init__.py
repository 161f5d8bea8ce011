"""Rounding the weights of a language model to blocks of few bits: `aicf quantize`."""
