"""The same federation in pfl-research, as a script for an environment of its own: it is no dependency of ours."""

PFL_SCRIPT = """
import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.selector import get_default_framework_module as get_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.internal.ops import pytorch_ops
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel


class Network(torch.nn.Sequential):
    def loss(self, features, labels):
        return F.cross_entropy(self(features), labels)

    def metrics(self, features, labels):
        return {}


class Noting(TrainingProcessCallback):
    def __init__(self):
        self.over = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.over.append(time.monotonic())
        return False, Metrics()


def main():
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    np.random.seed(0)
    torch.manual_seed(0)
    set_framework_module(pytorch_ops)
    with np.load(asked["path"]) as arrays:
        features, labels = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["y"])
    records = asked["records"]

    def own(client):
        place = slice(client * records, (client + 1) * records)
        return Dataset((features[place], labels[place]), user_id=str(client))

    data = FederatedDataset(own, get_user_sampler("random", list(range(asked["clients"]))))
    hidden = asked["hidden"]
    network = Network(
        torch.nn.Linear(features.shape[1], hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, asked["classes"])
    )
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    noting = Noting()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=asked["rounds"],
            evaluation_frequency=10**9,
            train_cohort_size=asked["cohort"],
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data),
        model,
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=asked["rate"], local_batch_size=asked["batch"]
        ),
        NNEvalHyperParams(local_batch_size=asked["batch"]),
        [noting],
    )
    if get_ops().distributed.global_rank == 0:
        print(json.dumps(noting.over), flush=True)


if __name__ == "__main__":
    main()
"""
"""It takes the settings as JSON and prints when each round was over, by the monotonic clock."""
