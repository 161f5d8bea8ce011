"""Which kernel runs a group or an instruction, and the scalar program of generated ones."""
