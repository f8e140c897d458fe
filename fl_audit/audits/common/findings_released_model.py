"""Findings on the released model and its data owners: accuracy, Epsilon* from losses, and guarantees of owners."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fl_audit.array_types import Floats, finite
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_tables import NonPrivateAccuracy, Provenance, Timing
from fl_audit.learning.private_training import opacus_epsilon
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.privacy.accounting import Accountant, client_epsilons
from fl_audit.released_model.methods import StarMethod
from fl_audit.released_model.normal_fit_tests import FIT, rejected

_OF_USERS, _RIGHT_OF_USERS = "epsilon_star_user", "test_accuracy_user"  # columns of runs whose units are users
FEW_NATS = 3.0  # Epsilon* of models that cannot leak beyond which Epsilon* of others says nothing


@dataclass(frozen=True)
class StarSummary:
    """Epsilon* over the trials by one estimator, in nats; infinite or NaN if it was not determined."""

    mean: float  # of the final releases
    max: float  # the largest of them
    untrained_mean: float  # mean of the initial models, which cannot leak: what chance alone reaches
    untrained_max: float  # the largest of the initial models
    cut: float  # error rates below it or above 1 - cut were left out


@dataclass(frozen=True)
class EpsilonStarFinding:
    """Epsilon* of the final models by the valid estimator.

    It uses normal distributions, or empirical distributions if a test rejects that the losses are normal.
    """

    mean: float  # over the trials, in nats; infinite or NaN where it was not determined
    max: float  # the largest over the trials; infinite or NaN where it was not determined
    delta: float  # at which it was computed
    cut: float  # error rates below it or above 1 - cut were left out
    untrained_mean: float  # mean of the initial models, which cannot leak: what chance alone reaches; NaN where unknown
    untrained_max: float  # the largest of the initial models; NaN where unknown
    method: StarMethod = StarMethod.PARAMETRIC  # `empirical` where normals were rejected in most trials
    fit_tested: int = 0  # trials in which it was tested whether normals fit the losses
    fit_rejected: int = 0  # trials in which they do not
    by_normals: StarSummary | None = None  # the estimate by normals, where the numbers above have another basis

    @property
    def is_meaningful(self) -> bool:
        """Whether Epsilon* of untrained models is small enough for Epsilon* to be informative, or is unknown."""
        return not self.untrained_mean > FEW_NATS

    def to_json(self) -> dict[str, Any]:
        """Return this finding under the key `epsilon_star` of `summary.json`."""
        return {"epsilon_star": json_of(self) | {"is_meaningful": self.is_meaningful}}


@dataclass(frozen=True)
class ModelFinding:
    """The test accuracy and AUROC of the final models."""

    test_accuracy: float  # share of right predictions on test records, mean over trials
    test_auroc: float  # area under the ROC on test records, mean over trials; NaN where there is none
    # Results of the same training without privacy; None where no such run was named.
    unprotected: NonPrivateAccuracy | None = None
    commonest: float | None = None  # accuracy of always naming the most frequent class; None where it is not known

    def to_json(self) -> dict[str, Any]:
        """Return this finding under the key `utility` of `summary.json`."""
        without = None if self.unprotected is None else self.unprotected.final
        accuracy = {"test_accuracy": self.test_accuracy, "test_auroc": finite(self.test_auroc)}
        others = {"commonest_class": self.commonest, "test_accuracy_without_privacy": without}
        return {"utility": accuracy | others}


def measure_model(run: FinishedRun, _: Findings) -> ModelFinding:
    """Return the test accuracy of the final models, with that of the same training without privacy if known."""
    trials = run.tables.trials
    # Batches of an older version have no area.
    area = float(trials["test_auroc"].mean()) if "test_auroc" in trials else math.nan
    return ModelFinding(float(trials["test_accuracy"].mean()), area, run.unprotected, run.facts.commonest)


def measure_star(run: FinishedRun, _: Findings) -> EpsilonStarFinding | None:
    """Return Epsilon* of the final models; None if it is switched off."""
    if run.facts.star is None:
        return None
    settings, trials = run.facts.star, run.tables.trials
    normal = _spread(run, "epsilon_star", settings.cut)
    tested, against = rejected(trials[FIT].to_numpy(dtype=np.float64)) if FIT in trials else (0, 0)
    if 2 * against <= tested or trials["epsilon_star_counted"].isna().any():
        return EpsilonStarFinding(delta=settings.delta, **vars(normal), fit_tested=tested, fit_rejected=against)
    counted = _spread(run, "epsilon_star_counted", settings.counted_cut)
    found = EpsilonStarFinding(delta=settings.delta, **vars(counted), fit_tested=tested, fit_rejected=against)
    return replace(found, method=StarMethod.EMPIRICAL, by_normals=normal)


@dataclass(frozen=True)
class UserLossFinding:
    """Epsilon* of users, from the mean loss of each user, and the accuracy averaged over users, of the final models."""

    star: StarSummary | None  # None where Epsilon* was turned off, or losses stay with their owners
    delta: float  # at which it was computed; NaN without it
    # Mean over test users of the share of their records that is named right, and over trials; NaN where unknown.
    test_accuracy: float

    def to_json(self) -> dict[str, Any]:
        """Return this finding under the key `of_users` of `summary.json`."""
        star = None if self.star is None else json_of(self.star)
        right = finite(self.test_accuracy)
        return {"of_users": {"epsilon_star": star, "delta": finite(self.delta), "test_accuracy": right}}


def measure_users(run: FinishedRun, _: Findings) -> UserLossFinding | None:
    """Return Epsilon* and accuracy of users; None if the unit is not the user, or for a run of an older version."""
    trials, settings = run.tables.trials, run.facts.star
    if _OF_USERS not in trials and _RIGHT_OF_USERS not in trials:
        return None
    star = None if settings is None or _OF_USERS not in trials else _spread(run, _OF_USERS, settings.cut)
    right = float(trials[_RIGHT_OF_USERS].mean()) if _RIGHT_OF_USERS in trials else math.nan
    return UserLossFinding(star, math.nan if star is None or settings is None else settings.delta, right)


def _spread(run: FinishedRun, column: str, cut: float) -> StarSummary:
    values, releases = run.tables.trials[column], run.tables.releases
    untrained = releases.loc[releases["round"] == 0, column]
    return StarSummary(
        mean=float(values.mean()),
        max=float(values.max()),
        untrained_mean=float(untrained.mean()),
        untrained_max=float(untrained.max()),
        cut=cut,
    )


@dataclass(frozen=True)
class ProvenanceFinding:
    """The provenance of a run, None if not recorded, and its timing."""

    provenance: Provenance | None
    timing: Timing

    def to_json(self) -> dict[str, Any]:
        """Return the key `timing` of `summary.json`, the only one that differs when the same run is repeated."""
        return {"timing": json_of(self.timing)}


def measure_origin(run: FinishedRun, _: Findings) -> ProvenanceFinding:
    """Return the provenance of a run, and its timing."""
    return ProvenanceFinding(run.provenance, run.timing)


@dataclass(frozen=True)
class ClientEpsilonStar:
    """Quantiles over the trials of Epsilon* of one client's shard, in nats; infinite if unbounded."""

    client: int  # number of the client
    trials: int  # trials in which its shard had two records or more; without any the rest is NaN
    low: float  # quantile of 5 %
    median: float  # of 50 %
    high: float  # of 95 %
    max: float  # the largest


