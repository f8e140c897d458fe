"""Items of Bernau et al. 2021 by the rules of this version, from the published numbers: no run is needed."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fl_audit.experiments.reproductions.bernau2021 import settings
from fl_audit.experiments.reproductions.bernau2021.audits import INSIDER, audit_of
from fl_audit.experiments.reproductions.bernau2021.claims import (
    EXACT_ADVANTAGE,
    IS_RHO_ALPHA,
    NO_MORE_THAN_DELTA,
    UNTESTED,
    claims_of_text,
    closed_forms,
    counted_advantage,
    exceedance,
)
from fl_audit.experiments.reproductions.bernau2021.closed_forms import figure_1
from fl_audit.experiments.reproductions.bernau2021.complexities import table_1
from fl_audit.experiments.reproductions.bernau2021.identification import (
    ADVANTAGE,
    AGAINST_PUBLISHED,
    EXCEEDED,
    table_2_of,
    unrounded_text,
)
from fl_audit.experiments.reproductions.bernau2021.published import TABLE_2, TABLE_2_UNROUNDED
from fl_audit.experiments.reproductions.bernau2021.sensitivities import remarks_of_figure_4
from fl_audit.experiments.reproductions.bernau2021.settings import InsiderData, InsiderSetting
from fl_audit.experiments.reproductions.claims import PaperClaim
from fl_audit.experiments.reproductions.papers import ItemResult, ItemRow, Published
from fl_audit.report.style import new_figure

_RENAMED = {
    "advantage LS B less GS B": f"{EXACT_ADVANTAGE} LS B less measured GS B",
    "advantage LS U less GS U": f"{EXACT_ADVANTAGE} LS U less measured GS U",
    "largest relative distance of both": "largest relative distance of both, bookkeeping",
}
"""New names of numbers that were published under a name that does not tell a closed form from a measurement."""
_AUDITS = ("fig7", "fig8", "fig9")
_OF_INSIDER = "advantage of the insider less that of Yeom's adversary"


def rejudge(published: Published) -> Mapping[str, ItemResult]:
    """Return the items that published numbers suffice for; an item with an empty figure keeps its image.

    Parameters
    ----------
    published
        The published results of the paper.
    """
    groups = [one for forms in settings.CANDIDATES.values() for (one,) in forms]
    rows = published.rows("table2")
    data = [one for one in groups if any(row.setting.startswith(f"{one.title}, ") for row in rows)]
    own = {setting.label: setting for setting in settings.main_settings(data)}
    figure_4 = ItemResult(
        published.tables["fig4"], new_figure(), "", remarks_of_figure_4(any(one.stands_in for one in data))
    )
    made = {
        **{item: _audit(published, item, data) for item in _AUDITS if item in published.tables},
        "table2": table_2_of([_as_printed(row, own[row.setting]) for row in rows], data),
        "fig1": figure_1(),
        "fig4": figure_4,
        "claims": _claims(published, data, own),
    }
    return made if "table1" in published.tables else {"table1": table_1()} | made


def _audit(published: Published, item: str, data: list[InsiderData]) -> ItemResult:
    """Return an audit of epsilon, with the advantages of Table 2 as they are in print."""
    rows = published.rows(item)
    one = next(each for each in data if rows[0].setting.startswith(f"{each.title}, "))
    made: dict[InsiderSetting, dict[str, ItemRow]] = {}
    for setting in settings.audit_settings([one]):
        made[setting] = {row.quantity: row for row in rows if row.setting == setting.label}
        insider = made[setting].get(INSIDER)
        if insider is not None and setting.belief == settings.MAIN_BELIEF:
            printed = TABLE_2[one.study, setting.scaling, setting.relation].advantage
            made[setting][INSIDER] = replace(insider, published=printed)
    return audit_of(made, one)


def _as_printed(row: ItemRow, setting: InsiderSetting) -> ItemRow:
    """Return a row of Table 2 with the printed number, and in its note the number before rounding."""
    if row.quantity != ADVANTAGE:
        return row
    key = (setting.data.study, setting.scaling, setting.relation)
    told = unrounded_text(TABLE_2_UNROUNDED[key])
    before, _, after = row.note.partition(f"{AGAINST_PUBLISHED} ")
    z, semicolon, rest = after.removesuffix(told).partition(";")
    note = f"{before}{AGAINST_PUBLISHED} {z.removesuffix(told)}{told}{semicolon}{rest}"
    return replace(row, published=TABLE_2[key].advantage, note=note)


def _claims(published: Published, data: list[InsiderData], own: Mapping[str, InsiderSetting]) -> ItemResult:
    rows = {(row.setting, row.quantity): row for row in published.rows("table2")}
    fixed = {(one.statement, one.where) for one in (*closed_forms(), *UNTESTED)}
    tested: list[PaperClaim] = []
    for claim in published.claims:
        if (claim.statement, claim.where) not in fixed:
            tested += _kept(claim, rows, own)
    return claims_of_text(tested, [one.title for one in data])


def _kept(
    claim: PaperClaim, rows: Mapping[tuple[str, str], ItemRow], own: Mapping[str, InsiderSetting]
) -> Iterator[PaperClaim]:
    """Yield a claim in the form of this version, its number from Table 2 where that has it as counted."""
    if claim.statement == NO_MORE_THAN_DELTA:
        row = rows[claim.where, EXCEEDED]
        yield exceedance(claim.where, row.found, own[claim.where].data.delta, row.repetitions)
    elif claim.statement == IS_RHO_ALPHA:
        label = claim.where if claim.where in own else f"{claim.where}, rho_beta {settings.MAIN_BELIEF:g}"
        row = rows[label, ADVANTAGE]
        yield counted_advantage(own[label], row.found, row.repetitions)
    elif claim.quantity == _OF_INSIDER:
        kind = EXACT_ADVANTAGE if ", LS " in claim.where else "measured advantage"
        yield replace(claim, quantity=claim.quantity.replace("advantage", kind, 1))
    else:
        yield replace(claim, quantity=_RENAMED.get(claim.quantity, claim.quantity))
