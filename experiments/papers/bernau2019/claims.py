"""Claims in the text of Bernau et al. 2019 on their results, each tested on our runs by a confidence interval."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np

from fl_audit.experiments.papers.bernau2019 import tradeoffs
from fl_audit.experiments.papers.bernau2019.attacked_models import AttackedModels, DatasetModels, models_by_dataset
from fl_audit.experiments.papers.bernau2019.claim_premises import (
    CONFIDENCE,
    attack_premise,
    claim_on_runs,
    claim_resampling,
    confidence_of_each,
    is_guessing,
    model_premise,
)
from fl_audit.experiments.papers.bernau2019.claim_ranges import (
    ACHIEVES_MORE,
    AT_LIKE_ACCURACY,
    LITTLE_MORE,
    MARGIN,
    UNTIL_Z,
    above_half,
    black_box_baseline,
    closed_forms,
    trade_sentence,
)
from fl_audit.experiments.papers.bernau2019.follow_up_analyses import SECOND_LOOKS
from fl_audit.experiments.papers.bernau2019.hyperparameters import COLLAB, PURCHASES, SKEWED, WHITE_BOX_GAIN
from fl_audit.experiments.papers.bernau2019.membership_runs import (
    ATTACK_NAMES,
    BLACK_BOX,
    PRINTED,
    WHITE_BOX,
    is_at_chance,
)
from fl_audit.experiments.papers.bernau2019.phi_claims import order_of_phi, phi_above_one, phi_at_chance
from fl_audit.experiments.papers.claims import PaperClaim, untested
from fl_audit.experiments.papers.claims_table import claims_table
from fl_audit.experiments.papers.item_results import ItemResult
from fl_audit.experiments.papers.papers import FinishedRuns
from fl_audit.experiments.papers.statistics import end_by_end, welch_interval
from fl_audit.statistics.interval_estimates import IntervalEstimate


def at_chance(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield a claim that the AUC is 1/2, for each attack and each run whose noise section 6 calls strong enough."""
    for run, attack in product([run for run in models.private if is_at_chance(run.run)], models.attacks):
        yield claim_on_runs(
            models, [run], statement="attacks do no better than guessing at this noise", where=run.label,
            quantity=ATTACK_NAMES[attack], found=tradeoffs.area_of(run, attack, CONFIDENCE),
            lowest=0.5 - MARGIN, highest=0.5 + MARGIN, premises=(attack_premise(models, attack),),
        )  # fmt: skip


