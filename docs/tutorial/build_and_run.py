"""Builds the classifier, compiles it, runs and replays it, times its instructions, and saves it."""

import numpy as np

import aicf

graph = aicf.Graph("classify")
x = graph.input("x", (16, 64))
weight, bias = graph.param("fc.weight", (32, 64)), graph.param("fc.bias", (32,))
act = graph.relu(graph.linear(x, weight, bias, name="fc"), name="act")
graph.output(graph.softmax(act, name="prob"), "probabilities")

exe = aicf.compile(graph, "build/classify.safetensors", "cpu")

x = np.load("build/x.npy")
y = exe(x)
print("rows add up to 1:", np.allclose(y.sum(axis=1), 1))
print("the same bits again:", np.array_equal(y, exe(x)))

out = np.empty_like(y)
bound = exe.bind(x=x, probabilities=out)
bound.replay()
print("no copy:", np.array_equal(out, y))

for row in aicf.Profiler(exe).measure(x, repeats=20).instructions:
    print(f"{row.name:8} {row.kind:13} by {row.kernel}, {row.median_us:.2f} us")

exe.save("build/classify.aicf")
print("build/classify.aicf saved")
