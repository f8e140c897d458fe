"""Findings on Epsilon* of the released model, for records, for users and for clients.

Epsilon* is an empirical epsilon from the losses of one model on members and on other records.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fl_audit.array_types import finite
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.released_model.normal_fit_tests import FIT, rejected
from fl_audit.released_model.star_methods import StarMethod

_OF_USERS, _RIGHT_OF_USERS = "epsilon_star_user", "test_accuracy_user"  # columns of runs whose units are users
_COUNTED = "epsilon_star_counted"
_LEAST = "epsilon_star_least"
FEW_NATS = 3.0  # if Epsilon* of untrained models is larger, Epsilon* of trained models is not informative


@dataclass(frozen=True)
class EpsilonStarSummary:
    """Mean and maximum over the trials of Epsilon*, in nats, by one estimator.

    Both values are given for the final models and for untrained models. Values are infinite or NaN if Epsilon* was not
    determined.
    """

    mean: float  # mean of the final models
    max: float  # maximum of the final models
    untrained_mean: float  # mean of the initial models, which cannot leak, so that it shows the effect of chance
    untrained_max: float  # maximum of the initial models
    cut: float  # error rates below `cut` or above 1 - `cut` were left out


@dataclass(frozen=True)
class EpsilonStarFinding:
    """Epsilon* of the final models, summarised over the trials.

    The estimator uses normal distributions, or empirical distributions if a test rejects in most trials that the losses
    are normal, or if no trial could be tested. With too few losses for a value, `mean` and `max` are those of lower
    bounds that hold for any distributions.
    """

    mean: float  # mean over the trials, in nats; infinite or NaN if Epsilon* was not determined
    max: float  # maximum over the trials, in nats; infinite or NaN if Epsilon* was not determined
    delta: float  # the delta at which Epsilon* was computed
    cut: float  # error rates below `cut` or above 1 - `cut` were left out
    untrained_mean: float  # mean of the initial models, which cannot leak; NaN if unknown
    untrained_max: float  # maximum of the initial models; NaN if unknown
    method: StarMethod = StarMethod.PARAMETRIC  # estimator; `empirical` if normality was rejected in most trials
    fit_tested: int = 0  # number of trials in which normality of the losses was tested
    fit_rejected: int = 0  # number of trials in which normality was rejected
    by_normals: EpsilonStarSummary | None = None  # the estimate by normal distributions, if `method` is `empirical`
    is_lower_bound: bool = False  # whether the losses are too few for a value, so that the numbers are lower bounds

    @property
    def is_meaningful(self) -> bool:
        """Whether Epsilon* is informative: its mean over untrained models is at most 3 nats, or unknown."""
        return not self.untrained_mean > FEW_NATS

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `epsilon_star`, for `summary.json`."""
        return {"epsilon_star": json_of(self) | {"is_meaningful": self.is_meaningful}}


def measure_star(run: FinishedRun, _: Findings) -> EpsilonStarFinding | None:
    """Return Epsilon* of the final models over all trials; None if its computation is switched off."""
    if run.plan.star is None:
        return None
    settings = run.plan.star
    trials = run.tables.trials
    normal = _spread(run, "epsilon_star", settings.cut)
    tested, against = rejected(trials[FIT].to_numpy(dtype=np.float64)) if FIT in trials else (0, 0)
    finding = EpsilonStarFinding(delta=settings.delta, **vars(normal), fit_tested=tested, fit_rejected=against)
    if not tested and _is_known(run, _LEAST):
        summary = _spread(run, _LEAST, settings.counted_cut)
        return replace(finding, **vars(summary), method=StarMethod.EMPIRICAL, by_normals=normal, is_lower_bound=True)
    # Tables of older versions do not tell few losses, whose counted value is large by chance, from equal ones.
    is_rejected = 2 * against > tested if tested else _LEAST in trials
    if not (is_rejected and _is_known(run, _COUNTED)):
        return finding
    empirical = _spread(run, _COUNTED, settings.counted_cut)
    return replace(finding, **vars(empirical), method=StarMethod.EMPIRICAL, by_normals=normal)


def _is_known(run: FinishedRun, column: str) -> bool:
    """Return whether a column of the tables has a value for every trial."""
    return column in run.tables.trials and not bool(run.tables.trials[column].isna().any())


@dataclass(frozen=True)
class UserEpsilonStarFinding:
    """Epsilon* of users and the accuracy averaged over users, both measured for the final models.

    Epsilon* is computed from the mean loss of each user.
    """

    # Epsilon* of users; None if it was switched off or the losses stay with their owners.
    star: EpsilonStarSummary | None
    delta: float  # the delta at which Epsilon* was computed; NaN without Epsilon*
    # Share of right predictions on a test user's records, mean over users and trials; NaN if unknown.
    test_accuracy: float

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `of_users`, for `summary.json`."""
        star = None if self.star is None else json_of(self.star)
        right = finite(self.test_accuracy)
        return {"of_users": {"epsilon_star": star, "delta": finite(self.delta), "test_accuracy": right}}


def measure_users(run: FinishedRun, _: Findings) -> UserEpsilonStarFinding | None:
    """Return Epsilon* and accuracy of users; None if neither was computed, as in runs whose unit is not the user."""
    trials = run.tables.trials
    settings = run.plan.star
    if _OF_USERS not in trials and _RIGHT_OF_USERS not in trials:
        return None
    star = None if settings is None or _OF_USERS not in trials else _spread(run, _OF_USERS, settings.cut)
    right = float(trials[_RIGHT_OF_USERS].mean()) if _RIGHT_OF_USERS in trials else math.nan
    return UserEpsilonStarFinding(star, math.nan if star is None or settings is None else settings.delta, right)


def _spread(run: FinishedRun, column: str, cut: float) -> EpsilonStarSummary:
    values = run.tables.trials[column]
    releases = run.tables.releases
    untrained = releases.loc[releases["round"] == 0, column]
    return EpsilonStarSummary(
        mean=float(values.mean()),
        max=float(values.max()),
        untrained_mean=float(untrained.mean()),
        untrained_max=float(untrained.max()),
        cut=cut,
    )
