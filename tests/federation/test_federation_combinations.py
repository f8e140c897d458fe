"""Tests that the table of guarantees has every accepted combination of mechanisms, and a reason for all others."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError
from fl_audit.federation.observed_rounds import _require_view
from fl_audit.federation.run_plan import RunPlan
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.learning.optimizers import ServerOptimizer, ServerOptimizerKind
from fl_audit.mechanisms.contribution import (
    AdaptiveClipping,
    Clipping,
    Contribution,
    Everybody,
    FixedClipping,
    LocalTraining,
    NoClipping,
    Participation,
    PoissonSampling,
    PrivateTraining,
    RecordGradients,
    RotatingCohorts,
    UserGradients,
)
from fl_audit.mechanisms.mechanism import Mechanism, require_likelihood_ratio
from fl_audit.mechanisms.noises import registry
from fl_audit.mechanisms.noises.central import CentralGaussian
from fl_audit.mechanisms.noises.correlated import CorrelatedGaussian
from fl_audit.mechanisms.noises.distributed import DistributedGaussian
from fl_audit.mechanisms.noises.inside_training import LocalDPSGD
from fl_audit.mechanisms.noises.local import LocalGaussian
from fl_audit.mechanisms.noises.mechanism_noise import MechanismNoise
from fl_audit.mechanisms.noises.none import NoNoise
from fl_audit.mechanisms.participations.registry import PARTICIPATIONS as KINDS
from fl_audit.mechanisms.threat_model import Adversary, InsiderView, TargetsParticipation, ThreatModel
from fl_audit.privacy.accounting_enums import NoiseDistribution, SensitivityKind
from fl_audit.privacy.strategy_matrices import StrategyMatrixKind
from tests.validation.guarantee_settings import (
    CLIENTS,
    ROUNDS,
    Combination,
    combinations,
    is_repetition,
    plan_of,
    write_records,
)

# One worker makes what tests of this file share.
pytestmark = pytest.mark.xdist_group("combinations")
SCHEDULE = LocalSchedule(0.1, 4, None, 2)
CONTRIBUTIONS: tuple[Contribution, ...] = (RecordGradients(), LocalTraining(SCHEDULE), PrivateTraining(SCHEDULE, (4,)))
CLIPPINGS: tuple[Clipping, ...] = (FixedClipping(1.0), AdaptiveClipping(1.0), NoClipping())
PARTICIPATIONS: tuple[Participation, ...] = (Everybody(), PoissonSampling(0.3), RotatingCohorts(CLIENTS // 2, CLIENTS))
NOISES: tuple[MechanismNoise, ...] = (
    *(CentralGaussian(1.0, scaling) for scaling in SensitivityKind),
    DistributedGaussian(1.0, CLIENTS),
    LocalGaussian(1.0, CLIENTS),
    *(CorrelatedGaussian(1.0, matrix, ROUNDS, bands=2) for matrix in StrategyMatrixKind),
    LocalDPSGD(1.0),
    NoNoise(),
)

Named = tuple[Any, ...]


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[Combination, RunPlan | str]:
    """The plan of every combination of the table, or the reason of its refusal."""
    records = tmp_path_factory.mktemp("guarantees") / "records.npz"
    write_records(records)
    return {combination: _plan_or_reason(combination, records) for combination in combinations()}


def _plan_or_reason(combination: Combination, records: Path) -> RunPlan | str:
    try:
        return plan_of(combination, records, 10, 0, {"noise-multiplier": 1.0})
    except InputError as error:
        return str(error)


def _named(mechanism: Mechanism, threat_model: ThreatModel) -> Named:
    """Return the parts of a mechanism and the adversary, without parts that make no difference."""
    participation = threat_model.participation if mechanism.is_sampled else TargetsParticipation.SECRET
    knows_noise = threat_model.colluders > 0 and mechanism.clients_add_noise
    kinds = (mechanism.contribution.kind, mechanism.clipping.kind, mechanism.participation.kind, mechanism.noise.name)
    return (mechanism.adjacency, *kinds, mechanism.scaling, threat_model.adversary, participation, knows_noise)


def _mechanisms() -> Iterator[Mechanism]:
    optimizer = ServerOptimizer(ServerOptimizerKind.SGD, 1.0)
    for adjacency, contribution, clipping, participation, noise in product(
        Adjacency, CONTRIBUTIONS, CLIPPINGS, PARTICIPATIONS, NOISES
    ):
        try:
            yield Mechanism(adjacency, clipping, participation, noise, 6.0, optimizer, contribution)
        except InputError:
            continue


def _offered() -> Iterator[Named]:
    """Return every possible mechanism, with every adversary that can weigh its releases."""
    for mechanism, adversary, participation, colluders in product(
        _mechanisms(), Adversary, TargetsParticipation, (0, 2)
    ):
        try:
            threat_model = ThreatModel(adversary, participation, colluders)
            require_likelihood_ratio(mechanism, threat_model)
        except InputError:
            continue
        yield _named(mechanism, threat_model)


def test_every_kind_of_every_part_is_tried() -> None:
    # Noise that is not Gaussian has tests of its own.
    distributions = (NoiseDistribution.GAUSSIAN, NoiseDistribution.NONE)
    combined_noises = [noise for noise in registry.NOISES.values() if noise.distribution in distributions]
    for kinds, examples in (
        (get_args(Contribution), CONTRIBUTIONS),
        (get_args(Clipping), CLIPPINGS),
        (tuple(KINDS.values()), PARTICIPATIONS),
        (combined_noises, NOISES),
    ):
        # Users as units have tests of their own: test_federation_users.
        assert {type(example) for example in examples} == set(kinds) - {UserGradients}


@pytest.mark.long
def test_the_table_lists_every_distribution_that_can_be_written_down(plans: dict[Combination, RunPlan | str]) -> None:
    listed = [
        _named(plan.federation.mechanism, plan.federation.threat_model)
        for combination, plan in plans.items()
        if isinstance(plan, RunPlan) and not is_repetition(plan) and combination.is_usual
    ]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(_offered())


@pytest.mark.long
def test_the_table_lists_what_may_become_of_every_release(plans: dict[Combination, RunPlan | str]) -> None:
    """All units contribute at a fixed norm, and the adversary is a single client."""
    listed = {
        (
            _named(plan.federation.mechanism, plan.federation.threat_model),
            plan.federation.view,
            plan.federation.mechanism.optimizer.kind,
        )
        for plan in plans.values()
        if isinstance(plan, RunPlan)
    }
    for mechanism in _mechanisms():
        if not mechanism.adds_noise or mechanism.is_adaptive or not isinstance(mechanism.participation, Everybody):
            continue
        for view, kind in product(InsiderView, ServerOptimizerKind):
            altered_mechanism = Mechanism(
                mechanism.adjacency,
                mechanism.clipping,
                mechanism.participation,
                mechanism.noise,
                mechanism.denominator,
                ServerOptimizer(kind, 1.0),
                mechanism.contribution,
            )
            is_listed = (_named(mechanism, ThreatModel()), view, kind) in listed
            try:
                _require_view(view, altered_mechanism)
            except InputError:
                assert not is_listed
            else:
                assert is_listed, (mechanism, view, kind)


@pytest.mark.long
def test_whatever_cannot_be_accounted_or_weighed_is_refused_with_its_reason(
    plans: dict[Combination, RunPlan | str],
) -> None:
    refused = {combination: plan for combination, plan in plans.items() if isinstance(plan, str)}
    assert 0 < len(refused) < len(plans)
    assert all("accepted" in reason or "needs" in reason for reason in refused.values())
