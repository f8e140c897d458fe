"""The insiders of the game of membership: what a release tells about each of many targets, of all targets at once.

For each target there is an insider of its own, who knows everything but that one coin. One client plays all of them: it
is told all coins and who takes part, works out the noise of the release, and uses of a target's own coin only what its
insider sees anyway, the release.
"""

from math import isinf
from typing import NamedTuple, assert_never

import numpy as np
import torch
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.adversaries.membership.active import ascent
from fl_audit.adversaries.membership.insider import increments, signal_to_noise
from fl_audit.arrays import Flags, Floats
from fl_audit.game.contributing import Moment, contributed
from fl_audit.game.game import Game
from fl_audit.game.membership import Membership
from fl_audit.game.seen import SeenRound
from fl_audit.learning.record_gradients import record_gradients


class TargetsObserved(NamedTuple):
    """What a round tells about every target."""

    increments: Floats  # added to the log-odds of "in" against "out", float64 (worlds, targets)
    # ||g|| / sigma of the target's clipped contribution, 0 where it is known to take no part, float64 (worlds,
    # targets).
    signal: Floats


def observe_candidates(game: Game, seen: SeenRound) -> TargetsObserved:
    """Weigh what was seen of a round for every candidate of the game of reconstruction, against there being none.

    Exactly one is in, and nobody tells the insider which. The log-odds of a candidate against none differ from its
    log-likelihood by what is the same for all.

    Parameters
    ----------
    game, seen
        As for `observe_targets`.
    """
    nobody = np.zeros((len(seen.start), game.public.targets), dtype=np.bool_)
    return observe_targets(game, seen, Membership(nobody))


def observe_targets(game: Game, seen: SeenRound, membership: Membership) -> TargetsObserved:
    """Weigh what was seen of a round for every target.

    Parameters
    ----------
    game
        The game, with central noise at a fixed clipping norm.
    seen
        What clients saw; where rounds are sampled, with everybody's participation.
    membership
        Which targets are in.

    Notes
    -----
    Source: Bernau et al. 2021, Lemma 1, with D' as D without the target; see `fl_audit.adversaries.membership.insider`.
    """
    law, worlds = game.public.law, membership.worlds
    sigma = law.noise_scale(np.zeros(worlds), game.public.standpoint)
    part, clip = _taking_part(game, seen, worlds), None
    if game.unit is Unit.RECORD:
        clip = law.clipping_norm  # updates of clients are clipped already
    match game.unit:
        case Unit.RECORD:
            products, norms = _of_records(game, seen, membership, part)
        case Unit.CLIENT:
            products, norms = _of_clients(game, seen, membership, part)
        case _:
            assert_never(game.unit)
    takes_part = None if part is None else part[:, game.targets]
    sees = game.public.standpoint.sees_participation
    added = increments(products, norms, clip, sigma, membership.is_in, takes_part, law.sampling_rate, sees)
    signal = signal_to_noise(norms, clip, sigma)
    if takes_part is not None and (sees or law.sampling_rate == 1):
        signal = np.where(takes_part, signal, 0.0)
    return TargetsObserved(added, signal)


def _taking_part(game: Game, seen: SeenRound, worlds: int) -> Flags | None:
    """Return which units take part in the round, if they are in, (worlds, units); None is all of them."""
    members, shown = game.public.cohort(seen.number), seen.around.taking_part
    if members is not None:
        return np.broadcast_to(np.isin(np.arange(game.units), members), (worlds, game.units))
    return None if shown is None else shown.bool().cpu().numpy()


def _in_sum(game: Game, membership: Membership, part: Flags | None) -> Flags:
    """Return which units are in a round's sum, (worlds, units)."""
    held = np.ones((membership.worlds, game.units), dtype=np.bool_)
    held[:, game.targets] = membership.is_in
    return held if part is None else held & part


def _of_records(game: Game, seen: SeenRound, membership: Membership, part: Flags | None) -> tuple[Floats, Floats]:
    """Return the products of the targets' gradients with the noise, and their norms, before clipping."""
    everything, held = game.training, torch.from_numpy(_in_sum(game, membership, part)).to(seen.start.device)
    norm = game.public.law.clipping_norm
    total = game.model.clipped_sum(seen.start, everything.features, everything.labels, norm, None, held)
    noise = seen.sums(game.public.law).double() - total.double()
    if game.public.ascent > 0:
        noise -= pushed_up(game, seen.start).double()
    found = record_gradients(game.model, seen.start, game.differing.features, game.differing.labels, noise)
    return _array(found.products), _array(found.norms)


def _of_clients(game: Game, seen: SeenRound, membership: Membership, part: Flags | None) -> tuple[Floats, Floats]:
    """Return the products of the target clients' clipped updates with the noise, and their norms."""
    moment, held = Moment(seen.number), _in_sum(game, membership, part)
    noise, updates = seen.sums(game.public.law).double(), {}
    for client in range(game.units):
        if held[:, client].any() or client in game.targets:
            one = contributed(game, client, game.shard(client), seen.start, moment).total
            rows = torch.from_numpy(held[:, client]).to(one.device)
            noise = noise - one.double() * rows.unsqueeze(1)
            if client in game.targets:
                updates[client] = one
    of_targets = [updates[int(client)].double() for client in game.targets]
    products = torch.stack([(noise * one).sum(dim=1) for one in of_targets], dim=1)
    return _array(products), _array(torch.stack([one.norm(dim=1) for one in of_targets], dim=1))


def pushed_up(game: Game, models: Tensor) -> Tensor:
    """Return what a malicious insider adds to its contribution of a round, float32 (worlds, parameters).

    Parameters
    ----------
    game
        What every party knows.
    models
        The models at the start of the round, float32 (worlds, parameters).
    """
    norm = None if isinf(game.public.law.clipping_norm) else game.public.law.clipping_norm
    return ascent(game.model, models, game.differing.features, game.differing.labels, game.public.ascent, norm)


def _array(values: Tensor) -> Floats:
    return np.asarray(values.double().cpu().numpy(), dtype=np.float64)
