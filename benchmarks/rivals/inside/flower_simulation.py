"""Run in Flower's environment: `flower_simulation.py CLIENTS ROUNDS TIMES` simulates no-op rounds on Ray."""

import sys
import time
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

CLIENTS, ROUNDS, TIMES = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])

client, server = ClientApp(), ServerApp()


@client.train()
def train(message: Message, _: Context) -> Message:
    arrays = message.content["arrays"]
    assert isinstance(arrays, ArrayRecord)
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
    return Message(content=content, reply_to=message)


@server.main()
def main(grid: Grid, _: Context) -> None:
    def note(number: int, arrays: ArrayRecord) -> MetricRecord:
        with TIMES.open("a") as file:
            file.write(f"{time.time()!r}\n")
        return MetricRecord({"round": number})

    strategy = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS, min_evaluate_nodes=0
    )
    start = ArrayRecord([np.zeros(10, np.float32)])
    strategy.start(grid=grid, initial_arrays=start, num_rounds=ROUNDS, evaluate_fn=note)


if __name__ == "__main__":
    backend = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"include_dashboard": False, "object_store_memory": 256 << 20},
    }
    run_simulation(server_app=server, client_app=client, num_supernodes=CLIENTS, backend_config=backend)
