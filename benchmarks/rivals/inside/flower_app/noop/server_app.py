"""Federated averaging that notes when each round ends."""

import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    nodes = int(config["nodes"])
    times = Path(str(config["times"]))

    def note(number: int, arrays: ArrayRecord) -> MetricRecord:
        with times.open("a") as file:
            file.write(f"{time.time()!r}\n")
        return MetricRecord({"round": number})

    while len(list(grid.get_node_ids())) < nodes:
        time.sleep(0.5)
    strategy = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes, min_evaluate_nodes=0
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord([np.zeros(int(config["parameters"]), np.float32)]),
        num_rounds=int(config["rounds"]),
        evaluate_fn=note,
    )
