"""Builds a program with the op of page 6, whose method comes from its definition."""

import aicf

graph = aicf.Graph("curve")
graph.output(graph.softsign(graph.input("x", ("N", 4)), name="act"), "y")
print(graph.module())
