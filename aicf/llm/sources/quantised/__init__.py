"""Quantised weights of Hugging Face folders: one small file for each method of `quantization_config`.

A method says which stored tensors make up a matrix, and what they mean by its published formula. The matrix is laid out
in blocks of one of our schemes when it is read, so codes, scales and zero points lie in one stream.
"""
