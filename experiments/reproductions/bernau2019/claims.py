"""Claims in the text of Bernau et al. 2019 on their results, each tested by our runs with an interval."""

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
from fl_audit.experiments.reproductions.papers import ItemResult
from fl_audit.experiments.reproductions.statistics import end_by_end, resampling, welch_interval
from fl_audit.statistics.intervals import Interval

LOOKS = 3
"""Number of evaluations of the claims while trials are added: the first part, and twice more (see `planning`)."""
CONFIDENCE = 1 - 0.05 / LOOKS
"""Confidence of the intervals of all claims: whenever trials stop being added, a verdict is wrong with 5 % at most."""


def _claim(played: DataSetRuns, runs: Sequence[MembershipFindings], **told: Any) -> PaperClaim:
    """Return a claim about some runs of a data set; its number of trials is the smallest one among the runs."""
    names = tuple(dict.fromkeys(run.setting.name for run in runs))
    return PaperClaim(**{"section": "6", "where": played.data.title, **told}, trials=min(run.trials for run in runs),
                      runs=names)  # fmt: skip


def _is_attacked(played: DataSetRuns, attack: str) -> PaperClaim:
    """Return the premise of other claims that an attack on the original model, without DP, is better than chance."""
    return _claim(
        played, [played.original], section="3", statement="the attack finds something in the original model",
        quantity=ATTACK_NAMES[attack], found=tradeoffs.area_of(played.original, attack, CONFIDENCE),
        lowest=0.5 + MARGIN,
    )  # fmt: skip


def _is_learned(played: DataSetRuns) -> PaperClaim:
    """Return the premise of other claims that the original model, without DP, has an accuracy above chance."""
    return _claim(
        played, [played.original], section="3", statement="the original model does better than guessing",
        quantity="test accuracy", found=tradeoffs.mean_interval(played.original.test_accuracy, CONFIDENCE),
        lowest=1 / played.data.classes + MARGIN,
    )  # fmt: skip


