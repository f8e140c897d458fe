"""The mechanism: sensitivities, noise scale, what the accountant is told, what an adversary faces."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.learning.optimizers import ServerOptimizer, ServerOptimizerKind
from fl_audit.mechanisms.contribution import (
    AdaptiveClipping,
    Clipping,
    Everybody,
    FixedClipping,
    LocalTraining,
    NoClipping,
    Participation,
    PoissonSampling,
    RecordGradients,
    RotatingCohorts,
)
from fl_audit.mechanisms.mechanism import Mechanism, effective_noise_multiplier
from fl_audit.mechanisms.noises.central import SENSITIVITY_FLOOR, CentralGaussian
from fl_audit.mechanisms.noises.correlated import CorrelatedGaussian
from fl_audit.mechanisms.noises.distributed import DistributedGaussian
from fl_audit.mechanisms.noises.local import LocalGaussian
from fl_audit.mechanisms.noises.mechanism_noise import MechanismNoise
from fl_audit.mechanisms.noises.none import NoNoise
from fl_audit.mechanisms.threat_model import CLIENT_ALONE, Adversary, TargetsParticipation, ThreatModel
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.events import GaussianRelease, ReleaseEvent, SampledGaussianRelease
from fl_audit.privacy.strategy_matrices import StrategyMatrixKind
from tests.builders.refusals import assert_refused

RELATIONS = (Adjacency.ADD_REMOVE_RECORD, Adjacency.REPLACE_RECORD)
RECORD_SUMS = Mechanism(
    adjacency=Adjacency.ADD_REMOVE_RECORD,
    clipping=FixedClipping(3.0),
    participation=Everybody(),
    noise=CentralGaussian(8.0, SensitivityKind.LOCAL),
    denominator=100,
    optimizer=ServerOptimizer(ServerOptimizerKind.SGD, 0.1),
)
CLIENTS = replace(
    RECORD_SUMS,
    adjacency=Adjacency.ADD_REMOVE_CLIENT,
    contribution=LocalTraining(LocalSchedule(0.1, 5, epochs=1)),
    noise=CentralGaussian(2.0),
)
SERVER = ThreatModel(adversary=Adversary.SERVER)
SEEN = ThreatModel(participation=TargetsParticipation.SEEN)


def test_a_unit_changes_the_sum_by_its_norm_or_twice_that() -> None:
    assert RECORD_SUMS.global_sensitivity == 3.0
    assert replace(RECORD_SUMS, adjacency=Adjacency.REPLACE_RECORD).global_sensitivity == 6.0
    assert CLIENTS.global_sensitivity == 3.0
    assert replace(CLIENTS, adjacency=Adjacency.REPLACE_CLIENT).global_sensitivity == 6.0
    assert (RECORD_SUMS.unit, CLIENTS.unit) == (Unit.RECORD, Unit.CLIENT)


@pytest.mark.parametrize("relation", RELATIONS)
def test_local_noise_follows_the_sensitivity_down_to_the_floor(relation: Adjacency) -> None:
    mechanism = replace(RECORD_SUMS, adjacency=relation)
    assert SENSITIVITY_FLOOR == 1e-4
    floor = 3e-4
    scale = mechanism.server_scale(np.array([5.0, 0.02, floor, 0.9 * floor, 0.0]))
    assert scale.dtype == np.float64
    np.testing.assert_allclose(scale, 8 * np.array([5.0, 0.02, floor, floor, floor]), rtol=1e-15)


@pytest.mark.parametrize(
    ("relation", "sensitivity"), [(Adjacency.ADD_REMOVE_RECORD, 3.0), (Adjacency.REPLACE_RECORD, 6.0)]
)
def test_global_noise_depends_on_no_data(relation: Adjacency, sensitivity: float) -> None:
    mechanism = replace(RECORD_SUMS, adjacency=relation, noise=CentralGaussian(8.0))
    scales = mechanism.server_scale(np.array([5.0, 0.02, 0.0, np.nan]))
    assert np.array_equal(scales, np.full(4, 8 * sensitivity))
    assert np.array_equal(
        mechanism.server_scale(np.array([1, 2])), np.full(2, 8 * sensitivity)
    )  # integers round nothing


def test_sensitivity_that_is_no_number_makes_no_noise_scale_of_one() -> None:
    assert np.isnan(RECORD_SUMS.server_scale(np.array([np.nan]))).all()


@pytest.mark.parametrize(("relation", "factor"), [(Adjacency.ADD_REMOVE_CLIENT, 1), (Adjacency.REPLACE_CLIENT, 2)])
def test_under_an_adaptive_norm_the_noise_follows_the_norm_of_the_round(relation: Adjacency, factor: float) -> None:
    mechanism = replace(CLIENTS, adjacency=relation, clipping=AdaptiveClipping(3.0))
    norms = np.array([0.5, 3.0, 7.0])
    np.testing.assert_array_equal(mechanism.server_scale(np.zeros(3), norms), 2.0 * factor * norms)
    np.testing.assert_array_equal(mechanism.noise_scale(np.zeros(3), SEEN, norms), 2.0 * factor * norms)
    rounds = mechanism.noise_scale(np.zeros((2, 4)), CLIENT_ALONE, np.arange(1.0, 9.0).reshape(2, 4))
    np.testing.assert_array_equal(rounds, 2.0 * factor * np.arange(1.0, 9.0).reshape(2, 4))
    assert mechanism.bit_sigma == 5.0 * 2.0 * factor / 2


def test_only_global_noise_is_a_private_release() -> None:
    assert not RECORD_SUMS.is_private_release
    assert replace(RECORD_SUMS, noise=CentralGaussian(8.0)).is_private_release
    assert not replace(RECORD_SUMS, noise=NoNoise(), clipping=NoClipping()).is_private_release


# What an adversary faces, and what the accountant is told.


@pytest.mark.parametrize(
    ("noise", "threat_model", "multiplier"),
    [
        (CentralGaussian(3.0), CLIENT_ALONE, 3.0),
        (CorrelatedGaussian(3.0, StrategyMatrixKind.TREE, 8), CLIENT_ALONE, 3.0),
        (DistributedGaussian(3.0, 9), CLIENT_ALONE, 3.0 * math.sqrt(8 / 9)),
        (DistributedGaussian(3.0, 9), ThreatModel(colluders=2), 3.0 * math.sqrt(6 / 9)),
        (DistributedGaussian(3.0, 9), ThreatModel(colluders=7), 1.0),
        (DistributedGaussian(3.0, 9), SERVER, 1.0),
        (LocalGaussian(3.0, 9), CLIENT_ALONE, 3.0 * math.sqrt(8)),
        (LocalGaussian(3.0, 9), ThreatModel(colluders=4), 6.0),
        (LocalGaussian(3.0, 9), SERVER, 3.0),
        (NoNoise(), CLIENT_ALONE, 0.0),
    ],
)
def test_an_adversary_faces_the_noise_that_it_does_not_know(
    noise: MechanismNoise, threat_model: ThreatModel, multiplier: float
) -> None:
    assert effective_noise_multiplier(noise, threat_model) == pytest.approx(multiplier, rel=1e-15)


@pytest.mark.parametrize("noise", [DistributedGaussian(3.0, 4), LocalGaussian(3.0, 4)])
def test_some_noise_of_others_must_be_left(noise: MechanismNoise) -> None:
    effective_noise_multiplier(noise, ThreatModel(colluders=2))
    named = r"colluders is 3 .* 4 clients: .* 0 to 2"
    assert_refused(named, lambda: effective_noise_multiplier(noise, ThreatModel(colluders=3)))


def _distribution(
    noise: MechanismNoise, participation: Participation, clipping: Clipping = RECORD_SUMS.clipping
) -> Mechanism:
    return replace(CLIENTS, noise=noise, participation=participation, clipping=clipping)


@pytest.mark.parametrize(
    ("mechanism", "threat_model", "events"),
    [
        (_distribution(CentralGaussian(2.0), Everybody()), CLIENT_ALONE, (GaussianRelease(1.0, 2.0, 8),)),
        (
            _distribution(CentralGaussian(2.0), PoissonSampling(0.2)),
            CLIENT_ALONE,
            (SampledGaussianRelease(2.0, 0.2, 8, seen=False),),
        ),
        (
            _distribution(CentralGaussian(2.0), PoissonSampling(0.2)),
            SEEN,
            (SampledGaussianRelease(2.0, 0.2, 8, seen=True),),
        ),
        # Three of ten clients: in eight rounds nobody stands in the line more than three times.
        (_distribution(CentralGaussian(2.0), RotatingCohorts(3, 10)), CLIENT_ALONE, (GaussianRelease(1.0, 2.0, 3),)),
        (
            _distribution(DistributedGaussian(2.0, 4), Everybody()),
            CLIENT_ALONE,
            (GaussianRelease(1.0, math.sqrt(3), 8),),
        ),
        (
            _distribution(DistributedGaussian(2.0, 4), Everybody()),
            ThreatModel(colluders=2),
            (GaussianRelease(1.0, 1.0, 8),),
        ),
        (_distribution(LocalGaussian(2.0, 5), Everybody()), CLIENT_ALONE, (GaussianRelease(1.0, 4.0, 8),)),
        (_distribution(LocalGaussian(2.0, 5), Everybody()), SERVER, (GaussianRelease(1.0, 2.0, 8),)),
        # sens(C) of the tree over eight rounds: rounds 1 to 8 have nodes of 1, 2, 1, 4, 1, 2, 1 and 8 rounds.
        (
            _distribution(CorrelatedGaussian(2.0, StrategyMatrixKind.TREE, 8), Everybody()),
            CLIENT_ALONE,
            (GaussianRelease(math.sqrt(1 + 4 + 1 + 16 + 1 + 4 + 1 + 64), 2.0),),
        ),
        # One round of a client: round 1 is in the nodes of rounds 1, 2, 4 and 8.
        (
            _distribution(CorrelatedGaussian(2.0, StrategyMatrixKind.TREE, 8), RotatingCohorts(1, 8)),
            CLIENT_ALONE,
            (GaussianRelease(2.0, 2.0),),
        ),
        (
            _distribution(CorrelatedGaussian(2.0, StrategyMatrixKind.BANDED, 8, 1), Everybody()),
            CLIENT_ALONE,
            (GaussianRelease(math.sqrt(8), 2.0),),
        ),
        # Sum and bits together: 2^-2 + (5 x 2)^-2 = 0.26.
        (
            _distribution(CentralGaussian(2.0), Everybody(), AdaptiveClipping(3.0)),
            CLIENT_ALONE,
            (GaussianRelease(1.0, 1 / math.sqrt(0.26), 8),),
        ),
        (
            _distribution(CentralGaussian(2.0), PoissonSampling(0.2), AdaptiveClipping(3.0)),
            CLIENT_ALONE,
            (SampledGaussianRelease(1 / math.sqrt(0.26), 0.2, 8),),
        ),
    ],
    ids=lambda value: value.noise.kind if isinstance(value, Mechanism) else "",
)
def test_the_accountant_is_told_what_is_released(
    mechanism: Mechanism, threat_model: ThreatModel, events: tuple[ReleaseEvent, ...]
) -> None:
    (event,), (expected,) = mechanism.events(8, threat_model), events
    assert type(event) is type(expected)
    for name in vars(expected):
        assert getattr(event, name) == pytest.approx(getattr(expected, name), rel=1e-12), name


def test_without_noise_the_accountant_is_told_nothing() -> None:
    assert replace(RECORD_SUMS, noise=NoNoise(), clipping=NoClipping()).events(30, CLIENT_ALONE) == ()


@pytest.mark.parametrize(
    "noise",
    [
        CentralGaussian(2.0, SensitivityKind.LOCAL),
        DistributedGaussian(2.0, 4),
        LocalGaussian(2.0, 5),
        CorrelatedGaussian(2.0, StrategyMatrixKind.BANDED, 8, 3),
    ],
)
def test_another_multiplier_changes_the_noise_and_nothing_else(noise: MechanismNoise) -> None:
    mechanism = replace(CLIENTS, noise=noise)
    changed_mechanism = mechanism.with_multiplier(5.0)
    assert changed_mechanism.noise_multiplier == 5.0
    assert replace(changed_mechanism, noise=noise) == mechanism
    assert changed_mechanism.with_multiplier(2.0) == mechanism


def test_a_distribution_without_noise_has_no_other_multiplier() -> None:
    mechanism = replace(RECORD_SUMS, noise=NoNoise(), clipping=NoClipping())
    assert mechanism.with_multiplier(5.0) == mechanism


def test_shares_of_clients_make_up_the_noise() -> None:
    distributed, local = (replace(CLIENTS, noise=noise(2.0, 9)) for noise in (DistributedGaussian, LocalGaussian))
    assert distributed.share_scale == pytest.approx(2.0 * 3.0 / 3)
    assert local.share_scale == 2.0 * 3.0
    for mechanism in (distributed, local):
        # Of nine shares the insider knows one.
        unknown_noise = mechanism.noise_scale(np.zeros(1), CLIENT_ALONE)
        assert float(unknown_noise[0]) == pytest.approx(mechanism.share_scale * math.sqrt(8))
        assert float(mechanism.noise_scale(np.zeros(1), SERVER)[0]) == pytest.approx(mechanism.share_scale)
    assert CLIENTS.share_scale == 0.0


# Cohorts.


def test_a_client_takes_part_as_often_and_as_far_apart_as_the_cohort_says() -> None:
    for size, clients, rounds in ((3, 10, 25), (2, 5, 11), (4, 8, 9), (9, 10, 30), (1, 4, 4)):
        cohorts = RotatingCohorts(size, clients)
        taking_part = np.zeros((rounds, clients), dtype=bool)
        for server_round in range(1, rounds + 1):
            members = cohorts.eligible_units(7, server_round)
            assert members.tolist() == sorted(set(members.tolist()))
            assert len(members) == size
            taking_part[server_round - 1, members] = True
        assert taking_part.sum(axis=0).max() == cohorts.participations(rounds)
        gaps = [np.diff(np.flatnonzero(column)).min(initial=rounds) for column in taking_part.T]
        assert min(gaps) >= cohorts.separation


@pytest.mark.parametrize("first", [0, 3, 9])
def test_the_target_stands_first_in_the_order_of_cohorts(first: int) -> None:
    by_chance = RotatingCohorts(3, 10)
    cohorts = RotatingCohorts(3, 10, first)
    taking_part = [first in cohorts.eligible_units(7, server_round) for server_round in range(1, 26)]
    assert taking_part[0]
    assert sum(taking_part) == cohorts.participations(25)
    together = np.concatenate([cohorts.eligible_units(7, server_round) for server_round in range(1, 11)])
    assert np.bincount(together).tolist() == [3] * 10
    # Of everybody else one client has changed places with it.
    moved = [len(set(cohorts.eligible_units(7, n)) - set(by_chance.eligible_units(7, n))) for n in range(1, 4)]
    assert max(moved) <= 1
    assert_refused(r"first client .* is 10: .* 0 to 9", RotatingCohorts, 3, 10, 10)


TREE = CorrelatedGaussian(2.0, StrategyMatrixKind.TREE, 8)
POISSON = PoissonSampling(0.1)
COHORT = RotatingCohorts(2, 5)
ADAPTIVE = AdaptiveClipping(1.0)
LOCAL_SCALING = CentralGaussian(2.0, SensitivityKind.LOCAL)


@pytest.mark.parametrize("contribution", [RecordGradients(), CLIENTS.contribution])
def test_everything_else_goes_together(contribution: RecordGradients | LocalTraining) -> None:
    """Every noise with everybody, and what amplification or order is known for with samples and cohorts."""
    mechanism = RECORD_SUMS if isinstance(contribution, RecordGradients) else CLIENTS
    noises = [CentralGaussian(2.0), DistributedGaussian(2.0, 5), LocalGaussian(2.0, 5), TREE]
    noises += [CorrelatedGaussian(2.0, StrategyMatrixKind.BANDED, 8, 3)]
    for noise in noises:
        replace(mechanism, noise=noise)
    replace(mechanism, noise=CentralGaussian(2.0), participation=POISSON)
    if mechanism.unit is Unit.CLIENT:
        for noise in (CentralGaussian(2.0), TREE):
            replace(mechanism, noise=noise, participation=COHORT)
        for participation in (Everybody(), POISSON, COHORT):
            replace(mechanism, noise=CentralGaussian(2.0), participation=participation, clipping=ADAPTIVE)
