from dataclasses import replace

import numpy as np
import pytest

from fl_audit.app_audits.claim_audit.claim import EpsilonDeltaLimit
from fl_audit.app_audits.claim_audit.distinguishers import find_distinguishers, learned_rule
from fl_audit.app_audits.claim_audit.features import FINEST, feature_groups
from fl_audit.array_types import Floats
from fl_audit.statistics.lower_bound_methods import BoundMethod
from tests.app_audits.claim_audit.made_up_trials import gaussian, trials_of

_BITS = np.arange(80) % 2 == 0


def test_missing_values_become_columns_of_their_own() -> None:
    steps = np.ones((4, 1, 3))
    steps[1] = np.nan
    for name, values in feature_groups(trials_of(steps, {"loss": np.array([1.0, np.nan, 1.0, 1.0])})).items():
        assert np.isfinite(values).all(), name
    assert feature_groups(trials_of(steps, {"loss": np.array([1.0, np.nan, 1.0, 1.0])}))["loss"][:, 1].tolist() == [
        0,
        1,
        0,
        0,
    ]


@pytest.mark.parametrize(("value", "bit_position"), [(0.75, 2), (3.0, 0), (12.0, -2), (2.0**-30 + 1, 30), (-0.625, 3)])
def test_the_finest_bit_is_the_last_binary_place(value: float, bit_position: int) -> None:
    steps = np.zeros((2, 1, 3))
    steps[:, 0, 0] = value
    assert feature_groups(trials_of(steps))[FINEST][:, 0].tolist() == [bit_position, bit_position]


def test_single_precision_noise_shows_in_its_finest_bits_and_noise_on_a_grid_does_not() -> None:
    random = np.random.default_rng(1)
    bits = random.random(2000) < 0.5
    noise = random.standard_normal((2000, 1, 3))
    added = np.where(bits, 1.0, 0.0)[:, None, None] * np.array([1.0, 0.0, 0.0])
    single = (added.astype(np.float32) + noise.astype(np.float32)).astype(np.float64)
    values = feature_groups(trials_of(single))[FINEST][:, 0]
    # Where 1 was added, nothing is finer than the last bit of a number between 1/2 and 1, but for noise beyond that.
    assert np.mean(values[bits] > 25) < 0.01
    assert np.mean(values[~bits] > 25) > 0.08
    on_grid = np.rint((added + noise) * 4096) / 4096
    assert feature_groups(trials_of(on_grid))[FINEST][:, 0].max() <= 12


@pytest.mark.long
@pytest.mark.parametrize(("parameters", "expected_share"), [(9, 0.740), (100, 0.908)])
def test_how_much_low_bits_tell_where_everybody_else_cancels(parameters: int, expected_share: float) -> None:
    """Of a mean of 20 updates in float32 and its noise, as in Flower's wrappers: the claim allows 69.1 %.

    The shares are those of 20,000 simulated trials; four standard errors of 4,000 trials are 0.028.
    """
    random = np.random.default_rng(1)
    direction = np.linalg.qr(random.standard_normal((parameters, 1)))[0][:, 0]
    noise = (random.standard_normal((4000, 1, parameters)) / 20).astype(np.float32)
    bits = np.arange(4000) % 2 == 0
    mean = np.where(bits[:, None, None], 0.0, direction / 20).astype(np.float32)
    steps = (mean + noise).astype(np.float64)

    def right(released: Floats) -> float:
        trials = replace(trials_of(released[:, :, :3]), steps=released, released=released)
        trials = replace(trials, direction=np.broadcast_to(direction, released.shape))
        finest = feature_groups(trials)[FINEST][:, 0]
        thresholds = np.unique(finest)[:, None]
        shares = np.mean((finest > thresholds) == bits, axis=1)
        return float(max(shares.max(), 1 - shares.min()))

    assert right(steps) == pytest.approx(expected_share, abs=0.028)
    grid = 2.0**-15
    assert right(np.rint(steps / grid) * grid) == pytest.approx(0.5, abs=0.04)


def test_the_rule_is_fishers() -> None:
    random = np.random.default_rng(2)
    present = random.random(4000) < 0.5
    covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
    features = random.multivariate_normal([0, 0], covariance, 4000) + present[:, None] * np.array([1.0, 0.0])
    scores = learned_rule(features, present)(np.eye(2)) - learned_rule(features, present)(np.zeros((1, 2)))
    expected = np.linalg.solve(covariance, [1.0, 0.0])
    assert scores[1] / scores[0] == pytest.approx(expected[1] / expected[0], abs=0.05)


