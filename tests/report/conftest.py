"""Synthetic runs whose distribution is known exactly: the log-odds are drawn, not trained, and measured as those of any
run.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit

from fl_audit.adjacency import Adjacency, NeighbourPair, Unit
from fl_audit.audits.sections import report_contents
from fl_audit.data.catalogue import DataSpec
from fl_audit.data.partition import PartitionScheme
from fl_audit.federation.federation import Federation
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.federation.run_tables import RunTables, Timing
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.learning.optimizers import ServerOptimizer, ServerOptimizerKind
from fl_audit.mechanisms.contribution import (
    AdaptiveClipping,
    FixedClipping,
    LocalTraining,
    NoClipping,
    Participation,
    RecordGradients,
    RotatingCohorts,
)
from fl_audit.mechanisms.mechanism import Mechanism
from fl_audit.mechanisms.noises.central import CentralGaussian
from fl_audit.mechanisms.noises.correlated import CorrelatedGaussian
from fl_audit.mechanisms.noises.distributed import DistributedGaussian
from fl_audit.mechanisms.noises.local import LocalGaussian
from fl_audit.mechanisms.noises.mechanism_noise import MechanismNoise
from fl_audit.mechanisms.noises.none import NoNoise
from fl_audit.mechanisms.participations.everybody import Everybody
from fl_audit.mechanisms.participations.poisson import PoissonSampling
from fl_audit.mechanisms.threat_model import CLIENT_ALONE, InsiderView, ThreatModel
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import Guarantee, derive_guarantee
from fl_audit.privacy.identifiability_bounds import SignalToNoiseAdaptivity
from fl_audit.privacy.strategy_matrices import StrategyMatrixKind
from fl_audit.report.report_elements import ReportContents
from fl_audit.runs.config import RunConfig, parse_config
from fl_audit.verdict.noise_statistics import NoiseStatistics, stride_sizes
from fl_audit.verdict.verdict import Verdict

MakeContents = Callable[..., ReportContents]

KINDS: dict[Verdict, dict[str, Any]] = {
    Verdict.CONSISTENT: {"exact": False},
    Verdict.VIOLATED: {"exact": False, "noise": 0.5, "trials": 800},
    Verdict.INCONCLUSIVE: {"exact": False, "trials": 1},
    Verdict.NOT_AUDITED: {"exact": False, "with_insider": False, "trials": 5},
    Verdict.NO_GUARANTEE: {"with_insider": False, "with_guarantee": False, "trials": 5},
}
"""Arguments of `make_contents` that give each verdict."""
DELTA = 0.00123
CLIPPING_NORM = 3.0
CLIENTS = 5


@pytest.fixture
def make_contents() -> MakeContents:
    return synthetic_contents


@pytest.fixture
def make_run() -> Callable[..., FinishedRun]:
    """Return what makes up a run, of which nothing is measured yet."""
    return synthetic_run


@lru_cache(maxsize=32)
def synthetic_contents(**shape: Any) -> ReportContents:
    """Return what the report of a made-up run is drawn from, the same value each time; see `synthetic_run`."""
    return report_contents(synthetic_run(**shape))


def synthetic_run(
    trials: int = 300,
    rounds: int = 30,
    mu: float = 0.55,
    exact: bool = True,
    with_insider: bool = True,
    with_guarantee: bool = True,
    with_epsilon_star: bool = True,
    with_membership: bool = True,
    with_clients: bool = True,
    with_residuals: bool = True,
    prior: float = 0.5,
    noise: float = 1.0,
    sampling_rate: float = 1.0,
    cohort: int | None = None,
    source: str = "central",
    adaptive: bool = False,
    threat_model: ThreatModel = CLIENT_ALONE,
    adjacency: Adjacency = Adjacency.REPLACE_RECORD,
    model: str = "adult-mlp",
    seed: int = 3,
) -> FinishedRun:
    """Return a made-up run of `rounds` rounds under local (exact) or global scaling.

    `noise` is the noise that is really added over that which was claimed, `source` who adds it.
    """
    generator = np.random.default_rng(seed)
    mechanism = synthetic_distribution(
        mu, rounds, exact, with_guarantee, synthetic_participation(sampling_rate, cohort), adjacency, source, adaptive
    )
    bits = generator.integers(0, 2, trials)
    sensitivity = CLIPPING_NORM * (0.3 + 0.6 * generator.random((trials, rounds)))
    sigma = mechanism.noise_scale(sensitivity, threat_model)
    sign = np.where(bits == 1, 1.0, -1.0)
    log_odds = np.full((trials, rounds), np.nan)
    if with_insider:
        signal = sensitivity / sigma
        steps = sign[:, None] * signal**2 / 2 + noise * signal * generator.standard_normal(signal.shape)
        log_odds = np.cumsum(steps, axis=1)
    belief = expit(sign * (log_odds[:, -1] + logit(prior)))
    accuracy = 0.5 + 0.3 * generator.random((trials, rounds + 1))
    epsilon_star = generator.random((trials, rounds + 1)) if with_epsilon_star else np.full_like(accuracy, np.nan)
    columns: dict[str, Any] = {
        "trial": np.arange(trials),
        "bit": bits,
        "log_odds": log_odds[:, -1],
        "belief": belief,
        "won": belief > 0.5,
        "test_accuracy": accuracy[:, -1],
        "test_auroc": accuracy[:, -1],
        "epsilon_star": epsilon_star[:, -1],
    }
    if with_membership:
        columns["membership_advantage"] = 0.018 + 0.01 * generator.standard_normal(trials)
        columns["record_membership_guess"] = generator.integers(0, 2, trials)
    # An adaptive norm halves over the rounds.
    halving = np.broadcast_to(np.linspace(3.0, 1.5, rounds), sigma.shape)
    norms = {"clipping_norm": halving} if mechanism.is_adaptive else {}
    tables = RunTables(
        trials=pd.DataFrame(columns),
        rounds=long_table(1, sigma=sigma, local_sensitivity=sensitivity, log_odds=log_odds, **norms),
        releases=long_table(0, test_accuracy=accuracy, epsilon_star=epsilon_star),
        clients=synthetic_clients(trials, rounds) if with_clients else None,
        residuals=long_table(1, **synthetic_residuals(generator, sigma, noise).columns())
        if with_insider and with_residuals
        else None,
    )
    plan = RunPlan(
        config=synthetic_config(adjacency, prior, with_guarantee, with_epsilon_star),
        federation=synthetic_federation(mechanism, rounds, model, with_insider, threat_model),
        guarantee=synthetic_guarantee(mechanism, rounds, prior, threat_model) if with_guarantee else None,
    )
    return FinishedRun(plan, tables, Timing(4.213, 18.94, 15.87, "ray"))


def synthetic_residuals(generator: np.random.Generator, sigma: np.ndarray, noise: float) -> NoiseStatistics:
    """Return residual sums of a model of two tensors, drawn from the distributions that hold for normal noise."""
    sizes = np.array([640, 10])
    shape = sigma.shape
    scale = noise * sigma
    freedom = np.broadcast_to(sizes - 1, (*shape, 2))
    squares = scale[..., None] ** 2 * generator.chisquare(freedom)
    counts = np.broadcast_to(np.array([640, 640, 640]), (*shape, 1, 3))
    classes = stride_sizes(int(sizes.sum()))
    # Along the difference and along contributions that are as long as the noise, so that few tell.
    noise_draws = noise * np.random.default_rng(77).standard_normal((*shape, 1, 2))
    return NoiseStatistics(
        tensors=("weight", "bias"),
        places=tuple((number, "weight" if number < 640 else "bias") for number in range(0, 650, 10)),
        parameters=650,
        total=squares.sum(axis=-1) + scale**2 * generator.chisquare(1, shape),
        total_freedom=np.full(shape, sizes.sum() - 1),
        squares=squares,
        freedom=freedom,
        projections=scale[..., None] * generator.standard_normal((*shape, 16)),
        gradient=scale * generator.standard_normal(shape),
        signal=np.concatenate([noise_draws, np.ones((*shape, 1, 1))], axis=-1),
        low_bits=np.sqrt(counts / 2) * generator.standard_normal(counts.shape),
        low_bits_count=counts,
        grain=np.full(shape, 1e-6),
        strides=(noise**2 * generator.chisquare(classes, (*shape, len(classes))))[:, :, None],
        sample=noise * generator.standard_normal((*shape, 1, 65)),
    )


def synthetic_participation(sampling_rate: float, cohort: int | None) -> Participation:
    if cohort is not None:
        return RotatingCohorts(cohort, CLIENTS)
    return Everybody() if sampling_rate == 1 else PoissonSampling(sampling_rate)


def synthetic_distribution(
    mu: float,
    rounds: int,
    exact: bool,
    with_guarantee: bool,
    participation: Participation,
    adjacency: Adjacency,
    source: str,
    adaptive: bool,
) -> Mechanism:
    z = rounds**0.5 / mu
    is_client = adjacency.unit is Unit.CLIENT
    clipping = AdaptiveClipping(CLIPPING_NORM) if adaptive else FixedClipping(CLIPPING_NORM)
    return Mechanism(
        adjacency=adjacency,
        clipping=clipping if with_guarantee else NoClipping(),
        participation=participation,
        noise=synthetic_noise(source, z, rounds, exact) if with_guarantee else NoNoise(),
        denominator=1000.0,
        optimizer=ServerOptimizer(ServerOptimizerKind.SGD, 0.005),
        contribution=LocalTraining(LocalSchedule(0.1, 10, epochs=1)) if is_client else RecordGradients(),
    )


def synthetic_noise(source: str, z: float, rounds: int, exact: bool) -> MechanismNoise:
    offered: dict[str, MechanismNoise] = {
        "central": CentralGaussian(z, SensitivityKind.LOCAL if exact else SensitivityKind.GLOBAL),
        "distributed": DistributedGaussian(z, CLIENTS),
        "local": LocalGaussian(z, CLIENTS),
        "tree": CorrelatedGaussian(z, StrategyMatrixKind.TREE, rounds),
        "banded": CorrelatedGaussian(z, StrategyMatrixKind.BANDED, rounds, min(2, rounds)),
    }
    return offered[source]


def synthetic_guarantee(mechanism: Mechanism, rounds: int, prior: float, threat_model: ThreatModel) -> Guarantee:
    fixed = mechanism.scaling is SensitivityKind.LOCAL
    sensitivities = SignalToNoiseAdaptivity.FIXED if fixed else SignalToNoiseAdaptivity.ADAPTIVE
    sampled = mechanism.is_sampled and threat_model.sees_participation
    accountant = Accountant.PLD if sampled else Accountant.RDP_CLASSIC
    events = mechanism.events(rounds, threat_model)
    return derive_guarantee(Claim(mechanism.adjacency, events, DELTA, prior, accountant, sensitivities))


def synthetic_config(adjacency: Adjacency, prior: float, with_guarantee: bool, with_epsilon_star: bool) -> RunConfig:
    """Return a configuration with the settings that a report reads."""
    claim = {"noise-multiplier": 1.0, "adjacency": str(adjacency), "prior": prior}
    privacy = (claim if with_guarantee else {"private": False}) | {"delta": DELTA}
    audit = {"epsilon-star": with_epsilon_star, "insider": with_guarantee, "confidence": 0.95}
    run = {"keep-releases": 4}
    return parse_config({"data": {"name": "adult", "records": 1000}, "privacy": privacy, "audit": audit, "run": run})


def synthetic_federation(
    mechanism: Mechanism, rounds: int, model: str, with_insider: bool, threat_model: ThreatModel
) -> Federation:
    return Federation(
        data=DataSpec("adult"),
        data_seed=0,
        records=1000,
        test_records=100,
        population_records=100,
        clients=CLIENTS,
        partition=PartitionScheme.IID,
        partition_parameters=(),
        pair=NeighbourPair(0, 1),
        model=model,
        mechanism=mechanism,
        rounds=rounds,
        view=InsiderView.UPDATE,
        with_insider=with_insider,
        threat_model=threat_model,
    )


def synthetic_clients(trials: int, rounds: int) -> pd.DataFrame:
    """Five clients; client 3 has too few records, client 4 is apart from the population in most trials."""
    values = np.array([[0.11, 0.21, 0.31, np.nan, np.inf]]) + 0.01 * np.arange(trials)[:, None]
    values[: trials // 2, 4] = 0.4
    return pd.DataFrame(
        {
            "trial": np.repeat(np.arange(trials), 5),
            "round": rounds,
            "client": np.tile(np.arange(5), trials),
            "epsilon_star": values.ravel(),
        }
    )


def long_table(first: int, **columns: np.ndarray) -> pd.DataFrame:
    trials, rounds = next(iter(columns.values())).shape
    keys = {"trial": np.repeat(np.arange(trials), rounds), "round": np.tile(np.arange(first, first + rounds), trials)}
    return pd.DataFrame(keys | {name: values.ravel() for name, values in columns.items()})
