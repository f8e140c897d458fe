"""What an adversary can work out of a round: both hypotheses about what it saw, and what it saw, made comparable.

It knows all units but the differing one, who of them took part, and every public number. From that follow the two sums
that a release can be made of. What it knows of the noise it subtracts; noise that is correlated over rounds it whitens.
"""

from typing import NamedTuple, assert_never

import torch
from torch import Tensor

from fl_audit.adjacency import Unit
from fl_audit.errors import require
from fl_audit.federation.contributing import Contributed, Moment, contributed, differing_contributions, nothing
from fl_audit.federation.game import Game
from fl_audit.federation.seen import SeenRound, SideInformation
from fl_audit.mechanisms.noise import CorrelatedGaussian, noise_share
from fl_audit.mechanisms.standpoint import Place
from fl_audit.mechanisms.weighing import Hypotheses
from fl_audit.privacy.matrices import strategy_matrix


class Question(NamedTuple):
    """What is to be weighed: something observed, and both hypotheses about its mean."""

    observed: Tensor
    hypotheses: Hypotheses


def question_of(game: Game, seen: SeenRound, batch_worlds: int | None = None) -> Question:
    """Return what a round asks of an adversary.

    Raises `InputError` if something that the adversary needs was not shown.

    Parameters
    ----------
    game, seen
        The game, with D and D', and what the adversary saw.
    batch_worlds
        World count of the original batch, when only its first worlds are weighed again; see `StackedModel.clipped_sum`.
    """
    law, side = game.public.law, seen.side
    if law.rounds_needed > 1:
        return _whitened(game, seen, batch_worlds)
    moment = Moment(seen.number, side.norms, batch_worlds)
    if game.public.standpoint.place is Place.SERVER:
        return _of_contribution(game, seen, moment)
    hypotheses = sums_of(game, seen.start, moment, side)
    return Question(_less_known_noise(game, seen.sums(law), seen), hypotheses)


def sums_of(game: Game, models: Tensor, moment: Moment, side: SideInformation) -> Hypotheses:
    """Return the sums that a round has under D and under D'.

    Parameters
    ----------
    game, models
        The game, and theta_{i-1}, float32 (worlds, parameters).
    moment, side
        The round; who took part, and the noised bits, where the law has them.
    """
    law = game.public.law
    members, weight = game.public.cohort(moment.number), law.sampling_rate
    if members is not None and game.target not in members:
        present, absent = nothing(models, law.is_adaptive), nothing(models, law.is_adaptive)
    else:
        present, absent = differing_contributions(game, models, moment)
    if law.is_sampled and game.public.standpoint.sees_participation:
        takes_part = shown(side.taking_part, "who took part")[:, game.target].bool()
        present, absent, weight = present.times(takes_part), absent.times(takes_part), 1.0
    match game.unit:
        case Unit.RECORD | Unit.USER:
            others = None
            if law.is_sampled:
                taking_part = shown(side.taking_part, "who took part").cpu().numpy()
                records = game.common_records
                units = records if game.user is None else game.user[records]
                others = torch.from_numpy(taking_part[:, units]).to(models.device)
            shared = contributed(game, game.victim, game.common, models, moment, others)
        case Unit.CLIENT:
            shared = _shared_clients(game, models, moment, side)
        case _:
            assert_never(game.unit)
    sides = _log_odds_of_bits(game, shared, (present, absent), side)
    return Hypotheses(shared.total, present.total, absent.total, weight, sides)


def _shared_clients(game: Game, models: Tensor, moment: Moment, side: SideInformation) -> Contributed:
    """Add up the updates of all other clients, each in the worlds in which it takes part."""
    total, members = nothing(models, game.public.law.is_adaptive), game.public.cohort(moment.number)
    bits = total.centred_bits
    for client in range(len(game.shards)) if members is None else members.tolist():
        if client == game.victim:
            continue
        some: slice | Tensor = slice(None)
        part = moment
        if game.public.law.is_sampled:
            rows = shown(side.taking_part, "who took part")[:, client].nonzero().flatten()
            if len(rows) == 0:
                continue
            if len(rows) < len(models):
                some, part = rows, moment.rows(rows)
        one = contributed(game, client, game.honest_shard(client), models[some], part)
        total.total[some] += one.total
        bits[some] += one.centred_bits
    return Contributed(total.total, None if total.within is None else bits + 0.5)


