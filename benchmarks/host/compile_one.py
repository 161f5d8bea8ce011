"""Compiles one network of `networks.py` for the CPU and prints the seconds, imports of the compiler included.

python benchmarks/host/compile_one.py NUMBER
"""

import sys
import time

from networks import NETWORKS


def main() -> None:
    """Zeros as weights: shapes decide everything."""
    network = NETWORKS[int(sys.argv[1])]
    weights = {name: value.numpy() for name, value in network.module().state_dict().items()}
    started = time.perf_counter()
    import aicf

    aicf.compile(network.build(), weights, "cpu")
    print(time.perf_counter() - started)


if __name__ == "__main__":
    main()
