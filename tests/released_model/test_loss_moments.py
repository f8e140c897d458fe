"""Epsilon* from summaries of parts: that of the losses themselves, however they are divided."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_audit.released_model.loss_moments import (
    LossRange,
    ScoreMoments,
    epsilon_star_of_moments,
    joint_moments,
    joint_range,
    moments_of,
    range_of,
    where_trained,
)
from fl_audit.released_model.parametric_star import parametric_epsilon_star
from tests.few_examples import examples

DELTA = 1e-3


def from_parts(shards: list[np.ndarray], population: np.ndarray) -> np.ndarray:
    ends = joint_range([range_of(shard) for shard in shards] + [range_of(population)])
    members = joint_moments([moments_of(shard, ends.low, ends.high) for shard in shards])
    return epsilon_star_of_moments(members, moments_of(population, ends.low, ends.high), DELTA)


@settings(max_examples=examples(60))
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=8).filter(lambda sizes: sum(sizes) >= 2),
    scale=st.sampled_from([1e-6, 1.0, 1e4]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_division_gives_epsilon_star_of_the_pooled_losses(sizes: list[int], scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    members = rng.gamma(1.0, scale, (3, sum(sizes)))
    population = rng.gamma(1.5, scale, (3, 40))
    shards = np.split(members, np.cumsum(sizes)[:-1], axis=1)
    computed_star = from_parts(shards, population)
    np.testing.assert_allclose(computed_star, parametric_epsilon_star(members, population, DELTA), rtol=1e-9, atol=1e-9)


def test_a_large_common_loss_costs_no_digits() -> None:
    """Sums of squares would lose all digits of scores that differ in the tenth decimal."""
    rng = np.random.default_rng(5)
    members = 3 + 1e-10 * rng.random((1, 4000))
    population = 3 + 1e-10 * rng.random((1, 500))
    population[0, 0] = 90.0
    ends = range_of(np.concatenate([members, population], axis=1))
    shard_moments = [moments_of(shard, ends.low, ends.high) for shard in np.array_split(members, 7, axis=1)]
    combined_moments = joint_moments(shard_moments)
    whole = moments_of(members, ends.low, ends.high)
    np.testing.assert_allclose(combined_moments.deviation, whole.deviation, rtol=1e-6)
    assert 0 < whole.deviation[0] < 1e-11


def test_equal_losses_have_no_spread_in_any_division() -> None:
    members = np.full((2, 30), 0.7)
    population = np.full((2, 9), 0.7)
    assert from_parts(np.array_split(members, 4, axis=1), population).tolist() == [0.0, 0.0]
    population[1, 0] = 2.0
    assert from_parts(np.array_split(members, 4, axis=1), population).tolist() == [0.0, np.inf]


def test_records_held_in_some_trials_only_count_there() -> None:
    rng = np.random.default_rng(0)
    base = rng.gamma(1, 1, (4, 6))
    extra = rng.gamma(1, 1, (4, 1)) + 9
    population = rng.gamma(1, 1, (4, 50))
    presence = np.array([True, False, True, False])
    ends = joint_range([range_of(base), where_trained(range_of(extra), presence), range_of(population)])
    moments = [moments_of(base, ends.low, ends.high), where_trained(moments_of(extra, ends.low, ends.high), presence)]
    stars = epsilon_star_of_moments(joint_moments(moments), moments_of(population, ends.low, ends.high), DELTA)
    for trial, is_held in enumerate(presence):
        trial_losses = np.concatenate([base[trial], extra[trial]]) if is_held else base[trial]
        assert stars[trial] == pytest.approx(
            float(parametric_epsilon_star(trial_losses, population[trial], DELTA)), abs=1e-9
        )
        assert ends.high[trial] == max(trial_losses.max(), population[trial].max())


def test_fewer_than_two_records_have_no_epsilon_star() -> None:
    population = moments_of(np.random.default_rng(0).random((3, 10)), 0.0, 1.0)
    single_moments = moments_of(np.full((3, 1), 0.5), 0.0, 1.0)
    none = moments_of(np.empty((3, 0)), 0.0, 1.0)
    combined_moments = joint_moments(
        [none, single_moments, where_trained(single_moments, np.array([True, False, False])), none]
    )
    star = epsilon_star_of_moments(combined_moments, population, DELTA)
    assert np.isnan(star).tolist() == [False, True, True]
    two = moments_of(np.array([0.2, 0.4]), 0.0, 1.0)
    assert np.isfinite(
        [epsilon_star_of_moments(two, population, DELTA), epsilon_star_of_moments(population, two, DELTA)]
    ).all()
    none_range = range_of(np.empty((3, 0)))
    assert none_range.count.tolist() == [0, 0, 0]
    of_one = joint_range([none_range, range_of(np.full((3, 1), 0.5))])
    assert (of_one.low.tolist(), of_one.high.tolist()) == ([0.5] * 3, [0.5] * 3)


def test_losses_beyond_a_public_range_are_clipped_to_it() -> None:
    losses = np.array([[0.1, 0.4, 7.0]])
    clipped = moments_of(losses, 0.2, 3.0)
    whole = moments_of(np.array([[0.2, 0.4, 3.0]]), 0.2, 3.0)
    np.testing.assert_array_equal(clipped.mean, whole.mean)
    np.testing.assert_array_equal(clipped.squares, whole.squares)


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(2.5, 0.1, 0.2), (-1, 0.1, 0.2), (np.nan, 0.1, 0.2), (2, 0.3, 0.2), (2, -0.1, 0.2), (2, 0.1, np.inf)],
)
def test_what_cannot_be_a_range_is_known(count: float, low: float, high: float) -> None:
    good = (2.0, 0.1, 0.2)
    bad = (count, low, high)
    assert LossRange(*(np.array([value, 0.0]) for value in good)).is_sound
    assert not LossRange(*(np.array(pair) for pair in zip(good, bad, strict=True))).is_sound


@pytest.mark.parametrize(
    ("count", "mean", "squares"), [(2.5, 0, 1), (-1, 0, 1), (np.inf, 0, 1), (2, np.nan, 1), (2, 0, -1), (2, 0, np.inf)]
)
def test_what_cannot_be_moments_is_known(count: float, mean: float, squares: float) -> None:
    good = (2.0, -0.1, 0.2)
    bad = (count, mean, squares)
    assert ScoreMoments(*(np.array([value, 0.0]) for value in good)).is_sound
    assert not ScoreMoments(*(np.array(pair) for pair in zip(good, bad, strict=True))).is_sound
