"""Compute features of transcripts: groups of numbers by which a trained rule may distinguish D from D'.

Each group covers one place where a leak may hide. Rules learn from shifts of the mean, so other leaks are turned into
shifts: a change of variance by the logarithm of squares, rounding by the share of rounded values, and missing values by
indicators. The differing contribution is the contribution under D minus that under D', scaled to norm 1.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np

from fl_audit.app_audits.claim_audit.transcript import Transcripts
from fl_audit.array_types import Floats

MOST_CORRELATED = 400
"""Largest number of columns of a group whose correlations are learned."""
_MOST_ALONE = 20_000  # largest number of columns of a group without learned correlations
_ROUNDS_SHOWN = 12  # largest number of rounds, or sums of successive rounds, in a group by rounds
_PAIRS = MOST_CORRELATED // 4  # largest number of pairs of rounds, with four columns each
_GRAINS = tuple(range(8, 41, 2))  # exponents k: values that are multiples of 2**-k are counted as rounded
_LARGEST = 100.0  # minus this is the number of binary digits of a value that is 0
_ALONG = "what was released along the differing contribution"  # normal, if noise is Gaussian
BESIDE_OTHERS = "what was released along it, beside what others contributed"
"""Name of the group for an adversary that knows the replies of all other clients, with their shares of the noise."""
ROUNDED = "the low bits of what was released"  # name of the group that shows rounded releases
FINEST = "the finest bit beside the contribution"  # name of the group that shows which numbers a float sum was made of
LOW_BITS = (ROUNDED, FINEST)
"""Names of the groups that use only low bits. A leak that only they show is a leak of floating-point arithmetic.

A claim about real numbers does not cover such a leak (Mironov 2012), and rounding the release to a grid fixes it. Noise
on a coarse grid shows in `COARSE` instead.
"""
COARSE = "what is left of the low bits after rounding to a thousandth of what was released"
"""Name of the group that shows rounding to more than a thousandth of the release, as by noise on a coarse grid."""
_FINE = 10  # bits below 2**-10 (about a thousandth) of the size of the release are low bits


def feature_groups(transcripts: Transcripts) -> dict[str, Floats]:
    """Return all groups of features of the trials as arrays, keyed by a description for the report.

    Each array has shape (trials, columns). Missing and non-finite values become 0. Each feature has a second column
    that is 1 where its value is missing, else 0.
    """
    groups: dict[str, Floats] = {_ALONG: summed_projections(transcripts)[:, None]}
    if transcripts.steps.shape[1] > 1:
        groups["what was released along it, round by round"] = _by_round(transcripts)
        groups["the released arrays, first against later rounds"] = _alternating(transcripts)
        groups["what pairs of rounds released, against each other"] = _paired(transcripts)
    for name, coordinates in transcripts.tensors:
        groups[f"the released values of {name}"] = _shown(transcripts.steps[:, :, coordinates])
    groups["all released values"] = _shown(transcripts.steps)
    if transcripts.steps[0].size > MOST_CORRELATED:
        groups["all released values, each by its own spread"] = _each(transcripts.steps)
    if np.any(transcripts.own):
        steps_and_own = np.concatenate([transcripts.steps, transcripts.own], axis=2)
        groups["released values beside the noise of one's own"] = _shown(steps_and_own)
        pair = (summed_projections(transcripts), summed_projections(replace(transcripts, steps=transcripts.own)))
        groups["along it, beside the noise of one's own"] = np.stack(pair, axis=1)
    if np.any(transcripts.others):
        groups[BESIDE_OTHERS] = _beside_others(transcripts)
    groups["the size of what was released"] = _sizes(transcripts)
    groups[ROUNDED] = _shares_on_grids(transcripts.released)
    groups[COARSE] = _shares_on_grids(_coarse(transcripts))
    # If the model is sketched, the released values are samples that have no counterpart in the difference.
    if transcripts.released.shape == transcripts.direction.shape:
        groups[FINEST] = _finest(transcripts)
    for column, name in enumerate(transcripts.names):
        groups[name] = transcripts.numbers[:, column : column + 1]
    return {name: _finite(values) for name, values in groups.items()}


def summed_projections(transcripts: Transcripts) -> Floats:
    """Return for each trial the releases' projections on the differing contribution, summed over rounds, (trials,)."""
    return np.asarray(np.sum(projections(transcripts), axis=1))


