"""The observer of releases: findings on released models, from outputs and losses alone.

Each finding is a function of a release that gives columns of the run's tables. Where members' losses stay with their
owners, `fl_audit.strategies.loss_queries` finds Epsilon*, and only the population is evaluated here. Membership attacks
need single losses and pool members' all the same. Early stopping chooses among the releases by these losses.
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
from fl_audit.federation.result_columns import ResultColumns
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.learning.allocator import ROUNDS_BETWEEN_TRIMS, give_back_freed_memory
from fl_audit.learning.stacked_model import losses_of
from fl_audit.released_model.empirical_star import area_under_roc, empirical_epsilon_star, threshold_counts
from fl_audit.released_model.epsilon_star import StarSettings, parametric_epsilon_star
from fl_audit.released_model.normal_fit_tests import FIT, fits_of_trials
from fl_audit.strategies.challenger import SeededChallenger
from fl_audit.torch_device import to_device
from fl_audit.trials import TrialBatch


def require_evaluable(federation: LoadedFederation, epsilon_star: bool, membership: bool) -> None:
    """Refuse before the run fewer than two records for Epsilon* or the membership attacks, which could not be computed.

    Parameters
    ----------
    federation
        The federation.
    epsilon_star
        Whether Epsilon* of the federation's models is to be computed.
    membership
        Whether the federation's models are to be attacked for membership.
    """
    audit_of(federation.public).require_evaluable(federation, epsilon_star, membership)


@dataclass(frozen=True)
class EvaluatedRelease:
    """One released model of every trial of a batch, as findings see it; shared values are computed once."""

    federation: LoadedFederation  # the federation with its data
    batch: TrialBatch  # the trials
    number: int  # number of the release, 0 being the initial models
    models: Tensor  # stacked models (trials, parameters)
    membership: TargetMembership  # membership of the targets

    @property
    def is_last(self) -> bool:
        """Whether the release is that of the last round."""
        return self.number == self.federation.public.rounds

    @cached_property
    def logits(self) -> Tensor:
        """Logits (trials, n, classes) on the test records."""
        return self.federation.model.logits(self.models, self.federation.test.features)

    @cached_property
    def population_losses(self) -> Floats:
        """Losses (trials, p) on the population sample."""
        if self.federation.population_records is self.federation.test_records:  # no second pass over the same records
            losses = losses_of(self.logits, self.federation.test.labels)
            return np.asarray(losses.double().cpu().numpy())
        return self.federation.losses(self.models, self.federation.population)

    @cached_property
    def common_losses(self) -> Floats:
        """Losses on the shared records of D and D', (trials, n - 1), or on those of all clients but the victim."""
        return self.federation.losses(self.models, self.federation.common)

    @cached_property
    def differing_losses(self) -> Floats:
        """Losses on x, (trials, 1), on the records of the victim, or on those of all targets."""
        return self.federation.losses(self.models, self.federation.differing)

    @cached_property
    def replacement_losses(self) -> Floats:
        """Losses on the replacement of the differing unit under D'; (trials, 0) where nothing replaces it."""
        return self.federation.losses(self.models, self.federation.replacement)

    @property
    def target_of_records(self) -> Integers:
        """The target that each of the differing records belongs to."""
        return self.federation.target_of_records

    def members_and_population(self) -> Iterator[tuple[Flags, Floats, Floats]]:
        """Yield trials, their losses on the members of the data set that they used, and on the population."""
        for rows, members in audit_of(self.federation.public).members(self):
            yield rows, members, self.population_losses[rows]


ReleaseFinding = Callable[[EvaluatedRelease], ResultColumns]
"""A function from a release to its findings; releases come in order. Under `releases` it returns a value for every
trial, (trials,), and under `trials` values of the whole training, which later releases replace.
"""


def utility(release: EvaluatedRelease) -> ResultColumns:
    """Return test accuracy; of two classes also the area under the ROC of the last release."""
    labels = release.federation.test.labels
    right = (_predicted(release.logits) == labels).sum(dim=1)
    accuracy = {"test_accuracy": (right.double() / len(labels)).cpu().numpy()}
    positive, logits = labels == 1, release.logits
    if not release.is_last or logits.shape[2] != 2 or bool(positive.all()) or not bool(positive.any()):
        return ResultColumns(trials=accuracy, releases=accuracy)
    # A large margin says the second class, and what is counted first must be small.
    falling = (logits[..., 0] - logits[..., 1]).double()
    counts = threshold_counts(falling[:, positive].cpu().numpy(), falling[:, ~positive].cpu().numpy())
    return ResultColumns(trials={**accuracy, "test_auroc": area_under_roc(counts)}, releases=accuracy)


