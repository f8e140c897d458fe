"""Features of a transcript: groups of numbers that may distinguish D from D', as input of a trained rule.

Each group covers one place where a leak may hide. Rules are trained on trials that do not count as evidence, so a
useless group costs time but does not affect validity. Leaks that do not shift a mean are turned into a shift: changes
of variance by the logarithm of squares, rounding by the share of rounded values, and missing values by indicators.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.audits.black_box.transcript import Transcripts

MOST_CORRELATED = 400
"""Most columns of a group whose correlations are learned; of more, sums over rounds or projections are shown."""
_MOST_ALONE = 20_000  # most columns of a group whose columns are weighed one by one
_ROUNDS_SHOWN = 12
_PAIRS = MOST_CORRELATED // 4  # most pairs of rounds that are looked at, four columns each
_GRAINS = tuple(range(8, 41, 2))  # binary places at which roundings are looked for: multiples of 2**-k, k from 8 to 40
_LARGEST = 100.0  # stands for a binary place where there is none
_ALONG = "what was released along the differing contribution"  # normal, if noise is Gaussian
BESIDE_OTHERS = "what was released along it, beside what others contributed"
"""The group for an adversary that knows what all others sent, their shares of the noise included."""
ROUNDED = "the low bits of what was released"  # the group that shows roundings
FINEST = "the finest bit beside the contribution"  # the group that shows from what a sum was made in floating point
LOW_BITS = (ROUNDED, FINEST)
"""The groups that use low bits alone: a difference that only they show is a leak of floating-point arithmetic.

A claim about real numbers does not cover it (Mironov 2012), and rounding the release to a grid fixes it. Noise on a
coarse grid is another matter: it shows in `COARSE`, where so fine a rounding has been made already.
"""
COARSE = "what is left of the low bits after rounding to a thousandth of what was released"
"""The group that shows roundings no finer than a thousandth of the step: those of noise on a grid, for instance."""
_FINE = 10  # binary places below the size of what was released, from which on bits are low: one in 1024 of the noise


def feature_groups(trials: Transcripts) -> dict[str, Floats]:
    """Return the groups of features, each of shape (trials, columns), keyed by their descriptions in a report.

    Missing and non-finite values become 0, and one indicator column for each feature marks them.
    """
    groups: dict[str, Floats] = {_ALONG: along(trials)[:, None]}
    if trials.steps.shape[1] > 1:
        groups["what was released along it, round by round"] = _by_round(trials)
        groups["the released arrays, first against later rounds"] = _alternating(trials)
        groups["what pairs of rounds released, against each other"] = _paired(trials)
    for name, part in trials.tensors:
        groups[f"the released values of {name}"] = _shown(trials.steps[:, :, part])
    groups["all released values"] = _shown(trials.steps)
    if trials.steps[0].size > MOST_CORRELATED:
        groups["all released values, each by its own spread"] = _each(trials.steps)
    if np.any(trials.own):
        own = np.concatenate([trials.steps, trials.own], axis=2)
        groups["released values beside the noise of one's own"] = _shown(own)
        pair = (along(trials), along(replace(trials, steps=trials.own)))
        groups["along it, beside the noise of one's own"] = np.stack(pair, axis=1)
    if np.any(trials.others):
        groups[BESIDE_OTHERS] = _beside_others(trials)
    groups["the size of what was released"] = _sizes(trials)
    groups[ROUNDED] = _grains(trials.released)
    groups[COARSE] = _grains(_coarse(trials))
    # A sketched model shows some of its released values as they are, and these belong to no part of the difference.
    if trials.released.shape == trials.direction.shape:
        groups[FINEST] = _finest(trials)
    for column, name in enumerate(trials.names):
        groups[name] = trials.numbers[:, column : column + 1]
    return {name: _finite(values) for name, values in groups.items()}


def along(trials: Transcripts) -> Floats:
    """Return the projections of the releases on the differing contribution, summed over rounds, shape (trials,)."""
    return np.asarray(np.sum(projections(trials), axis=1))


def projections(trials: Transcripts) -> Floats:
    """Return the released steps projected on the unit vector of the difference, shape (trials, rounds).

    NaN counts as 0.
    """
    return _along(trials, np.nan_to_num(trials.steps, nan=0.0, posinf=0.0, neginf=0.0))


def _along(trials: Transcripts, vectors: Floats) -> Floats:
    """Return the projections of vectors on the unit vector of the difference, shape (trials, rounds).

    The projection is 0 if there is no difference in that round.
    """
    norms, products = np.linalg.norm(trials.direction, axis=2), np.sum(vectors * trials.direction, axis=2)
    return np.asarray(np.divide(products, norms, out=np.zeros_like(products), where=norms > 0))


def _by_round(trials: Transcripts) -> Floats:
    found = projections(trials)
    if found.shape[1] <= _ROUNDS_SHOWN:
        return found
    return np.stack([part.sum(axis=1) for part in np.array_split(found, _ROUNDS_SHOWN, axis=1)], axis=1)


def _alternating(trials: Transcripts) -> Floats:
    """Return the values of the first round minus those of several later rounds, in which repeated noise cancels."""
    later = trials.steps[:, 1:_ROUNDS_SHOWN]
    differences = trials.steps[:, :1] - later
    # Of a large model every later round shows as many values, evenly spaced.
    step = -(-differences[0].size // MOST_CORRELATED)
    return _flat(differences[:, :, ::step])


def _paired(trials: Transcripts) -> Floats:
    """Return two features for the difference and two for the sum of the releases of each pair of rounds.

    Repeated noise cancels in the difference, and negated noise in the sum. The two features are the projection on the
    target's contribution to that difference or sum, and the logarithm of the squared norm. If there are too many pairs,
    those with the first round take precedence, and then those of successive rounds.
    """
    steps = np.nan_to_num(trials.steps, nan=0.0, posinf=0.0, neginf=0.0)
    found = []
    for one, other in _pairs(steps.shape[1]):
        for sign in (-1.0, 1.0):
            value = steps[:, one] + sign * steps[:, other]
            added = trials.direction[:, one] + sign * trials.direction[:, other]
            norms, products = np.linalg.norm(added, axis=1), np.sum(value * added, axis=1)
            found.append(np.divide(products, norms, out=np.zeros_like(products), where=norms > 0))
            found.append(np.log(np.maximum(np.sum(np.square(value), axis=1), 1e-300)))
    return np.stack(found, axis=1)


def _pairs(rounds: int) -> list[tuple[int, int]]:
    """Return pairs of rounds, the most informative first; all pairs if there are few."""
    first, next_ones = [(0, other) for other in range(1, rounds)], [(one, one + 1) for one in range(1, rounds - 1)]
    every = [*first, *next_ones, *combinations(range(rounds), 2)]
    return list(dict.fromkeys(every))[:_PAIRS]


def _shown(steps: Floats) -> Floats:
    """Return the values of every round if there are few, otherwise their sums over rounds, cut to a maximum number."""
    if steps[0].size <= MOST_CORRELATED:
        return _flat(steps)
    return np.asarray(steps.sum(axis=1))[:, :MOST_CORRELATED]


def _each(steps: Floats) -> Floats:
    """Return the values of every round at as many evenly spaced places as are looked at, the same in all trials.

    A sum over rounds hides a value without noise whose differences cancel over the rounds.
    """
    values = _flat(steps)
    return values[:, :: -(-values.shape[1] // _MOST_ALONE)]


def _beside_others(trials: Transcripts) -> Floats:
    """Return the projections of the release and of the others' mean, and the difference's norm, summed over rounds."""
    norms = np.linalg.norm(trials.direction, axis=2)
    return np.stack([along(trials), _along(trials, trials.others).sum(axis=1), norms.sum(axis=1)], axis=1)


def _sizes(trials: Transcripts) -> Floats:
    """Return the logarithm of the squared norm of every tensor's step, averaged over rounds."""
    squares = [np.sum(trials.steps[:, :, part] ** 2, axis=2) for _, part in trials.tensors]
    return np.stack([np.log(np.maximum(square, 1e-300)).mean(axis=1) for square in squares], axis=1)