def projections(transcripts: Transcripts) -> Floats:
    """Return the change of the model in each round, projected on the differing contribution, shape (trials, rounds).

    The differing contribution is the contribution under D minus that under D', scaled to norm 1. Values that are not
    finite count as 0.
    """
    return _along(transcripts, np.nan_to_num(transcripts.steps, nan=0.0, posinf=0.0, neginf=0.0))


def _along(transcripts: Transcripts, vectors: Floats) -> Floats:
    """Return projections of vectors on the differing contribution, (trials, rounds).

    They are 0 in rounds in which the contributions under D and D' are equal.
    """
    norms = np.linalg.norm(transcripts.direction, axis=2)
    products = np.sum(vectors * transcripts.direction, axis=2)
    return np.asarray(np.divide(products, norms, out=np.zeros_like(products), where=norms > 0))


def _by_round(transcripts: Transcripts) -> Floats:
    projected = projections(transcripts)
    if projected.shape[1] <= _ROUNDS_SHOWN:
        return projected
    return np.stack([segment.sum(axis=1) for segment in np.array_split(projected, _ROUNDS_SHOWN, axis=1)], axis=1)


def _alternating(transcripts: Transcripts) -> Floats:
    """Return differences of model changes: the change in the first round minus the change in each of 11 later rounds.

    There are fewer differences if there are fewer rounds. Noise that is the same in both rounds cancels. For a large
    model only evenly spaced coordinates are used.
    """
    later = transcripts.steps[:, 1:_ROUNDS_SHOWN]
    differences = transcripts.steps[:, :1] - later
    # For a large model, each later round shows equally many values, evenly spaced.
    step = -(-differences[0].size // MOST_CORRELATED)
    return _flat(differences[:, :, ::step])


def _paired(transcripts: Transcripts) -> Floats:
    """Return features of pairs of rounds, which reveal noise that is used twice.

    They are computed for the difference of the two releases, in which repeated noise cancels, and for their sum, in
    which negated noise cancels. Each gives two numbers: its projection on what D contributes to it beyond D', and its
    log squared norm.
    """
    steps = np.nan_to_num(transcripts.steps, nan=0.0, posinf=0.0, neginf=0.0)
    features_found = []
    for first, second in _pairs(steps.shape[1]):
        for sign in (-1.0, 1.0):
            value = steps[:, first] + sign * steps[:, second]
            added = transcripts.direction[:, first] + sign * transcripts.direction[:, second]
            norms = np.linalg.norm(added, axis=1)
            products = np.sum(value * added, axis=1)
            features_found.append(np.divide(products, norms, out=np.zeros_like(products), where=norms > 0))
            features_found.append(np.log(np.maximum(np.sum(np.square(value), axis=1), 1e-300)))
    return np.stack(features_found, axis=1)


def _pairs(rounds: int) -> list[tuple[int, int]]:
    """Return at most 100 pairs of rounds: first those with round 0, then successive rounds, then others."""
    first = [(0, index) for index in range(1, rounds)]
    next_ones = [(index, index + 1) for index in range(1, rounds - 1)]
    every = [*first, *next_ones, *combinations(range(rounds), 2)]
    return list(dict.fromkeys(every))[:_PAIRS]


def _shown(steps: Floats) -> Floats:
    """Return all values of all rounds as columns.

    If these are more than 400, the rounds are summed instead, and the first 400 values of the sum are returned.
    """
    if steps[0].size <= MOST_CORRELATED:
        return _flat(steps)
    return np.asarray(steps.sum(axis=1))[:, :MOST_CORRELATED]


def _each(steps: Floats) -> Floats:
    """Return the released values of each trial, over all rounds, as features: one column for each value.

    Single values are needed, because a fault may cancel in the sum over rounds. Above 20,000 values, evenly spaced ones
    are selected.
    """
    values = _flat(steps)
    return values[:, :: -(-values.shape[1] // _MOST_ALONE)]


def _beside_others(transcripts: Transcripts) -> Floats:
    """Return features that compare the release with the mean update of the other clients, summed over rounds.

    The differing contribution is the target's contribution under D minus that under D'. There are three features: the
    projection of the release on the differing contribution, the projection of the mean update on the differing
    contribution, and the norm of the differing contribution.
    """
    norms = np.linalg.norm(transcripts.direction, axis=2)
    return np.stack(
        [summed_projections(transcripts), _along(transcripts, transcripts.others).sum(axis=1), norms.sum(axis=1)],
        axis=1,
    )


def _sizes(transcripts: Transcripts) -> Floats:
    """Return the log squared norm of each tensor's change in a round, as a mean over rounds, (trials, tensors)."""
    squares = [np.sum(transcripts.steps[:, :, coordinates] ** 2, axis=2) for _, coordinates in transcripts.tensors]
    return np.stack([np.log(np.maximum(square, 1e-300)).mean(axis=1) for square in squares], axis=1)


def _shares_on_grids(released: Floats) -> Floats:
    """Return the shares of released values that are multiples of 2**-k, for several k, to find rounded releases.

    The shape is (trials, number of k).
    """
    values = _flat(released)
    shares = [np.mean(np.equal(np.mod(values * 2.0**k, 1.0), 0.0), axis=1) for k in _GRAINS]
    return np.stack(shares, axis=1)


def _coarse(transcripts: Transcripts) -> Floats:
    """Return the released values, rounded to a grid.

    The spacing of a trial's grid is about a thousandth of the median size of the changes that the trial made to the
    model.
    """
    # The grid of a trial depends on the releases of this trial only.
    sizes = np.abs(
        np.where(np.isfinite(transcripts.steps) & (transcripts.steps != 0), transcripts.steps, np.nan)
    ).reshape(len(transcripts), -1)
    usual = np.array([np.nanmedian(size) if np.any(np.isfinite(size)) else 1.0 for size in sizes])
    grids = 2.0 ** (np.floor(np.log2(usual)) - _FINE)[:, None, None]
    return np.asarray(np.rint(transcripts.released / grids) * grids)


def _finest(transcripts: Transcripts) -> Floats:
    """Return how many binary digits the most precise released value of each trial has, (trials, 1).

    The digits start at the size of the difference between D and D' at the value's coordinate.
    """
    # A floating-point sum has no finer bits than the finer summand. Noise alone may be as fine as any number near 0,
    # but noise on top of a contribution is never much finer than the contribution (Mironov 2012).
    sizes = np.abs(transcripts.direction)
    relative = _binary_digits(transcripts.released) + np.log2(np.where(sizes > 0, sizes, 1.0))
    finest = np.where((sizes > 0) & np.isfinite(transcripts.released), relative, -_LARGEST)
    return np.asarray(np.max(_flat(finest), axis=1, keepdims=True))


def _binary_digits(values: Floats) -> Floats:
    """Return how many binary digits after the point each value has: the smallest k for which it is a multiple of 2**-k.

    The result is -100 for 0 and for non-finite values.
    """
    mantissas, exponents = np.frexp(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0))
    whole = np.asarray(mantissas * 2.0**53, dtype=np.int64)
    # This isolates the lowest set bit in two's complement.
    last = np.log2(np.maximum(whole & -whole, 1))
    return np.where(whole == 0, -_LARGEST, 53.0 - exponents - last)


def _flat(values: Floats) -> Floats:
    return np.asarray(values.reshape(len(values), -1))


def _finite(values: Floats) -> Floats:
    """Return the columns with 0 in place of non-finite values, followed by one column of flags for each column.

    A flag is 1 if the value is not finite, otherwise 0.
    """
    missing = ~np.isfinite(values)
    return np.concatenate([np.where(missing, 0.0, values), missing.astype(np.float64)], axis=1)