def _predicted(logits: Tensor) -> Tensor:
    """Return the class with the largest logit, the first of equal ones, from logits (..., classes)."""
    if logits.shape[-1] == 2:  # a comparison takes a quarter of the time of a search
        return (logits[..., 1] > logits[..., 0]).long()
    return logits.argmax(dim=-1)


def pooled_epsilon_star(star: StarSettings, release: EvaluatedRelease) -> ResultColumns:
    """Return Epsilon* from pooled losses, by fitted normals.

    Of the first and the last release it also returns Epsilon* by counted losses, and of the last one whether normals
    fit.

    Parameters
    ----------
    star
        Delta and cut of Epsilon*.
    release
        The release to evaluate.
    """
    fitted, counted, fit = (np.full(release.batch.count, np.nan) for _ in range(3))
    trials, seed = np.array(release.batch.trials), release.federation.public.data_seed
    for rows, members, population in release.members_and_population():
        fitted[rows] = parametric_epsilon_star(members, population, star.delta, cut=star.cut)
        if release.is_last or release.number == 0:
            counted[rows] = empirical_epsilon_star(members, population, star.delta, star.counted_cut)
        if release.is_last:
            fit[rows] = fits_of_trials(members, population, trials[rows], seed)
    found = {"epsilon_star": fitted, "epsilon_star_counted": counted}
    return ResultColumns(trials={**found, FIT: fit} if release.is_last else found, releases=found)


def loss_threshold(release: EvaluatedRelease) -> ResultColumns:
    """Return the results of the membership adversary of Yeom et al. 2018 on the final models.

    The results are the advantage over members, the guess about x, and the score that its loss gives it.
    """
    if not release.is_last:
        return ResultColumns()
    advantage = np.empty(release.batch.count)
    for rows, members, population in release.members_and_population():
        advantage[rows] = membership_attack(members, population).advantage
    own = release.differing_losses.mean(axis=1)
    guess = record_membership_guess(own, release.common_losses)
    # Higher where x rather was in: the smaller its loss, and where another stood in for it, the larger that one's.
    stand_in = release.replacement_losses.mean(axis=1) if release.replacement_losses.shape[1] else 0.0
    found = {"membership_advantage": advantage, "record_membership_guess": guess.astype(np.float64)}
    return ResultColumns(trials={**found, "record_score": stand_in - own})


@dataclass
class CheckpointSelector:
    """Selects for every trial the release after which the loss on the population sample no longer fell.

    The rule is public and reads releases and records of nobody's training set alone, so it is part of no guarantee:
    whatever is chosen among releases follows from them.
    """

    patience: int  # so many evaluated releases without a smaller loss end the training of a trial, from 1
    _best: dict[str, Floats] = field(init=False, default_factory=dict)
    _chosen: dict[str, Integers] = field(init=False, default_factory=dict)
    _waited: dict[str, Integers] = field(init=False, default_factory=dict)
    _models: dict[str, Tensor] = field(init=False, default_factory=dict)

    def look(self, batch: TrialBatch, number: int, models: Tensor, losses: Callable[[], Floats]) -> None:
        """Record an evaluated release; releases come in order, 0 being the initial models.

        Parameters
        ----------
        batch
            The batch of trials.
        number
            Number of the release; 0 is the initial models.
        models
            The released models, shape (trials, parameters).
        losses
            Function that returns the losses of the release on the population sample, shape (trials, p).
        """
        if batch.name not in self._best:
            self._best[batch.name] = np.full(batch.count, np.inf)
            self._chosen[batch.name], self._waited[batch.name] = (np.zeros(batch.count, np.int64) for _ in range(2))
            self._models[batch.name] = models.clone()
        if self.is_over(batch):
            return
        mean, best, waited = losses().mean(axis=1), self._best[batch.name], self._waited[batch.name]
        runs = ~self.ended(batch)
        better = runs & (mean < best)
        waited[runs & ~better] += 1
        waited[better] = 0
        best[better], self._chosen[batch.name][better] = mean[better], number
        rows = torch.from_numpy(better).to(models.device)
        self._models[batch.name][rows] = models[rows]

    def is_over(self, batch: TrialBatch) -> bool:
        """Return whether all trials of a batch have stopped training."""
        return bool(self.ended(batch).all())

    def ended(self, batch: TrialBatch) -> Flags:
        """Return the trials of a batch that have stopped training, (trials,)."""
        waited = self._waited.get(batch.name)
        return np.zeros(batch.count, np.bool_) if waited is None else np.asarray(waited >= self.patience)

    def models(self, batch: TrialBatch) -> Tensor:
        """Return the chosen models (trials, parameters)."""
        return self._models[batch.name]

    def columns(self, batch: TrialBatch) -> ResultColumns:
        """Return the number of the chosen release of every trial."""
        return ResultColumns(trials={"chosen_release": self._chosen[batch.name].astype(np.float64)})


