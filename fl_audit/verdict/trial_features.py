"""Compute features of each trial's noise from which the learned distinguisher tells trials with D from trials with D'.

If the claim holds, the opened noise divided by the claimed noise is independent N(0, 1), whatever the secret and the
course of the training. So the features have the same distribution in all trials. No feature uses the sensitivities, the
releases, or the number of rounds in which D and D' do not differ. These may depend on the secret in an honest run, too.

There are two kinds of noise: along f(D) - f(D') and the gradients (`direction_features`), and at sampled coordinates
(`sample_features`). The directions of the first kind depend on the course of the training. A feature that combined both
kinds would therefore depend on the course, too. So each kind has features of its own.
"""

import hashlib
import math
from itertools import pairwise

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri_exp

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.randomness import Purpose, generator
from fl_audit.verdict.noise_statistics import LOW_BITS_KINDS, stride_names, stride_sizes
from fl_audit.verdict.run_measurements import NoiseMeasurements

Features = dict[str, Floats]  # values of each feature, (trials,), by its name

_TENSOR_GROUPS = 6
_ROUND_GROUPS = 8
_TRIALS_AT_ONCE = 32
_MOST_ROWS = 64
_CLOSE = 1e-5
_LARGEST_CLOSE = 1e-2
_ROUNDING_STEPS = 32
_FEWEST_LOW_BITS = 50
_MOMENTS = ("drift", "scale", "skewness", "tails")
_GRIDS = {"decimal": tuple(10.0**-k for k in (4, 3, 2, 1)), "binary": tuple(2.0**-k for k in (13, 10, 7, 4))}


def seed_of(members: Flags) -> int:
    """Return the seed of random draws that replace unknown values, computed from the secret bits, bool (trials,).

    A fixed seed would give every run the same draws, and with them the same chance difference between trials with D and
    with D'. A seed from the tested noise could favour one result of the test.
    """
    return int.from_bytes(hashlib.sha256(np.packbits(members).tobytes()).digest()[:8], "big")


def sample_features(measurements: NoiseMeasurements) -> Features:
    """Return the features of the noise at sampled coordinates by name, one value per tested trial.

    The tested trials are those of `measured.sampled_trials`. Tensors and rounds are combined into a few groups.
    """
    groups = _tensor_groups(measurements.tensor_of_coordinates)
    sampled = measurements.sampled_trials
    neighbours = np.diff([number for number, _ in measurements.noise.places]) == 1
    grain = float(np.max(measurements.noise.grain))
    sigma = measurements.sigma[sampled]
    steps = _grid_steps(sigma, grain)
    features_of_parts = []
    for start in range(0, len(measurements.sample), _TRIALS_AT_ONCE):
        rows = slice(start, start + _TRIALS_AT_ONCE)
        values = np.ascontiguousarray(measurements.sample[rows])
        features_found = _moment_features(values, groups) | _tail_features(values)
        features_found |= _repeat_features(values, neighbours, max(_CLOSE, _ROUNDING_STEPS * grain))
        for name, (as_such, step) in steps.items():  # sums of cosines, standardised
            numbers = values * (sigma[rows][:, :, None] if as_such else 1.0)
            features_found[name] = np.cos(2 * math.pi / step * numbers).sum(axis=(1, 2)) / math.sqrt(values[0].size / 2)
        features_of_parts.append(features_found)
    features = {
        name: np.concatenate([features_of_part[name] for features_of_part in features_of_parts])
        for name in features_of_parts[0]
    }
    return features | _class_features(measurements, sampled) | _low_bits_features(measurements, sampled)


