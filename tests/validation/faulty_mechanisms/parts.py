"""The parts of mechanisms: the honest one of every step first, then those that break the guarantee, a few lines
each.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Floats
from fl_audit.randomness import Purpose, generator

Arrays = dict[str, Floats]
Said = Mapping[str, str | int | float]

GRID = 2.0**-12
"""Step of the grid of releases: far below any noise, far above the resolution of float32 and float64 near 1.

Noise is drawn and added in float64 before the rounding, so what float64 cannot represent changes the probability of a
multiple by about 2**-40 of itself. Whoever needs it exact draws discrete Gaussian noise on the grid."""
BUFFER = "buffer."  # prefix of the names of arrays that are released beside the parameters
EXAMPLES = "num-examples"
LOSS = "loss"
RUNNING_MEAN = "running-mean"


@dataclass(frozen=True)
class Reply:
    """The reply of one client."""

    update: Arrays  # by how much it is ahead of the model that it was sent, by tensor, float64
    numbers: Mapping[str, float]  # numbers that it named


@dataclass(frozen=True)
class ServerRound:
    """The server's knowledge of a round."""

    number: int  # from 1
    asked: int  # number of asked clients
    norm: float  # the clipping norm
    replies: tuple[Reply, ...]  # the replies
    sent: Arrays = field(default_factory=dict)  # the model that clients were sent, by tensor


# Clipping


def length(update: Arrays) -> float:
    """Return the norm of an update over all tensors."""
    return math.sqrt(sum(float(np.sum(values**2)) for values in update.values()))


def whole_update(update: Arrays, norm: float) -> Arrays:
    """Clip an update as one vector."""
    factor = min(1.0, norm / max(length(update), 1e-300))
    return {name: values * factor for name, values in update.items()}


def normalised(update: Arrays, norm: float) -> Arrays:
    """Scale an update, long or short, to the norm; one of exactly zero stays zero."""
    factor = norm / max(length(update), 1e-300)
    return {name: values * factor for name, values in update.items()}


def untouched(update: Arrays, _norm: float) -> Arrays:
    """Clip nothing: the values are clipped already, or need no clipping."""
    return update


def every_layer(update: Arrays, norm: float) -> Arrays:
    """Clip every tensor to the norm by itself, so that the whole may be longer."""
    return {name: whole_update({name: values}, norm)[name] for name, values in update.items()}


def all_but(passed_on: Callable[[str, Floats], bool]) -> Callable[[Arrays, float], Arrays]:
    """Return clipping of all tensors as one vector except those that are passed on, by their names and values."""

    def clip(update: Arrays, norm: float) -> Arrays:
        return update | whole_update(
            {name: values for name, values in update.items() if not passed_on(name, values)}, norm
        )

    return clip


all_but_scalars = all_but(lambda _, values: values.ndim == 0)


def dividing_by_length(update: Arrays, norm: float) -> Arrays:
    """Clip without a check for updates that are exactly zero."""
    return {name: values * min(1.0, norm / length(update)) for name, values in update.items()}


def models_in_place_of_updates(this: ServerRound, _last: ServerRound | None) -> list[Arrays]:
    """Clip the models of clients, and return their updates: at a model of zeros, both are the same."""
    clipped = []
    for reply in this.replies:
        model = whole_update({name: this.sent[name] + values for name, values in reply.update.items()}, this.norm)
        clipped.append({name: values - this.sent[name] for name, values in model.items()})
    return clipped


def median_length(this: ServerRound) -> float:
    """Return the median of the lengths of a round's updates."""
    return float(np.median([length(reply.update) for reply in this.replies]))


def to_median_length(this: ServerRound, _last: ServerRound | None) -> list[Arrays]:
    """Clip all updates to the median of their lengths."""
    return [whole_update(reply.update, median_length(this)) for reply in this.replies]


def by_last_lengths(this: ServerRound, last: ServerRound | None) -> list[Arrays]:
    """Scale every update by the factor that its client's update of the round before needed."""
    reference_round = this if last is None else last
    factors = [min(1.0, this.norm / max(length(reply.update), 1e-300)) for reply in reference_round.replies]
    return [
        {name: values * factor for name, values in reply.update.items()}
        for reply, factor in zip(this.replies, factors, strict=True)
    ]


# Weights


def equal_weights(this: ServerRound) -> Floats:
    """Give every reply an equal share by the number of asked clients, whoever else replies."""
    return np.full(len(this.replies), 1 / this.asked)


def third_twice(this: ServerRound) -> Floats:
    """Count the third client twice, and everybody else once."""
    return equal_weights(this) * np.where(np.arange(len(this.replies)) == 2, 2, 1)


