"""The challenger: it draws the membership of the targets, the participation of units and the noise of a trial."""

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
from fl_audit.federation.contributions import ClientRandomness, step_sample
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.randomised_records import randomised_records, record_pair
from fl_audit.federation.result_columns import ResultColumns
from fl_audit.federation.target_membership import MembershipScheme, TargetMembership
from fl_audit.mechanisms.noises.base import NoiseOrigin
from fl_audit.randomness import Purpose, generator
from fl_audit.trials import TrialBatch


@dataclass
class SeededChallenger:
    """A challenger with fair coins and reproducible noise, for simulation and not for a secure release.

    In a real federation each client draws the participation of its records by itself, and keeps it secret.
    """

    seed: int  # secret seed of the run
    targets: int = 1  # number of targets, at least 1
    who: MembershipScheme = MembershipScheme.BY_COINS  # the rule of membership
    # Under `EXACTLY_ONE`, probability of each target to be the one that is in, (targets,); None if they are equal.
    prior: Floats | None = None
    _is_in: dict[int, Flags] = field(init=False, default_factory=dict)

    def membership(self, trials: Sequence[int]) -> TargetMembership:
        """Return the membership of the targets in each trial, drawn once per trial by the scheme `who`.

        Coins are fair even if the claim assumes another prior. A trial with a single target trains on D if the target
        is in, and otherwise on D'.
        """
        for trial in (one for one in trials if one not in self._is_in):
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
        """Return the Poisson sample of a client's records, or users, in a round, bool (trials, records).

        Its random generator is seeded by the seed, the trial, the round and the client.

        Parameters
        ----------
        trials
            Numbers of the trials.
        server_round
            Number of the round, from 1.
        client
            Number of the client.
        records
            Number of the client's records, or of its users.
        sampling_rate
            Probability with which a record or user takes part, in (0, 1].
        """
        sources = self._sources(Purpose.RECORD_SAMPLING, trials, server_round, client)
        return np.stack([source.random(records) < sampling_rate for source in sources])

    def client_participation(
        self, trials: Sequence[int], server_round: int, clients: int, sampling_rate: float
    ) -> Flags:
        """Return the Poisson sample of clients in a round, bool (trials, clients).

        Its random generator is seeded by the seed, the trial and the round.

        Parameters
        ----------
        trials
            Numbers of the trials.
        server_round
            Number of the round, from 1.
        clients
            Number of clients.
        sampling_rate
            Probability with which a client takes part, in (0, 1].
        """
        sources = self._sources(Purpose.CLIENT_SAMPLING, trials, server_round)
        return np.stack([source.random(clients) < sampling_rate for source in sources])

    def coins(self, trials: Sequence[int], server_round: int, canaries: int) -> Flags:
        """Return the fair coins of canaries in a round, bool (trials, canaries); a canary is in if its coin is heads.

        Parameters
        ----------
        trials
            Numbers of the trials.
        server_round
            Number of the round, from 1.
        canaries
            Number of canaries.
        """
        tossed = [[canary_coin(self.seed, server_round, one, trial) for one in range(canaries)] for trial in trials]
        return np.array(tossed, dtype=np.bool_).reshape(len(trials), canaries)

    def quantile_normals(self, trials: Sequence[int], server_round: int) -> Tensor:
        """Return standard normal draws, float64 (trials,), for the noise of the quantile bits of adaptive clipping.

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
        """Return the seed of a client's own noise, from which no other seed can be inferred."""
        return int(generator(self.seed, Purpose.CLIENT_SEED, client=client).integers(2**63))

    def standard_normals(self, trials: Sequence[int], server_round: int, size: int, number: int = 0) -> Tensor:
        """Return float32 standard normal draws (trials, size), seeded by the seed, the trial, the round and `number`.

        Parameters
        ----------
        trials
            Numbers of the trials.
        server_round
            Number of the round, from 1.
        size
            Number of draws for each trial.
        number
            Index of the set of draws in the round, from 0, since some mechanisms need several sets for their noise.
        """
        draws = np.empty((len(trials), size), dtype=np.float32)
        for row, source in zip(draws, self._sources(Purpose.RELEASE_NOISE, trials, server_round, number), strict=True):
            source.standard_normal(out=row, dtype=np.float32)
        return torch.from_numpy(draws)

    def _sources(
        self, purpose: Purpose, trials: Sequence[int], server_round: int, client: int = 0
    ) -> Iterator[np.random.Generator]:
        return (generator(self.seed, purpose, trial=trial, round=server_round, client=client) for trial in trials)


