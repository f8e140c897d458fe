"""Claims in the text of Bernau et al. 2019 on their results, each tested on our runs by a confidence interval."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import log2

import numpy as np

from fl_audit.experiments.papers.bernau2019 import tradeoffs
from fl_audit.experiments.papers.bernau2019.attacked_models import AttackedModels, DatasetModels, models_by_dataset
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
from fl_audit.experiments.papers.bernau2019.hyperparameters import (
    CLASSES,
    COLLAB,
    LFW,
    NOISE_MULTIPLIERS,
    PURCHASES,
    SKEWED,
    TEXAS,
)
from fl_audit.experiments.papers.bernau2019.membership_runs import (
    ATTACK_NAMES,
    BLACK_BOX,
    PRINTED,
    WHITE_BOX,
    is_at_chance,
)
from fl_audit.experiments.papers.bernau2019.phi_claims import order_of_phi, phi_above_one, phi_at_chance
from fl_audit.experiments.papers.bernau2019.skewed import SKEWED_CLASSES
from fl_audit.experiments.papers.claims import PaperClaim, exact, untested
from fl_audit.experiments.papers.claims_table import claims_table
from fl_audit.experiments.papers.item_results import ItemResult
from fl_audit.experiments.papers.papers import PaperDataset, StoredPaperRuns
from fl_audit.experiments.papers.statistics import end_by_end, welch_interval
from fl_audit.statistics.interval_estimates import IntervalEstimate

ABOVE_HALF = {WHITE_BOX: ("white-box-above-half", 6.0), BLACK_BOX: ("black-box-above-half", 16.0)}
"""The claim of section 5.2 on each attack, and the noise on Purchases up to which it has the AUC above one half."""
_FEW_CLASSES = (10, 20)


def trade_claim(dataset: PaperDataset) -> str | None:
    """Return the key of the paper's claim that compares local with central DP at equal accuracy; None without one.

    The claim is a range for the attack's AUC under local DP minus that under central DP. Section 6 says that local DP
    has the better trade-off on Purchases and Skewed Purchases with 10 and 20 classes, and that both have the same
    trade-off on LFW, on Texas, and on Purchases with more classes. It says nothing about other data sets.
    """
    if dataset["classes"] in _FEW_CLASSES and dataset.study in (PURCHASES, SKEWED):
        return "local-trades-better"
    return "trade-alike" if dataset.study in (TEXAS, LFW, PURCHASES) else None


def at_chance(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield a claim that the AUC is 1/2, for each attack and each run whose noise section 6 calls strong enough."""
    for run, attack in product([run for run in models.private if is_at_chance(run.run)], models.attacks):
        yield on_runs(
            "at-chance",
            models,
            [run],
            tradeoffs.area_of(run, attack, CONFIDENCE),
            where=run.label,
            quantity=ATTACK_NAMES[attack],
            premises=(attack_premise(models, attack),),
        )