def direction_features(measurements: NoiseMeasurements) -> Features:
    """Return features of each trial's noise along f(D) - f(D') and along gradients: arrays (trials,), keyed by name.

    A feature is a number from which a distinguisher may tell D from D'. If the challenger revealed them after the run,
    there are features of two further quantities. One is the noise of the quantile bits of adaptive clipping. The other
    is the share of ones among the last bits of the releases. The result is empty if nothing was measured.

    Unknown values are replaced by normal draws, because the number of unknown values may differ between D and D'. The
    draws have standard deviation 1, or that of the known values if the known values show more noise than claimed.
    """
    seed = seed_of(measurements.members)
    directions = {"along the record": measurements.innovations}
    if measurements.residuals is not None:
        directions["along the gradients"] = measurements.residuals.gradient / measurements.sigma
    if measurements.opened is not None:
        beside = {"of the quantile bits": measurements.opened.bits, "of the last bits": measurements.opened.odd}
        directions |= {name: values for name, values in beside.items() if values is not None}
    features: Features = {}
    for number, (name, values) in enumerate(directions.items()):
        if (unknown := np.isnan(values)).all():
            continue
        direction = generator(seed, Purpose.DISTINGUISHER, client=number + 1).standard_normal(values.shape)
        # Noise above the guarantee is no breach, so what stands for unknown noise is as large as the rest of it.
        scale = max(1.0, math.sqrt(float(np.mean(np.square(values[~unknown])))))
        scale = scale if scale > 1 + 4 / math.sqrt(np.count_nonzero(~unknown)) else 1.0
        whole = np.where(unknown, scale * direction, values)[:, :, None]
        features_found = _moment_features(whole, {"": np.array([True])}) | _tail_features(whole) | _lag_features(whole)
        features |= {f"{feature} {name}": column for feature, column in features_found.items()}
    return features


def _tensor_groups(owners: list[str]) -> dict[str, Flags]:
    """Divide the model's tensors into at most `_TENSOR_GROUPS` groups of neighbours, and return a mask for each group.

    A mask selects the sampled coordinates that lie in the group, and is keyed by the group's name. `owners` has the
    name of the tensor of each sampled coordinate.
    """
    tensors = list(dict.fromkeys(owners))
    split = np.array_split(np.arange(len(tensors)), min(_TENSOR_GROUPS, len(tensors)))
    groups = [[tensors[at] for at in indices] for indices in split]
    names = [f"tensor '{g[0]}'" if len(g) == 1 else f"tensors '{g[0]}' to '{g[-1]}'" for g in groups]
    return {name: np.isin(owners, group) for name, group in zip(names, groups, strict=True)}


def _moment_features(values: Floats, groups: dict[str, Flags]) -> Features:
    """Return standardised sums of the first four Hermite polynomials of the noise, over all values and over groups.

    Hermite polynomials of a normal number are uncorrelated, so each adds information that the others lack.
    """
    squares = np.square(values)
    polynomials = (
        values,
        (squares - 1) / math.sqrt(2),
        (squares - 3) * values / math.sqrt(6),
        (squares * squares - 6 * squares + 3) / math.sqrt(24),
    )
    belongs = np.stack(list(groups.values()), axis=1).astype(np.float64)
    sizes = belongs.sum(axis=0)
    rounds = values.shape[1]
    features: Features = {}
    for moment, polynomial in zip(_MOMENTS, polynomials, strict=True):
        table = polynomial @ belongs
        of_rounds = table.sum(axis=2)
        features[f"{moment}"] = of_rounds.sum(axis=1) / math.sqrt(rounds * sizes.sum())
        if len(sizes) > 1:
            of_tensors = table.sum(axis=1) / np.sqrt(rounds * sizes)
            features |= {f"{moment} of {name}": of_tensors[:, at] for at, name in enumerate(groups)}
        for name, group in _round_groups(rounds).items():
            count = len(range(rounds)[group])
            features[f"{moment} in {name}"] = of_rounds[:, group].sum(axis=1) / math.sqrt(count * sizes.sum())
            if len(sizes) > 1 and moment == "drift" and group.step == 2:
                means = table[:, group].sum(axis=1) / np.sqrt(count * sizes)
                features |= {f"drift of {tensor} in {name}": means[:, at] for at, tensor in enumerate(groups)}
    return features


def _round_groups(rounds: int) -> dict[str, slice]:
    """Return slices of rounds by name: odd rounds, even rounds, and a few stretches of consecutive rounds.

    The result is empty if there is a single round.
    """
    if rounds == 1:
        return {}
    edges = np.linspace(0, rounds, min(_ROUND_GROUPS, rounds) + 1).astype(int).tolist()
    slices = {f"rounds {a + 1} to {b}": slice(a, b, 1) for a, b in pairwise(edges)}
    return {"odd rounds": slice(0, rounds, 2), "even rounds": slice(1, rounds, 2)} | slices


