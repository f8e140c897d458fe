"""The challenger: draws who is in, who takes part and the noise, and tells nobody more than its part."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.arrays import Flags, Floats, Integers
from fl_audit.audits.canaries.directions import canary_coin
from fl_audit.federation.columns import Columns
from fl_audit.federation.game import Game
from fl_audit.federation.membership import Membership, WhoIsIn
from fl_audit.federation.randomised import randomised_records, record_pair
from fl_audit.randomness import Purpose, generator
from fl_audit.worlds import WorldBatch


@dataclass
class SeededChallenger:
    """A challenger whose coins are fair and whose noise is reproducible: for simulation, not for a secure release.

    In a real federation each client draws by itself which of its records take part, and nobody else ever knows.
    """

    seed: int  # secret seed of the run
    targets: int = 1  # number of targets, at least 1
    who: WhoIsIn = WhoIsIn.BY_COINS  # which of them are in
    prior: Floats | None = None  # how likely each is to be the one that is in, (targets,); None where all equally are
    _is_in: dict[int, Flags] = field(init=False, default_factory=dict)

    def membership(self, worlds: Sequence[int]) -> Membership:
        """Return which targets are in, world by world: every coin is fair, whatever the prior of the claim.

        Where there is one target and it is in, the world trains on D, elsewhere on D'.
        """
        for world in (one for one in worlds if one not in self._is_in):
            self._is_in[world] = self._draw(generator(self.seed, Purpose.SECRET_BIT, world=world))
        return Membership(np.stack([self._is_in[world] for world in worlds]))

    def _draw(self, source: np.random.Generator) -> Flags:
        match self.who:
            case WhoIsIn.BY_COINS:
                return source.integers(2, size=self.targets) == 1
            case WhoIsIn.EXACTLY_ONE if self.prior is None:
                return np.asarray(np.arange(self.targets) == source.integers(self.targets))
            case WhoIsIn.EXACTLY_ONE:
                return np.asarray(np.arange(self.targets) == source.choice(self.targets, p=self.prior))
            case WhoIsIn.ALL:
                return np.ones(self.targets, dtype=np.bool_)
            case _:
                assert_never(self.who)

    def participation(
        self, worlds: Sequence[int], server_round: int, client: int, records: int, sampling_rate: float
    ) -> Flags:
        """Return which of a client's records, or users, take part in a round, (worlds, records): a Poisson sample.

        Each takes part on its own. Keyed by seed, world, round and client.

        Parameters
        ----------
        worlds, server_round, client, records
            Numbers of the worlds, the round, from 1, and the number of the client with that of its records or users.
        sampling_rate
            Probability that one takes part, in (0, 1].
        """
        sources = self._sources(Purpose.RECORD_SAMPLING, worlds, server_round, client)
        return np.stack([source.random(records) < sampling_rate for source in sources])

    def client_participation(
        self, worlds: Sequence[int], server_round: int, clients: int, sampling_rate: float
    ) -> Flags:
        """Return which clients take part in a round, (worlds, clients): a Poisson sample, keyed by world and round.

        Parameters
        ----------
        worlds, server_round, clients, sampling_rate
            As of `participation`; how many clients there are.
        """
        sources = self._sources(Purpose.CLIENT_SAMPLING, worlds, server_round)
        return np.stack([source.random(clients) < sampling_rate for source in sources])

    def coins(self, worlds: Sequence[int], server_round: int, canaries: int) -> Flags:
        """Return which canaries are in, in a round, (worlds, canaries): fair coins, keyed by world and round.

        Parameters
        ----------
        worlds, server_round, canaries
            As of `participation`; how many canaries there are.
        """
        tossed = [[canary_coin(self.seed, server_round, one, world) for one in range(canaries)] for world in worlds]
        return np.array(tossed, dtype=np.bool_).reshape(len(worlds), canaries)

    def quantile_normals(self, worlds: Sequence[int], server_round: int) -> Tensor:
        """Return standard normal draws, float64 (worlds,), for the bits of an adaptive norm.

        Parameters
        ----------
        worlds, server_round
            As of `participation`.
        """
        sources = self._sources(Purpose.QUANTILE_NOISE, worlds, server_round)
        return torch.tensor([source.standard_normal() for source in sources], dtype=torch.float64)

    def noise_seed(self, client: int) -> int:
        """Return the seed of a client's own noise: from it nobody learns another's, or the challenger's."""
        return int(generator(self.seed, Purpose.CLIENT_SEED, client=client).integers(2**63))

    def standard_normals(self, worlds: Sequence[int], server_round: int, size: int) -> Tensor:
        """Return float32 standard normal draws (worlds, size), keyed by seed, world and round.

        Parameters
        ----------
        worlds, server_round, size
            As of `participation`; how many draws each world needs.
        """
        draws = np.empty((len(worlds), size), dtype=np.float32)
        for row, source in zip(draws, self._sources(Purpose.RELEASE_NOISE, worlds, server_round), strict=True):
            source.standard_normal(out=row, dtype=np.float32)
        return torch.from_numpy(draws)

    def _sources(
        self, purpose: Purpose, worlds: Sequence[int], server_round: int, client: int = 0
    ) -> Iterator[np.random.Generator]:
        return (generator(self.seed, purpose, world=world, round=server_round, client=client) for world in worlds)