def white_over_black(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield the claims on the difference of the AUCs of white-box and black-box attack, averaged over all runs.

    On COLLAB the difference is claimed to be 0, elsewhere to be positive and small. Nothing is yielded without
    white-box attacks.
    """
    if WHITE_BOX not in models.attacks:
        return
    runs = models.settings
    found = tradeoffs.gain(runs, WHITE_BOX, BLACK_BOX, CONFIDENCE)
    said = "white-box AUC less black-box AUC, mean over settings"
    claim = partial(claim_on_runs, models, runs, quantity=said, found=found)
    if models.data.study == COLLAB:
        yield claim(statement="both attacks achieve the same on COLLAB", lowest=-MARGIN, highest=MARGIN)
        return
    more = claim(statement=ACHIEVES_MORE, lowest=MARGIN)
    yield more
    # Of a gain that is not there the sentence says nothing.
    yield claim(statement=LITTLE_MORE, highest=WHITE_BOX_GAIN[1], premises=(more,))


def auc_difference_claims(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield one claim for each attack: how its AUC differs between local and central DP at equal test accuracy.

    A claim is the statement of section 6 of the paper on the AUC under local DP minus the AUC under central DP. Nothing
    is yielded if section 6 has no such statement on the data set, or if one kind of DP was not run.
    """
    sentence = trade_sentence(models.data)
    if sentence is None or not models.local or not models.central:
        return
    runs = (models.original, *models.central, *models.local)
    statistic = partial(tradeoffs.difference_at_like_accuracy, split=1 + len(models.central), near=MARGIN)
    for attack in models.attacks:
        drawn = tradeoffs.auc_and_accuracy_resamples(runs, attack, claim_resampling("alike", models, attack))
        yield claim_on_runs(
            models, runs, **sentence._asdict(), quantity=f"{ATTACK_NAMES[attack]} {AT_LIKE_ACCURACY}",
            found=drawn.interval(statistic, CONFIDENCE),
            premises=(attack_premise(models, attack), model_premise(models)),
        )  # fmt: skip


def above_half_on_purchases(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield, for each attack, the claim that its AUC on Purchases is above 1/2 if the noise multiplier is small.

    Small means below 6 for the white-box attack, and below 16 for the black-box attack.
    """
    if models.data.study != PURCHASES:
        return
    for attack in models.attacks:
        runs = [run for run in models.central if run.level < UNTIL_Z[attack]]
        if runs:
            found = [tradeoffs.area_of(run, attack, confidence_of_each(len(runs))) for run in runs]
            yield above_half(attack, models.data.title, end_by_end(min, found), min(run.trials for run in runs))


MAJORITY_OF_COLLAB = PRINTED(COLLAB, "under strong noise", "test accuracy")
"""The share of the largest class."""


def baseline_on_collab(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield the claim that the AUC of the black-box attack stays near 1/2 on COLLAB."""
    if models.data.study == COLLAB:
        found = [tradeoffs.area_of(run, BLACK_BOX, confidence_of_each(len(models.settings))) for run in models.settings]
        yield black_box_baseline(models.data.title, found, min(run.trials for run in models.settings))


def accuracy_on_skewed(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield the claim that on Skewed Purchases test accuracy is higher under local DP than under central DP.

    The claim must hold at every noise level, so the smallest difference is tested, with joint intervals of all levels
    (Bonferroni). Levels at which both models are at chance are left out, but the correction counts them.
    """
    pairs = list(zip(models.local, models.central, strict=False))
    if models.data.study != SKEWED or not pairs:
        return
    confidence = confidence_of_each(len(pairs))
    pairs = [pair for pair in pairs if not all(is_guessing(models, run) for run in pair)] or pairs
    found = [welch_interval(one.test_accuracy, other.test_accuracy, confidence) for one, other in pairs]
    narrowest = pairs[int(np.argmin([one.low for one in found]))]
    yield claim_on_runs(
        models, narrowest, section="5.5", statement="test accuracy under LDP is higher at every level",
        quantity="smallest difference of test accuracies, LDP less CDP, level by level",
        found=end_by_end(min, found), lowest=0.0,
        premises=(model_premise(models),),
    )  # fmt: skip


def confidence_on_skewed(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield the claim that models on Skewed Purchases are most confident at epsilon_i = 1.

    epsilon_i is the epsilon of local DP for one value of a record. Nothing is yielded for other data sets.
    """
    found = _confidence_difference(models.local, CONFIDENCE) if models.data.study == SKEWED else None
    if found is not None:
        yield claim_on_runs(
            models, models.local, section="5.5", statement="models are surest of their answers at epsilon_i = 1",
            quantity="confidence at epsilon_i 1 less the largest at another level", found=found, lowest=0.0,
        )  # fmt: skip


def _confidence_difference(local: Sequence[AttackedModels], level: float) -> IntervalEstimate | None:
    """Return the models' confidence at epsilon_i = 1, minus the largest confidence at another epsilon_i.

    The epsilon_i is the epsilon of local DP for one value of a record. Confidence is the maximum class probability on
    true records. The interval has confidence `level` for all comparisons together. None without a run at epsilon_i = 1
    or without any other run.
    """
    own = next((one for one in local if one.level == 1.0), None)
    others = [one for one in local if one is not own]
    if own is None or not others:
        return None
    confidence = 1 - (1 - level) / len(others)
    return end_by_end(min, [welch_interval(own.confidence, one.confidence, confidence) for one in others])


def majority_on_collab(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield the claims that accuracy on COLLAB under the strongest noise is the share of the largest class."""
    if models.data.study != COLLAB:
        return
    for run in (one[-1] for one in (models.local, models.central) if one):
        yield claim_on_runs(
            models, [run], section="5.3", where=run.label, quantity="test accuracy",
            statement="under strong noise test accuracy is the share of the largest class",
            found=tradeoffs.mean_interval(run.test_accuracy, CONFIDENCE),
            lowest=MAJORITY_OF_COLLAB - MARGIN, highest=MAJORITY_OF_COLLAB + MARGIN,
        )  # fmt: skip


TESTS: tuple[Callable[[DatasetModels], Iterator[PaperClaim]], ...] = (
    at_chance, above_half_on_purchases, baseline_on_collab, white_over_black, auc_difference_claims, phi_above_one,
    phi_at_chance, order_of_phi, accuracy_on_skewed, confidence_on_skewed, majority_on_collab,
)  # fmt: skip


UNTESTED = (
    untested("5.1", "the imbalance of classes hardly changes the AUC", "Location-30 stands in for Texas in one form"),
    untested("5.4", "at z .5 the black-box AUC of 20 people rises", "the weights of VGG-16 cannot be had"),
    untested("6", "local DP trades strictly better with 10 and 20 classes", "its data cannot be had", "Purchases"),
    untested("6", "attacks do no better than guessing at this noise",
             "z 6, of which section 6 speaks, is not among the levels that were played on COLLAB; z 4 and 16, on both "
             "sides of it, stand in Figure 5", "COLLAB, CDP, z 6"),
    untested("6", "local DP can be used for ensembles without more loss", "a property of the definition"),
)  # fmt: skip
"""Statements that cannot be tested, with the reasons."""


def claims_of(datasets: Sequence[DatasetModels]) -> list[PaperClaim]:
    """Return all claims that can be tested on the runs of each data set; first those that need no runs."""
    return [*closed_forms(), *(claim for test in TESTS for one in datasets for claim in test(one))]


def claims_item(finished: FinishedRuns) -> ItemResult:
    """Return the table, with a figure, of all claims of the paper."""
    datasets = models_by_dataset(finished)
    said = (
        f"Differences of up to {MARGIN:g} count as none: the smallest that the paper speaks of. Intervals are "
        f"Student's or of resampled trials, each at {CONFIDENCE:.0%}, so that a verdict is wrong with about 5 %. Of "
        "twenty one or more may be."
    )
    premises = (
        "Whether a claim can be tested is decided by the original model alone, which no kind of privacy has touched: "
        f"where the whole interval of its attack's AUC lies below {0.5 + MARGIN:g}, or that of its test accuracy below "
        f"guessing and {MARGIN:g}, there is nothing to be traded, and phi is a ratio of two numbers that are 0 but "
        f"for chance. Where noise has left neither attack nor model more than {MARGIN:g} above guessing phi is 1 by "
        "its formula, whatever the kind of privacy: such levels are left out of whether phi is above 1, and those "
        "where both kinds leave no accuracy out of which kind keeps more."
    )
    claims, titles = [*claims_of(datasets), *UNTESTED], [models.data.title for models in datasets]
    return claims_table(claims, SECOND_LOOKS, (said, premises), titles)
