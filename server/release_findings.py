"""Findings on released models, from their outputs and losses: metrics, privacy risk, and a membership attack.

Epsilon* is the privacy risk of a model. Each finding is a function that takes a release (models after a round) and
returns columns of the run's tables. If members' losses stay with their owners, only the population's losses are
computed here, and `fl_audit.strategies.epsilon_star_queries` computes Epsilon*. The membership attack needs single
losses, so members' losses are always pooled for it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from torch import Tensor

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.audits.membership.yeom_attack import record_membership_guess
from fl_audit.audits.registry import audit_of
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.result_columns import TrialBatchColumns
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.learning.losses import losses_of
from fl_audit.learning.metric_names import (
    CLIENT_CLASSES,
    WORST_CLIENT,
    Metric,
    columns_of,
    is_smaller_better,
    metric_column,
    training_column,
)
from fl_audit.learning.metrics import TestOutputs, auroc, metric_function
from fl_audit.released_model.empirical_star import empirical_epsilon_star, yeom_advantage
from fl_audit.released_model.normal_fit_tests import FIT, fits_of_trials
from fl_audit.released_model.parametric_star import StarSettings, parametric_epsilon_star
from fl_audit.released_model.star_estimate import least_of_few
from fl_audit.trial_batches import TrialBatch


@dataclass(frozen=True)
class ReleaseWithOutputs:
    """One release of every trial in a batch; outputs and losses are computed at first use."""

    federation: LoadedFederation  # the federation with its data
    batch: TrialBatch  # the trials
    number: int  # number of the release, 0 being the initial models
    models: Tensor  # stacked models (trials, parameters)
    membership: TargetMembership  # membership of the targets

    @property
    def is_last(self) -> bool:
        """Return whether this is the release of the last round."""
        return self.number == self.federation.public.rounds

    @cached_property
    def logits(self) -> Tensor:
        """Logits of the models on the test records, shape (trials, n, classes)."""
        return self.federation.model.logits(self.models, self.federation.test.features)

    @cached_property
    def population_losses(self) -> Floats:
        """Losses of the models on the population sample, shape (trials, p)."""
        if self.federation.population_records is self.federation.test_records:  # no second pass over the same records
            losses = losses_of(self.logits, self.federation.test.labels)
            return np.asarray(losses.double().cpu().numpy())
        return self.federation.losses(self.models, self.federation.population)

    @cached_property
    def common_losses(self) -> Floats:
        """Losses on the records that D and D' have in common, (trials, records).

        If clients are the units, these are the records of all clients except the one by which D and D' differ.
        """
        return self.federation.losses(self.models, self.federation.common)

    @cached_property
    def differing_losses(self) -> Floats:
        """Losses on the records of the targets, the units whose membership is in question, shape (trials, records).

        With one target these are the records in which D and D' differ.
        """
        return self.federation.losses(self.models, self.federation.differing)

    @cached_property
    def replacement_losses(self) -> Floats:
        """Losses on the replacement of the differing unit under D'; shape (trials, 0) if there is no replacement."""
        return self.federation.losses(self.models, self.federation.replacement)

    @property
    def target_of_records(self) -> Integers:
        """Index of the target to which each column of `differing_losses` belongs, shape (records,)."""
        return self.federation.target_of_records

    def members_and_population(self) -> Iterator[tuple[Flags, Floats, Floats]]:
        """Yield groups of trials: a mask of the trials, their losses on members, and their losses on the population.

        There is one group for each size of the training set. The mask has the shape (trials,), and the losses have one
        row for each trial of the group.
        """
        for rows, members in audit_of(self.federation.public).member_losses(self):
            yield rows, members, self.population_losses[rows]


ReleaseFinding = Callable[[ReleaseWithOutputs], TrialBatchColumns]
"""A function from a release to result columns, called for the releases in order.

Columns in `releases` have a value for every trial, (trials,). Columns in `trials` are about the whole training, and are
overwritten by those of later releases.
"""


OnRelease = Callable[[int, Mapping[str, float]], None]
"""A function that receives the number of a release and its metrics, keyed by metric; called for a run of one trial."""


