"""The reference backend: runs the bodies of instructions with NumPy. It is the oracle of the tests."""