def _grains(released: Floats) -> Floats:
    """Return the share of released values that are integer multiples of 2**-k, for several k."""
    values = _flat(released)
    shares = [np.mean(np.equal(np.mod(values * 2.0**k, 1.0), 0.0), axis=1) for k in _GRAINS]
    return np.stack(shares, axis=1)


def _coarse(trials: Transcripts) -> Floats:
    """Return released values rounded to a power of two of about a thousandth of the median step, as post-processing."""
    # The grid of a trial follows from what was released in it alone.
    sizes = np.abs(np.where(np.isfinite(trials.steps) & (trials.steps != 0), trials.steps, np.nan)).reshape(
        len(trials), -1
    )
    usual = np.array([np.nanmedian(size) if np.any(np.isfinite(size)) else 1.0 for size in sizes])
    grids = 2.0 ** (np.floor(np.log2(usual)) - _FINE)[:, None, None]
    return np.asarray(np.rint(trials.released / grids) * grids)


def _finest(trials: Transcripts) -> Floats:
    """Return the number of binary digits after the point in the finest released value, relative to its contribution."""
    # In floating point a sum has no finer bits than the finer one of what was added. Noise of some size alone may be as
    # fine as any number near zero; noise on top of a contribution is never much finer than the contribution (Mironov
    # 2012).
    sizes = np.abs(trials.direction)
    relative = _places(trials.released) + np.log2(np.where(sizes > 0, sizes, 1.0))
    known = np.where((sizes > 0) & np.isfinite(trials.released), relative, -_LARGEST)
    return np.asarray(np.max(_flat(known), axis=1, keepdims=True))


def _places(values: Floats) -> Floats:
    """Return the number of binary digits after the point of each value: the smallest k with a multiple of 2**-k."""
    mantissas, exponents = np.frexp(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0))
    whole = np.asarray(mantissas * 2.0**53, dtype=np.int64)
    # The last bit alone of a whole number in two's complement.
    last = np.log2(np.maximum(whole & -whole, 1))
    return np.where(whole == 0, -_LARGEST, 53.0 - exponents - last)


def _flat(values: Floats) -> Floats:
    return np.asarray(values.reshape(len(values), -1))


def _finite(values: Floats) -> Floats:
    """Return the columns with non-finite values replaced by 0, followed by one indicator column for each."""
    missing = ~np.isfinite(values)
    return np.concatenate([np.where(missing, 0.0, values), missing.astype(np.float64)], axis=1)