@dataclass
class AheadChallenger(SeededChallenger):
    """Draws the standard normals of the next round in a thread while clients compute."""

    executor: Executor = field(kw_only=True)  # the thread
    rounds: int = field(kw_only=True)  # after this round there is no next one
    _drawn: dict[tuple[int, int], Future[Tensor]] = field(init=False, default_factory=dict)

    def standard_normals(self, worlds: Sequence[int], server_round: int, size: int) -> Tensor:
        """Return the draws of a round, and begin with those of the next."""
        ready = self._drawn.pop((worlds[0], server_round), None)
        draws = super().standard_normals(worlds, server_round, size) if ready is None else ready.result()
        if server_round < self.rounds:
            later = self.executor.submit(super().standard_normals, worlds, server_round + 1, size)
            self._drawn[worlds[0], server_round + 1] = later
        return draws


def true_side(game: Game, challenger: SeededChallenger, batch: WorldBatch) -> Integers:
    """Open the secrets of a batch: which of the sums that the insider weighed was released, (worlds, rounds).

    It is 0 under D, 1 under D', and 2 in rounds in which the differing unit took no part in secret.

    Parameters
    ----------
    game, challenger, batch
        The game, who knows its secrets, and the worlds.
    """
    by_world = np.where(challenger.membership(batch.worlds).is_in[:, :1], 0, 1)
    sides = np.repeat(by_world, game.public.rounds, axis=1)
    if game.public.is_secretly_sampled:
        rounds = range(1, game.public.rounds + 1)
        took_part = np.stack([_takes_part(game, challenger, batch, number) for number in rounds], axis=1)
        sides = np.where(took_part, sides, 2)
    return sides.astype(np.int64)


def _takes_part(game: Game, challenger: SeededChallenger, batch: WorldBatch, server_round: int) -> Flags:
    """Return in which worlds the differing unit takes part in a round that is sampled, (worlds,)."""
    rate = game.public.law.sampling_rate
    match game.unit:
        case Unit.RECORD | Unit.USER:
            units = game.units_of(game.victim)
            drawn = challenger.participation(batch.worlds, server_round, game.victim, len(units), rate)
            return drawn[:, int(np.flatnonzero(units == game.target)[0])]
        case Unit.CLIENT:
            everybody = challenger.client_participation(batch.worlds, server_round, game.public.clients, rate)
            return everybody[:, game.victim]
        case _:
            assert_never(game.unit)


OF_FIRST, OF_SECOND = "record_log_odds", "other_log_odds"
"""Columns of the table of worlds: log-odds of the first record against the second, seen what became of either."""


def record_draws(game: Game, challenger: SeededChallenger, batch: WorldBatch) -> Columns:
    """Weigh what became of the two records of `record_pair`: log-odds where either was randomised, (worlds,).

    So would an insider who sees the randomised record itself. Only a simulation can measure it: the seeds are the
    owners' secrets, and the challenger of a simulation draws them all.

    Parameters
    ----------
    game, challenger, batch
        The game, where nothing is weighed without a randomiser, who tells the owners' seeds, and the worlds.
    """
    randomiser = game.public.randomiser
    pair = None if randomiser is None else record_pair(game)
    if randomiser is None or pair is None:
        return Columns()
    found = {OF_FIRST: np.empty(batch.count), OF_SECOND: np.empty(batch.count)}
    for values, record in zip(found.values(), (pair.first, pair.second), strict=True):
        seed = challenger.noise_seed(record.client)
        for row, world in enumerate(batch.worlds):
            told = randomised_records(game, record.client, seed, world, record.place + 1)[-1:]
            values[row] = randomiser.log_odds(told, pair.first.features, pair.second.features)[0]
    return Columns(worlds=found)