def release_metrics(
    metrics: Sequence[str], on_release: OnRelease | None, release: ReleaseWithOutputs
) -> TrialBatchColumns:
    """Return the metrics of a release on the test records, as columns of the tables of trials and releases.

    Accuracy is always computed, and the area under the ROC curve of the last release of a model of two classes.

    `metrics`: The metrics to compute, see `metrics.metric_function`.

    `on_release`: Function that receives the metrics of a run of one trial; None calls nothing.
    """
    records = release.federation.test_records
    outputs = TestOutputs(release.logits, release.federation.test.labels, records.label_range)
    columns = columns_of(metrics)
    values_by_metric = {metric: metric_function(metric)(outputs) for metric in columns}
    metric_columns = {columns[metric]: values for metric, values in values_by_metric.items()}
    if on_release is not None:
        on_release(release.number, {metric: float(values_by_metric[metric][0]) for metric in metrics})
    final = {}
    if release.is_last and outputs.logits.shape[2] == 2 and Metric.AUROC not in columns:
        final = {metric_column(Metric.AUROC): auroc(outputs)}
    return TrialBatchColumns(trials=metric_columns | final, releases=metric_columns)


def pooled_epsilon_star(star: StarSettings, release: ReleaseWithOutputs) -> TrialBatchColumns:
    """Return Epsilon* of each trial's model from the pooled losses of all members, as columns.

    `epsilon_star` is computed from normal distributions fitted to the losses' scores. `epsilon_star_counted` is
    computed from the empirical distributions of the scores, for the first and the last release only; it is NaN for
    others. `epsilon_star_least`, for the same releases, is the lower end of a 95 % interval that holds for any
    distributions; it is NaN if the sets are large enough for a value. For the last release, columns with p-values of
    the normal fits are added.
    """
    fitted, counted_records, smallest, fit = (np.full(release.batch.count, np.nan) for _ in range(4))
    trials = np.array(release.batch.trials)
    seed = release.federation.public.data_seed
    for rows, members, population in release.members_and_population():
        fitted[rows] = parametric_epsilon_star(members, population, star.delta, cut=star.cut)
        if release.is_last or release.number == 0:
            counted_records[rows] = empirical_epsilon_star(members, population, star.delta, star.counted_cut)
            smallest[rows] = least_of_few(members, population, star.delta, star.counted_cut)
        if release.is_last:
            fit[rows] = fits_of_trials(members, population, trials[rows], seed)
    columns = {"epsilon_star": fitted, "epsilon_star_counted": counted_records, "epsilon_star_least": smallest}
    return TrialBatchColumns(trials={**columns, FIT: fit} if release.is_last else columns, releases=columns)


def loss_threshold(release: ReleaseWithOutputs) -> TrialBatchColumns:
    """Return the results of the loss-threshold attack of Yeom et al. 2018 on the last release; no columns for others.

    Columns are `membership_advantage`, over all members; `record_membership_guess`, 1 if the differing unit x is called
    a member, else 0; and `record_score`, which is larger for a smaller loss on x.
    """
    if not release.is_last:
        return TrialBatchColumns()
    advantage = np.empty(release.batch.count)
    for rows, members, population in release.members_and_population():
        advantage[rows] = yeom_advantage(members, population)
    losses_of_target = release.differing_losses.mean(axis=1)
    guess = record_membership_guess(losses_of_target, release.common_losses)
    # A small loss on x, and a large one on its replacement if there is one, are evidence that x was a member.
    stand_in = release.replacement_losses.mean(axis=1) if release.replacement_losses.shape[1] else 0.0
    columns = {"membership_advantage": advantage, "record_membership_guess": guess.astype(np.float64)}
    return TrialBatchColumns(trials={**columns, "record_score": stand_in - losses_of_target})


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
        all_outputs = TestOutputs(logits, training.labels, label_range)
        functions = {training_column(metric): metric_function(metric) for metric in self.metrics}
        pooled = {column: function(all_outputs) for column, function in functions.items()}
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
