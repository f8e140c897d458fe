"""Metrics of released models on the training records: on all of them together, and on those of each client."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.result_columns import TrialBatchColumns
from fl_audit.learning.metric_names import CLIENT_CLASSES, WORST_CLIENT, is_smaller_better, training_column
from fl_audit.learning.metrics import TestOutputs, metric_function
from fl_audit.server.release_evaluation import ReleaseWithOutputs


@dataclass
class ClientMetrics:
    """Metrics of every evaluated release on the records of D, pooled and by client.

    They are computed from training records, and no noise is added, so the guarantee does not cover them. A record that
    is not in the training set of a trial counts as well.
    """

    metrics: Sequence[str]  # metrics to compute, the headline first, see `metrics.metric_function`
    _by_client: dict[str, list[Mapping[str, Floats]]] = field(init=False, default_factory=lambda: defaultdict(list))

    def __call__(self, release: ReleaseWithOutputs) -> TrialBatchColumns:
        """Return pooled metrics of a release, and with the last release those of each client in every release."""
        federation = release.federation
        name = release.batch.name
        training = federation.training
        label_range = federation.test_records.label_range
        logits = federation.model.logits(release.models, training.features)
        outputs = [TestOutputs(logits[:, shard], training.labels[shard], label_range) for shard in federation.shards]
        every = TestOutputs(logits, training.labels, label_range)
        functions = {training_column(metric): metric_function(metric) for metric in self.metrics}
        pooled = {column: function(every) for column, function in functions.items()}
        by_client = {
            column: np.stack([function(of_client) for of_client in outputs], axis=1)
            for column, function in functions.items()
        }
        self._by_client[name].append(by_client)
        headline = by_client[training_column(self.metrics[0])]
        pooled[WORST_CLIENT] = worst_client(headline, self.metrics[0])
        if not release.is_last:
            return TrialBatchColumns(trials=pooled, releases=pooled)
        stored = self._by_client.pop(name)
        clients = {column: np.stack([values[column] for values in stored], axis=1) for column in functions}
        counts = np.broadcast_to(_classes_of_clients(federation), next(iter(clients.values())).shape)
        return TrialBatchColumns(trials=pooled, releases=pooled, clients=clients | {CLIENT_CLASSES: counts})


def worst_client(values: Floats, metric: str) -> Floats:
    """Return the metric of the client for which each model is worst, (trials,); NaN where it is defined for no client.

    Shapes: `values` (trials, clients).
    """
    loss = values if is_smaller_better(metric) else -values
    worst = np.nanmax(np.where(np.isnan(loss), -np.inf, loss), axis=1)
    return np.where(np.isinf(worst), np.nan, worst if is_smaller_better(metric) else -worst)


def _classes_of_clients(federation: LoadedFederation) -> Floats:
    """Return the number of different labels among the records of each client, float64 (clients,)."""
    labels = federation.training.labels.cpu().numpy()
    return np.array([float(len(np.unique(labels[shard]))) for shard in federation.shards])
