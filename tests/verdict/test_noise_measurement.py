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
from fl_audit.verdict.noise_measurement import SAMPLE, NoiseMeasurer, _ends, sampled_places
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
    shared, present_sum, absent_sum = (draw.standard_normal((trials, SIZE)) * size for size in (9.0, present, 1.0))
    noise = sigma * draw.standard_normal((trials, SIZE))
    tensors = (shared + (present_sum if bit else absent_sum) + noise, shared, present_sum, absent_sum)
    return ReleaseUnderHypotheses(slice(0, trials), *(torch.from_numpy(array) for array in tensors))


def measure(hypotheses: ReleaseUnderHypotheses, sigma: float) -> NoiseStatistics:
    trials = len(hypotheses.release)
    distance = hypotheses.difference.norm(dim=1)
    return NoiseMeasurer(LAYOUT, directions(), CentralGaussian(1.0)).measure(
        hypotheses, torch.full((trials,), sigma, dtype=torch.float64), distance
    )


def uniform(values: NDArray[np.float64]) -> bool:
    return bool(stats.kstest(values.reshape(-1), "uniform").pvalue > ALARM)


def test_sums_are_those_of_the_projected_residual() -> None:
    hypotheses = make_release(7, 3.0, 1)
    statistics = measure(hypotheses, 3.0)
    unit = hypotheses.difference / hypotheses.difference.norm(dim=1, keepdim=True)
    projected_residual = hypotheses.residual - (hypotheses.residual * unit).sum(dim=1, keepdim=True) * unit
    np.testing.assert_allclose(statistics.total, projected_residual.square().sum(dim=1).numpy(), rtol=1e-12)
    assert (statistics.total_freedom == SIZE - 1).all()
    # A tensor's part of w has covariance I - uu' there: its squared length in the inverse metric is chi-square.
    for index, columns in enumerate(LAYOUT.slices().values()):
        for trial in range(7):
            tensor_unit = unit[trial, columns].numpy()
            tensor_residual = projected_residual[trial, columns].numpy()
            expected = tensor_residual @ np.linalg.solve(
                np.eye(len(tensor_unit)) - np.outer(tensor_unit, tensor_unit), tensor_residual
            )
            assert statistics.squares[trial, index] == pytest.approx(expected, rel=1e-9)


