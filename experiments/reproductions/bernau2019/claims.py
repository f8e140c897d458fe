"""Claims in the text of Bernau et al. 2019 on their results, each tested on our runs by a confidence interval."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from math import inf, isfinite
from typing import Any

import numpy as np

from fl_audit.array_types import Floats
from fl_audit.experiments.reproductions.bernau2019 import tradeoffs
from fl_audit.experiments.reproductions.bernau2019.claim_ranges import (
    ACHIEVES_MORE,
    AT_LIKE_ACCURACY,
    LITTLE_MORE,
    MARGIN,
    UNTIL_Z,
    above_half,
    black_box_baseline,
    closed_forms,
    printed_phi,
    trade_sentence,
)
from fl_audit.experiments.reproductions.bernau2019.follow_up_analyses import SECOND_LOOKS
from fl_audit.experiments.reproductions.bernau2019.published import MAJORITY_OF_COLLAB, WHITE_BOX_GAIN, PublishedDataset
from fl_audit.experiments.reproductions.bernau2019.runs import DataSetRuns, MembershipFindings
from fl_audit.experiments.reproductions.bernau2019.settings import (
    ATTACK_NAMES,
    BLACK_BOX,
    WHITE_BOX,
    MembershipSetting,
    PrivacyMethod,
)
from fl_audit.experiments.reproductions.claims import NOTHING, PaperClaim, untested
from fl_audit.experiments.reproductions.claims_table import claims_table
from fl_audit.experiments.reproductions.paper_types import ItemResult
from fl_audit.experiments.reproductions.statistics import end_by_end, resampling, welch_interval
from fl_audit.statistics.intervals import Interval

LOOKS = 3
"""Number of evaluations of the claims while trials are added: the first part, and twice more.

Module `sequential_trial_allocation` adds the trials.
"""
CONFIDENCE = 1 - 0.05 / LOOKS
"""Confidence of the intervals of all claims: whenever trials stop being added, a verdict is wrong with 5 % at most."""


def _claim(played: DataSetRuns, runs: Sequence[MembershipFindings], **told: Any) -> PaperClaim:
    """Return a claim that is tested on runs of a data set; its number of trials is that of the smallest run.

    `told` holds further fields of `PaperClaim`, by name.
    """
    names = tuple(dict.fromkeys(run.setting.name for run in runs))
    return PaperClaim(**{"section": "6", "where": played.data.title, **told}, trials=min(run.trials for run in runs),
                      runs=names)  # fmt: skip


def _is_attacked(played: DataSetRuns, attack: str) -> PaperClaim:
    """Return the claim that the AUC of an attack on the model without DP is at least 1/2 + `MARGIN` (0.03).

    Other claims have this claim as a premise: without it they cannot be tested.
    """
    return _claim(
        played, [played.original], section="3", statement="the attack finds something in the original model",
        quantity=ATTACK_NAMES[attack], found=tradeoffs.area_of(played.original, attack, CONFIDENCE),
        lowest=0.5 + MARGIN,
    )  # fmt: skip


def _is_learned(played: DataSetRuns) -> PaperClaim:
    """Return the claim that the test accuracy of the model without DP is at least 1 / classes + `MARGIN` (0.03).

    Other claims have this claim as a premise: without it they cannot be tested.
    """
    return _claim(
        played, [played.original], section="3", statement="the original model does better than guessing",
        quantity="test accuracy", found=tradeoffs.mean_interval(played.original.test_accuracy, CONFIDENCE),
        lowest=1 / played.data.classes + MARGIN,
    )  # fmt: skip


def at_chance(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield a claim that the AUC is 1/2, for each attack and each run whose noise section 6 calls strong enough."""
    for run, attack in product([run for run in played.private if run.setting.is_at_chance], played.attacks):
        yield _claim(
            played, [run], statement="attacks do no better than guessing at this noise", where=run.setting.label,
            quantity=ATTACK_NAMES[attack], found=tradeoffs.area_of(run, attack, CONFIDENCE),
            lowest=0.5 - MARGIN, highest=0.5 + MARGIN, premises=(_is_attacked(played, attack),),
        )  # fmt: skip


