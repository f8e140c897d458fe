"""The ServerApp of the digits app: FedAvg, with the accuracy and the time of every round in a file."""

import json
import time
from pathlib import Path

import torch
from digits_task import Network, accuracy, test_records
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train by FedAvg with the run configuration's number of rounds, and store the rounds in the file `out`."""
    torch.manual_seed(0)
    rounds = list[dict[str, float]]()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        network = Network()
        network.load_state_dict(arrays.to_torch_state_dict())
        right = accuracy(network, *test_records())
        rounds.append({"round": server_round, "accuracy": right, "time": time.time()})
        return MetricRecord({"accuracy": right})

    initial = ArrayRecord(Network().state_dict())
    result = FedAvg().start(grid, initial, int(context.run_config["num-server-rounds"]), evaluate_fn=evaluate)
    for metrics in result.train_metrics_clientapp.values():
        assert metrics["rounds"] >= 1
    Path(str(context.run_config["out"])).write_text(json.dumps(rounds))