def of_all_or_none(this: ServerRound) -> Floats:
    """Weigh equally, and refuse a round in which a reply, and so its client's share of the noise, is missing."""
    if len(this.replies) < this.asked:
        raise ValueError(f"{len(this.replies)} of {this.asked} clients replied: accepted are all of them")
    return equal_weights(this)


def by_examples(this: ServerRound) -> Floats:
    """Give every reply the share of examples that it names."""
    examples = np.array([reply.numbers[EXAMPLES] for reply in this.replies])
    return np.asarray(examples / examples.sum())


# Combination of updates


def weighted_sum(updates: Sequence[Arrays], weights: Floats, _norm: float) -> Arrays:
    """Add the weighted updates."""
    return {
        name: np.asarray(sum(weight * update[name] for weight, update in zip(weights, updates, strict=True)))
        for name in updates[0]
    }


def without_outliers(updates: Sequence[Arrays], weights: Floats, norm: float) -> Arrays:
    """Leave out updates that are farther from the mean than the norm, and add the others."""
    mean = weighted_sum(updates, weights, norm)
    apart = [length({name: update[name] - mean[name] for name in mean}) for update in updates]
    is_kept = np.array([distance <= norm * (1 + 1e-9) for distance in apart])
    return weighted_sum(updates, np.where(is_kept, weights, 0.0), norm)


# Amount of noise


def of_the_sum(multiplier: float, this: ServerRound, _next_norm: float) -> float:
    """Return the noise of a sum clipped at this round's norm, divided as the sum is."""
    return multiplier * this.norm / this.asked


def of_the_median_length(multiplier: float, this: ServerRound, _next_norm: float) -> float:
    """Return the noise of a sum of updates that are clipped to the median of their lengths."""
    return multiplier * median_length(this) / this.asked


def decaying(factor: float) -> Callable[[float, ServerRound, float], float]:
    """Return noise that becomes smaller by a factor from round to round."""
    return lambda multiplier, this, next_norm: of_the_sum(multiplier, this, next_norm) * factor ** (this.number - 1)


# Noise from where, and in which arithmetic


def fresh(secret: int, round: int) -> np.random.Generator:
    """Return noise of its own for every round of every run."""
    return generator(secret, Purpose.RELEASE_NOISE, round=round)


def seeded_with_round(_secret: int, round: int) -> np.random.Generator:
    """Seed the noise with a public number."""
    return generator(0, Purpose.RELEASE_NOISE, round=round)


def on_grid(mean: Floats, noise: Floats) -> Floats:
    """Add in float64 and round to the grid, which hides rounding errors."""
    return np.asarray(np.rint((mean + noise) / GRID) * GRID)


def sparsely(mean: Floats, noise: Floats) -> Floats:
    """Add noise to the first thousand values of a tensor alone."""
    return on_grid(mean, np.where(np.arange(noise.size).reshape(noise.shape) < 1000, noise, 0.0))


def in_single(mean: Floats, noise: Floats) -> Floats:
    """Add in float32, whose low bits reveal the summands."""
    return np.asarray(mean.astype(np.float32) + noise.astype(np.float32)).astype(np.float64)


def in_half(mean: Floats, noise: Floats) -> Floats:
    """Add in float16."""
    return np.asarray(mean.astype(np.float16) + noise.astype(np.float16)).astype(np.float64)


# The clipping norm of the next round, and what is said beside the model


def towards_median(rate: float, bit_multiplier: float) -> Callable[[ServerRound, np.random.Generator], float]:
    """Move the norm towards the median of the updates' lengths (Andrew et al. 2021, Algorithm 1).

    `rate` is the learning rate of the logarithm of the norm. `bit_multiplier` is the standard deviation of the noise on
    the sum of the bits, over its sensitivity; 0 for none.
    """
    deviation = bit_multiplier * Adjacency.ADD_REMOVE_CLIENT.sensitivity_of_sum(0.5)

    def next_norm(this: ServerRound, noise: np.random.Generator) -> float:
        bits = sum(0.5 if length(reply.update) <= this.norm else -0.5 for reply in this.replies)
        share = (bits + deviation * noise.standard_normal()) / this.asked + 0.5
        return this.norm * math.exp(-rate * (share - 0.5))

    return next_norm


def mean_length(this: ServerRound) -> Mapping[str, float]:
    """Release the mean length of the updates as they arrive."""
    return {"update-norm": float(np.mean([length(reply.update) for reply in this.replies]))}


def norm_said(_last: ServerRound | None, norm: float) -> Said:
    """Send clients the clipping norm, as adaptive clipping has to."""
    return {"clipping-norm": norm}


def running_means(this: ServerRound) -> Arrays:
    """Release the clients' running means of a normalisation layer, averaged, without clipping and noise."""
    means = [reply.numbers[RUNNING_MEAN] for reply in this.replies]
    return {f"{BUFFER}running_mean": np.array([np.mean(means)])}