@dataclass
class PrefetchingChallenger(SeededChallenger):
    """Challenger that draws the first set of standard normals of the next round in a thread while clients compute."""

    executor: Executor = field(kw_only=True)  # runs the thread
    rounds: int = field(kw_only=True)  # number of the last round
    _drawn: dict[tuple[int, int], Future[Tensor]] = field(init=False, default_factory=dict)

    def standard_normals(self, trials: Sequence[int], server_round: int, size: int, number: int = 0) -> Tensor:
        """Return the draws of a round, and start drawing those of the next round in the thread."""
        if number != 0:
            return super().standard_normals(trials, server_round, size, number)
        ready = self._drawn.pop((trials[0], server_round), None)
        draws = super().standard_normals(trials, server_round, size) if ready is None else ready.result()
        if server_round < self.rounds:
            later = self.executor.submit(super().standard_normals, trials, server_round + 1, size)
            self._drawn[trials[0], server_round + 1] = later
        return draws


def true_side(federation: LoadedFederation, challenger: SeededChallenger, batch: TrialBatch) -> Integers:
    """Return which of the insider's hypotheses was true in each round, (trials, rounds), by the challenger's secrets.

    The value is 0 under D, 1 under D', and 2 in rounds for which a secret sample left out the differing unit.

    Parameters
    ----------
    federation
        The federation.
    challenger
        The challenger, which knows the secrets of the trials.
    batch
        The batch of trials.
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
    """Return in which trials a round's sample contains the differing unit, bool (trials,)."""
    mechanism, turn = federation.public.mechanism, federation.public.turn(server_round)
    rate = mechanism.sampling_rate
    if turn is not None and federation.target not in turn:
        return np.zeros(batch.count, dtype=np.bool_)
    match federation.unit:
        case Unit.RECORD | Unit.USER:
            units = federation.units_of(federation.victim)
            if mechanism.noise.origin is NoiseOrigin.TRAINING:
                draws = ClientRandomness(challenger.noise_seed(federation.victim), tuple(batch.trials))
                drawn = step_sample(mechanism, len(units), draws, server_round)
            else:
                drawn = challenger.participation(batch.trials, server_round, federation.victim, len(units), rate)
            return drawn[:, int(np.flatnonzero(units == federation.target)[0])]
        case Unit.CLIENT:
            everybody = challenger.client_participation(batch.trials, server_round, federation.public.clients, rate)
            return everybody[:, federation.victim]
        case _:
            assert_never(federation.unit)


OF_FIRST, OF_SECOND = "record_log_odds", "other_log_odds"
"""Columns of the table of trials: log-odds of the first record, given a randomised first or second record."""


def record_draws(federation: LoadedFederation, challenger: SeededChallenger, batch: TrialBatch) -> ResultColumns:
    """Return the log-odds of the first against the second record of `record_pair`, given a locally randomised record.

    The randomised record is the first one in the column `OF_FIRST`, and the second one in `OF_SECOND`, both (trials,).
    An insider who saw the randomised record would compute the same log-odds. Only a simulation can do this, since
    otherwise the seeds of the local randomizers are secrets of the records' owners.

    Parameters
    ----------
    federation
        The federation. Without a local randomizer the result is empty.
    challenger
        The challenger, which knows the seeds of the records' owners.
    batch
        The batch of trials.
    """
    local_randomizer = federation.public.local_randomizer
    pair = None if local_randomizer is None else record_pair(federation)
    if local_randomizer is None or pair is None:
        return ResultColumns()
    found = {OF_FIRST: np.empty(batch.count), OF_SECOND: np.empty(batch.count)}
    for values, record in zip(found.values(), (pair.first, pair.second), strict=True):
        seed = challenger.noise_seed(record.client)
        for row, trial in enumerate(batch.trials):
            told = randomised_records(federation, record.client, seed, trial, record.place + 1)[-1:]
            values[row] = local_randomizer.log_odds(told, pair.first.features, pair.second.features)[0]
    return ResultColumns(trials=found)