def _tail_features(values: Floats) -> Features:
    """Return four features of each trial's values: three standardised shares, and the largest absolute value.

    The shares count the values beyond 2 standard deviations, beyond 3 standard deviations, and above 0. The largest
    absolute value is given as minus the log of its tail probability.
    """
    sizes = np.abs(values).reshape(len(values), -1)
    count = sizes.shape[1]
    features = {}
    for beyond in (2.0, 3.0):
        share = float(2 * ndtr(-beyond))
        spread = math.sqrt(count * share * (1 - share))
        features[f"share beyond {beyond:g}"] = (np.count_nonzero(sizes > beyond, axis=1) - count * share) / spread
    features["largest value"] = -(math.log(2 * count) + log_ndtr(-sizes.max(axis=1)))
    features["share of positive values"] = np.sign(values).sum(axis=(1, 2)) / math.sqrt(count)
    return features


def _lag_features(values: Floats) -> Features:
    """Return each trial's correlations of the noise between rounds that are one apart and two apart.

    For consecutive rounds, the correlation of the noise's signs is added.
    """
    features = {}
    for lag in (1, 2):
        if values.shape[1] > lag:
            earlier = values[:, :-lag]
            later = values[:, lag:]
            features[f"correlation of rounds {lag} apart"] = _correlation(earlier, later)
            if lag == 1:
                features["equal signs of consecutive rounds"] = _correlation(np.sign(earlier), np.sign(later))
    return features


def _correlation(first: Floats, second: Floats) -> Floats:
    """Return the correlation of two parts of each trial's noise, (trials,).

    It is the sum of their products, divided by the standard deviation of this sum for independent noise.
    """
    return np.asarray(np.einsum("wij,wij->w", first, second) / math.sqrt(first[0].size), dtype=np.float64)


def _repeat_features(values: Floats, neighbours: Flags, close: float) -> Features:
    """Return features that show repeated noise in a trial: the same noise in two rounds, two coordinates or two values.

    `neighbours` marks sampled coordinates whose right neighbour is sampled as well. Single values that differ by less
    than `close` count as equal.
    """
    features = _lag_features(values)
    if (first := np.flatnonzero(neighbours)).size:
        first_values = values[:, :, first]
        second_values = values[:, :, first + 1]
        features["correlation of neighbouring coordinates"] = _correlation(first_values, second_values)
        features["equal signs of neighbouring coordinates"] = _correlation(
            np.sign(first_values), np.sign(second_values)
        )
    features |= _magnitude_features(values, first)
    features |= _pair_features(values, "rounds") | _pair_features(values.swapaxes(1, 2), "coordinates")
    if close <= _LARGEST_CLOSE:
        ranked = np.sort(np.abs(values).reshape(len(values), -1), axis=1)
        features["equal values"] = np.sqrt(np.count_nonzero(np.diff(ranked, axis=1) < close, axis=1) + 0.375)
    return features


def _magnitude_features(values: Floats, first: Integers) -> Features:
    """Return the correlations of magnitudes between neighbouring coordinates and between consecutive rounds.

    Only some coordinates of the noise are kept. `first` has the positions, in `values`, of those whose next coordinate
    of the model is kept as well, one position later.
    """
    scores = _magnitude_scores(values)
    features = Features()
    pairs = {"neighbouring coordinates": (scores[:, :, first], scores[:, :, first + 1])} if first.size else {}
    if values.shape[1] > 1:
        pairs["consecutive rounds"] = scores[:, :-1], scores[:, 1:]
    for name, (first_values, second) in pairs.items():
        features[f"correlation of magnitudes of {name}"] = _correlation(first_values, second)
    return features


def _magnitude_scores(values: Floats) -> Floats:
    """Return Phi^-1(2 Phi(|v|) - 1) for each value v; the results are N(0, 1) if the values v are N(0, 1)."""
    # Of magnitude m, 1 - 2 ndtr(-m) is uniform: its smaller tail is 2 ndtr(-m) from the median on.
    tail = math.log(2) + log_ndtr(-np.abs(values))
    upper = -ndtri_exp(np.minimum(tail, -1e-300))
    return np.asarray(np.where(tail > math.log(0.5), ndtri_exp(np.log(-np.expm1(np.minimum(tail, -1e-300)))), upper))


