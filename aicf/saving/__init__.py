"""Compiled programs as files: the artifact, its native code and tensors, and the folder of a cache."""
