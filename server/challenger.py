"""The challenger: draws who is in, who takes part and the noise, and tells nobody more than its part."""

from collections.abc import Sequence
from typing import assert_never

import numpy as np
import torch
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.arrays import Flags, Floats, Integers
from fl_audit.canaries.directions import canary_coin
from fl_audit.game.game import Game
from fl_audit.game.membership import Membership, WhoIsIn
from fl_audit.randomness import Purpose, generator
from fl_audit.worlds import WorldBatch
from strategies.contributors import Challenger


class SeededChallenger(Challenger):
    """A challenger whose coins are fair and whose noise is reproducible: for simulation, not for a secure release.

    In a real federation each client draws by itself which of its records take part, and nobody else ever knows.

    Parameters
    ----------
    seed
        Secret seed of the run.
    targets
        Number of targets, at least 1.
    who
        Which of them are in.
    prior
        How likely each is to be the one that is in, (targets,); None where all are equally likely.
    """

    def __init__(
        self, seed: int, targets: int = 1, who: WhoIsIn = WhoIsIn.BY_COINS, prior: Floats | None = None
    ) -> None:
        self._seed = seed
        self._targets = targets
        self._who = who
        self._prior = prior
        self._is_in: dict[int, Flags] = {}

    def membership(self, worlds: Sequence[int]) -> Membership:
        """Return which targets are in, world by world: every coin is fair, whatever the prior of the claim.

        Where there is one target and it is in, the world trains on D, elsewhere on D'.
        """
        for world in worlds:
            if world not in self._is_in:
                self._is_in[world] = self._draw(generator(self._seed, Purpose.SECRET_BIT, world=world))
        return Membership(np.stack([self._is_in[world] for world in worlds]))

    def _draw(self, source: np.random.Generator) -> Flags:
        match self._who:
            case WhoIsIn.BY_COINS:
                return source.integers(2, size=self._targets) == 1
            case WhoIsIn.EXACTLY_ONE:
                one = (
                    source.integers(self._targets)
                    if self._prior is None
                    else source.choice(self._targets, p=self._prior)
                )
                return np.asarray(np.arange(self._targets) == one)
            case WhoIsIn.ALL:
                return np.ones(self._targets, dtype=np.bool_)
            case _:
                assert_never(self._who)

    def participation(
        self, worlds: Sequence[int], server_round: int, client: int, records: int, sampling_rate: float
    ) -> Flags:
        """Return which of a client's records take part in a round, (worlds, records): a Poisson sample.

        Each record takes part on its own with probability `sampling_rate`. Keyed by seed, world, round and client.
        """
        taking_part = np.empty((len(worlds), records), dtype=np.bool_)
        for row, world in enumerate(worlds):
            source = generator(self._seed, Purpose.RECORD_SAMPLING, world=world, round=server_round, client=client)
            np.less(source.random(records), sampling_rate, out=taking_part[row])
        return taking_part

    def client_participation(
        self, worlds: Sequence[int], server_round: int, clients: int, sampling_rate: float
    ) -> Flags:
        """Return which clients take part in a round, (worlds, clients): a Poisson sample, keyed by world and round."""
        taking_part = np.empty((len(worlds), clients), dtype=np.bool_)
        for row, world in enumerate(worlds):
            source = generator(self._seed, Purpose.CLIENT_SAMPLING, world=world, round=server_round)
            np.less(source.random(clients), sampling_rate, out=taking_part[row])
        return taking_part

    def coins(self, worlds: Sequence[int], server_round: int, canaries: int) -> Flags:
        """Return which canaries are in, in a round, (worlds, canaries): fair coins, keyed by world and round."""
        tossed = [[canary_coin(self._seed, server_round, one, world) for one in range(canaries)] for world in worlds]
        return np.array(tossed, dtype=np.bool_).reshape(len(worlds), canaries)

    def quantile_normals(self, worlds: Sequence[int], server_round: int) -> Tensor:
        """Return standard normal draws, float64 (worlds,), for the bits of an adaptive norm."""
        draws = [
            generator(self._seed, Purpose.QUANTILE_NOISE, world=world, round=server_round).standard_normal()
            for world in worlds
        ]
        return torch.tensor(draws, dtype=torch.float64)

    def noise_seed(self, client: int) -> int:
        """Return the seed of a client's own noise: from it nobody learns another's, or the challenger's."""
        return int(generator(self._seed, Purpose.CLIENT_SEED, client=client).integers(2**63))

    def standard_normals(self, worlds: Sequence[int], server_round: int, size: int) -> Tensor:
        """Return float32 standard normal draws (worlds, size), keyed by seed, world and round."""
        draws = np.empty((len(worlds), size), dtype=np.float32)
        for row, world in enumerate(worlds):
            source = generator(self._seed, Purpose.RELEASE_NOISE, world=world, round=server_round)
            source.standard_normal(out=draws[row], dtype=np.float32)
        return torch.from_numpy(draws)


def true_side(game: Game, challenger: SeededChallenger, batch: WorldBatch) -> Integers:
    """Open the secrets of a batch: which of the sums that the insider weighed was released.

    Parameters
    ----------
    game
        The game.
    challenger
        Knows the secrets of the game.
    batch
        The worlds.

    Returns
    -------
    array
        (worlds, rounds): 0 under D, 1 under D'; 2 in rounds in which the differing unit took no part in secret.
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
        case Unit.RECORD:
            shard = game.shards[game.victim]
            drawn = challenger.participation(batch.worlds, server_round, game.victim, len(shard), rate)
            return drawn[:, int(np.flatnonzero(shard == game.target)[0])]
        case Unit.CLIENT:
            everybody = challenger.client_participation(batch.worlds, server_round, game.public.clients, rate)
            return everybody[:, game.victim]
        case _:
            assert_never(game.unit)