def test_projections_are_whitened_against_the_record() -> None:
    hypotheses = make_release(4, 3.0, 2)
    projections = measure(hypotheses, 3.0).projections
    along = directions().double()
    unit = hypotheses.difference / hypotheses.difference.norm(dim=1, keepdim=True)
    for trial in range(4):
        towards = along.T @ unit[trial]
        projected_residual = hypotheses.residual[trial] - (hypotheses.residual[trial] @ unit[trial]) * unit[trial]
        covariance = np.eye(6) - np.outer(towards, towards)
        values, vectors = np.linalg.eigh(covariance)
        whitened = vectors @ np.diag(values**-0.5) @ vectors.T @ (along.T @ projected_residual).numpy()
        np.testing.assert_allclose(projections[trial], whitened, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bit", [True, False])
@pytest.mark.parametrize("present", [2.0, 300.0])
def test_honest_releases_follow_the_stated_distributions(bit: bool, present: float) -> None:
    """The distribution is right for either bit, and however far the record stands out from the noise."""
    sigma = 4.0
    statistics = measure(make_release(4000, sigma, 11, present, bit), sigma)
    assert uniform(stats.chi2.cdf(statistics.total / sigma**2, statistics.total_freedom))
    for index in range(3):
        has_freedom = statistics.freedom[:, index] > 0
        distribution = stats.chi2.cdf(
            statistics.squares[has_freedom, index] / sigma**2, statistics.freedom[has_freedom, index]
        )
        assert uniform(distribution)
    assert uniform(stats.norm.cdf(statistics.projections / sigma))
    assert uniform(stats.norm.cdf(statistics.gradient / sigma))
    products = np.corrcoef(statistics.projections.T)[np.triu_indices(6, 1)]
    assert np.abs(products).max() < 4.8 / np.sqrt(4000)


def test_neighbours_that_do_not_differ_leave_all_of_the_noise() -> None:
    hypotheses = make_release(3000, 2.0, 5)
    same = replace(hypotheses, absent=hypotheses.present)
    statistics = measure(same, 2.0)
    assert (statistics.total_freedom == SIZE).all()
    assert (statistics.freedom == [40, 5, 1]).all()
    assert uniform(stats.chi2.cdf(statistics.total / 4, SIZE))
    assert uniform(stats.norm.cdf(statistics.projections / 2))


def test_a_record_that_moves_one_scalar_alone_leaves_that_scalar_out() -> None:
    hypotheses = make_release(5, 2.0, 6)
    absent = hypotheses.present.clone()
    absent[:, -1] += 1.0
    statistics = measure(replace(hypotheses, absent=absent), 2.0)
    assert (statistics.freedom == [40, 5, 0]).all()
    np.testing.assert_allclose(statistics.squares[:, 2], 0.0)


def test_a_sum_of_nothing_has_no_direction() -> None:
    hypotheses = make_release(3, 2.0, 7)
    shared = torch.zeros_like(hypotheses.shared)
    statistics = measure(replace(hypotheses, shared=shared, release=hypotheses.release - hypotheses.shared), 2.0)
    assert np.isnan(statistics.gradient).all()


def low_bits_z(statistics: NoiseStatistics, kind: str, hypothesis: int) -> float:
    index = LOW_BITS_KINDS.index(kind)
    total = statistics.low_bits[:, hypothesis, index].sum()
    count = statistics.low_bits_count[:, hypothesis, index].sum()
    assert count > 1000
    return float(total / np.sqrt(count / 2))


@pytest.mark.parametrize("kind", LOW_BITS_KINDS)
def test_honest_low_bits_are_uniform(kind: str) -> None:
    statistics = measure(make_release(600, 4.0, 21), 4.0)
    assert abs(low_bits_z(statistics, kind, 0)) < 4
    assert abs(low_bits_z(statistics, kind, 1)) < 4


@pytest.mark.parametrize("kind", LOW_BITS_KINDS)
def test_half_precision_shows_in_the_low_bits(kind: str) -> None:
    sigma = 3.7
    draw = np.random.default_rng(8)
    hypotheses = make_release(300, sigma, 22)
    sums = (hypotheses.shared + hypotheses.present).numpy().astype(np.float32)
    normal = draw.standard_normal(sums.shape, dtype=np.float32)
    match kind:
        case "noise":
            release = sums + (sigma * normal).astype(np.float16).astype(np.float32)
        case "standard-noise":
            release = sums + np.float32(sigma) * normal.astype(np.float16).astype(np.float32)
        case _:
            release = (sums + np.float32(sigma) * normal).astype(np.float16).astype(np.float32)
    statistics = measure(replace(hypotheses, release=torch.from_numpy(release).double()), sigma)
    assert low_bits_z(statistics, kind, 0) > 50


def test_residuals_survive_the_way_to_the_server_and_to_disk() -> None:
    rounds = [measure(make_release(3, 2.0, seed), 2.0) for seed in (31, 32)]
    run = join(rounds, axis=1)
    assert run.projections.shape == (3, 2, 6)
    again = NoiseStatistics.of_array(run.as_array(), run.layout)
    table = pd.DataFrame({"trial": np.repeat([4, 5, 6], 2), "round": np.tile([1, 2], 3)})
    read = NoiseStatistics.of_table(table.assign(**{name: value.reshape(-1) for name, value in run.columns().items()}))
    for statistics_copy in (again, read):
        assert statistics_copy.tensors == LAYOUT.names
        for name, value in vars(run).items():
            if name not in ("tensors", "places", "parameters"):
                exact = statistics_copy is again or name not in ("projections", "strides", "sample")
                np.testing.assert_allclose(getattr(statistics_copy, name), value, rtol=0 if exact else 1e-6)
                assert getattr(statistics_copy, name).dtype == value.dtype
    assert_refused("lacks total", NoiseStatistics.of_table, table)


def test_a_recovered_release_offers_no_low_bits() -> None:
    whole = measure(make_release(3, 2.0, 41), 2.0)
    statistics = whole.of_recovered(np.array([False, True, False]))
    assert np.isnan(statistics.low_bits).all()
    assert (statistics.low_bits_count == 0).all()
    assert np.isnan(statistics.sigma).tolist() == [False, True, False]
    assert np.array_equal(statistics.sigma[[0, 2]], whole.sigma[[0, 2]])
    assert np.isnan(statistics.projections).any(axis=1).tolist() == [False, True, False]
    assert (statistics.freedom[1] == 0).all()
    assert np.isnan(statistics.sample).any(axis=(1, 2)).tolist() == [False, True, False]
    assert np.isinf(statistics.grain).all()


@pytest.mark.parametrize("bit", [True, False])
def test_the_true_side_of_the_sample_is_the_noise_itself(bit: bool) -> None:
    sigma = 4.0
    hypotheses = make_release(1000, sigma, 12, 300.0, bit)
    statistics = measure(hypotheses, sigma)
    true = hypotheses.present if bit else hypotheses.absent
    noise = ((hypotheses.release - hypotheses.shared - true) / sigma).numpy()
    numbers = [number for number, _ in statistics.places]
    np.testing.assert_allclose(statistics.sample[:, 0 if bit else 1], noise[:, numbers], atol=1e-12)
    for first in range(STRIDES):
        classes = np.sum(noise[:, first::STRIDES] ** 2, axis=1)
        np.testing.assert_allclose(statistics.strides[:, 0 if bit else 1, first], classes, rtol=1e-9)
    assert stride_sizes(SIZE).sum() == SIZE
    assert uniform(stats.norm.cdf(statistics.sample[:, 0 if bit else 1]))


@pytest.mark.parametrize("bit", [True, False])
def test_the_noise_along_the_difference_and_along_a_sides_own_contribution_is_the_projection_itself(bit: bool) -> None:
    """Also where the unit took no part, and 0 where there is nothing to project on."""
    sigma = 4.0
    side = 0 if bit else 1
    hypotheses = make_release(1000, sigma, 12, 300.0, bit)
    width = torch.full((1000,), 4.0, dtype=torch.float64)
    meter = NoiseMeasurer(LAYOUT, directions(), CentralGaussian(1.0), with_neither=True)
    statistics = meter.measure(hypotheses, width, hypotheses.difference.norm(dim=1))
    unit = hypotheses.difference / hypotheses.difference.norm(dim=1, keepdim=True)
    deviation = hypotheses.release - hypotheses.shared
    for number, true in enumerate((hypotheses.present, hypotheses.absent, torch.zeros_like(deviation))):
        noise = (deviation - true) / sigma
        length = true.norm(dim=1)
        np.testing.assert_allclose(statistics.signal[:, number, 0], (noise * unit).sum(dim=1), atol=1e-9)
        np.testing.assert_allclose(statistics.signal[:, number, 2], length / sigma, atol=1e-12)
        along_side = (noise * true).sum(dim=1) / length if number < 2 else torch.full((1000,), math.nan)
        np.testing.assert_allclose(statistics.signal[:, number, 1], along_side, atol=1e-9)
    assert uniform(stats.norm.cdf(statistics.signal[:, side, 0]))
    assert uniform(stats.norm.cdf(statistics.signal[:, side, 1]))


def test_without_a_difference_or_a_contribution_there_is_no_direction() -> None:
    draw = np.random.default_rng(6)
    release, shared, present = (torch.from_numpy(draw.standard_normal((2, SIZE))) for _ in range(3))
    absent = torch.stack([present[0], torch.zeros(SIZE, dtype=torch.float64)])
    hypotheses = ReleaseUnderHypotheses(slice(0, 2), release, shared, present, absent)
    signal = measure(hypotheses, 1.0).signal
    assert np.isnan(signal[:, :, 0]).tolist() == [[True, True], [False, False]]
    assert np.isnan(signal[:, :, 1]).tolist() == [[False, False], [False, True]]
    assert signal[1, 1, 2] == 0


def test_a_unit_that_took_no_part_is_a_third_side() -> None:
    hypotheses = make_release(3, 2.0, 13)
    meter = NoiseMeasurer(LAYOUT, directions(), CentralGaussian(1.0), with_neither=True)
    statistics = meter.measure(
        hypotheses, torch.full((3,), 2.0, dtype=torch.float64), hypotheses.difference.norm(dim=1)
    )
    numbers = [number for number, _ in statistics.places]
    np.testing.assert_allclose(
        statistics.sample[:, 2], ((hypotheses.release - hypotheses.shared) / 2.0).numpy()[:, numbers]
    )


def test_every_tensor_stands_in_the_sample_and_every_shift_of_a_small_model() -> None:
    names = tuple(f"layer{number}" for number in range(40))
    layout = ParameterLayout(names, ((300, 20),) * 39 + ((1,),))
    positions = sampled_places(layout)
    assert {tensor for _, tensor in positions} == set(names)
    assert len(positions) == SAMPLE
    numbers = np.array([number for number, _ in sampled_places(ParameterLayout(("w", "b"), ((10, 64), (10,))))])
    shifts = set(np.abs(numbers[:, None] - numbers).ravel().tolist())
    assert shifts >= set(range(650 - 16))
    assert _ends(10, 100, 8).tolist() == [10, 11, 12, 13, 96, 97, 98, 99]
    mirrored = set(numbers.tolist()) & set((649 - numbers).tolist())
    assert len(mirrored) >= 16


def test_a_release_without_noise_leaves_no_less_than_nothing() -> None:
    hypotheses = make_release(200, 0.0, 42)
    statistics = measure(hypotheses, 1.0)
    assert (statistics.total >= 0).all()
    assert (statistics.total < 1e-10).all()


def test_one_parameter_leaves_nothing_to_measure() -> None:
    draw = np.random.default_rng(5)
    tensors = [torch.from_numpy(draw.standard_normal((4, 1))) for _ in range(4)]
    hypotheses = ReleaseUnderHypotheses(slice(0, 4), *tensors)
    meter = NoiseMeasurer(ParameterLayout(("one",), ((1,),)), torch.empty(1, 0), CentralGaussian(1.0))
    statistics = meter.measure(hypotheses, torch.ones(4, dtype=torch.float64), hypotheses.difference.norm(dim=1))
    assert (statistics.total_freedom == 0).all()
    assert (statistics.freedom == 0).all()
    assert statistics.projections.shape == (4, 0)
    assert np.isnan(statistics.sigma).all()
    assert np.isnan(statistics.gradient).all()


def test_a_small_tensor_without_noise_is_found_although_a_share_of_other_noise_remains_in_its_sum() -> None:
    members = np.arange(20) % 2 == 0
    sigma = 3.0
    rounds = []
    for seed in range(3):
        hypotheses = make_release(20, sigma, 40 + seed)
        sides = torch.from_numpy(members)[:, None]
        release = torch.where(sides, hypotheses.release, hypotheses.release - hypotheses.present + hypotheses.absent)
        if seed == 1:
            bias = LAYOUT.slices()["bias"]
            true = hypotheses.shared + torch.where(sides, hypotheses.present, hypotheses.absent)
            release[7, bias] = true[7, bias]
        rounds.append(measure(replace(hypotheses, release=release), sigma))
    statistics = join(rounds, axis=1).of_true_hypothesis(np.where(members, 0, 1)[:, None].repeat(3, axis=1))
    assert statistics.squares[7, 1, 1] / sigma**2 > 0.01  # of other tensors' noise
    width = np.full((20, 3), sigma)
    result = noise_round(
        NoiseMeasurements(members, 0 * width, width / 2, width, 2.0, statistics, noise_kind=STANDARD_GAUSSIAN)
    )
    assert result.violated
    assert re.search(r"trial 7 round 2 .*.bias.$", result.place)