def white_over_black(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield the claims on the difference of the AUCs of white-box and black-box attack, averaged over all runs.

    On COLLAB the difference is claimed to be 0, elsewhere to be positive and small. Nothing is yielded without
    white-box attacks.
    """
    if WHITE_BOX not in models.attacks:
        return
    runs = models.settings
    gain = tradeoffs.gain(runs, WHITE_BOX, BLACK_BOX, CONFIDENCE)
    if models.data.study == COLLAB:
        yield on_runs("alike-on-collab", models, runs, gain)
        return
    claim = on_runs("white-box-gains", models, runs, gain)
    yield claim
    # Of a gain that is not there the sentence says nothing.
    yield on_runs("white-box-gain-is-small", models, runs, gain, premises=(claim,))


def auc_difference_claims(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield one claim for each attack: how its AUC differs between local and central DP at equal test accuracy.

    A claim is the statement of section 6 of the paper on the AUC under local DP minus the AUC under central DP. Nothing
    is yielded if section 6 has no such statement on the data set, or if one kind of DP was not run.
    """
    key = trade_claim(models.data)
    if key is None or not models.local or not models.central:
        return
    runs = (models.original, *models.central, *models.local)
    statistic = partial(tradeoffs.difference_at_like_accuracy, split=1 + len(models.central), near=MARGIN)
    for attack in models.attacks:
        resamples = tradeoffs.auc_and_accuracy_resamples(runs, attack, claim_resampling("alike", models, attack))
        yield on_runs(
            key,
            models,
            runs,
            resamples.interval(statistic, CONFIDENCE),
            quantity=f"{ATTACK_NAMES[attack]} under LDP less under CDP, at the same test accuracy",
            premises=(attack_premise(models, attack), model_premise(models)),
        )


def above_half_on_purchases(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield, for each attack, the claim that its AUC on Purchases is above 1/2 if the noise multiplier is small.

    Small means below 6 for the white-box attack, and below 16 for the black-box attack.
    """
    if models.data.study != PURCHASES:
        return
    for attack in models.attacks:
        key, largest = ABOVE_HALF[attack]
        runs = [run for run in models.central if run.level < largest]
        if runs:
            intervals = [tradeoffs.area_of(run, attack, confidence_of_each(len(runs))) for run in runs]
            where = f"{models.data.title}, CDP"
            yield on_runs(key, models, runs, end_by_end(min, intervals), where=where)


def baseline_on_collab(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield the claim that the AUC of the black-box attack stays near 1/2 on COLLAB."""
    if models.data.study == COLLAB:
        intervals = [
            tradeoffs.area_of(run, BLACK_BOX, confidence_of_each(len(models.settings))) for run in models.settings
        ]
        farthest = max(intervals, key=lambda interval: abs(interval.value - 0.5))
        yield on_runs("baseline-on-collab", models, models.settings, farthest)


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
    intervals = [
        welch_interval(models.test_accuracy, other_models.test_accuracy, confidence) for models, other_models in pairs
    ]
    narrowest = pairs[int(np.argmin([interval.low for interval in intervals]))]
    smallest = end_by_end(min, intervals)
    yield on_runs("accuracy-higher-under-local", models, narrowest, smallest, premises=(model_premise(models),))


def confidence_on_skewed(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield the claim that models on Skewed Purchases are most confident at epsilon_i = 1.

    epsilon_i is the epsilon of local DP for one value of a record. Nothing is yielded for other data sets.
    """
    difference = _confidence_difference(models.local, CONFIDENCE) if models.data.study == SKEWED else None
    if difference is not None:
        yield on_runs("surest-at-one", models, models.local, difference)


def _confidence_difference(local: Sequence[AttackedModels], level: float) -> IntervalEstimate | None:
    """Return the models' confidence at epsilon_i = 1, minus the largest confidence at another epsilon_i.

    The epsilon_i is the epsilon of local DP for one value of a record. Confidence is the maximum class probability on
    true records. The interval has confidence `level` for all comparisons together. None without a run at epsilon_i = 1
    or without any other run.
    """
    at_one = next((models for models in local if models.level == 1.0), None)
    other_models = [models for models in local if models is not at_one]
    if at_one is None or not other_models:
        return None
    confidence = 1 - (1 - level) / len(other_models)
    return end_by_end(
        min, [welch_interval(at_one.confidence, models.confidence, confidence) for models in other_models]
    )


def majority_on_collab(models: DatasetModels) -> Iterator[PaperClaim]:
    """Yield the claims that accuracy on COLLAB under the strongest noise is the share of the largest class."""
    if models.data.study != COLLAB:
        return
    for run in (models[-1] for models in (models.local, models.central) if models):
        accuracy = tradeoffs.mean_interval(run.test_accuracy, CONFIDENCE)
        yield on_runs("majority", models, [run], accuracy, where=run.label)


def entropy_gap(classes: int) -> float:
    """Return how much more entropy a test record of Skewed Purchases has than a training record, in bits per feature.

    One in `classes` features is an indicator bit, alike in both kinds of records. All other features are noise bits: 1
    with probability 0.5 in test and 0.2 in training records.
    """

    def entropy(p: float) -> float:
        return -p * log2(p) - (1 - p) * log2(1 - p)

    return (1 - 1 / classes) * (entropy(0.5) - entropy(0.2))


def closed_forms() -> tuple[PaperClaim, ...]:
    """Return the claims of the paper that are tested without runs, from formulas and from its printed numbers."""
    gaps = [entropy_gap(classes) for classes in SKEWED_CLASSES]
    beside = []
    for z in NOISE_MULTIPLIERS:
        column = f"CDP, z {z:g}"
        quantity = "epsilon of central DP"
        printed_number = PRINTED(TEXAS, column, quantity)  # of an author's blog
        printed = [PRINTED(TEXAS, f"{classes} classes, {column}", quantity) for classes in CLASSES[TEXAS]]
        beside.append(max(min(printed) - printed_number, printed_number - max(printed), 0.0))
    return (
        CLAIMS["entropy"].on("Skewed Purchases, all numbers of classes", exact(min(gaps))),
        CLAIMS["blog-epsilons"].on("Table 3, Texas", exact(max(beside))),
    )


TESTS: tuple[Callable[[DatasetModels], Iterator[PaperClaim]], ...] = (
    at_chance,
    above_half_on_purchases,
    baseline_on_collab,
    white_over_black,
    auc_difference_claims,
    phi_above_one,
    phi_at_chance,
    order_of_phi,
    accuracy_on_skewed,
    confidence_on_skewed,
    majority_on_collab,
)


def claims_of(datasets: Sequence[DatasetModels]) -> list[PaperClaim]:
    """Return all claims that can be tested on the runs of each data set; first those that need no runs."""
    return [*closed_forms(), *(claim for test in TESTS for dataset in datasets for claim in test(dataset))]


def claims_item(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return the table, with a figure, of all claims of the paper."""
    datasets = models_by_dataset(paper_runs)
    summary = (
        f"Differences of up to {MARGIN:g} count as none: the smallest that the paper speaks of. Intervals are "
        f"Student's or of resampled trials, each at {CONFIDENCE:.0%}, so that a verdict is wrong with about 5 %."
    )
    premises = (
        "A claim is not tested where the original model, without privacy, leaves nothing to be traded: where the "
        f"interval of its attack's AUC lies below {0.5 + MARGIN:g}, or that of its test accuracy below guessing and "
        f"{MARGIN:g}."
    )
    claims = [*claims_of(datasets), *untested(CLAIMS)]
    titles = [models.data.title for models in datasets]
    return claims_table(claims, (summary, premises), titles)