def at_chance(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claims of section 6 that the AUC of each attack is 1/2 at the noise that the section names."""
    for run, attack in product([run for run in played.private if run.setting.is_at_chance], played.attacks):
        yield _claim(
            played, [run], statement="attacks do no better than guessing at this noise", where=run.setting.label,
            quantity=ATTACK_NAMES[attack], found=tradeoffs.area_of(run, attack, CONFIDENCE),
            lowest=0.5 - MARGIN, highest=0.5 + MARGIN, premises=(_is_attacked(played, attack),),
        )  # fmt: skip


def white_over_black(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claims that white-box access increases the AUC, but only slightly; on COLLAB, that it does not."""
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
    """Yield the claims of section 6 on the AUC under local and central DP at the same accuracy."""
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
    """Yield the claims that the attacks' AUC on Purchases is above 1/2 under weaker noise than section 5.2 names."""
    if played.data.study is not PublishedDataset.PURCHASES:
        return
    for attack in played.attacks:
        runs = [run for run in played.central if run.setting.level < UNTIL_Z[attack]]
        if runs:
            found = [tradeoffs.area_of(run, attack, confidence_of_each(len(runs))) for run in runs]
            yield above_half(attack, played.data.title, end_by_end(min, found), min(run.trials for run in runs))


def confidence_of_each(runs: int) -> float:
    """Return the confidence of each interval, one per run, such that all hold simultaneously (Bonferroni)."""
    return 1 - (1 - CONFIDENCE) / runs


def baseline_on_collab(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claim that the AUC of the black-box attack on COLLAB stays at the baseline of 1/2."""
    if played.data.study is PublishedDataset.COLLAB:
        found = [tradeoffs.area_of(run, BLACK_BOX, confidence_of_each(len(played.runs))) for run in played.runs]
        yield black_box_baseline(played.data.title, found, min(run.trials for run in played.runs))


def phi_at_chance(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claims on phi at the least noise with an AUC of 1/2, for the values printed in sections 5.1 and 5.4."""
    for run in played.private:
        if run.setting.is_at_chance and run.setting == first_at_chance(played, run.setting.method):
            found = tradeoffs.phi(played.original, run, played.of_phi, CONFIDENCE)
            claim = printed_phi(run.setting, found, run.trials)
            if claim is not None:
                premises = (_is_attacked(played, played.of_phi), _is_learned(played))
                yield replace(claim, premises=premises, runs=(run.setting.name,))


def first_at_chance(played: DataSetRuns, method: PrivacyMethod) -> MembershipSetting | None:
    """Return the setting of least noise at which section 6 says that attacks are at chance; None if it was not run.

    Parameters
    ----------
    played
        The runs of one data set.
    method
        The kind of privacy, local or central DP, whose settings are searched.
    """
    return next((run.setting for run in played.of(method) if run.setting.is_at_chance), None)


def _is_guessing(played: DataSetRuns, run: MembershipFindings) -> bool:
    """Return whether the interval of a model's test accuracy lies below chance plus the margin."""
    return tradeoffs.mean_interval(run.test_accuracy, CONFIDENCE).high <= 1 / played.data.classes + MARGIN


def _is_spent(played: DataSetRuns, run: MembershipFindings) -> bool:
    """Return whether both the attack's AUC and the model's accuracy are at chance, where phi is 1 by definition."""
    area = tradeoffs.area_of(run, played.of_phi, CONFIDENCE)
    return _is_guessing(played, run) and max(area.high - 0.5, 0.5 - area.low) <= MARGIN


def phi_above_one(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claim that phi exceeds 1 for some epsilon (on COLLAB: for none), for local and for central DP.

    The intervals of all noise levels hold simultaneously (Bonferroni). Levels at which attack and model are at chance
    (`_is_spent`) are left out as uninformative, but counted in the Bonferroni correction.
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
    """Return the mean phi of the first `ahead` runs after the original, minus that of the remaining runs, if any."""
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
    """Yield the claim that mean phi over noise levels is higher under local (or central) DP, as the paper says."""
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
    """Yield the claim that on Skewed Purchases test accuracy is higher under local than central DP at every level.

    The intervals of all levels hold simultaneously (Bonferroni). Levels at which both models are at chance are left out
    as uninformative, but counted in the Bonferroni correction.
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
    """Yield the claim that confidence on Skewed Purchases is higher at epsilon_i = 1 than at all other levels."""
    found = _surest(played.local, CONFIDENCE) if played.data.study is PublishedDataset.SKEWED else None
    if found is not None:
        yield _claim(
            played, played.local, section="5.5", statement="models are surest of their answers at epsilon_i = 1",
            quantity="confidence at epsilon_i 1 less the largest at another level", found=found, lowest=0.0,
        )  # fmt: skip


def _surest(local: Sequence[MembershipFindings], level: float) -> Interval | None:
    """Return the models' confidence at epsilon_i = 1 minus the largest confidence at any other level.

    The confidence of a model is its mean maximum class probability on the true records of the targets, averaged over
    trials. The intervals of all differences hold simultaneously (Bonferroni). The result is None if epsilon_i = 1, or
    every other level, was not run.
    """
    own = next((one for one in local if one.setting.level == 1.0), None)
    others = [one for one in local if one is not own]
    if own is None or not others:
        return None
    confidence = 1 - (1 - level) / len(others)
    return end_by_end(min, [welch_interval(own.confidence, one.confidence, confidence) for one in others])


def majority_on_collab(played: DataSetRuns) -> Iterator[PaperClaim]:
    """Yield the claim that under strong noise the test accuracy on COLLAB is the share of the largest class."""
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
    """Return all claims that runs can test, in the order of `TESTS` and of the data sets."""
    return [*closed_forms(), *(claim for test in TESTS for one in played for claim in test(one))]


def claims_item(played: Sequence[DataSetRuns]) -> ItemResult:
    """Return the reproduced item "claims": all claims as a table with a figure."""
    return claims_of_text([*claims_of(played), *UNTESTED], [one.data.title for one in played])


def claims_of_text(claims: Sequence[PaperClaim], titles: Sequence[str]) -> ItemResult:
    """Return claims as a table with a figure.

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
