"""Measurements of the noise by the insider: against plain linear algebra, and against the distributions that it states.

Statistical tests have fixed seeds; each would raise a false alarm once in 10,000 seeds.
"""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from fl_audit.learning.stacked_layers import ParameterLayout
from fl_audit.mechanisms.likelihood_ratio import ReleaseUnderHypotheses
from fl_audit.mechanisms.noises.central import CentralGaussian
from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.verdict.noise_measurement import SAMPLE, NoiseMeasurer, sampled_places
from fl_audit.verdict.noise_scale import noise_round
from fl_audit.verdict.noise_statistics import LOW_BITS_KINDS, STRIDES, NoiseStatistics, join, stride_sizes
from fl_audit.verdict.run_measurements import NoiseMeasurements
from tests.builders.refusals import assert_refused

LAYOUT = ParameterLayout(("weight", "bias", "scale"), ((8, 5), (5,), (1,)))
SIZE = LAYOUT.size
ALARM = 1e-4


def directions(count: int = 6) -> torch.Tensor:
    return torch.from_numpy(np.linalg.qr(np.random.default_rng(3).standard_normal((SIZE, count)))[0]).float()


def make_release(
    trials: int, sigma: float, seed: int, present: float = 2.0, bit: bool = True
) -> ReleaseUnderHypotheses:
    """Return honest releases of so many trials, each with sums of its own."""
    draw = np.random.default_rng(seed)
    shared, own, other = (draw.standard_normal((trials, SIZE)) * size for size in (9.0, present, 1.0))
    noise = sigma * draw.standard_normal((trials, SIZE))
    parts = (shared + (own if bit else other) + noise, shared, own, other)
    return ReleaseUnderHypotheses(slice(0, trials), *(torch.from_numpy(part) for part in parts))


def measure(seen: ReleaseUnderHypotheses, sigma: float) -> NoiseStatistics:
    trials = len(seen.release)
    distance = seen.difference.norm(dim=1)
    return NoiseMeasurer(LAYOUT, directions(), CentralGaussian(1.0)).measure(
        seen, torch.full((trials,), sigma, dtype=torch.float64), distance
    )


def uniform(values: NDArray[np.float64]) -> bool:
    return bool(stats.kstest(values.reshape(-1), "uniform").pvalue > ALARM)


def test_sums_are_those_of_the_projected_residual() -> None:
    seen = make_release(7, 3.0, 1)
    found = measure(seen, 3.0)
    unit = seen.difference / seen.difference.norm(dim=1, keepdim=True)
    rest = seen.residual - (seen.residual * unit).sum(dim=1, keepdim=True) * unit
    np.testing.assert_allclose(found.total, rest.square().sum(dim=1).numpy(), rtol=1e-12)
    assert (found.total_freedom == SIZE - 1).all()
    # A tensor's part of w has covariance I - uu' there: its squared length in the inverse metric is chi-square.
    for index, columns in enumerate(LAYOUT.slices().values()):
        for trial in range(7):
            own, part = unit[trial, columns].numpy(), rest[trial, columns].numpy()
            expected = part @ np.linalg.solve(np.eye(len(own)) - np.outer(own, own), part)
            assert found.squares[trial, index] == pytest.approx(expected, rel=1e-9)