@dataclass
class ReleaseEvaluator:
    """Passes each release of some batches to the findings; it is called with the models of every round, 0 included."""

    # the federation with its data; losses of members are those of the records each trial was really trained on
    federation: LoadedFederation
    challenger: SeededChallenger  # tells which those are
    batches: Sequence[TrialBatch]  # the batches that travel together
    findings: Sequence[ReleaseFinding]  # functions that analyse the releases
    # Chooses a release of every trial; None takes the last one. What is looked at last are the chosen models.
    stopping: CheckpointSelector | None = None
    _last: dict[str, EvaluatedRelease] = field(init=False, default_factory=dict)
    _found: dict[str, ResultColumns] = field(init=False, default_factory=dict)
    _by_release: dict[tuple[str, str], list[Floats]] = field(init=False, default_factory=lambda: defaultdict(list))

    def __call__(self, server_round: int, arrays: Mapping[str, Floats32]) -> None:
        """Pass the models of one release to all findings."""
        for batch in self.batches:
            release = self._release(batch, server_round, arrays[batch.name])
            for finding in self.findings:
                found = finding(release)
                for name, values in found.releases.items():
                    self._by_release[batch.name, name].append(values)
                self._found[batch.name] = self._found.get(batch.name, ResultColumns()) | replace(found, releases={})
            if self.stopping is not None:
                self._last[batch.name] = release  # shown again where no trial trains on; it holds models and outputs
        give_back_freed_memory()

    def columns(self, batch: TrialBatch) -> ResultColumns:
        """Return all findings on the releases of a batch."""
        own = {name: values for (of, name), values in self._by_release.items() if of == batch.name}
        releases = {name: np.stack(values, axis=1) for name, values in own.items()}
        return self._found[batch.name] | ResultColumns(releases=releases)

    def _release(self, batch: TrialBatch, number: int, array: Floats32) -> EvaluatedRelease:
        """Return the release for the findings: after the last round, or after all trials stopped, the chosen models."""
        membership, stopping, is_last = self.challenger.membership(batch.trials), self.stopping, False
        if stopping is not None:
            is_last = number == self.federation.public.rounds
            if stopping.is_over(batch) and not is_last:
                later = copy(self._last[batch.name])
                vars(later).update(number=number)  # the same models, with what is worked out already
                return later
        models = to_device(array, self.federation.public.device)
        if stopping is not None and (ended := stopping.ended(batch)).any():
            # The view of a trial does not depend on how long others of its batch train.
            rows = torch.from_numpy(ended).to(models.device)
            models[rows] = self._last[batch.name].models[rows]
        release = EvaluatedRelease(self.federation, batch, number, models, membership)
        if stopping is not None:
            stopping.look(batch, number, models, lambda: release.population_losses)
            if is_last:
                return EvaluatedRelease(self.federation, batch, number, stopping.models(batch), membership)
        return release


@dataclass
class BackgroundEvaluation:
    """Evaluates releases one after the other in a thread of its own; at most one waits."""

    evaluate: Callable[[int, Mapping[str, Floats32]], None]  # the function that evaluates a release
    executor: ThreadPoolExecutor  # the thread
    releases: tuple[int, ...]  # numbers of the releases to evaluate; the others are passed over
    _pending: Future[None] | None = field(init=False, default=None)

    def __call__(self, server_round: int, arrays: ArrayRecord) -> None:
        """Begin to evaluate a release once the previous one has been evaluated."""
        if server_round not in self.releases:
            if server_round % ROUNDS_BETWEEN_TRIMS == 0:
                give_back_freed_memory()
            return
        self.settle()
        models = {name: unpack(array) for name, array in arrays.items()}
        self._pending = self.executor.submit(self.evaluate, server_round, models)

    def settle(self) -> None:
        """Wait for the evaluation under way; its errors are raised here."""
        if self._pending is not None:
            self._pending.result()
        self._pending = None


@contextmanager
def one_thread(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Provide a thread that computes with the given number of torch threads; waiting work is dropped at the end."""
    executor = ThreadPoolExecutor(max_workers=1, initializer=torch.set_num_threads, initargs=(threads,))
    try:
        yield executor
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