def test_a_number_that_leaks_is_the_best_distinguisher() -> None:
    random = np.random.default_rng(3)
    steps = random.standard_normal((80, 1, 3))
    trials = trials_of(steps, {"loss": _BITS + 0.01 * random.standard_normal(80), "length": np.ones(80)})
    distinguishers = find_distinguishers("kind", trials, _BITS, (EpsilonDeltaLimit(0.0, 0.3),), 1000)
    assert distinguishers[0].group == "loss"
    assert (
        distinguishers[0].rule(np.array([[1.0, 0.0]]))
        > distinguishers[0].threshold
        > distinguishers[0].rule(np.array([[0.0, 0.0]]))
    )


def test_noise_that_tells_nothing_has_no_distinguisher_above_its_claim() -> None:
    trials = gaussian(0.0)(_BITS, np.random.default_rng(4))
    assert all(
        distinguisher.margin < 0.5
        for distinguisher in find_distinguishers("kind", trials, _BITS, (EpsilonDeltaLimit(0.5, 0.1),), 1000)
    )


@pytest.mark.parametrize(("first", "again", "sign"), [(0, 4, 1.0), (2, 4, 1.0), (1, 3, -1.0)])
def test_noise_that_repeats_in_any_two_rounds_of_a_large_model_is_found(first: int, again: int, sign: float) -> None:
    """The target adds to the two rounds in opposite ways, which no noise hides where it repeats, or is negated."""
    random = np.random.default_rng(5)
    noise = random.standard_normal((80, 5, 600))
    noise[:, again] = sign * noise[:, first]
    direction = random.choice([-1.0, 1.0], size=(5, 600)) / np.sqrt(600)
    steps = noise + np.where(_BITS, 0.5, -0.5)[:, None, None] * direction
    trials = replace(trials_of(steps[:, :, :3]), steps=steps, released=steps)
    trials = replace(trials, direction=np.broadcast_to(direction, steps.shape))
    distinguisher = find_distinguishers("kind", trials, _BITS, (EpsilonDeltaLimit(0.0, 0.4),), 240)[0]
    assert ((distinguisher.rule(feature_groups(trials)[distinguisher.group]) > distinguisher.threshold) == _BITS).all()


def test_every_later_round_of_a_large_model_shows_values() -> None:
    steps = np.zeros((2, 6, 300))
    for late in range(1, 6):
        moved = steps.copy()
        moved[:, late] = 1.0
        groups = feature_groups(replace(trials_of(moved[:, :, :3]), steps=moved, direction=steps))
        assert np.any(next(values for name, values in groups.items() if "later rounds" in name))


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_the_one_that_refutes_with_as_many_trials_as_there_will_be(seed: int) -> None:
    """Of 120 scores of each truth an order statistic shows nothing at delta .38, though a few look as if it would."""
    bits = np.arange(160) % 2 == 0
    moved = gaussian(2.0)(bits, np.random.default_rng(seed))
    assert (
        find_distinguishers("kind", moved, bits, (EpsilonDeltaLimit(0.0, 0.383),), 240)[0].method
        is BoundMethod.CLOPPER_PEARSON
    )


def test_a_value_without_noise_is_found_where_its_differences_cancel_over_the_rounds() -> None:
    """Of a hundred values in eight rounds, one has no noise, and the target moves it up and down in turn."""
    random = np.random.default_rng(3)
    bits = np.arange(200) % 2 == 0
    steps = random.standard_normal((200, 8, 100))
    steps[:, :, 41] = np.where(bits, 1.0, -1.0)[:, None] * np.where(np.arange(8) % 2 == 0, 0.01, -0.01) + 0.3
    trials = trials_of(steps)
    best = find_distinguishers("removed", trials, bits, (EpsilonDeltaLimit(1.0, 1e-5),), 400)[0]
    assert best.group == "all released values, each by its own spread"
    scores = best.rule(feature_groups(trials)[best.group])
    assert scores[bits].min() > scores[~bits].max()
    summed = learned_rule(feature_groups(trials)["all released values"], bits)(
        feature_groups(trials)["all released values"]
    )
    assert summed[bits].min() < summed[~bits].max()


def test_a_value_that_varies_in_its_last_bits_alone_decides() -> None:
    random = np.random.default_rng(4)
    features = random.standard_normal((80, 12))
    features[:, 5] = np.where(_BITS, 1.0, 0.9) + 1e-15 * random.standard_normal(80)
    scores = learned_rule(features, _BITS)(features)
    assert scores[_BITS].min() > scores[~_BITS].max()
    assert np.ptp(scores[_BITS]) < 1e-3 * (scores[_BITS].min() - scores[~_BITS].max())


def test_many_values_are_looked_at_in_even_steps() -> None:
    groups = feature_groups(trials_of(np.zeros((3, 2, 30_000))))
    assert groups["all released values, each by its own spread"].shape == (3, 2 * 20_000)
    assert "all released values, each by its own spread" not in feature_groups(trials_of(np.zeros((3, 4, 100))))