def _log_odds_of_bits(
    game: Game, shared: Contributed, sides: tuple[Contributed, Contributed], side: SideInformation
) -> tuple[Tensor, Tensor] | None:
    """Return what the noised bits say for each differing contribution's being in, against nothing being in."""
    law = game.public.law
    if not law.is_adaptive:
        return None
    rest = shown(side.bits, "the noised bits") - shared.centred_bits
    one, other = ((rest - side.centred_bits / 2) * side.centred_bits / law.bit_sigma**2 for side in sides)
    return one, other


def _of_contribution(game: Game, seen: SeenRound, moment: Moment) -> Question:
    """Return the question of a server that sees the contribution of the target's client by itself."""
    present, absent = differing_contributions(game, seen.start, moment)
    match game.unit:
        case Unit.RECORD | Unit.USER:
            own = contributed(game, game.victim, game.honest_shard(game.victim), seen.start, moment).total
        case Unit.CLIENT:
            own = torch.zeros_like(present.total)
        case _:
            assert_never(game.unit)
    observed = shown(seen.side.contribution, "the contribution of the target's client")
    return Question(observed, Hypotheses(own, present.total, absent.total))


def _less_known_noise(game: Game, observed: Tensor, seen: SeenRound) -> Tensor:
    """Subtract the noise shares that the adversary knows."""
    law, side = game.public.law, seen.side
    if not law.clients_add_noise:
        return observed
    seeds = shown(side.noise_seeds, "the seeds of the noise that the insider knows").tolist()
    known = game.public.standpoint.known_shares
    require(len(seeds) == known, f"{len(seeds)} seeds of noise were shown: accepted are {known}")
    worlds, left = shown(side.world_numbers, "the numbers of the worlds").tolist(), observed.double()
    for seed in seeds:
        share = noise_share(seed, worlds, seen.number, observed.shape[1]).to(observed.device)
        left = left - law.share_scale * share.double()
    return left


class WhitenedStep(NamedTuple):
    """A round, and by what it is multiplied before it is added to what an adversary weighs."""

    factor: float  # an entry of C's newest row where the noise is correlated over rounds, 1 elsewhere
    number: int  # the round, from 1
    start: Tensor  # the models on which the clients worked, (worlds, parameters)
    release: Tensor  # the noised sums, less the noise that the adversary knows, (worlds, parameters)


def whitened_steps(game: Game, seen: SeenRound) -> list[WhitenedStep]:
    """Return the rounds whose releases, each times its factor, add up to one whose noise is independent of all before.

    Parameters
    ----------
    game, seen
        What every party knows, and what the adversary saw.
    """
    law, noise = game.public.law, game.public.law.noise
    if not isinstance(noise, CorrelatedGaussian):
        return [WhitenedStep(1.0, seen.number, seen.start, _less_known_noise(game, seen.sums(law), seen))]
    row = strategy_matrix(noise.matrix, noise.rounds, noise.bands)[seen.number - 1]
    steps = enumerate([*seen.earlier, (seen.start, seen.sums(law))], start=seen.number - len(seen.earlier))
    whitened = [WhitenedStep(float(row[number - 1]), number, *step) for number, step in steps]
    return [step for step in whitened if step.factor != 0]


def _whitened(game: Game, seen: SeenRound, batch_worlds: int | None) -> Question:
    """Return the newest row of C times the releases, and of C times both sums: there the noise is independent again."""
    wholes = tuple(torch.zeros_like(seen.start, dtype=torch.float64) for _ in range(4))
    observed, shared, present, absent = wholes
    for factor, number, start, release in whitened_steps(game, seen):
        one = sums_of(game, start, Moment(number, None, batch_worlds), SideInformation())
        for whole, part in zip(wholes, (release, one.shared, one.present, one.absent), strict=True):
            whole += factor * part.double()
    return Question(observed, Hypotheses(shared, present, absent))


def shown(value: Tensor | None, what: str) -> Tensor:
    """Return what was shown, or refuse.

    Parameters
    ----------
    value, what
        It, None if it was not shown; and its name, for the message.
    """
    require(value is not None, f"the insider was not shown {what}, which it needs to weigh the round")
    assert value is not None
    return value
