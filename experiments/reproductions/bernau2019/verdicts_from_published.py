"""Evaluation of the claims of Bernau et al. 2019 by the current rules, from our published numbers, without new runs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from scipy.special import stdtrit

from fl_audit.experiments.reproductions.bernau2019 import settings
from fl_audit.experiments.reproductions.bernau2019.claim_premises import CONFIDENCE, confidence_of_each
from fl_audit.experiments.reproductions.bernau2019.claim_ranges import (
    ACHIEVES_MORE,
    AT_LIKE_ACCURACY,
    LITTLE_MORE,
    UNTIL_Z,
    above_half,
    black_box_baseline,
    closed_forms,
    printed_phi,
    trade_sentence,
)
from fl_audit.experiments.reproductions.bernau2019.claims import UNTESTED, table_of_text_claims
from fl_audit.experiments.reproductions.bernau2019.published import MembershipDatasetName
from fl_audit.experiments.reproductions.bernau2019.settings import (
    ATTACK_NAMES,
    BLACK_BOX,
    MembershipDatasetRecipe,
    MembershipSetting,
    PrivacyMethod,
    settings_of,
)
from fl_audit.experiments.reproductions.claims import ClaimVerdict, PaperClaim
from fl_audit.experiments.reproductions.item_results import CONFIDENCE as PUBLISHED_CONFIDENCE
from fl_audit.experiments.reproductions.item_results import ItemResult, ItemRow
from fl_audit.experiments.reproductions.papers import ComputeExtent, PublishedReproduction
from fl_audit.experiments.reproductions.statistics import end_by_end
from fl_audit.statistics.interval_estimates import IntervalEstimate

_FIGURES = {
    MembershipDatasetName.TEXAS: "fig3",
    MembershipDatasetName.PURCHASES: "fig4",
    MembershipDatasetName.COLLAB: "fig5",
    MembershipDatasetName.LFW: "fig6",
}
_BY_TITLE = {
    one.title: one for groups in settings.CANDIDATES.values() for forms in groups for one in forms
}  # fmt: skip
MOST_PHI = 2.0  # at which phi is cut off


def rejudge(published: PublishedReproduction) -> Mapping[str, ItemResult]:
    """Return a table of the paper's statements, keyed "claims", with verdicts from published results.

    The verdicts follow the rules that the code has now, which may be newer than the published verdicts.
    """
    kept = [one for claim in published.claims for one in _kept(claim, published.claims)]
    played = [data for title, data in _BY_TITLE.items() if any(one.where.startswith(title) for one in kept)]
    added = [one for data in played for one in _from_tables(data, published)]
    # Judging again what was judged again changes nothing: what is made here takes the place of what was made so before.
    made = {_key(one) for one in (*closed_forms(), *added, *UNTESTED)}
    claims = [*closed_forms(), *(one for one in kept if _key(one) not in made), *added, *UNTESTED]
    return {"claims": table_of_text_claims(claims, [one.title for one in played])}


def _key(claim: PaperClaim) -> tuple[str, str, str]:
    return claim.statement, claim.where, claim.quantity


def _kept(claim: PaperClaim, published: tuple[PaperClaim, ...]) -> Iterator[PaperClaim]:
    """Yield a published claim as the current rules state it; nothing if the rules drop the claim.

    The statement, the range of accepted numbers and the premise of the claim may be new.
    """
    if claim.quantity.endswith(AT_LIKE_ACCURACY):
        sentence = trade_sentence(_BY_TITLE[claim.where])
        if sentence is not None:
            yield replace(claim, **sentence._asdict())
    elif claim.statement == LITTLE_MORE:
        more = next(one for one in published if one.statement == ACHIEVES_MORE and one.where == claim.where)
        yield replace(claim, why="", premises=(more,)) if more.verdict is ClaimVerdict.FAILS else claim
    else:
        yield claim


def _from_tables(data: MembershipDatasetRecipe, published: PublishedReproduction) -> Iterator[PaperClaim]:
    """Yield the claims about AUC and phi that follow from rows of a data set's published figure."""
    figure = _FIGURES.get(data.study)
    if figure is None or figure not in published.tables:
        return
    rows = {(row.setting, row.quantity): row for row in published.rows(figure)}
    played = [one for one in settings_of(data, ComputeExtent.FULL) if (one.label, ATTACK_NAMES[BLACK_BOX]) in rows]

    def areas(attack: str, chosen: list[MembershipSetting]) -> list[IntervalEstimate]:
        own = [rows[one.label, ATTACK_NAMES[attack]] for one in chosen]
        return [rescaled_interval(row, confidence_of_each(len(own))) for row in own]

    def trials(chosen: list[MembershipSetting]) -> int:
        return min(rows[one.label, ATTACK_NAMES[BLACK_BOX]].repetitions for one in chosen)

    if data.study is MembershipDatasetName.COLLAB:
        yield black_box_baseline(data.title, areas(BLACK_BOX, played), trials(played))
    if data.study is MembershipDatasetName.PURCHASES:
        for attack, until in UNTIL_Z.items():
            weaker = [one for one in played if one.method is PrivacyMethod.CENTRAL and one.level < until]
            yield above_half(attack, data.title, end_by_end(min, areas(attack, weaker)), trials(weaker))
    for method in (PrivacyMethod.LOCAL, PrivacyMethod.CENTRAL):
        first = next((one for one in played if one.method is method and one.is_at_chance), None)
        row = None if first is None else rows.get((first.label, "phi, white-box"))
        if first is None or row is None:
            continue
        found = rescaled_interval(row, CONFIDENCE)
        within = IntervalEstimate(found.value, max(found.low, 0.0), min(found.high, MOST_PHI))
        if (claim := printed_phi(first, within, row.repetitions)) is not None:
            yield claim


def rescaled_interval(row: ItemRow, confidence: float) -> IntervalEstimate:
    """Return a published number with its interval, rescaled from the published confidence to another one (Student's t).

    Parameters
    ----------
    row
        A row of a figure; its interval has the usual confidence of published rows.
    confidence
        Confidence of the interval that is returned, above 0 and below 1.
    """
    ends = ((1 + level) / 2 for level in (confidence, PUBLISHED_CONFIDENCE))
    wanted, printed = (float(stdtrit(row.repetitions - 1, end)) for end in ends)
    found, factor = row.found, wanted / printed
    low, high = (found.value + factor * (end - found.value) for end in (found.low, found.high))
    return IntervalEstimate(found.value, low, high)
