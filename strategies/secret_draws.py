"""The challenger of the attack: from a secret seed it draws the targets' membership, the samples and the noise."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.audits.canaries.canary_draws import canary_coin
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.local_dpsgd import ClientRandomness, step_sample
from fl_audit.federation.locally_randomised_records import randomised_records, record_pair
from fl_audit.federation.result_columns import TrialBatchColumns
from fl_audit.federation.target_membership import MembershipScheme, TargetMembership
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.randomness import Purpose, generator
from fl_audit.trial_batches import TrialBatch


@dataclass
class SeededChallenger:
    """Challenger that draws the secrets of trials from a seed: which targets are in the data, samples and noise.

    All draws depend only on the seed, the trial, the round and the client. This class is meant for simulation, not for
    a secure release: in a real federation, each client draws the sample of its own records.
    """

    seed: int  # secret seed of the run
    targets: int = 1  # number of targets, at least 1
    who: MembershipScheme = MembershipScheme.BY_COINS  # rule by which targets are put into the training data
    # With `EXACTLY_ONE`, the probability that a target is in the training data, (targets,); None if all are equal.
    prior: Floats | None = None
    _is_in: dict[int, Flags] = field(init=False, default_factory=dict)  # drawn memberships (targets,), by trial

    def membership(self, trials: Sequence[int]) -> TargetMembership:
        """Return which targets are in the training data of each trial, drawn by the rule `self.who`.

        Each trial is drawn only once; later calls return the same draw. Coins are fair even if the claim assumes
        another prior. With one target, a trial trains on D if the target is in, and otherwise on D'.
        """
        for trial in (trial for trial in trials if trial not in self._is_in):
            self._is_in[trial] = self._draw(generator(self.seed, Purpose.SECRET_BIT, trial=trial))
        return TargetMembership(np.stack([self._is_in[trial] for trial in trials]))

    def _draw(self, source: np.random.Generator) -> Flags:
        match self.who:
            case MembershipScheme.BY_COINS:
                return source.integers(2, size=self.targets) == 1
            case MembershipScheme.EXACTLY_ONE if self.prior is None:
                return np.asarray(np.arange(self.targets) == source.integers(self.targets))
            case MembershipScheme.EXACTLY_ONE:
                return np.asarray(np.arange(self.targets) == source.choice(self.targets, p=self.prior))
            case MembershipScheme.ALL:
                return np.ones(self.targets, dtype=np.bool_)
            case _:
                assert_never(self.who)

    def participation(
        self, trials: Sequence[int], server_round: int, client: int, records: int, sampling_rate: float
    ) -> Flags:
        """Return which of a client's records, or users, a round's Poisson sample contains, bool (trials, records).

        Parameters
        ----------
        trials
            Numbers of the trials.
        server_round
            Number of the round, from 1.
        client
            Number of the client.
        records
            Number of the client's records, or of its users if they are sampled.
        sampling_rate
            Probability that a record or user is in the sample, in (0, 1].
        """
        sources = self._sources(Purpose.RECORD_SAMPLING, trials, server_round, client)
        return _poisson_sample(sources, records, sampling_rate)

    def client_participation(
        self, trials: Sequence[int], server_round: int, clients: int, sampling_rate: float
    ) -> Flags:
        """Return which clients a round's Poisson sample contains, bool (trials, clients).

        Parameters
        ----------
        trials
            Numbers of the trials.
        server_round
            Number of the round, from 1.
        clients
            Number of clients.
        sampling_rate
            Probability that a client is in the sample, in (0, 1].
        """
        return _poisson_sample(self._sources(Purpose.CLIENT_SAMPLING, trials, server_round), clients, sampling_rate)

    def coins(self, trials: Sequence[int], server_round: int, canaries: int) -> Flags:
        """Return which canaries are inserted in a round, bool (trials, canaries); a fair coin decides on each one.

        Parameters
        ----------
        trials
            Numbers of the trials.
        server_round
            Number of the round, from 1.
        canaries
            Number of canaries: artificial units that an audit may insert.
        """
        tossed = [[canary_coin(self.seed, server_round, index, trial) for index in range(canaries)] for trial in trials]
        return np.array(tossed, dtype=np.bool_).reshape(len(trials), canaries)

    def quantile_normals(self, trials: Sequence[int], server_round: int) -> Tensor:
        """Return one standard normal draw per trial, float64 (trials,), for the noise of adaptive clipping in a round.

        Adaptive clipping changes the clipping norm according to the number of updates within it. The draws, once
        scaled, are added to this number.

        Parameters
        ----------
        trials
            Numbers of the trials.
        server_round
            Number of the round, from 1.
        """
        sources = self._sources(Purpose.QUANTILE_NOISE, trials, server_round)
        return torch.tensor([source.standard_normal() for source in sources], dtype=torch.float64)

    def noise_seed(self, client: int) -> int:
        """Return the seed of a client's own noise; it reveals neither the challenger's seed nor another client's."""
        return int(generator(self.seed, Purpose.CLIENT_SEED, client=client).integers(2**63))

    def standard_normals(self, trials: Sequence[int], server_round: int, size: int, number: int = 0) -> Tensor:
        """Return standard normal draws for a round's noise, float32 (trials, size).

        Parameters
        ----------
        trials
            Numbers of the trials.
        server_round
            Number of the round, from 1.
        size
            Number of draws for each trial.
        number
            Index, from 0, of this set of draws in the round; some mechanisms need several sets.
        """
        draws = np.empty((len(trials), size), dtype=np.float32)
        for row, source in zip(draws, self._sources(Purpose.RELEASE_NOISE, trials, server_round, number), strict=True):
            source.standard_normal(out=row, dtype=np.float32)
        return torch.from_numpy(draws)

    def _sources(
        self, purpose: Purpose, trials: Sequence[int], server_round: int, client: int = 0
    ) -> Iterator[np.random.Generator]:
        return (generator(self.seed, purpose, trial=trial, round=server_round, client=client) for trial in trials)


