"""Evaluation of releases in the background, while training goes on, and early stopping.

Early stopping selects a release by the losses on the population.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from flwr.app import ArrayRecord
from torch import Tensor

from fl_audit.array_packing import unpack
from fl_audit.array_types import Flags, Floats, Floats32, Integers
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.result_columns import TrialBatchColumns
from fl_audit.learning.glibc_allocator import ROUNDS_BETWEEN_TRIMS, give_back_freed_memory
from fl_audit.server.release_findings import ReleaseFinding, ReleaseWithOutputs
from fl_audit.strategies.secret_draws import SeededChallenger
from fl_audit.torch_device import to_device
from fl_audit.trial_batches import TrialBatch


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
    _columns: dict[str, TrialBatchColumns] = field(init=False, default_factory=dict)
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
                self._columns[batch.name] = self._columns.get(batch.name, TrialBatchColumns()) | replace(
                    batch_columns, releases={}
                )
            if self.stopping is not None:
                self._last[batch.name] = release  # evaluated again once training has ended in all trials
        give_back_freed_memory()

    def columns(self, batch: TrialBatch) -> TrialBatchColumns:
        """Return the result columns of a batch of trials, from all functions and all releases evaluated so far."""
        columns_of_kind = {name: values for (of, name), values in self._by_release.items() if of == batch.name}
        releases = {name: np.stack(values, axis=1) for name, values in columns_of_kind.items()}
        return self._columns[batch.name] | TrialBatchColumns(releases=releases)

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