def white_over_black(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claims on the AUC of the white-box attack minus that of the black-box attack, averaged over all runs.

    On COLLAB the claim is that the difference is 0. On the other data sets there are two claims: the difference is
    positive, and it is small. Nothing is yielded if the white-box attack was not run.
    """
    if WHITE_BOX not in played.attacks:
        return
    runs = played.runs
    found, shares = tradeoffs.gain(runs, WHITE_BOX, BLACK_BOX, CONFIDENCE)
    said = "white-box AUC less black-box AUC, mean over settings"
    claim = partial(_claim, played, runs, quantity=said, found=found, shares=shares)
    if played.data.study is PublishedDataset.COLLAB:
        yield claim(statement="both attacks achieve the same on COLLAB", lowest=-MARGIN, highest=MARGIN)
        return
    more = claim(statement=ACHIEVES_MORE, lowest=MARGIN)
    yield more
    # Of a gain that is not there the sentence says nothing.
    yield claim(statement=LITTLE_MORE, highest=WHITE_BOX_GAIN[1], premises=(more,))


def trade(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield for each attack the claim of section 6 on its AUC under local DP minus its AUC under central DP.

    Both AUCs are taken at equal test accuracy. Nothing is yielded if section 6 makes no statement on the data set, or
    if one of the two kinds of DP was not run.
    """
    sentence = trade_sentence(played.data)
    if sentence is None or not played.local or not played.central:
        return
    runs = (played.original, *played.central, *played.local)
    statistic = partial(tradeoffs.difference_at_like_accuracy, split=1 + len(played.central), near=MARGIN)
    for attack in played.attacks:
        drawn = tradeoffs.curve(runs, attack, _random("alike", played, attack))
        yield _claim(
            played, runs, **sentence._asdict(), quantity=f"{ATTACK_NAMES[attack]} {AT_LIKE_ACCURACY}",
            found=drawn.interval(statistic, CONFIDENCE), shares=drawn.shares(statistic),
            premises=(_is_attacked(played, attack), _is_learned(played)),
        )  # fmt: skip


def above_half_on_purchases(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield for each attack on Purchases the claim that its AUC is above 1/2 at noise multipliers below `UNTIL_Z`.

    `UNTIL_Z` holds the noise multiplier that section 5.2 names for each attack. Nothing is yielded for other data sets.
    """
    if played.data.study is not PublishedDataset.PURCHASES:
        return
    for attack in played.attacks:
        runs = [run for run in played.central if run.setting.level < UNTIL_Z[attack]]
        if runs:
            found = [tradeoffs.area_of(run, attack, confidence_of_each(len(runs))) for run in runs]
            yield above_half(attack, played.data.title, end_by_end(min, found), min(run.trials for run in runs))


def confidence_of_each(runs: int) -> float:
    """Return the confidence of each of `runs` intervals such that all hold together at `CONFIDENCE` (Bonferroni)."""
    return 1 - (1 - CONFIDENCE) / runs


def baseline_on_collab(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claim that the AUC of the black-box attack stays near 1/2 on COLLAB; nothing for other data sets."""
    if played.data.study is PublishedDataset.COLLAB:
        found = [tradeoffs.area_of(run, BLACK_BOX, confidence_of_each(len(played.runs))) for run in played.runs]
        yield black_box_baseline(played.data.title, found, min(run.trials for run in played.runs))


def phi_at_chance(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claims on the values of phi in sections 5.1 and 5.4, at the weakest noise with an AUC of 1/2.

    Phi is the relative loss of the attack's AUC divided by the relative loss of accuracy. There is at most one claim
    for local DP and one for central DP. Section 6 says at which noise the AUC is 1/2.
    """
    for run in played.private:
        if run.setting.is_at_chance and run.setting == first_at_chance(played, run.setting.method):
            found = tradeoffs.phi(played.original, run, played.of_phi, CONFIDENCE)
            claim = printed_phi(run.setting, found, run.trials)
            if claim is not None:
                premises = (_is_attacked(played, played.of_phi), _is_learned(played))
                yield replace(claim, premises=premises, runs=(run.setting.name,))


def first_at_chance(played: DataSetRuns, method: PrivacyMethod) -> MembershipSetting | None:
    """Return the setting of weakest noise at which section 6 says that attacks are at chance; None if it was not run.

    Parameters
    ----------
    played
        The runs of one data set.
    method
        The kind of privacy, local or central DP, whose settings are searched.
    """
    return next((run.setting for run in played.of(method) if run.setting.is_at_chance), None)


def _is_guessing(played: DataSetRuns, run: MembershipFindings) -> bool:
    """Return whether a model's test accuracy is at chance: its interval ends at or below 1 / classes + `MARGIN`.

    `MARGIN` (0.03) is the largest difference that counts as none.
    """
    return tradeoffs.mean_interval(run.test_accuracy, CONFIDENCE).high <= 1 / played.data.classes + MARGIN


def _is_spent(played: DataSetRuns, run: MembershipFindings) -> bool:
    """Return whether a run's test accuracy and its attack's AUC are both at chance, within `MARGIN` (0.03)."""
    area = tradeoffs.area_of(run, played.of_phi, CONFIDENCE)
    return _is_guessing(played, run) and max(area.high - 0.5, 0.5 - area.low) <= MARGIN


def phi_above_one(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claims on whether phi exceeds 1 at some noise level, one for local DP and one for central DP.

    Phi is the relative loss of the attack's AUC divided by the relative loss of accuracy. The paper claims that it
    exceeds 1 on all data sets except COLLAB, where it claims the opposite. The intervals of all noise levels hold
    together (Bonferroni). Levels at which both attack and model are at chance tell nothing and are left out, but the
    Bonferroni correction counts them.
    """
    for method in (PrivacyMethod.LOCAL, PrivacyMethod.CENTRAL):
        runs = played.of(method)
        if not runs:
            continue
        confidence = 1 - (1 - CONFIDENCE) / len(runs)
        left = [run for run in runs if not _is_spent(played, run)]
        found = {run: tradeoffs.phi(played.original, run, played.of_phi, confidence) for run in left}
        known = {run: one for run, one in found.items() if isfinite(one.low)}
        # One lower end shows that some phi is above 1; all upper ends show that none is.
        largest = end_by_end(max, known.values()) if known else NOTHING
        # More trials tell most at the level that comes nearest to showing what the largest number says.
        above = largest.value > 1
        nearest = max(
            known, default=runs[0],
            key=lambda run: (known[run].value > 1, known[run].low) if above else (False, known[run].high),
        )  # fmt: skip
        below = played.data.study is PublishedDataset.COLLAB
        said = "phi is above 1 for no epsilon on COLLAB" if below else "phi is above 1 for some epsilon"
        drawn = tradeoffs.curve((played.original, nearest), played.of_phi, _random("phi", played, played.of_phi))
        yield _claim(
            played, (played.original, nearest), statement=said, where=f"{played.data.title}, {method}",
            quantity=f"largest phi ({ATTACK_NAMES[played.of_phi]})", found=largest,
            shares=drawn.shares(partial(_mean_phi, played, 1)),
            lowest=-inf if below else 1.0, highest=1.0 if below else inf,
            why="" if left else "at every level neither model nor attack is better than guessing, where phi is 1",
            premises=(_is_attacked(played, played.of_phi), _is_learned(played)),
        )  # fmt: skip


def _mean_phi(played: DataSetRuns, ahead: int, auc: Floats, accuracy: Floats) -> float:
    """Return the mean phi under one kind of DP minus the mean phi under the other, or minus 0 if the other has no runs.

    Phi is the relative loss of the attack's AUC divided by the relative loss of accuracy. `auc` and `accuracy`, shape
    (runs,), start with the run without DP. The next `ahead` runs are those of the first kind.
    """
    found = tradeoffs.phis(auc, accuracy, played.data.classes)
    return float(np.mean(found[:ahead]) - (np.mean(found[ahead:]) if found[ahead:] else 0.0))


_HIGHER_PHI = {
    PublishedDataset.TEXAS: PrivacyMethod.CENTRAL,
    PublishedDataset.LFW: PrivacyMethod.CENTRAL,
    PublishedDataset.PURCHASES: PrivacyMethod.LOCAL,
    PublishedDataset.SKEWED: PrivacyMethod.LOCAL,
}
"""The kind of privacy with the higher phi, according to section 6."""


def order_of_phi(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claim that phi, averaged over noise levels, is higher under the kind of DP that the paper names.

    Phi is the relative loss of the attack's AUC divided by the relative loss of accuracy. Nothing is yielded if the
    paper names none for the data set, or if local or central DP was not run.
    """
    better = _HIGHER_PHI.get(played.data.study)
    if better is None or not played.local or not played.central:
        return
    worse = PrivacyMethod.LOCAL if better is PrivacyMethod.CENTRAL else PrivacyMethod.CENTRAL
    runs = (played.original, *played.of(better), *played.of(worse))
    attack, statistic = played.of_phi, partial(_mean_phi, played, len(played.of(better)))
    drawn = tradeoffs.curve(runs, attack, _random("order", played, attack))
    yield _claim(
        played, runs, statement=f"phi is higher under {better}",
        quantity=f"mean phi ({ATTACK_NAMES[attack]}) under {better} less under {worse}",
        found=drawn.interval(statistic, CONFIDENCE), shares=drawn.shares(statistic), lowest=0.0,
        premises=(_is_attacked(played, attack), _is_learned(played)),
    )  # fmt: skip


def accuracy_on_skewed(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claim that test accuracy on Skewed Purchases is higher under local than central DP at every level.

    The smallest of the differences is tested. The intervals of all levels hold together (Bonferroni). Levels at which
    both models are at chance tell nothing and are left out, but the Bonferroni correction counts them. Nothing is
    yielded for other data sets.
    """
    pairs = list(zip(played.local, played.central, strict=False))
    if played.data.study is not PublishedDataset.SKEWED or not pairs:
        return
    confidence = 1 - (1 - CONFIDENCE) / len(pairs)
    pairs = [pair for pair in pairs if not all(_is_guessing(played, run) for run in pair)] or pairs
    found = [welch_interval(one.test_accuracy, other.test_accuracy, confidence) for one, other in pairs]
    narrowest = pairs[int(np.argmin([one.low for one in found]))]
    yield _claim(
        played, narrowest, section="5.5", statement="test accuracy under LDP is higher at every level",
        quantity="smallest difference of test accuracies, LDP less CDP, level by level",
        found=end_by_end(min, found), lowest=0.0,
        premises=(_is_learned(played),),
    )  # fmt: skip


def confidence_on_skewed(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claim that models on Skewed Purchases are most confident at epsilon_i = 1; nothing for other data.

    epsilon_i is the epsilon of local DP for one value of a record.
    """
    found = _surest(played.local, CONFIDENCE) if played.data.study is PublishedDataset.SKEWED else None
    if found is not None:
        yield _claim(
            played, played.local, section="5.5", statement="models are surest of their answers at epsilon_i = 1",
            quantity="confidence at epsilon_i 1 less the largest at another level", found=found, lowest=0.0,
        )  # fmt: skip


def _surest(local: Sequence[MembershipFindings], level: float) -> Interval | None:
    """Return the models' confidence at epsilon_i = 1 minus the largest confidence at any other epsilon_i of local DP.

    epsilon_i is the epsilon of local DP for one value of a record. A model's confidence is its maximum class
    probability, averaged over the targets' true records and over trials. The intervals of all differences hold together
    with the confidence `level` (Bonferroni). The result is None if epsilon_i = 1 was not run, or if no other epsilon_i
    was run.
    """
    own = next((one for one in local if one.setting.level == 1.0), None)
    others = [one for one in local if one is not own]
    if own is None or not others:
        return None
    confidence = 1 - (1 - level) / len(others)
    return end_by_end(min, [welch_interval(own.confidence, one.confidence, confidence) for one in others])


def majority_on_collab(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claims that test accuracy on COLLAB under the strongest noise is the share of the largest class.

    There is one claim for local DP and one for central DP. Nothing is yielded for other data sets.
    """
    if played.data.study is not PublishedDataset.COLLAB:
        return
    for run in (one[-1] for one in (played.local, played.central) if one):
        yield _claim(
            played, [run], section="5.3", where=run.setting.label, quantity="test accuracy",
            statement="under strong noise test accuracy is the share of the largest class",
            found=tradeoffs.mean_interval(run.test_accuracy, CONFIDENCE),
            lowest=MAJORITY_OF_COLLAB - MARGIN, highest=MAJORITY_OF_COLLAB + MARGIN,
        )  # fmt: skip


TESTS: tuple[Callable[[DataSetRuns], Iterator[PaperClaim]], ...] = (
    at_chance, above_half_on_purchases, baseline_on_collab, white_over_black, trade, phi_above_one, phi_at_chance,
    order_of_phi, accuracy_on_skewed, confidence_on_skewed, majority_on_collab,
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


def claims_of(played: Sequence[DataSetRuns]) -> list[PaperClaim]:
    """Return all claims that can be tested: first those that need no runs, then each test's claims on each data set.

    `played` holds the runs of each data set.
    """
    return [*closed_forms(), *(claim for test in TESTS for one in played for claim in test(one))]


def claims_item(played: Sequence[DataSetRuns]) -> ItemResult:
    """Return the table, with a figure, of all claims of the paper: those tested on the runs, and those not testable."""
    return claims_of_text([*claims_of(played), *UNTESTED], [one.data.title for one in played])


def claims_of_text(claims: Sequence[PaperClaim], titles: Sequence[str]) -> ItemResult:
    """Return a table of claims and their verdicts, with a figure.

    Parameters
    ----------
    claims
        The claims of the paper, including those that cannot be tested.
    titles
        Titles of the data sets on which the claims were tested.
    """
    said = (
        f"Differences of up to {MARGIN:g} count as none: the smallest that the paper speaks of. Intervals are "
        f"Student's or of resampled trials, each at {CONFIDENCE:.1%}: trials are added where claims are open, which "
        f"are looked at {LOOKS} times at most, so that a verdict is wrong with about 5 %. Of twenty one or more may be."
    )
    premises = (
        "Whether a claim can be tested is decided by the original model alone, which no kind of privacy has touched: "
        f"where the whole interval of its attack's AUC lies below {0.5 + MARGIN:g}, or that of its test accuracy below "
        f"guessing and {MARGIN:g}, there is nothing to be traded, and phi is a ratio of two numbers that are 0 but "
        f"for chance. Where noise has left neither attack nor model more than {MARGIN:g} above guessing phi is 1 by "
        "its formula, whatever the kind of privacy: such levels are left out of whether phi is above 1, and those "
        "where both kinds leave no accuracy out of which kind keeps more."
    )
    return claims_table(claims, SECOND_LOOKS, (said, premises), titles)


def _random(what: str, played: DataSetRuns, attack: str) -> np.random.Generator:
    return resampling(f"{what} {played.data.key} {attack}")
