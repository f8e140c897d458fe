"""What Bernau et al. 2019 say of their results in words, each held against our runs with an interval."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite, nan
from typing import Any

import numpy as np

from experiments.reproductions.bernau2019.confidences import surest
from experiments.reproductions.bernau2019.figures import ATTACK_NAMES, Runs, is_at_chance, phi_of, runs_of_method
from experiments.reproductions.bernau2019.published import MAJORITY_OF_COLLAB, WHITE_BOX_GAIN, MembershipStudy
from experiments.reproductions.bernau2019.runs import MembershipFindings
from experiments.reproductions.bernau2019.second_looks import SECOND_LOOKS
from experiments.reproductions.bernau2019.settings import BLACK_BOX, INSIDER, WHITE_BOX, MembershipData, Method
from experiments.reproductions.bernau2019.tradeoffs import (
    area_of,
    curve,
    difference_at_like_accuracy,
    gain,
    interval_of,
    mean_interval,
    phis,
)
from experiments.reproductions.claims import PaperClaim, untested
from experiments.reproductions.claims_table import claims_table
from experiments.reproductions.items import ItemResult
from experiments.reproductions.statistics import resampling, welch_interval
from fl_audit.arrays import Floats
from fl_audit.evidence.membership.rates import Interval

LOOKS = 3
"""How often claims are looked at while worlds are added: first part, and twice more (see `planning`)."""
CONFIDENCE = 1 - 0.05 / LOOKS
"""Of the intervals of all claims: whenever worlds stop being added, a verdict is wrong with 5 % at most."""
MARGIN = WHITE_BOX_GAIN[0]
"""What counts as no difference of an AUC or accuracy: the smallest one that the paper speaks of."""


@dataclass(frozen=True)
class Played:
    """The runs of one data set: the original model, and those under each kind of privacy with falling epsilon."""

    data: MembershipData
    original: MembershipFindings
    local: tuple[MembershipFindings, ...]
    central: tuple[MembershipFindings, ...]

    @property
    def private(self) -> tuple[MembershipFindings, ...]:
        """All runs with privacy."""
        return (*self.local, *self.central)

    @property
    def attacks(self) -> tuple[str, ...]:
        """Those of the paper's attacks that were played."""
        return tuple(attack for attack in (BLACK_BOX, WHITE_BOX) if attack in self.original.areas_of_worlds)

    @property
    def of_phi(self) -> str:
        """The attack by which phi is found, the white-box one as in the paper."""
        return self.attacks[-1]

    def of(self, method: Method) -> tuple[MembershipFindings, ...]:
        """Return the runs under one kind of privacy."""
        return self.local if method is Method.LOCAL else self.central


def _played_of(data: MembershipData, runs: Runs) -> Played:
    """Return the runs of one data set."""
    original, *local = runs_of_method(runs, data, Method.LOCAL)
    _, *central = runs_of_method(runs, data, Method.CENTRAL)
    return Played(data, original, tuple(local), tuple(central))


def _claim(played: Played, runs: Sequence[MembershipFindings], **told: Any) -> PaperClaim:
    """Return a claim about some runs of a data set: it has as many worlds as the smallest of them."""
    names = tuple(dict.fromkeys(run.setting.name for run in runs))
    return PaperClaim(**{"section": "6", "where": played.data.title, **told}, worlds=min(run.worlds for run in runs),
                      runs=names)  # fmt: skip


def at_chance(played: Played) -> Iterator[PaperClaim]:
    """Yield whether attacks do no better than guessing where section 6 says so."""
    for run in played.private:
        if is_at_chance(run.setting):
            for attack in played.attacks:
                yield _claim(
                    played, [run], statement="attacks do no better than guessing at this noise",
                    where=run.setting.label, quantity=ATTACK_NAMES[attack], found=area_of(run, attack, CONFIDENCE),
                    lowest=0.5 - MARGIN, highest=0.5 + MARGIN,
                )  # fmt: skip


