"""The ServerApp of the hospitals: federated averaging with Flower's noise, and an observer of canaries.

Canaries are known updates that hospitals send in secretly drawn rounds. The observer stores how strongly they show.
"""

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from fl_audit.app_audits.live.observed_strategies import watched
from fl_audit.app_audits.live.observer_store import TrainingObserver
from fl_audit.privacy.stated_releases import StatedReleases

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the federation, and store the accuracy and the time of every round.

    The app's configuration gives the number of rounds, the claimed noise multiplier, and further settings. `added` is
    the ratio of the noise that is added to the noise that is claimed.
    """
    config = context.run_config
    rounds = int(config["rounds"])
    hospitals = int(config["hospitals"])
    noise = float(config["noise-multiplier"])
    out = Path(str(config["out"]))
    answering = int(config["answering"])
    averaged = FedAvg(fraction_evaluate=0.0, min_train_nodes=answering, min_available_nodes=answering)
    private = DifferentialPrivacyServerSideFixedClipping(averaged, noise * float(config["added"]), 1.0, hospitals)
    terms = StatedReleases("add-remove-client", noise, rounds)
    canaries = int(config["canaries"])
    watch = TrainingObserver(out / "canaries", directions=11, canaries=max(canaries, 1), terms=terms, delta=1e-5)
    strategy = watched(private, watch) if canaries else private
    out.mkdir(parents=True, exist_ok=True)
    with np.load(str(config["data"])) as test:
        pixels = test["pixels"]
        digits = test["digits"]

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        accuracy = float((np.argmax(pixels @ arrays["weight"].numpy(), axis=1) == digits).mean())
        with (out / "rounds.jsonl").open("a") as file:
            file.write(json.dumps({"round": server_round, "accuracy": accuracy, "time": time.time()}) + "\n")
        return MetricRecord({"accuracy": accuracy})

    weight = ArrayRecord({"weight": Array(np.zeros((pixels.shape[1], 10), np.float32))})
    # A client that died with a message in hand never answers it: without a limit the round would wait for an hour.
    limit = float(config["answer-seconds"])
    strategy.start(grid, weight, num_rounds=rounds, timeout=limit, evaluate_fn=evaluate)
