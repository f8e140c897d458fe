"""Evaluation of released models from outputs and losses: accuracy, privacy risk, membership attack, early stopping.

Epsilon* is the privacy risk of a model. Each evaluation is a function that takes a release (models after a round) and
returns columns of the run's tables. If members' losses stay with their owners, only the population's losses are
computed here, and `fl_audit.strategies.epsilon_star_queries` computes Epsilon*. The membership attack needs single
losses, so members' losses are always pooled for it. Early stopping selects a release by the losses on the population.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from flwr.app import ArrayRecord
from torch import Tensor

from fl_audit.array_packing import unpack
from fl_audit.array_types import Flags, Floats, Floats32, Integers
from fl_audit.audits.membership.yeom_attack import membership_attack, record_membership_guess
from fl_audit.audits.registry import audit_of
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.result_columns import TrialBatchColumns
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.learning.glibc_allocator import ROUNDS_BETWEEN_TRIMS, give_back_freed_memory
from fl_audit.learning.metric_names import Metric, columns_of, metric_column
from fl_audit.learning.metrics import TestOutputs, auroc, metric_function
from fl_audit.learning.stacked_model import losses_of
from fl_audit.released_model.empirical_star import empirical_epsilon_star
from fl_audit.released_model.normal_fit_tests import FIT, fits_of_trials
from fl_audit.released_model.parametric_star import StarSettings, parametric_epsilon_star
from fl_audit.released_model.star_estimate import least_of_few
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.torch_device import to_device
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


@dataclass(frozen=True)
class ReleaseMetrics:
    """Metrics of every evaluated release on the test records, as columns of the tables of trials and releases.

    Accuracy is always computed, and the area under the ROC curve of the last release of a model of two classes.
    """

    metrics: Sequence[str]  # metrics to compute, see `metrics.metric_function`
    on_release: OnRelease | None = None  # function that receives the metrics of a run of one trial; None calls nothing

    def __call__(self, release: ReleaseWithOutputs) -> TrialBatchColumns:
        """Return the metrics of a release."""
        records = release.federation.test_records
        outputs = TestOutputs(release.logits, release.federation.test.labels, records.label_range)
        columns = columns_of(self.metrics)
        metrics_found = {metric: metric_function(metric)(outputs) for metric in columns}
        metric_columns = {columns[metric]: values for metric, values in metrics_found.items()}
        if self.on_release is not None:
            self.on_release(release.number, {metric: float(metrics_found[metric][0]) for metric in self.metrics})
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
    columns_found = {"epsilon_star": fitted, "epsilon_star_counted": counted_records, "epsilon_star_least": smallest}
    return TrialBatchColumns(
        trials={**columns_found, FIT: fit} if release.is_last else columns_found, releases=columns_found
    )


def loss_threshold(release: ReleaseWithOutputs) -> TrialBatchColumns:
    """Return the results of the loss-threshold attack of Yeom et al. 2018 on the last release; no columns for others.

    Columns are `membership_advantage`, over all members; `record_membership_guess`, 1 if the differing unit x is called
    a member, else 0; and `record_score`, which is larger for a smaller loss on x.
    """
    if not release.is_last:
        return TrialBatchColumns()
    advantage = np.empty(release.batch.count)
    for rows, members, population in release.members_and_population():
        advantage[rows] = membership_attack(members, population).advantage
    own_losses = release.differing_losses.mean(axis=1)
    guess = record_membership_guess(own_losses, release.common_losses)
    # A small loss on x, and a large one on its replacement if there is one, are evidence that x was a member.
    stand_in = release.replacement_losses.mean(axis=1) if release.replacement_losses.shape[1] else 0.0
    columns_found = {"membership_advantage": advantage, "record_membership_guess": guess.astype(np.float64)}
    return TrialBatchColumns(trials={**columns_found, "record_score": stand_in - own_losses})


@dataclass
class CheckpointSelector:
    """Early stopping: selects for every trial the release with the smallest mean loss over the population sample.

    The selection uses only releases, and records outside of all training sets. So it is post-processing and does not
    affect the guarantee.
    """

    patience: int  # number of evaluated releases without a smaller loss after which training ends, from 1
    _best: dict[str, Floats] = field(init=False, default_factory=dict)
    _chosen: dict[str, Integers] = field(init=False, default_factory=dict)
    _waited: dict[str, Integers] = field(init=False, default_factory=dict)
    _models: dict[str, Tensor] = field(init=False, default_factory=dict)

    def update(self, batch: TrialBatch, number: int, models: Tensor, losses: Callable[[], Floats]) -> None:
        """Update the selection with an evaluated release; releases must be passed in order.

        Shapes: `models` (trials, parameters), `losses` (trials, p).
        """
        if batch.name not in self._best:
            self._best[batch.name] = np.full(batch.count, np.inf)
            self._chosen[batch.name], self._waited[batch.name] = (np.zeros(batch.count, np.int64) for _ in range(2))
            self._models[batch.name] = models.clone()
        if self.is_over(batch):
            return
        mean = losses().mean(axis=1)
        best = self._best[batch.name]
        waited = self._waited[batch.name]
        runs = ~self.ended(batch)
        better = runs & (mean < best)
        waited[runs & ~better] += 1
        waited[better] = 0
        best[better], self._chosen[batch.name][better] = mean[better], number
        rows = torch.from_numpy(better).to(models.device)
        self._models[batch.name][rows] = models[rows]

    def is_over(self, batch: TrialBatch) -> bool:
        """Return whether training has ended in all trials of a batch."""
        return bool(self.ended(batch).all())

    def ended(self, batch: TrialBatch) -> Flags:
        """Return whether training has ended, for each trial of a batch, shape (trials,)."""
        waited = self._waited.get(batch.name)
        return np.zeros(batch.count, np.bool_) if waited is None else np.asarray(waited >= self.patience)

    def models(self, batch: TrialBatch) -> Tensor:
        """Return the selected models of a batch of trials, shape (trials, parameters)."""
        return self._models[batch.name]

    def columns(self, batch: TrialBatch) -> TrialBatchColumns:
        """Return the number of the selected release of each trial, as the result column "chosen_release"."""
        return TrialBatchColumns(trials={"chosen_release": self._chosen[batch.name].astype(np.float64)})


@dataclass
class ReleaseEvaluator:
    """Evaluator of the releases of several trial batches, which collects columns of the result tables."""

    federation: LoadedFederation  # the federation with its data
    challenger: SeededChallenger  # knows the membership, and so the training records of each trial
    batches: Sequence[TrialBatch]  # the batches that are trained together
    findings: Sequence[ReleaseFinding]  # functions that evaluate a release
    # Early stopping, whose selected models are evaluated as the last release; None evaluates the last models.
    stopping: CheckpointSelector | None = None
    _last: dict[str, ReleaseWithOutputs] = field(init=False, default_factory=dict)
    _found: dict[str, TrialBatchColumns] = field(init=False, default_factory=dict)
    _by_release: dict[tuple[str, str], list[Floats]] = field(init=False, default_factory=lambda: defaultdict(list))

    def __call__(self, server_round: int, arrays: Mapping[str, Floats32]) -> None:
        """Evaluate the release of a round in every batch, and store the results.

        `arrays` holds the released models of each batch by its name, shape (trials, parameters).
        """
        for batch in self.batches:
            release = self._release(batch, server_round, arrays[batch.name])
            for finding in self.findings:
                batch_columns = finding(release)
                for name, values in batch_columns.releases.items():
                    self._by_release[batch.name, name].append(values)
                self._found[batch.name] = self._found.get(batch.name, TrialBatchColumns()) | replace(
                    batch_columns, releases={}
                )
            if self.stopping is not None:
                self._last[batch.name] = release  # evaluated again once training has ended in all trials
        give_back_freed_memory()

    def columns(self, batch: TrialBatch) -> TrialBatchColumns:
        """Return the result columns of a batch of trials, from all functions and all releases evaluated so far."""
        columns_of_kind = {name: values for (of, name), values in self._by_release.items() if of == batch.name}
        releases = {name: np.stack(values, axis=1) for name, values in columns_of_kind.items()}
        return self._found[batch.name] | TrialBatchColumns(releases=releases)

    def _release(self, batch: TrialBatch, number: int, array: Floats32) -> ReleaseWithOutputs:
        """Return the released models of a round with what is needed to evaluate them.

        With early stopping, a trial that has ended keeps the model that it had then. The release of the last round has
        the models that early stopping selected.
        """
        membership = self.challenger.membership(batch.trials)
        stopping = self.stopping
        is_last = False
        if stopping is not None:
            is_last = number == self.federation.public.rounds
            if stopping.is_over(batch) and not is_last:
                later = copy(self._last[batch.name])
                vars(later).update(number=number)  # the same models, with their cached outputs
                return later
        models = to_device(array, self.federation.public.device)
        if stopping is not None and (ended := stopping.ended(batch)).any():
            # Trials that have ended keep their models, so their results do not depend on other trials of the batch.
            rows = torch.from_numpy(ended).to(models.device)
            models[rows] = self._last[batch.name].models[rows]
        release = ReleaseWithOutputs(self.federation, batch, number, models, membership)
        if stopping is not None:
            stopping.update(batch, number, models, lambda: release.population_losses)
            if is_last:
                return ReleaseWithOutputs(self.federation, batch, number, stopping.models(batch), membership)
        return release


@dataclass
class BackgroundEvaluation:
    """Evaluator that evaluates releases in a background thread, one at a time, while training goes on."""

    evaluate: Callable[[int, Mapping[str, Floats32]], None]  # the function that evaluates a release
    executor: ThreadPoolExecutor  # runs the thread
    releases: tuple[int, ...]  # numbers of the releases to evaluate; the others are skipped
    _pending: Future[None] | None = field(init=False, default=None)

    def __call__(self, server_round: int, arrays: ArrayRecord) -> None:
        """Start to evaluate a release in the background, once the evaluation of the previous release has ended.

        `arrays` has the models of the release, keyed by trial batch. Releases that are not to be evaluated are skipped.
        """
        if server_round not in self.releases:
            if server_round % ROUNDS_BETWEEN_TRIMS == 0:
                give_back_freed_memory()
            return
        self.settle()
        models = {name: unpack(array) for name, array in arrays.items()}
        self._pending = self.executor.submit(self.evaluate, server_round, models)

    def settle(self) -> None:
        """Wait for the running evaluation, if there is one, and raise its exception if it failed."""
        if self._pending is not None:
            self._pending.result()
        self._pending = None


@contextmanager
def one_thread(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Yield an executor with one thread, in which torch uses `threads` threads; queued work is cancelled at the end."""
    executor = ThreadPoolExecutor(max_workers=1, initializer=torch.set_num_threads, initargs=(threads,))
    try:
        yield executor
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