def _poisson_sample(sources: Iterator[np.random.Generator], units: int, rate: float) -> Flags:
    return np.stack([source.random(units) < rate for source in sources])


@dataclass
class PrefetchingChallenger(SeededChallenger):
    """Challenger that draws the noise of the next round in a thread while clients compute."""

    executor: Executor = field(kw_only=True)  # executor that runs the thread
    rounds: int = field(kw_only=True)  # number of the last round
    _drawn: dict[tuple[int, int], Future[Tensor]] = field(init=False, default_factory=dict)

    def standard_normals(self, trials: Sequence[int], server_round: int, size: int, number: int = 0) -> Tensor:
        """Return the draws of `SeededChallenger`; a call for set 0 also starts drawing set 0 of the next round."""
        if number != 0:
            return super().standard_normals(trials, server_round, size, number)
        ready = self._drawn.pop((trials[0], server_round), None)
        draws = super().standard_normals(trials, server_round, size) if ready is None else ready.result()
        if server_round < self.rounds:
            later = self.executor.submit(super().standard_normals, trials, server_round + 1, size)
            self._drawn[trials[0], server_round + 1] = later
        return draws


def true_side(federation: LoadedFederation, challenger: SeededChallenger, batch: TrialBatch) -> Integers:
    """Return which hypothesis of the adversary was true in each round, int (trials, rounds).

    The value is 0 under D and 1 under D'. It is 2 in a round whose secret sample left out the target.

    Parameters
    ----------
    federation
        Federation with its data, target and mechanism.
    challenger
        Challenger, which knows the secrets of the trials.
    batch
        Trials to look up.
    """
    by_trial = np.where(challenger.membership(batch.trials).is_in[:, :1], 0, 1)
    sides = np.repeat(by_trial, federation.public.rounds, axis=1)
    if federation.public.is_secretly_sampled:
        rounds = range(1, federation.public.rounds + 1)
        took_part = np.stack([_takes_part(federation, challenger, batch, number) for number in rounds], axis=1)
        sides = np.where(took_part, sides, 2)
    return sides.astype(np.int64)


def _takes_part(
    federation: LoadedFederation, challenger: SeededChallenger, batch: TrialBatch, server_round: int
) -> Flags:
    """Return in which trials a round's secret sample contains the target, bool (trials,)."""
    mechanism = federation.public.mechanism
    rate = mechanism.sampling_rate
    match federation.unit:
        case Unit.RECORD | Unit.USER:
            units = federation.units_of(federation.victim)
            if mechanism.noise.origin is NoiseOrigin.TRAINING:
                draws = ClientRandomness(challenger.noise_seed(federation.victim), tuple(batch.trials))
                sample = step_sample(mechanism, len(units), draws, server_round)
            else:
                sample = challenger.participation(batch.trials, server_round, federation.victim, len(units), rate)
            return sample[:, int(np.flatnonzero(units == federation.target)[0])]
        case Unit.CLIENT:
            everybody = challenger.client_participation(batch.trials, server_round, federation.public.clients, rate)
            return everybody[:, federation.victim]
        case _:
            assert_never(federation.unit)


OF_FIRST, OF_SECOND = "record_log_odds", "other_log_odds"
"""Columns, one value per trial: log-odds of the first of two records, after randomising the first or the second."""


def record_draws(federation: LoadedFederation, challenger: SeededChallenger, batch: TrialBatch) -> TrialBatchColumns:
    """Return the log-odds by which an adversary tells two records apart after local randomization, in each trial.

    Positive log-odds favour the first record of `record_pair`, negative ones the second. Column `OF_FIRST`, shape
    (trials,), has the log-odds if the first record was randomised. Column `OF_SECOND` has them if the second record was
    randomised. Only a simulation can do this, because the seeds of local randomizers are otherwise secret.

    Parameters
    ----------
    federation
        Federation with its data; without a local randomizer the result is empty.
    challenger
        Challenger, which knows the seeds of all clients.
    batch
        Trials for which records are randomised.
    """
    local_randomizer = federation.public.local_randomizer
    pair = None if local_randomizer is None else record_pair(federation)
    if local_randomizer is None or pair is None:
        return TrialBatchColumns()
    log_odds_by_column = {OF_FIRST: np.empty(batch.count), OF_SECOND: np.empty(batch.count)}
    for values, record in zip(log_odds_by_column.values(), (pair.first, pair.second), strict=True):
        seed = challenger.noise_seed(record.client)
        for row, trial in enumerate(batch.trials):
            randomised = randomised_records(federation, record.client, seed, trial, record.place + 1)[-1:]
            values[row] = local_randomizer.log_odds(randomised, pair.first.features, pair.second.features)[0]
    return TrialBatchColumns(trials=log_odds_by_column)
