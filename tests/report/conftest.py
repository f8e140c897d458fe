"""Synthetic runs whose law is known exactly: the log-odds are drawn, not trained, and measured as those of any run."""

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
from fl_audit.federation.finished_run import FinishedRun, RunFacts
from fl_audit.federation.public import PublicGame
from fl_audit.federation.run_tables import RunTables, Timing
from fl_audit.federation.seen import View
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.learning.optimizers import OptimizerKind, ServerOptimizer
from fl_audit.mechanisms.contribution import (
    AdaptiveClipping,
    FixedClipping,
    FixedCohort,
    LocalTraining,
    NoClipping,
    Participation,
    RecordGradients,
    participation_of,
)
from fl_audit.mechanisms.law import ReleaseLaw
from fl_audit.mechanisms.noise import (
    CentralGaussian,
    CorrelatedGaussian,
    DistributedGaussian,
    LocalGaussian,
    Noise,
    NoiseScaling,
    NoNoise,
)
from fl_audit.mechanisms.standpoint import CLIENT_ALONE, Standpoint
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.guarantee import Guarantee, guarantee
from fl_audit.privacy.matrices import StrategyKind
from fl_audit.privacy.scores import Sensitivities
from fl_audit.released_model.epsilon_star import StarSettings
from fl_audit.report.finding import RunContents
from fl_audit.verdict.residuals import Residuals, stride_sizes

MakeContents = Callable[..., RunContents]

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
def synthetic_contents(**shape: Any) -> RunContents:
    """Return what the report of a made-up run is drawn from, the same value each time; see `synthetic_run`."""
    return report_contents(synthetic_run(**shape))


def synthetic_run(
    worlds: int = 300,
    rounds: int = 30,
    mu: float = 0.55,
    exact: bool = True,
    with_insider: bool = True,
    with_promise: bool = True,
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
    standpoint: Standpoint = CLIENT_ALONE,
    insiders: int = 1,
    adjacency: Adjacency = Adjacency.REPLACE_RECORD,
    model: str = "adult-mlp",
    neighbour: str = "neighbour most-dissimilar",
    seed: int = 3,
) -> FinishedRun:
    """Return a made-up run of `rounds` rounds under local (exact) or global scaling.

    `noise` is the noise that is really added over that which was promised, `source` who adds it.
    """
    generator = np.random.default_rng(seed)
    law = synthetic_law(
        mu, rounds, exact, with_promise, synthetic_participation(sampling_rate, cohort), adjacency, source, adaptive
    )
    bits = generator.integers(0, 2, worlds)
    sensitivity = CLIPPING_NORM * (0.3 + 0.6 * generator.random((worlds, rounds)))
    sigma = law.noise_scale(sensitivity, standpoint)
    sign = np.where(bits == 1, 1.0, -1.0)
    log_odds = np.full((worlds, rounds), np.nan)
    if with_insider:
        signal = sensitivity / sigma
        steps = sign[:, None] * signal**2 / 2 + noise * signal * generator.standard_normal(signal.shape)
        log_odds = np.cumsum(steps, axis=1)
    belief = expit(sign * (log_odds[:, -1] + logit(prior)))
    accuracy = 0.5 + 0.3 * generator.random((worlds, rounds + 1))
    epsilon_star = generator.random((worlds, rounds + 1)) if with_epsilon_star else np.full_like(accuracy, np.nan)
    columns: dict[str, Any] = {
        "world": np.arange(worlds),
        "bit": bits,
        "log_odds": log_odds[:, -1],
        "belief": belief,
        "won": belief > 0.5,
        "test_accuracy": accuracy[:, -1],
        "test_auroc": accuracy[:, -1],
        "epsilon_star": epsilon_star[:, -1],
    }
    if with_membership:
        columns["membership_advantage"] = 0.018 + 0.01 * generator.standard_normal(worlds)
        columns["record_membership_guess"] = generator.integers(0, 2, worlds)
    tables = RunTables(
        worlds=pd.DataFrame(columns),
        rounds=long_table(
            1, sigma=sigma, local_sensitivity=sensitivity, log_odds=log_odds, **synthetic_norms(law, sigma.shape)
        ),
        releases=long_table(0, test_accuracy=accuracy, epsilon_star=epsilon_star),
        clients=synthetic_clients(worlds, rounds) if with_clients else None,
        residuals=long_table(1, **synthetic_residuals(generator, sigma, noise).columns())
        if with_insider and with_residuals
        else None,
        insiders=synthetic_insiders(worlds, insiders) if insiders > 1 else None,
    )
    facts = RunFacts(
        game=synthetic_game(law, rounds, model, with_insider, standpoint, insiders),
        guarantee=synthetic_guarantee(law, rounds, prior, standpoint) if with_promise else None,
        prior=prior,
        confidence=0.95,
        neighbour=neighbour,
        star=StarSettings(0.00234, 0.01) if with_epsilon_star else None,
        configuration={"data": {"name": "adult", "records": 1000}, "run": {"keep-releases": 4}},
    )
    return FinishedRun(facts, tables, Timing(4.213, 18.94, 15.87, "ray"))


