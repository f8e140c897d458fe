"""Claims of Bernau et al. 2019 on phi.

Phi is the relative loss of the attack's AUC divided by the relative loss of accuracy.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import isfinite, isnan

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.experiments.papers.bernau2019 import tradeoffs
from fl_audit.experiments.papers.bernau2019.attacked_models import AttackedModels, DatasetModels
from fl_audit.experiments.papers.bernau2019.claim_premises import (
    CLAIMS,
    CONFIDENCE,
    MARGIN,
    attack_premise,
    claim_resampling,
    confidence_of_each,
    is_guessing,
    model_premise,
    on_runs,
)
from fl_audit.experiments.papers.bernau2019.hyperparameters import COLLAB, LFW, PURCHASES, SKEWED, TEXAS
from fl_audit.experiments.papers.bernau2019.membership_runs import (
    ATTACK_NAMES,
    PHI_AT_CHANCE,
    PRINTED,
    PrivacyMethod,
    is_at_chance,
)
from fl_audit.experiments.papers.claims import NOTHING, PaperClaim
from fl_audit.experiments.papers.papers import PaperRun
from fl_audit.experiments.papers.statistics import end_by_end
from fl_audit.statistics.interval_estimates import IntervalEstimate

_ABOUT = {1.1: "phi-about-1-1", 1.5: "phi-about-1-5"}


def printed_phi(run: PaperRun, interval: IntervalEstimate, trials: int) -> PaperClaim | None:
    """Return the claim that phi is near the value that the paper prints, or None if the paper prints no value.

    phi is the relative loss of the attack's AUC divided by the relative loss of accuracy. The paper prints it at the
    noise at which the AUC falls to 1/2.

    `run`: Section 6 of the paper says that attacks are no better than chance at this level.
    """
    printed = PRINTED(run.data.study, run["method"], PHI_AT_CHANCE)
    if isnan(printed):
        return None
    section = "5.1" if run.data.study == TEXAS else "5.4"
    return CLAIMS[_ABOUT[printed]].on(run.label, interval, trials, section=section)


def phi_at_chance(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield the claims of sections 5.1 and 5.4 on phi, one for local DP and one for central DP.

    Phi is the relative loss of AUC divided by the relative loss of accuracy. The claims hold at the weakest noise for
    which section 6 of the paper states an AUC of 1/2.
    """
    for method in (PrivacyMethod.LOCAL, PrivacyMethod.CENTRAL):
        run = next((group_models for group_models in models.of(method) if is_at_chance(group_models.run)), None)
        if run is None:
            continue
        interval = tradeoffs.phi(models.original, run, models.attack_of_phi, CONFIDENCE)
        claim = printed_phi(run.run, interval, run.trials)
        if claim is not None:
            premises = (attack_premise(models, models.attack_of_phi), model_premise(models))
            yield replace(claim, premises=premises)


def _is_at_chance(models: DatasetModels, setting: AttackedModels) -> bool:
    """Return whether both the model and the attack of a run only guess.

    The test accuracy, and the AUC of the attack, are then those of guessing, up to `MARGIN`.
    """
    area = tradeoffs.area_of(setting, models.attack_of_phi, CONFIDENCE)
    return is_guessing(models, setting) and max(area.high - 0.5, 0.5 - area.low) <= MARGIN


def phi_above_one(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield two claims, one for local DP and one for central DP, on whether phi exceeds 1 at some noise level.

    The paper states that phi exceeds 1 on all data sets except COLLAB, where phi is stated not to exceed 1. The
    intervals of all levels hold jointly (Bonferroni). Levels at which attack and model are at chance are left out, but
    the correction counts them.
    """
    for method in (PrivacyMethod.LOCAL, PrivacyMethod.CENTRAL):
        runs = models.of(method)
        if not runs:
            continue
        confidence = confidence_of_each(len(runs))
        remaining = [run for run in runs if not _is_at_chance(models, run)]
        intervals = {run: tradeoffs.phi(models.original, run, models.attack_of_phi, confidence) for run in remaining}
        estimates = {run: interval for run, interval in intervals.items() if isfinite(interval.low)}
        # One lower end shows that some phi is above 1; all upper ends show that none is.
        largest = end_by_end(max, estimates.values()) if estimates else NOTHING
        # More trials tell most at the level that comes nearest to showing what the largest number says.
        above = largest.value > 1
        nearest = max(
            estimates,
            default=runs[0],
            key=lambda run: (estimates[run].value > 1, estimates[run].low) if above else (False, estimates[run].high),
        )
        key = "phi-below-one-on-collab" if models.data.study == COLLAB else "phi-above-one"
        yield on_runs(
            key,
            models,
            (models.original, nearest),
            largest,
            where=f"{models.data.title}, {method}",
            quantity=f"largest phi ({ATTACK_NAMES[models.attack_of_phi]})",
            why="" if remaining else "at every level neither model nor attack is better than guessing, where phi is 1",
            premises=(attack_premise(models, models.attack_of_phi), model_premise(models)),
        )


def _mean_phi(models: DatasetModels, ahead: int, auc: Floats, accuracy: Floats) -> float:
    """Return the mean of phi over the first `ahead` runs with DP, minus its mean over the other runs with DP.

    Phi is the relative loss of the attack's AUC divided by the relative loss of accuracy. Without other runs, nothing
    is subtracted. `auc` and `accuracy`, shape (runs,), start with the run without DP.
    """
    values = tradeoffs.phis(auc, accuracy, models.data["classes"])
    return float(np.mean(values[:ahead]) - (np.mean(values[ahead:]) if values[ahead:] else 0.0))


_HIGHER_PHI = {
    TEXAS: PrivacyMethod.CENTRAL,
    LFW: PrivacyMethod.CENTRAL,
    PURCHASES: PrivacyMethod.LOCAL,
    SKEWED: PrivacyMethod.LOCAL,
}
"""The kind of privacy with the higher phi, according to section 6."""


def order_of_phi(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield the claim on which kind of DP, local or central, has the higher phi, averaged over noise levels.

    phi is the relative loss of the attack's AUC divided by the relative loss of accuracy. Nothing is yielded if the
    paper does not compare phi on this data set, or if one kind of DP was not run.
    """
    better = _HIGHER_PHI.get(models.data.study)
    if better is None or not models.local or not models.central:
        return
    worse = PrivacyMethod.LOCAL if better is PrivacyMethod.CENTRAL else PrivacyMethod.CENTRAL
    runs = (models.original, *models.of(better), *models.of(worse))
    attack = models.attack_of_phi
    statistic = partial(_mean_phi, models, len(models.of(better)))
    resamples = tradeoffs.auc_and_accuracy_resamples(runs, attack, claim_resampling("order", models, attack))
    key = "phi-higher-under-local" if better is PrivacyMethod.LOCAL else "phi-higher-under-central"
    yield on_runs(
        key,
        models,
        runs,
        resamples.interval(statistic, CONFIDENCE),
        quantity=f"mean phi ({ATTACK_NAMES[attack]}) under {better} less under {worse}",
        premises=(attack_premise(models, attack), model_premise(models)),
    )
