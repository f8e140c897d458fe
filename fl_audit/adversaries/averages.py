"""An insider who sees only averages of privately trained models.

Every client adds noise inside its own training, and the release is where their steps have led. The law of that nobody
can write down, so what this insider computes is **no likelihood ratio**, and it has no beliefs. Its score asks how far
the release lies in the direction in which the differing record would have pushed it: higher where the record rather was
in. It is the log-odds of a Gaussian release whose mean is what the clients' steps come to on average, and whose noise
is that of all steps as if they were independent of each other: the true release departs from both, for a step depends
on the noise of those before it, and on who was sampled.
"""

import torch
from torch import Tensor

from fl_audit.arrays import Floats
from fl_audit.errors import require
from fl_audit.game.game import Game
from fl_audit.game.hypotheses import shown
from fl_audit.game.private_training import OwnDraws, expected_update, private_steps, trained_privately
from fl_audit.game.seen import SeenRound
from fl_audit.mechanisms.standpoint import Place

_Rest = tuple[Tensor, Tensor, float]
"""What is left of a release when all that can be expected of it is taken away, and what the differing record would add,
float64 (worlds, parameters); and the variance of a coordinate, from the noise of clients of which it is not known."""


def score(game: Game, seen: SeenRound, insider: int) -> Floats:
    """Return what a round says for the differing record's being in, float64 (worlds,); scores of rounds add up.

    Raises `InputError` if something that the insider needs was not shown.

    Parameters
    ----------
    game, seen
        The game, whose clients train privately, and what was seen of the round.
    insider
        Who looks: it knows its own update and those of its colluders, noise and all.
    """
    by_server = game.public.standpoint.place is Place.SERVER
    rest, direction, variance = _of_target(game, seen) if by_server else _of_sum(game, seen, insider)
    found: Floats = (((rest - direction / 2) * direction).sum(dim=1) / variance).cpu().numpy()
    return found


def _of_target(game: Game, seen: SeenRound) -> _Rest:
    """Return what is left of the contribution of the target's client, which a curious server sees by itself."""
    expected, of_differing = expected_update(game, game.victim, seen.start)
    contribution = shown(seen.around.contribution, "the contribution of the target's client")
    return contribution.double() - expected.double(), of_differing.double(), _variance(game, game.victim)


def _of_sum(game: Game, seen: SeenRound, insider: int) -> _Rest:
    rest = seen.sums(game.public.law).double().clone()
    direction, variance = torch.zeros_like(rest), 0.0
    known, numbers = _known_seeds(game, seen, insider), shown(seen.around.world_numbers, "the numbers of the worlds")
    worlds = tuple(numbers.tolist())
    for client in range(len(game.shards)):
        if client in known:
            rest -= trained_privately(game, client, seen.start, seen.number, OwnDraws(known[client], worlds)).updates
            continue
        expected, of_differing = expected_update(game, client, seen.start)
        rest -= expected
        direction += of_differing
        variance += _variance(game, client)
    return rest, direction, variance


def _known_seeds(game: Game, seen: SeenRound, insider: int) -> dict[int, int]:
    """Return the seeds that an insider knows, by client: its own and its colluders'."""
    clients = (insider, *game.colluders(insider))
    seeds = shown(seen.around.noise_seeds, "the seeds of the noise that the insider knows")
    require(len(seeds) == len(clients), f"{len(seeds)} seeds of noise were shown: accepted are {len(clients)}")
    return dict(zip(clients, seeds.tolist(), strict=True))


def _variance(game: Game, client: int) -> float:
    return private_steps(game.public.law).update_variance(len(game.shards[client]))