def _pair_features(vectors: Floats, name: str) -> Features:
    """Return how alike the rows of a trial are: two features, each of shape (trials,), keyed by name.

    They are the largest absolute cosine and the mean squared cosine of pairs of rows. `vectors` has the shape (trials,
    rows, columns). `name` is a word for the rows, used in the names of the features.
    """
    rows = np.unique(np.linspace(0, vectors.shape[1] - 1, min(_MOST_ROWS, vectors.shape[1])).astype(int))
    if rows.size < 2 or vectors.shape[2] < 2:
        return {}
    used = vectors[:, rows]
    units = used / np.maximum(np.linalg.norm(used, axis=2, keepdims=True), 1e-300)
    cosines = units @ units.swapaxes(1, 2)
    cosines[:, np.arange(rows.size), np.arange(rows.size)] = 0.0
    sizes = np.abs(cosines).reshape(len(vectors), -1)
    return {f"likest {name}": sizes.max(axis=1), f"likeness of {name}": np.square(sizes).mean(axis=1)}


def _grid_steps(sigma: Floats, grain: float) -> dict[str, tuple[bool, float]]:
    """Return the grids on which noise may lie, that is, the steps of which its values may be multiples.

    The result has pairs (is_unscaled, step), keyed by feature name. If `is_unscaled`, multiples are sought in the noise
    itself, otherwise in the noise divided by `sigma`. Each step is the finest decimal or binary step that is clearly
    above the float32 rounding error, `grain`, in every trial.
    """
    limits = {"of the claimed noise": (grain, 0.25), "as such": (grain * float(sigma.max()), float(sigma.min()) / 4)}
    steps = {}
    for look, (finest, coarsest) in limits.items():
        for kind, declared in _GRIDS.items():
            if fine := [step for step in declared if 4 * finest <= step <= coarsest]:
                steps[f"{kind} grid {look}"] = look == "as such", fine[0]
    return steps


def _class_features(measurements: NoiseMeasurements, sampled: Flags) -> Features:
    """Return features of each trial from its noise: the logarithm of the noise's scale, and how the scale changes.

    The scale is computed for each class of coordinates, over all classes, and for each round. A class consists of
    evenly spaced coordinates.
    """
    names = stride_names(measurements.noise.parameters)
    sizes = stride_sizes(measurements.noise.parameters)
    squares = measurements.noise.strides[sampled][:, :, 0]
    rounds = measurements.rounds
    features = {
        f"scale of {name}": _log_scale(squares[:, :, at].sum(axis=1), rounds * int(size))
        for at, (name, size) in enumerate(zip(names, sizes, strict=True))
        if size
    }
    features["scale of all classes of coordinates"] = _log_scale(squares.sum(axis=(1, 2)), rounds * int(sizes.sum()))
    if rounds > 1:
        by_round = _log_scale(squares.sum(axis=2), int(sizes.sum()))
        half = rounds // 2
        first = by_round[:, :half].mean(axis=1)
        last = by_round[:, half:].mean(axis=1)
        features["scale of the quietest round"] = by_round.min(axis=1)
        features["scale of the loudest round"] = by_round.max(axis=1)
        features["spread of the rounds' scales"] = by_round.std(axis=1)
        features["fall of the scale over the rounds"] = first - last
        features["scale of odd less even rounds"] = by_round[:, ::2].mean(axis=1) - by_round[:, 1::2].mean(axis=1)
    return features


def _log_scale(squares: Floats, freedom: int) -> Floats:
    """Return the standardised log of the mean square of the noise: in its standard deviations under N(0, 1) noise.

    `squares` are sums over `freedom` noise values.
    """
    return np.asarray(np.log(np.maximum(squares / freedom, 1e-12)) * math.sqrt(freedom / 2))


def _low_bits_features(measurements: NoiseMeasurements, sampled: Flags) -> Features:
    """Return features that reveal noise of half precision, by the low bits that half precision lacks.

    Each feature is a sum of cosines of low bits, standardised. There is one for each kind of number (`LOW_BITS_KINDS`)
    of which every trial has enough known values.
    """
    sums = measurements.noise.low_bits[sampled][:, :, 0]
    counts = measurements.noise.low_bits_count[sampled][:, :, 0]
    offered = ~np.isnan(sums)
    total = np.where(offered, sums, 0.0).sum(axis=1)
    count = np.where(offered, counts, 0).sum(axis=1)
    return {
        f"low bits of the {kind}": total[:, at] / np.sqrt(count[:, at] / 2)
        for at, kind in enumerate(LOW_BITS_KINDS)
        if count[:, at].min() >= _FEWEST_LOW_BITS
    }