@dataclass(frozen=True)
class ClientStarFinding:
    """Epsilon* of every client's shard for the final models, and the number of records of each shard if known."""

    clients: tuple[ClientEpsilonStar, ...]
    shards: tuple[int, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return this finding under the key `client_epsilon_star` of `summary.json`."""
        return {"client_epsilon_star": json_of(self.clients)}


def measure_clients(run: FinishedRun, _: Findings) -> ClientStarFinding | None:
    """Return Epsilon* of every client's shard; None if it was not computed."""
    table = run.tables.clients
    if table is None or "epsilon_star" not in table:
        return None
    last = table[table["round"] == table["round"].max()]
    noted = None if run.provenance is None else run.provenance.shards
    groups = last.groupby("client")["epsilon_star"]
    clients = tuple(_client(int(str(client)), known.dropna().to_numpy(dtype=np.float64)) for client, known in groups)
    return ClientStarFinding(
        clients, noted if noted is not None and len(noted) == run.facts.federation.clients else None
    )


def _client(client: int, known: Floats) -> ClientEpsilonStar:
    if not known.size:
        return ClientEpsilonStar(client, 0, math.nan, math.nan, math.nan, math.nan)
    # Order statistics, for an unbounded value has no mean and no neighbour to interpolate to.
    low, median, high = (float(np.quantile(known, level, method="inverted_cdf")) for level in (0.05, 0.5, 0.95))
    return ClientEpsilonStar(client, int(known.size), low, median, high, float(known.max()))


@dataclass(frozen=True)
class ClientGuarantee:
    """The guarantee of one client over all rounds."""

    client: int  # number of the client
    records: int  # size of its shard
    sampling_rate: float  # probability with which a record was in a step, as its accountant counted
    steps: int  # steps that its accountant counted
    epsilon: float  # epsilon of the client's guarantee by the accountant of the run
    epsilon_rdp: float  # epsilon of the client's guarantee by `rdp`
    epsilon_opacus: float  # the report of its own accountant of Opacus


@dataclass(frozen=True)
class ClientGuarantees:
    """The guarantee of each client for its own records, if clients train with DP-SGD."""

    clients: tuple[ClientGuarantee, ...]

    def to_json(self) -> dict[str, Any]:
        """Return this finding under the key `client_guarantees` of `summary.json`."""
        return {"client_guarantees": json_of(self.clients)}


def measure_client_guarantees(run: FinishedRun, _: Findings) -> ClientGuarantees | None:
    """Return the guarantee of every client; None if clients do not train with DP-SGD."""
    table, guarantee, mechanism = run.tables.clients, run.facts.guarantee, run.facts.federation.mechanism
    if table is None or guarantee is None or not isinstance(mechanism.contribution, PrivateTraining):
        return None
    # An accountant counts the same steps in every trial.
    last = table[table["round"] == table["round"].max()].groupby("client").max().sort_index()
    shards, schedule = [int(records) for records in last["records"]], mechanism.contribution.schedule

    def claimed(accountant: Accountant) -> tuple[float, ...]:
        return client_epsilons(
            shards, schedule.batch, run.facts.federation.rounds, mechanism.noise_multiplier, guarantee.delta,
            accountant,
            epochs=schedule.epochs, steps=schedule.steps,
        )  # fmt: skip

    rates = [float(rate) for rate in last["accounted_sampling_rate"]]
    steps = [int(count) for count in last["accounted_steps"]]
    noise = [float(one) for one in last["accounted_noise_multiplier"]]
    kept = [opacus_epsilon(*counted, guarantee.delta) for counted in zip(noise, rates, steps, strict=True)]
    columns = (shards, rates, steps, claimed(guarantee.accountant), claimed(Accountant.RDP), kept)
    clients = enumerate(zip(*columns, strict=True))
    return ClientGuarantees(tuple(ClientGuarantee(client, *values) for client, values in clients))