def test_projections_are_whitened_against_the_record() -> None:
    seen = make_release(4, 3.0, 2)
    found = measure(seen, 3.0).projections
    along = directions().double()
    unit = seen.difference / seen.difference.norm(dim=1, keepdim=True)
    for trial in range(4):
        towards = along.T @ unit[trial]
        rest = seen.residual[trial] - (seen.residual[trial] @ unit[trial]) * unit[trial]
        covariance = np.eye(6) - np.outer(towards, towards)
        values, vectors = np.linalg.eigh(covariance)
        whitened = vectors @ np.diag(values**-0.5) @ vectors.T @ (along.T @ rest).numpy()
        np.testing.assert_allclose(found[trial], whitened, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bit", [True, False])
@pytest.mark.parametrize("present", [2.0, 300.0])
def test_honest_releases_follow_the_stated_distributions(bit: bool, present: float) -> None:
    """The distribution is right for either bit, and however far the record stands out from the noise."""
    sigma = 4.0
    found = measure(make_release(4000, sigma, 11, present, bit), sigma)
    assert uniform(stats.chi2.cdf(found.total / sigma**2, found.total_freedom))
    for index in range(3):
        counted = found.freedom[:, index] > 0
        distribution = stats.chi2.cdf(found.squares[counted, index] / sigma**2, found.freedom[counted, index])
        assert uniform(distribution)
    assert uniform(stats.norm.cdf(found.projections / sigma))
    assert uniform(stats.norm.cdf(found.gradient / sigma))
    products = np.corrcoef(found.projections.T)[np.triu_indices(6, 1)]
    assert np.abs(products).max() < 4.8 / np.sqrt(4000)


def test_neighbours_that_do_not_differ_leave_all_of_the_noise() -> None:
    seen = make_release(3000, 2.0, 5)
    same = replace(seen, absent=seen.present)
    found = measure(same, 2.0)
    assert (found.total_freedom == SIZE).all()
    assert (found.freedom == [40, 5, 1]).all()
    assert uniform(stats.chi2.cdf(found.total / 4, SIZE))
    assert uniform(stats.norm.cdf(found.projections / 2))


def test_a_record_that_moves_one_scalar_alone_leaves_that_scalar_out() -> None:
    seen = make_release(5, 2.0, 6)
    absent = seen.present.clone()
    absent[:, -1] += 1.0
    found = measure(replace(seen, absent=absent), 2.0)
    assert (found.freedom == [40, 5, 0]).all()
    np.testing.assert_allclose(found.squares[:, 2], 0.0)


def test_a_sum_of_nothing_has_no_direction() -> None:
    seen = make_release(3, 2.0, 7)
    shared = torch.zeros_like(seen.shared)
    found = measure(replace(seen, shared=shared, release=seen.release - seen.shared), 2.0)
    assert np.isnan(found.gradient).all()


def low_bits_z(found: NoiseStatistics, kind: str, hypothesis: int) -> float:
    index = LOW_BITS_KINDS.index(kind)
    total, count = found.low_bits[:, hypothesis, index].sum(), found.low_bits_count[:, hypothesis, index].sum()
    assert count > 1000
    return float(total / np.sqrt(count / 2))


@pytest.mark.parametrize("kind", LOW_BITS_KINDS)
def test_honest_low_bits_are_uniform(kind: str) -> None:
    found = measure(make_release(600, 4.0, 21), 4.0)
    assert abs(low_bits_z(found, kind, 0)) < 4
    assert abs(low_bits_z(found, kind, 1)) < 4


@pytest.mark.parametrize("kind", LOW_BITS_KINDS)
def test_half_precision_shows_in_the_low_bits(kind: str) -> None:
    sigma, draw = 3.7, np.random.default_rng(8)
    seen = make_release(300, sigma, 22)
    sums = (seen.shared + seen.present).numpy().astype(np.float32)
    normal = draw.standard_normal(sums.shape, dtype=np.float32)
    match kind:
        case "noise":
            release = sums + (sigma * normal).astype(np.float16).astype(np.float32)
        case "standard-noise":
            release = sums + np.float32(sigma) * normal.astype(np.float16).astype(np.float32)
        case _:
            release = (sums + np.float32(sigma) * normal).astype(np.float16).astype(np.float32)
    found = measure(replace(seen, release=torch.from_numpy(release).double()), sigma)
    assert low_bits_z(found, kind, 0) > 50


def test_residuals_survive_the_way_to_the_server_and_to_disk() -> None:
    rounds = [measure(make_release(3, 2.0, seed), 2.0) for seed in (31, 32)]
    run = join(rounds, axis=1)
    assert run.projections.shape == (3, 2, 6)
    again = NoiseStatistics.of_array(run.as_array(), run.layout)
    table = pd.DataFrame({"trial": np.repeat([4, 5, 6], 2), "round": np.tile([1, 2], 3)})
    read = NoiseStatistics.of_table(table.assign(**{name: value.reshape(-1) for name, value in run.columns().items()}))
    for other in (again, read):
        assert other.tensors == LAYOUT.names
        for name, value in vars(run).items():
            if name not in ("tensors", "places", "parameters"):
                exact = other is again or name not in ("projections", "strides", "sample")
                np.testing.assert_allclose(getattr(other, name), value, rtol=0 if exact else 1e-6)
                assert getattr(other, name).dtype == value.dtype
    assert_refused("lacks total", NoiseStatistics.of_table, table)


def test_a_recovered_release_offers_no_low_bits() -> None:
    whole = measure(make_release(3, 2.0, 41), 2.0)
    found = whole.of_recovered(np.array([False, True, False]))
    assert np.isnan(found.low_bits).all()
    assert (found.low_bits_count == 0).all()
    assert np.isnan(found.sigma).tolist() == [False, True, False]
    assert np.array_equal(found.sigma[[0, 2]], whole.sigma[[0, 2]])
    assert np.isnan(found.projections).any(axis=1).tolist() == [False, True, False]
    assert (found.freedom[1] == 0).all()
    assert np.isnan(found.sample).any(axis=(1, 2)).tolist() == [False, True, False]
    assert np.isinf(found.grain).all()


@pytest.mark.parametrize("bit", [True, False])
def test_the_true_side_of_the_sample_is_the_noise_itself(bit: bool) -> None:
    sigma = 4.0
    seen = make_release(1000, sigma, 12, 300.0, bit)
    found = measure(seen, sigma)
    true = seen.present if bit else seen.absent
    noise = ((seen.release - seen.shared - true) / sigma).numpy()
    numbers = [number for number, _ in found.places]
    np.testing.assert_allclose(found.sample[:, 0 if bit else 1], noise[:, numbers], atol=1e-12)
    for first in range(STRIDES):
        classes = np.sum(noise[:, first::STRIDES] ** 2, axis=1)
        np.testing.assert_allclose(found.strides[:, 0 if bit else 1, first], classes, rtol=1e-9)
    assert stride_sizes(SIZE).sum() == SIZE
    assert uniform(stats.norm.cdf(found.sample[:, 0 if bit else 1]))


@pytest.mark.parametrize("bit", [True, False])
def test_the_noise_along_the_difference_and_along_a_sides_own_contribution_is_the_projection_itself(bit: bool) -> None:
    """Also where the unit took no part, and 0 where there is nothing to project on."""
    sigma, side = 4.0, 0 if bit else 1
    seen, width = make_release(1000, sigma, 12, 300.0, bit), torch.full((1000,), 4.0, dtype=torch.float64)
    meter = NoiseMeasurer(LAYOUT, directions(), CentralGaussian(1.0), with_neither=True)
    found = meter.measure(seen, width, seen.difference.norm(dim=1))
    unit = seen.difference / seen.difference.norm(dim=1, keepdim=True)
    rest = seen.release - seen.shared
    for number, true in enumerate((seen.present, seen.absent, torch.zeros_like(rest))):
        noise, length = (rest - true) / sigma, true.norm(dim=1)
        np.testing.assert_allclose(found.signal[:, number, 0], (noise * unit).sum(dim=1), atol=1e-9)
        np.testing.assert_allclose(found.signal[:, number, 2], length / sigma, atol=1e-12)
        own = (noise * true).sum(dim=1) / length if number < 2 else torch.full((1000,), math.nan)
        np.testing.assert_allclose(found.signal[:, number, 1], own, atol=1e-9)
    assert uniform(stats.norm.cdf(found.signal[:, side, 0]))
    assert uniform(stats.norm.cdf(found.signal[:, side, 1]))


def test_without_a_difference_or_a_contribution_there_is_no_direction() -> None:
    draw = np.random.default_rng(6)
    release, shared, present = (torch.from_numpy(draw.standard_normal((2, SIZE))) for _ in range(3))
    absent = torch.stack([present[0], torch.zeros(SIZE, dtype=torch.float64)])
    seen = ReleaseUnderHypotheses(slice(0, 2), release, shared, present, absent)
    found = measure(seen, 1.0).signal
    assert np.isnan(found[:, :, 0]).tolist() == [[True, True], [False, False]]
    assert np.isnan(found[:, :, 1]).tolist() == [[False, False], [False, True]]
    assert found[1, 1, 2] == 0


def test_a_unit_that_took_no_part_is_a_third_side() -> None:
    seen = make_release(3, 2.0, 13)
    meter = NoiseMeasurer(LAYOUT, directions(), CentralGaussian(1.0), with_neither=True)
    found = meter.measure(seen, torch.full((3,), 2.0, dtype=torch.float64), seen.difference.norm(dim=1))
    numbers = [number for number, _ in found.places]
    np.testing.assert_allclose(found.sample[:, 2], ((seen.release - seen.shared) / 2.0).numpy()[:, numbers])


def test_every_tensor_stands_in_the_sample_and_every_shift_of_a_small_model() -> None:
    names = tuple(f"layer{number}" for number in range(40))
    many = ParameterLayout(names, ((300, 20),) * 39 + ((1,),))
    places = sampled_places(many)
    assert {tensor for _, tensor in places} == set(names)
    assert len(places) == SAMPLE
    numbers = np.array([number for number, _ in sampled_places(ParameterLayout(("w", "b"), ((10, 64), (10,))))])
    shifts = set(np.abs(numbers[:, None] - numbers).ravel().tolist())
    assert shifts >= set(range(650 - 16))
    mirrored = set(numbers.tolist()) & set((649 - numbers).tolist())
    assert len(mirrored) >= 16


def test_a_release_without_noise_leaves_no_less_than_nothing() -> None:
    seen = make_release(200, 0.0, 42)
    found = measure(seen, 1.0)
    assert (found.total >= 0).all()
    assert (found.total < 1e-10).all()


def test_one_parameter_leaves_nothing_to_measure() -> None:
    draw = np.random.default_rng(5)
    parts = [torch.from_numpy(draw.standard_normal((4, 1))) for _ in range(4)]
    seen = ReleaseUnderHypotheses(slice(0, 4), *parts)
    meter = NoiseMeasurer(ParameterLayout(("one",), ((1,),)), torch.empty(1, 0), CentralGaussian(1.0))
    found = meter.measure(seen, torch.ones(4, dtype=torch.float64), seen.difference.norm(dim=1))
    assert (found.total_freedom == 0).all()
    assert (found.freedom == 0).all()
    assert found.projections.shape == (4, 0)
    assert np.isnan(found.sigma).all()
    assert np.isnan(found.gradient).all()


def test_a_small_tensor_without_noise_is_found_although_a_share_of_other_noise_remains_in_its_sum() -> None:
    members, sigma = np.arange(20) % 2 == 0, 3.0
    rounds = []
    for seed in range(3):
        seen = make_release(20, sigma, 40 + seed)
        sides = torch.from_numpy(members)[:, None]
        release = torch.where(sides, seen.release, seen.release - seen.present + seen.absent)
        if seed == 1:
            bias = LAYOUT.slices()["bias"]
            true = seen.shared + torch.where(sides, seen.present, seen.absent)
            release[7, bias] = true[7, bias]
        rounds.append(measure(replace(seen, release=release), sigma))
    found = join(rounds, axis=1).of_true_hypothesis(np.where(members, 0, 1)[:, None].repeat(3, axis=1))
    assert found.squares[7, 1, 1] / sigma**2 > 0.01  # of other tensors' noise
    width = np.full((20, 3), sigma)
    result = noise_round(
        NoiseMeasurements(members, 0 * width, width / 2, width, 2.0, found, noise_kind=STANDARD_GAUSSIAN)
    )
    assert result.violated
    assert re.search(r"trial 7 round 2 .*.bias.$", result.place)
