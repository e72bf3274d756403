"""Run in Flower's environment: `flower_aggregate.py CLIENTS PARAMETERS` averages once per line on its input.

The arrays are drawn like those of `benchmarks.rounds`, one per client. Answers each line with one of its own.
"""

import sys

import numpy as np
from flwr.server.strategy.aggregate import aggregate


def main() -> None:
    clients, parameters = int(sys.argv[1]), int(sys.argv[2])
    draw = np.random.default_rng(0)
    updates = [([draw.standard_normal(parameters, dtype=np.float32)], 10 + i) for i in range(clients)]
    print("ready", flush=True)
    for _ in sys.stdin:
        aggregate(updates)
        print("done", flush=True)


if __name__ == "__main__":
    main()