def white_over_black(played: Played) -> Iterator[PaperClaim]:
    """Yield whether the view inside helps, and only a little."""
    if WHITE_BOX not in played.attacks:
        return
    runs = (played.original, *played.private)
    found = gain(runs, WHITE_BOX, BLACK_BOX, CONFIDENCE)
    claim = partial(_claim, played, runs, quantity="white-box AUC less black-box AUC, mean over settings", found=found)
    if played.data.study is MembershipStudy.COLLAB:
        yield claim(statement="both attacks achieve the same on COLLAB", lowest=-MARGIN, highest=MARGIN)
        return
    yield claim(statement="white-box attacks achieve more than black-box ones", lowest=0.0)
    yield claim(statement="what they achieve more is small", highest=WHITE_BOX_GAIN[1])


def alike(played: Played) -> Iterator[PaperClaim]:
    """Yield whether local and central DP give the same AUC at the same accuracy."""
    if not played.local or not played.central:
        return
    for attack in played.attacks:
        found = difference_at_like_accuracy(
            played.original, played.local, played.central, attack, _random("alike", played, attack), CONFIDENCE
        )
        yield _claim(
            played, (played.original, *played.private),
            statement="local and central DP trade privacy for accuracy alike",
            quantity=f"{ATTACK_NAMES[attack]} under LDP less under CDP, at the same test accuracy", found=found,
            lowest=-MARGIN, highest=MARGIN,
        )  # fmt: skip


def phi_above_one(played: Played) -> Iterator[PaperClaim]:
    """Yield whether phi exceeds 1 for some epsilon; intervals of all levels hold together (Bonferroni)."""
    for method in (Method.LOCAL, Method.CENTRAL):
        runs = played.of(method)
        if not runs:
            continue
        confidence = 1 - (1 - CONFIDENCE) / len(runs)
        found = [phi_of(played.original, run, played.of_phi, confidence) for run in runs]
        known = [one for one in found if isfinite(one.low)] or [Interval(nan, nan, nan)]
        # That some phi is above 1 is shown by one lower end; that none is, by all upper ends.
        largest = Interval(*(max(getattr(one, end) for one in known) for end in ("value", "low", "high")))
        below = played.data.study is MembershipStudy.COLLAB
        said = "phi is above 1 for no epsilon on COLLAB" if below else "phi is above 1 for some epsilon"
        yield _claim(
            played, (played.original, *runs), statement=said, where=f"{played.data.title}, {method}",
            quantity=f"largest phi ({ATTACK_NAMES[played.of_phi]})", found=largest,
            lowest=-inf if below else 1.0, highest=1.0 if below else inf,
        )  # fmt: skip


_HIGHER_PHI = {
    MembershipStudy.TEXAS: Method.CENTRAL,
    MembershipStudy.LFW: Method.CENTRAL,
    MembershipStudy.PURCHASES: Method.LOCAL,
    MembershipStudy.SKEWED: Method.LOCAL,
}
"""Which kind of privacy has the higher phi, as section 6 says."""


def order_of_phi(played: Played) -> Iterator[PaperClaim]:
    """Yield whether phi is higher, on average over levels, for the kind of privacy of which the paper says so."""
    better = _HIGHER_PHI.get(played.data.study)
    if better is None or not played.local or not played.central:
        return
    worse = Method.LOCAL if better is Method.CENTRAL else Method.CENTRAL
    ahead, classes = len(played.of(better)), played.data.classes
    runs = (played.original, *played.of(better), *played.of(worse))

    def difference(auc: Floats, accuracy: Floats) -> float:
        found = phis(auc, accuracy, classes)
        return float(np.mean(found[:ahead]) - np.mean(found[ahead:]))

    attack = played.of_phi
    found = interval_of(curve(runs, attack, _random("order", played, attack)), difference, CONFIDENCE)
    yield _claim(
        played, runs, statement=f"phi is higher under {better}",
        quantity=f"mean phi ({ATTACK_NAMES[attack]}) under {better} less under {worse}", found=found, lowest=0.0,
    )  # fmt: skip


def accuracy_on_skewed(played: Played) -> Iterator[PaperClaim]:
    """Yield whether local DP keeps a higher test accuracy at every level; intervals hold together (Bonferroni)."""
    pairs = list(zip(played.local, played.central, strict=False))
    if played.data.study is not MembershipStudy.SKEWED or not pairs:
        return
    confidence = 1 - (1 - CONFIDENCE) / len(pairs)
    found = [welch_interval(one.test_accuracy, other.test_accuracy, confidence) for one, other in pairs]
    yield _claim(
        played, played.private, section="5.5", statement="test accuracy under LDP is higher at every level",
        quantity="smallest difference of test accuracies, LDP less CDP, level by level",
        found=Interval(*(min(one[end] for one in found) for end in range(3))), lowest=0.0,
    )  # fmt: skip


