"""Contributions: what every unit adds to a round, as the release law makes it.

Data owners and the insider call the same functions with the same shapes, so that what the insider works out is what
the owners sent.
"""

from dataclasses import dataclass
from math import isinf

import torch
from torch import Tensor

from fl_audit.game.examples import Examples
from fl_audit.game.game import Game
from fl_audit.learning.local_training import clip_updates, local_batches, local_updates
from fl_audit.mechanisms.contribution import LocalTraining, PrivateTraining, RecordGradients
from fl_audit.randomness import Purpose, generator


@dataclass(frozen=True)
class Moment:
    """What of a round decides the contributions, beside the models.

    Parameters
    ----------
    number
        The round, from 1.
    norms
        The clipping norms of the round where they are adaptive, float64 (worlds,).
    batch_worlds
        World count of the original batch, where only its first worlds are worked out again; None where these are all
        of them. See `StackedModel.clipped_sum`.
    """

    number: int
    norms: Tensor | None = None
    batch_worlds: int | None = None

    def rows(self, rows: Tensor) -> "Moment":
        """Return the same in some worlds."""
        return Moment(self.number, None if self.norms is None else self.norms[rows], None)


@dataclass(frozen=True)
class Contributed:
    """What a unit, or all units of a client, add in every world.

    Parameters
    ----------
    total
        Float32 (worlds, parameters).
    within
        Whether a client's update was within the adaptive clipping norm, 1 or 0, float64 (worlds,); None elsewhere.
    """

    total: Tensor
    within: Tensor | None = None

    @property
    def centred_bits(self) -> Tensor:
        """The bits less one half, float64 (worlds,); zero where there are none."""
        return torch.zeros(len(self.total)).double() if self.within is None else self.within - 0.5

    def times(self, counts: Tensor) -> "Contributed":
        """Return what is left where the unit takes part in some worlds only, bool (worlds,)."""
        # Without a unit there is no bit either: a bit of one half is one that adds nothing once it is centred.
        within = None if self.within is None else torch.where(counts, self.within, 0.5)
        return Contributed(self.total * counts.unsqueeze(1), within)


def contributed(
    game: Game,
    client: int,
    examples: Examples,
    models: Tensor,
    moment: Moment,
    taking_part: Tensor | None = None,
) -> Contributed:
    """Return what some examples of a client contribute, clipped, where that is public given the examples.

    Parameters
    ----------
    game
        The game.
    client
        Whose examples they are: the order of local training is keyed by it.
    examples
        The examples; of clients all that it trains on.
    models
        Float32 tensor (worlds, parameters).
    moment
        The round.
    taking_part
        Which examples take part, bool (worlds, n); None is all of them. Only for gradients of records.
    """
    law = game.public.law
    match law.contribution:
        case RecordGradients():
            norm = None if isinf(law.clipping_norm) else law.clipping_norm
            shapes = moment.batch_worlds if taking_part is None else None
            features, labels = examples.features, examples.labels
            return Contributed(game.model.clipped_sum(models, features, labels, norm, shapes, taking_part))
        case LocalTraining():
            return _trained(game, client, examples, models, moment)
        case PrivateTraining():
            raise AssertionError("what a client draws in its training nobody can recompute: see `private_training`")


def _trained(game: Game, client: int, examples: Examples, models: Tensor, moment: Moment) -> Contributed:
    law, count = game.public.law, len(examples.labels)
    assert isinstance(law.contribution, LocalTraining)
    schedule = law.contribution.schedule
    draw = generator(game.public.data_seed, Purpose.LOCAL_ORDER, round=moment.number, client=client)
    batches = local_batches(count, schedule, draw)
    updates = local_updates(game.model, models, examples.features, examples.labels, schedule, batches)
    if isinf(law.clipping_norm):
        return Contributed(updates)
    clipped, lengths = clip_updates(updates, law.clipping_norm if moment.norms is None else moment.norms)
    if moment.norms is None:
        return Contributed(clipped)
    return Contributed(clipped, (lengths.double() <= moment.norms).double())


def nothing(models: Tensor, is_adaptive: bool) -> Contributed:
    """Return what a unit adds that is not there."""
    within = torch.full((len(models),), 0.5, dtype=torch.float64) if is_adaptive else None
    return Contributed(torch.zeros_like(models), within)


def differing_contributions(game: Game, models: Tensor, moment: Moment) -> tuple[Contributed, Contributed]:
    """Return what the differing unit contributes, and what stands in its place under D'.

    Victim and insider both call this, with the same shapes, so that they agree to the last bit.
    """
    present = contributed(game, game.victim, game.differing, models, moment)
    if game.replacement is None:
        return present, nothing(models, game.public.law.is_adaptive)
    return present, contributed(game, game.victim, game.replacement, models, moment)
