"""Privacy against accuracy, with intervals over trials: phi, and the AUC of local and central DP at equal accuracy.

Phi is the relative loss of the attack's AUC divided by the relative loss of accuracy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan, sqrt

import numpy as np
from scipy.special import stdtrit

from fl_audit.array_types import Floats
from fl_audit.audits.membership.attack_results import relative_tradeoff
from fl_audit.experiments.papers.bernau2019.attacked_models import AttackedModels
from fl_audit.experiments.papers.bernau2019.membership_runs import INSIDER
from fl_audit.experiments.papers.item_results import CONFIDENCE
from fl_audit.experiments.papers.statistics import reproducible_generator, t_interval
from fl_audit.statistics.interval_estimates import IntervalEstimate

_RESAMPLES = 1000
_FEWEST_DEFINED = 0.5  # share of the resamples in which a number must be defined for its interval to be stated


@dataclass(frozen=True)
class AucAndAccuracyResamples:
    """An attack's AUC and the test accuracy of several runs: the estimates, and bootstrap resamples of them."""

    # Mean over trials of the AUC of each run, shape (1 + resamples, runs): the first row as found, then one row for
    # each resample of trials.
    auc: Floats
    accuracy: Floats  # mean over trials of the test accuracy of each run, in the shape of `auc`

    def interval(
        self, statistic: Callable[[Floats, Floats], float], confidence: float = CONFIDENCE
    ) -> IntervalEstimate:
        """Return a statistic of AUCs and accuracies, with its percentile bootstrap interval.

        The ends are NaN if the statistic is undefined for the measured values, or for too many resamples.

        Shapes: `statistic` (runs,).
        """
        values = np.array([statistic(*pair) for pair in zip(self.auc, self.accuracy, strict=True)])
        resamples = values[1:][np.isfinite(values[1:])]
        if len(resamples) < _FEWEST_DEFINED * _RESAMPLES or not np.isfinite(values[0]):
            return IntervalEstimate(float(values[0]), nan, nan)
        low, high = np.quantile(resamples, [(1 - confidence) / 2, (1 + confidence) / 2])
        return IntervalEstimate(float(values[0]), float(min(low, values[0])), float(max(high, values[0])))


def auc_and_accuracy_resamples(
    runs: Sequence[AttackedModels], attack: str, random: np.random.Generator
) -> AucAndAccuracyResamples:
    """Return the AUC of an attack and the test accuracy of each run, and their values in bootstrap resamples.

    A resample draws trials of a run with replacement. The trials are shadow models of each other, and therefore
    dependent. So the deviation of each resampled AUC from the estimate is multiplied by sqrt(2). Module
    `fl_audit.audits.membership.roc_metrics` gives the reason for this factor.
    """
    areas = []
    accuracies = []
    for run in runs:
        rows = random.integers(run.trials, size=(_RESAMPLES, run.trials))
        area = run.areas_of_trials[attack]
        accuracy = run.test_accuracy
        middle = area.mean()
        stretched = np.clip(middle + sqrt(2) * (area[rows].mean(axis=1) - middle), 0.0, 1.0)
        areas.append(np.append(middle, stretched))
        accuracies.append(np.append(accuracy.mean(), accuracy[rows].mean(axis=1)))
    return AucAndAccuracyResamples(np.stack(areas, axis=1), np.stack(accuracies, axis=1))


def phi(
    models: AttackedModels, private: AttackedModels, attack: str, confidence: float = CONFIDENCE
) -> IntervalEstimate:
    """Return phi of a run with DP compared with the run without DP, and a bootstrap interval with a fixed seed.

    Phi is the relative loss of the attack's AUC divided by the relative loss of accuracy. Phi and its interval are NaN
    if without DP the attack or the model is no better than guessing.
    """
    random = reproducible_generator(f"phi {private.name} {attack}")
    resamples = auc_and_accuracy_resamples((models, private), attack, random)
    classes = models.run.data["classes"]
    return resamples.interval(lambda auc, accuracy: phis(auc, accuracy, classes)[0], confidence)


def phis(auc: Floats, accuracy: Floats, classes: int) -> list[float]:
    """Return phi of every run with DP, relative to the first run, which is without DP (see `relative_tradeoff`).

    Phi is NaN if the attack or the model of the first run is no better than guessing.

    Shapes: `auc` (runs,), `accuracy` (runs,).
    """
    return [
        relative_tradeoff(float(auc[0]), float(area), float(accuracy[0]), float(right), classes)
        for area, right in zip(auc[1:], accuracy[1:], strict=True)
    ]


def difference_at_like_accuracy(auc: Floats, accuracy: Floats, split: int, near: float) -> float:
    """Return an attack's AUC under local DP minus its AUC under central DP at the same test accuracy.

    The AUC under central DP is interpolated linearly between the runs with central DP and the run without DP. The
    difference is averaged over the runs with local DP whose accuracy lies between the lowest and the highest accuracy
    of those other runs. It is NaN if there is no such run.

    Shapes: `auc` (runs,), `accuracy` (runs,).
    """
    order = np.argsort(accuracy[:split], kind="stable")
    reached = accuracy[:split][order]
    area = auc[:split][order]
    is_near = (accuracy[split:] >= reached[0] - near) & (accuracy[split:] <= reached[-1] + near)
    if not is_near.any():
        return nan
    return float(np.mean(auc[split:][is_near] - np.interp(accuracy[split:][is_near], reached, area)))


def mean_interval(
    values: Floats, confidence: float = CONFIDENCE, shadows_of_each_other: bool = False
) -> IntervalEstimate:
    """Return the mean of one value per trial, with its interval by Student's t.

    Shapes: `values` (trials,).
    """
    wider = sqrt(2) if shadows_of_each_other else 1.0
    interval = t_interval(values, confidence)
    low, high = (interval.value + wider * (end - interval.value) for end in (interval.low, interval.high))
    return IntervalEstimate(interval.value, low, high)


def area_of(models: AttackedModels, attack: str, confidence: float = CONFIDENCE) -> IntervalEstimate:
    """Return an attack's AUC in a run, averaged over trials, with its interval, which is cut to [0, 1]."""
    interval = mean_interval(models.areas_of_trials[attack], confidence, shadows_of_each_other=attack != INSIDER)
    return IntervalEstimate(interval.value, max(interval.low, 0.0), min(interval.high, 1.0))


def gain(
    runs: Sequence[AttackedModels], stronger: str, weaker: str, confidence: float = CONFIDENCE
) -> IntervalEstimate:
    """Return the difference of two attacks' AUCs, averaged over runs.

    Both attacks see the same models, so differences are paired by trial. Runs are independent, and the interval uses
    the Welch-Satterthwaite degrees of freedom.
    """
    differences = [run.areas_of_trials[stronger] - run.areas_of_trials[weaker] for run in runs]
    value = float(np.mean([difference.mean() for difference in differences]))
    variances = np.array([difference.var(ddof=1) / len(difference) for difference in differences])
    freedom = np.array([len(difference) - 1 for difference in differences])
    total = variances.sum()
    if total == 0:
        return IntervalEstimate(value, value, value)
    quantile = float(stdtrit(total**2 / np.sum(variances**2 / freedom), (1 + confidence) / 2))
    reach = quantile * sqrt(2 * total) / len(differences)
    return IntervalEstimate(value, value - reach, value + reach)
