"""What Bernau et al. 2019 say of their results in words, each held against our runs with an interval."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite, nan

import numpy as np

from experiments.reproductions.bernau2019.confidences import surest
from experiments.reproductions.bernau2019.figures import ATTACK_NAMES, Runs, is_at_chance, phi_of, runs_of_method
from experiments.reproductions.bernau2019.published import MAJORITY_OF_COLLAB, WHITE_BOX_GAIN, MembershipStudy
from experiments.reproductions.bernau2019.runs import CONFIDENCE, MembershipFindings
from experiments.reproductions.bernau2019.settings import BLACK_BOX, WHITE_BOX, MembershipData, Method
from experiments.reproductions.bernau2019.tradeoffs import (
    curve,
    difference_at_like_accuracy,
    gain,
    interval_of,
    mean_interval,
    phis,
)
from experiments.reproductions.statistics import resampling, welch_interval
from fl_audit.evidence.membership.rates import Interval

MARGIN = WHITE_BOX_GAIN[0]
"""What counts as no difference of an AUC or accuracy: the smallest one that the paper speaks of."""


class ClaimVerdict(StrEnum):
    """What our runs say of a claim."""

    HOLDS = "holds on our data"
    FAILS = "does not hold on our data"
    OPEN = "not decided"


@dataclass(frozen=True)
class PaperClaim:
    """A sentence of the paper, made into a range for one number of ours."""

    section: str  # where the paper says so
    statement: str  # what it says, in our words
    where: str  # on what it was tested
    quantity: str  # the number
    found: Interval  # the number as measured, with its interval
    # `lowest`, `highest`: the range in which the claim has the number.
    lowest: float = -inf
    highest: float = inf

    @property
    def verdict(self) -> ClaimVerdict:
        """Whether the whole interval lies in the range, or all of it outside, or neither."""
        low, high = self.found.low, self.found.high
        if not (isfinite(low) and isfinite(high)):
            return ClaimVerdict.OPEN
        if self.lowest <= low and high <= self.highest:
            return ClaimVerdict.HOLDS
        return ClaimVerdict.FAILS if high < self.lowest or low > self.highest else ClaimVerdict.OPEN

    @property
    def range_text(self) -> str:
        """The range in words."""
        if self.lowest == -inf:
            return f"at most {self.highest:g}"
        return f"at least {self.lowest:g}" if self.highest == inf else f"{self.lowest:g} to {self.highest:g}"


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
        return tuple(attack for attack in (BLACK_BOX, WHITE_BOX) if attack in self.original.scores)

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


def at_chance(played: Played) -> Iterator[PaperClaim]:
    """Yield whether attacks do no better than guessing where section 6 says so."""
    for run in played.private:
        if not is_at_chance(run.setting):
            continue
        for attack in played.attacks:
            yield PaperClaim(
                "6", "attacks do no better than guessing at this noise", run.setting.label, ATTACK_NAMES[attack],
                run.areas[attack], 0.5 - MARGIN, 0.5 + MARGIN,
            )  # fmt: skip


def white_over_black(played: Played) -> Iterator[PaperClaim]:
    """Yield whether the view inside helps, and only a little."""
    if WHITE_BOX not in played.attacks:
        return
    found = gain((played.original, *played.private), WHITE_BOX, BLACK_BOX)
    quantity, where = "white-box AUC less black-box AUC, mean over settings", played.data.title
    if played.data.study is MembershipStudy.COLLAB:
        yield PaperClaim("6", "both attacks achieve the same on COLLAB", where, quantity, found, -MARGIN, MARGIN)
        return
    yield PaperClaim("6", "white-box attacks achieve more than black-box ones", where, quantity, found, 0.0)
    yield PaperClaim("6", "what they achieve more is small", where, quantity, found, highest=WHITE_BOX_GAIN[1])


def alike(played: Played) -> Iterator[PaperClaim]:
    """Yield whether local and central DP give the same AUC at the same accuracy."""
    if not played.local or not played.central:
        return
    for attack in played.attacks:
        found = difference_at_like_accuracy(
            played.original, played.local, played.central, attack, _random("alike", played, attack)
        )
        yield PaperClaim(
            "6", "local and central DP trade privacy for accuracy alike", played.data.title,
            f"{ATTACK_NAMES[attack]} under LDP less under CDP, at the same test accuracy", found, -MARGIN, MARGIN,
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
        yield PaperClaim(
            "6", said, f"{played.data.title}, {method}", f"largest phi ({ATTACK_NAMES[played.of_phi]})", largest,
            -inf if below else 1.0, 1.0 if below else inf,
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

    def difference(auc: np.ndarray, accuracy: np.ndarray) -> float:
        found = phis(auc, accuracy, classes)
        return float(np.mean(found[:ahead]) - np.mean(found[ahead:]))

    attack = played.of_phi
    found = interval_of(curve(runs, attack, _random("order", played, attack)), difference)
    yield PaperClaim(
        "6", f"phi is higher under {better}", played.data.title,
        f"mean phi ({ATTACK_NAMES[attack]}) under {better} less under {worse}", found, 0.0,
    )  # fmt: skip


def accuracy_on_skewed(played: Played) -> Iterator[PaperClaim]:
    """Yield whether local DP keeps a higher test accuracy at every level; intervals hold together (Bonferroni)."""
    if played.data.study is not MembershipStudy.SKEWED:
        return
    pairs = [(one, other) for one, other in zip(played.local, played.central, strict=False)]
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(pairs))
    found = [welch_interval(one.test_accuracy, other.test_accuracy, confidence) for one, other in pairs]
    if found:
        least = Interval(*(min(one[end] for one in found) for end in range(3)))
        yield PaperClaim(
            "5.5", "test accuracy under LDP is higher at every level", played.data.title,
            "smallest difference of test accuracies, LDP less CDP, level by level", least, 0.0,
        )  # fmt: skip


def confidence_on_skewed(played: Played) -> Iterator[PaperClaim]:
    """Yield whether models are surer of themselves at epsilon_i = 1 than at all other levels."""
    found = surest(played.local) if played.data.study is MembershipStudy.SKEWED else None
    if found is not None:
        yield PaperClaim(
            "5.5", "models are surest of their answers at epsilon_i = 1", played.data.title,
            "confidence at epsilon_i 1 less the largest at another level", found, 0.0,
        )  # fmt: skip


def majority_on_collab(played: Played) -> Iterator[PaperClaim]:
    """Yield whether test accuracy ends at the share of the largest class."""
    if played.data.study is not MembershipStudy.COLLAB:
        return
    for run in (one[-1] for one in (played.local, played.central) if one):
        found = mean_interval(run.test_accuracy)
        yield PaperClaim(
            "5.3", "under strong noise test accuracy is the share of the largest class", run.setting.label,
            "test accuracy", found, MAJORITY_OF_COLLAB - MARGIN, MAJORITY_OF_COLLAB + MARGIN,
        )  # fmt: skip


TESTS: tuple[Callable[[Played], Iterator[PaperClaim]], ...] = (
    at_chance, white_over_black, alike, phi_above_one, order_of_phi, accuracy_on_skewed, confidence_on_skewed,
    majority_on_collab,
)  # fmt: skip


def claims_of(data: Sequence[MembershipData], runs: Runs) -> list[PaperClaim]:
    """Return all claims, in the order of `TESTS` and of the data sets.

    Parameters
    ----------
    data, runs
        The data sets, and their finished runs.
    """
    played = [_played_of(one, runs) for one in data]
    return [claim for test in TESTS for one in played for claim in test(one)]


def counted(claims: Sequence[PaperClaim]) -> Mapping[ClaimVerdict, int]:
    """Return how many claims there are of each verdict."""
    return {verdict: sum(claim.verdict is verdict for claim in claims) for verdict in ClaimVerdict}


def _random(what: str, played: Played, attack: str) -> np.random.Generator:
    return resampling(f"{what} {played.data.key} {attack}")
