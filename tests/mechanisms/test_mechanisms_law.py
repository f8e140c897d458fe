"""The release law: sensitivities, noise scale, refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError
from fl_audit.learning.optimizers import OptimizerKind, ServerOptimizer
from fl_audit.mechanisms.clipping import FixedClipping, NoClipping
from fl_audit.mechanisms.law import ReleaseLaw
from fl_audit.mechanisms.noise import SENSITIVITY_FLOOR, CentralGaussian, NoiseScaling, NoNoise
from fl_audit.mechanisms.participation import Everybody, PoissonSampling
from fl_audit.privacy.events import GaussianRelease, SampledGaussianRelease

RELATIONS = (Adjacency.ADD_REMOVE_RECORD, Adjacency.REPLACE_RECORD)
LAW = ReleaseLaw(
    adjacency=Adjacency.ADD_REMOVE_RECORD,
    clipping=FixedClipping(3.0),
    participation=Everybody(),
    noise=CentralGaussian(8.0, NoiseScaling.LOCAL),
    denominator=100,
    optimizer=ServerOptimizer(OptimizerKind.SGD, 0.1),
)


def test_a_record_changes_the_sum_by_its_norm_or_twice_that() -> None:
    assert LAW.global_sensitivity == 3.0
    assert replace(LAW, adjacency=Adjacency.REPLACE_RECORD).global_sensitivity == 6.0


@pytest.mark.parametrize("relation", RELATIONS)
def test_local_noise_follows_the_sensitivity_down_to_the_floor(relation: Adjacency) -> None:
    law = replace(LAW, adjacency=relation)
    assert SENSITIVITY_FLOOR == 1e-4
    floor = 3e-4
    scale = law.noise_scale(np.array([5.0, 0.02, floor, 0.9 * floor, 0.0]))
    assert scale.dtype == np.float64
    np.testing.assert_allclose(scale, 8 * np.array([5.0, 0.02, floor, floor, floor]), rtol=1e-15)


@pytest.mark.parametrize(
    ("relation", "sensitivity"),
    [(Adjacency.ADD_REMOVE_RECORD, 3.0), (Adjacency.REPLACE_RECORD, 6.0)],
)
def test_global_noise_depends_on_no_data(relation: Adjacency, sensitivity: float) -> None:
    law = replace(LAW, adjacency=relation, noise=CentralGaussian(8.0))
    found = law.noise_scale(np.array([5.0, 0.02, 0.0, np.nan]))
    assert np.array_equal(found, np.full(4, 8 * sensitivity))
    assert np.array_equal(law.noise_scale(np.array([1, 2])), np.full(2, 8 * sensitivity))  # integers round nothing


def test_sensitivity_that_is_no_number_makes_no_noise_scale_of_one() -> None:
    assert np.isnan(LAW.noise_scale(np.array([np.nan]))).all()


def test_only_global_noise_is_a_private_release() -> None:
    assert not LAW.is_private_release
    assert replace(LAW, noise=CentralGaussian(8.0)).is_private_release
    assert not replace(LAW, noise=NoNoise(), clipping=NoClipping()).is_private_release


@pytest.mark.parametrize(("rounds", "multiplier"), [(1, 8.0), (30, 8.0), (30, 9.951), (1000, 0.3)])
def test_rounds_compose_as_gaussians_do(rounds: int, multiplier: float) -> None:
    law = replace(LAW, noise=CentralGaussian(multiplier))
    per_round = law.gaussian_mu(1)
    assert per_round == pytest.approx(1 / multiplier, rel=1e-15)
    assert law.gaussian_mu(rounds) == pytest.approx(math.hypot(*[per_round] * rounds), rel=1e-12)


def test_mu_is_sensitivity_in_units_of_noise() -> None:
    for scaling, relation in ((s, r) for s in NoiseScaling for r in RELATIONS):
        law = replace(LAW, noise=CentralGaussian(8.0, scaling), adjacency=relation)
        sensitivity = np.array([law.global_sensitivity])
        assert float((sensitivity / law.noise_scale(sensitivity))[0]) == pytest.approx(law.gaussian_mu(1), rel=1e-15)


@pytest.mark.parametrize("name", ["clipping norm", "noise multiplier", "denominator"])
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, -math.inf])
def test_refuses_numbers_out_of_range(name: str, value: float) -> None:
    make = {"clipping norm": FixedClipping, "noise multiplier": CentralGaussian}
    with pytest.raises(InputError, match=f"{name} is {value}: accepted are positive finite numbers"):
        make.get(name, lambda denominator: replace(LAW, denominator=denominator))(value)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE_CLIENT, Adjacency.REPLACE_CLIENT])
def test_refuses_to_promise_clients_what_only_records_are_clipped_for(adjacency: Adjacency) -> None:
    with pytest.raises(
        InputError, match=f"adjacency is '{adjacency}'.*accepted are add-remove-record and replace-record"
    ):
        replace(LAW, adjacency=adjacency)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"clipping": NoClipping()}, "noise multiplier is 8.0 without clipping"),
        ({"noise": NoNoise()}, "clipping norm is 3.0 without noise"),
        ({"participation": PoissonSampling(0.1)}, "sensitivity is 'local' at sampling rate 0.1"),
    ],
)
def test_refuses_parts_that_do_not_go_together(parts: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        replace(LAW, **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [0, -0.1, 1, 1.5, math.nan])
def test_refuses_rates_that_sample_nobody_or_everybody(rate: float) -> None:
    with pytest.raises(InputError, match=f"sampling rate is {rate}"):
        PoissonSampling(rate)


def test_the_accountant_is_told_what_is_released() -> None:
    assert LAW.events(30) == (GaussianRelease(1.0, 8.0, 30),)
    sampled = replace(LAW, noise=CentralGaussian(8.0), participation=PoissonSampling(0.1))
    assert sampled.events(30) == (SampledGaussianRelease(8.0, 0.1, 30),)
    assert replace(LAW, noise=NoNoise(), clipping=NoClipping()).events(30) == ()