def confidence_on_skewed(played: Played) -> Iterator[PaperClaim]:
    """Yield whether models are surer of themselves at epsilon_i = 1 than at all other levels."""
    found = surest(played.local, CONFIDENCE) if played.data.study is MembershipStudy.SKEWED else None
    if found is not None:
        yield _claim(
            played, played.local, section="5.5", statement="models are surest of their answers at epsilon_i = 1",
            quantity="confidence at epsilon_i 1 less the largest at another level", found=found, lowest=0.0,
        )  # fmt: skip


def majority_on_collab(played: Played) -> Iterator[PaperClaim]:
    """Yield whether test accuracy ends at the share of the largest class."""
    if played.data.study is not MembershipStudy.COLLAB:
        return
    for run in (one[-1] for one in (played.local, played.central) if one):
        yield _claim(
            played, [run], section="5.3", where=run.setting.label, quantity="test accuracy",
            statement="under strong noise test accuracy is the share of the largest class",
            found=mean_interval(run.test_accuracy, CONFIDENCE),
            lowest=MAJORITY_OF_COLLAB - MARGIN, highest=MAJORITY_OF_COLLAB + MARGIN,
        )  # fmt: skip


def adversaries(played: Played) -> Iterator[PaperClaim]:
    """Yield, of runs that an insider watched, who learns more about the same worlds at the same epsilon."""
    for run in played.central:
        if INSIDER in run.areas_of_worlds:
            for other in (one for one in (BLACK_BOX, WHITE_BOX, "loss") if one in run.areas_of_worlds):
                yield _claim(
                    played, [run], section="Bernau et al. 2021, 1",
                    statement="the insider learns more than membership adversaries", where=run.setting.label,
                    quantity=f"AUC of the insider less {ATTACK_NAMES[other]}",
                    found=gain([run], INSIDER, other, CONFIDENCE), lowest=0.0,
                )  # fmt: skip


TESTS: tuple[Callable[[Played], Iterator[PaperClaim]], ...] = (
    at_chance, white_over_black, alike, phi_above_one, order_of_phi, accuracy_on_skewed, confidence_on_skewed,
    majority_on_collab, adversaries,
)  # fmt: skip


UNTESTED = (
    untested("5.1", "the imbalance of classes hardly changes the AUC", "Location-30 stands in for Texas in one form"),
    untested("5.4", "at z .5 the black-box AUC of 20 people rises", "the weights of VGG-16 cannot be had"),
    untested("6", "local DP trades strictly better with 10 and 20 classes of Purchases", "its data cannot be had"),
    untested("6", "local DP can be used for ensembles without more loss", "a property of the definition"),
)  # fmt: skip
"""What is said but cannot be tested, and why."""


def claims_of(data: Sequence[MembershipData], runs: Runs) -> list[PaperClaim]:
    """Return all claims that runs can test, in the order of `TESTS` and of the data sets.

    Parameters
    ----------
    data
        The data sets.
    runs
        Their finished runs.
    """
    played = [_played_of(one, runs) for one in data]
    return [claim for test in TESTS for one in played for claim in test(one)]


def claims_item(data: Sequence[MembershipData], runs: Runs) -> ItemResult:
    """Return all claims as a table with its picture.

    Parameters
    ----------
    data
        The data sets.
    runs
        Their finished runs.
    """
    said = (
        f"Differences of up to {MARGIN:g} count as none: the smallest that the paper speaks of. Intervals are "
        f"Student's or of resampled worlds, each at {CONFIDENCE:.1%}: worlds are added where claims are open, which "
        f"are looked at {LOOKS} times at most, so that a verdict is wrong with about 5 %. Of twenty one or more may be."
    )
    return claims_table([*claims_of(data, runs), *UNTESTED], SECOND_LOOKS, (said,), [one.title for one in data])


def _random(what: str, played: Played, attack: str) -> np.random.Generator:
    return resampling(f"{what} {played.data.key} {attack}")