def synthetic_residuals(generator: np.random.Generator, sigma: np.ndarray, noise: float) -> Residuals:
    """Return residual sums of a model of two tensors, drawn from the laws that hold for normal noise."""
    sizes, shape = np.array([640, 10]), sigma.shape
    scale, freedom = noise * sigma, np.broadcast_to(sizes - 1, (*shape, 2))
    squares = scale[..., None] ** 2 * generator.chisquare(freedom)
    counts = np.broadcast_to(np.array([640, 640, 640]), (*shape, 1, 3))
    classes = stride_sizes(int(sizes.sum()))
    return Residuals(
        tensors=("weight", "bias"),
        places=tuple((number, "weight" if number < 640 else "bias") for number in range(0, 650, 10)),
        parameters=650,
        total=squares.sum(axis=-1) + scale**2 * generator.chisquare(1, shape),
        total_freedom=np.full(shape, sizes.sum() - 1),
        squares=squares,
        freedom=freedom,
        projections=scale[..., None] * generator.standard_normal((*shape, 16)),
        gradient=scale * generator.standard_normal(shape),
        low_bits=np.sqrt(counts / 2) * generator.standard_normal(counts.shape),
        low_bits_count=counts,
        grain=np.full(shape, 1e-6),
        strides=(noise**2 * generator.chisquare(classes, (*shape, len(classes))))[:, :, None],
        sample=noise * generator.standard_normal((*shape, 1, 65)),
    )


def synthetic_participation(sampling_rate: float, cohort: int | None) -> Participation:
    return participation_of(sampling_rate) if cohort is None else FixedCohort(cohort, CLIENTS)


def synthetic_law(
    mu: float,
    rounds: int,
    exact: bool,
    with_promise: bool,
    participation: Participation,
    adjacency: Adjacency,
    source: str,
    adaptive: bool,
) -> ReleaseLaw:
    z, is_client = rounds**0.5 / mu, adjacency.unit is Unit.CLIENT
    clipping = AdaptiveClipping(CLIPPING_NORM) if adaptive else FixedClipping(CLIPPING_NORM)
    return ReleaseLaw(
        adjacency=adjacency,
        clipping=clipping if with_promise else NoClipping(),
        participation=participation,
        noise=synthetic_noise(source, z, rounds, exact) if with_promise else NoNoise(),
        denominator=1000.0,
        optimizer=ServerOptimizer(OptimizerKind.SGD, 0.005),
        contribution=LocalTraining(LocalSchedule(0.1, 10, epochs=1)) if is_client else RecordGradients(),
    )


def synthetic_noise(source: str, z: float, rounds: int, exact: bool) -> Noise:
    offered: dict[str, Noise] = {
        "central": CentralGaussian(z, NoiseScaling.LOCAL if exact else NoiseScaling.GLOBAL),
        "distributed": DistributedGaussian(z, CLIENTS),
        "local": LocalGaussian(z, CLIENTS),
        "tree": CorrelatedGaussian(z, StrategyKind.TREE, rounds),
        "banded": CorrelatedGaussian(z, StrategyKind.BANDED, rounds, min(2, rounds)),
    }
    return offered[source]


def synthetic_norms(law: ReleaseLaw, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return a clipping norm that halves over the rounds where it is adaptive, nothing elsewhere."""
    return {"clipping_norm": np.broadcast_to(np.linspace(3.0, 1.5, shape[1]), shape)} if law.is_adaptive else {}


def synthetic_insiders(worlds: int, insiders: int) -> pd.DataFrame:
    """Insider i is right in all worlds but the first i."""
    won = np.arange(worlds)[:, None] >= np.arange(insiders)
    return pd.DataFrame(
        {
            "world": np.repeat(np.arange(worlds), insiders),
            "insider": np.tile(np.arange(1, insiders + 1), worlds),
            "log_odds": 0.5,
            "belief": np.where(won, 0.6, 0.4).ravel(),
            "won": won.ravel(),
        }
    )


def synthetic_guarantee(law: ReleaseLaw, rounds: int, prior: float, standpoint: Standpoint) -> Guarantee:
    fixed = law.scaling is NoiseScaling.LOCAL
    sensitivities = Sensitivities.FIXED if fixed else Sensitivities.ADAPTIVE
    sampled = law.is_sampled and standpoint.sees_participation
    accountant = Accountant.PLD if sampled else Accountant.RDP_CLASSIC
    events = law.events(rounds, standpoint)
    return guarantee(Claim(law.adjacency, events, DELTA, prior, accountant, sensitivities))


def synthetic_game(
    law: ReleaseLaw, rounds: int, model: str, with_insider: bool, standpoint: Standpoint, insiders: int
) -> PublicGame:
    return PublicGame(
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
        law=law,
        rounds=rounds,
        view=View.UPDATE,
        with_insider=with_insider,
        standpoint=standpoint,
        insiders=insiders,
    )


def synthetic_clients(worlds: int, rounds: int) -> pd.DataFrame:
    """Five clients; client 3 has too few records, client 4 is apart from the population in most worlds."""
    values = np.array([[0.11, 0.21, 0.31, np.nan, np.inf]]) + 0.01 * np.arange(worlds)[:, None]
    values[: worlds // 2, 4] = 0.4
    return pd.DataFrame(
        {
            "world": np.repeat(np.arange(worlds), 5),
            "round": rounds,
            "client": np.tile(np.arange(5), worlds),
            "epsilon_star": values.ravel(),
        }
    )


def long_table(first: int, **columns: np.ndarray) -> pd.DataFrame:
    worlds, rounds = next(iter(columns.values())).shape
    keys = {"world": np.repeat(np.arange(worlds), rounds), "round": np.tile(np.arange(first, first + rounds), worlds)}
    return pd.DataFrame(keys | {name: values.ravel() for name, values in columns.items()})
