"""Counter-based generators: keyed, disjoint, uncorrelated, and the same for ever."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fl_audit.randomness import Purpose, generator
from tests.builders.refusals import assert_refused

BASE: dict[str, int] = {"trial": 3, "round": 2, "client": 1}
FALSE_ALARM = 1e-6
"""Chance that a statistical test fails for sound streams; seeds are fixed, so a pass stays a pass."""


def test_equal_keys_give_equal_streams_whatever_is_drawn_between() -> None:
    first = generator(5, Purpose.RELEASE_NOISE, **BASE)
    first_numbers = first.standard_normal(10)
    generator(5, Purpose.RELEASE_NOISE, **(BASE | {"trial": 4})).standard_normal(1000)
    second = generator(5, Purpose.RELEASE_NOISE, **BASE)
    assert np.array_equal(second.standard_normal(10), first_numbers)
    assert np.array_equal(first.standard_normal(5), second.standard_normal(5))


def test_every_part_of_the_key_counts() -> None:
    keys = [
        (seed, purpose, trial, round, client)
        for seed, purpose in itertools.product((0, 1, 2**63, 2**64 - 1), Purpose)
        for trial, round, client in itertools.product((0, 1, 2, 2**32), (0, 1, 2), (0, 1, 2))
    ]
    words = {tuple(_generator(key).integers(2**63, size=2)) for key in keys}
    assert len(words) == len(keys)


def _generator(key: tuple[int, Purpose, int, int, int]) -> np.random.Generator:
    seed, purpose, trial, round, client = key
    return generator(seed, purpose, trial=trial, round=round, client=client)


def test_streams_of_one_key_are_disjoint() -> None:
    """The next coordinate starts 2**64 blocks of 4 words further on, beyond any draw."""
    for axis, step in (("client", 2**64), ("round", 2**128), ("trial", 2**192)):
        here = generator(9, Purpose.PARTITION, **BASE)
        here.bit_generator.advance(step)
        there = generator(9, Purpose.PARTITION, **(BASE | {axis: BASE[axis] + 1}))
        assert np.array_equal(here.integers(2**63, size=8), there.integers(2**63, size=8))


def test_draws_do_not_overlap() -> None:
    """A million 64-bit words of neighbouring streams: a repetition by chance has probability 3e-8."""
    words = [
        generator(0, purpose, trial=trial, round=round).bit_generator.random_raw(10_000)
        for purpose, trial, round in itertools.product((Purpose.SECRET_BIT, Purpose.RELEASE_NOISE), range(10), range(5))
    ]
    pooled = np.concatenate(words)
    assert len(np.unique(pooled)) == len(pooled) == 1_000_000


def _streams() -> NDArray[np.float64]:
    """Normal draws of streams that differ in one part of the key, or in two that a sum would confuse."""
    keys = [
        *((0, purpose, 0, 0, 0) for purpose in Purpose),
        *((0, Purpose.RELEASE_NOISE, trial, 0, 0) for trial in range(1, 6)),
        *((0, Purpose.RELEASE_NOISE, 0, round, 0) for round in range(1, 6)),
        *((0, Purpose.RELEASE_NOISE, 0, 0, client) for client in range(1, 6)),
        *((seed, Purpose.RELEASE_NOISE, 0, 0, 0) for seed in (1, 2, 3, 2**64 - 1)),
        (0, Purpose.RELEASE_NOISE, 1, 2, 0),
        (0, Purpose.RELEASE_NOISE, 2, 1, 0),
    ]
    return np.stack([_generator(key).standard_normal(20_000) for key in keys])


def test_streams_are_uncorrelated() -> None:
    """The largest |correlation| sqrt(n), over all pairs and lags -1, 0, 1, against the normal distribution
    (Bonferroni).
    """
    draws = _streams()
    count, length = draws.shape
    pairs = ~np.eye(count, dtype=bool)
    tested, largest = 0, 0.0
    for lag in (0, 1):
        correlations = np.corrcoef(draws[:, lag:], draws[:, : length - lag])[:count, count:]
        tested += int(pairs.sum())
        largest = max(largest, float(np.abs(correlations[pairs]).max()) * np.sqrt(length - lag))
    assert largest < stats.norm.isf(FALSE_ALARM / (2 * tested))


def test_streams_are_standard_normal() -> None:
    streams = _streams()
    for draws in streams:
        assert stats.kstest(draws, "norm").pvalue > FALSE_ALARM / len(streams)


def test_first_draws_across_trials_are_standard_normal() -> None:
    """The draws of an audit: one of each of many trials, and the bits of many trials."""
    first = np.array([generator(1, Purpose.RELEASE_NOISE, trial=trial).standard_normal() for trial in range(4000)])
    assert stats.kstest(first, "norm").pvalue > FALSE_ALARM
    assert abs(np.corrcoef(first[1:], first[:-1])[0, 1]) * np.sqrt(len(first)) < stats.norm.isf(FALSE_ALARM / 2)
    bits = np.array([generator(1, Purpose.SECRET_BIT, trial=trial).integers(2) for trial in range(4000)])
    assert stats.binomtest(int(bits.sum()), len(bits)).pvalue > FALSE_ALARM
    agreement = stats.pointbiserialr(bits.astype(bool), first)
    assert agreement.pvalue > FALSE_ALARM


GOLDEN: list[tuple[tuple[int, Purpose, int, int, int], int, float]] = [
    ((0, Purpose.SECRET_BIT, 0, 0, 0), 7501867102099269819, -0.7440191742693708),
    ((0, Purpose.INITIAL_WEIGHTS, 1, 0, 0), 5544819030184167865, -1.1664553926559234),
    ((42, Purpose.RELEASE_NOISE, 7, 3, 0), 5431594825201644390, 1.5254923737613355),
    ((42, Purpose.RELEASE_NOISE, 7, 3, 2), 1680653951657950984, 0.28932154243651415),
    ((2**64 - 1, Purpose.PARTITION, 0, 0, 0), 690655383910519823, 0.4815921731990702),
    ((42, Purpose.RECORD_SAMPLING, 7, 3, 2), 7450255358779045545, -0.5660612774623524),
]


@pytest.mark.parametrize(("key", "word", "normal"), GOLDEN)
def test_golden_draws(key: tuple[int, Purpose, int, int, int], word: int, normal: float) -> None:
    """Stored runs could not be resumed or replayed if these changed: change them never."""
    assert int(_generator(key).integers(2**63)) == word
    assert float(_generator(key).standard_normal()) == pytest.approx(normal, rel=1e-14)


def test_purposes_keep_their_numbers() -> None:
    assert {purpose.name: int(purpose) for purpose in Purpose} == {
        "SECRET_BIT": 1,
        "INITIAL_WEIGHTS": 2,
        "RELEASE_NOISE": 3,
        "RECORD_SELECTION": 4,
        "NEIGHBOUR_CHOICE": 5,
        "POPULATION_SAMPLE": 6,
        "PARTITION": 7,
        "RECORD_SAMPLING": 8,
        "PUBLIC_DIRECTIONS": 9,
        "LOCAL_ORDER": 10,
        "STAND_IN_SHARD": 11,
        "CLIENT_SAMPLING": 12,
        "COHORT_ORDER": 13,
        "NOISE_SHARE": 14,
        "CLIENT_SEED": 15,
        "QUANTILE_NOISE": 16,
        "CLIENT_TRAINING": 17,
        "LOCAL_RANDOMIZER": 18,
        "SYNTHETIC_RECORDS": 19,
        "TARGET_CHOICE": 20,
        "BLACK_BOX": 21,
        "CRAFTED_START": 23,
        "PRETRAINING": 24,
        "CANARY_DIRECTION": 25,
        "CANARY_COIN": 26,
        "DISTINGUISHER": 27,
        "DITHER": 28,
        "DRAWING": 29,
        "FIT_TEST": 30,
        "BOUND_CHOICE": 31,
        "EXACT_CHECKS": 32,
        "AGGREGATION": 33,
    }


@pytest.mark.parametrize("seed", [-1, 2**64, -(2**70)])
def test_refuses_a_seed_out_of_range(seed: int) -> None:
    assert_refused(f"seed is {seed}: .*from 0", generator, seed, Purpose.SECRET_BIT)


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_accepts_the_ends_of_the_range(seed: int) -> None:
    assert 0 <= generator(seed, Purpose.SECRET_BIT).random() < 1
