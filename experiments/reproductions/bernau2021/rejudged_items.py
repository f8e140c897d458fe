"""Compute tables, figures and verdicts on claims of Bernau et al. 2021 again from the numbers that we have published.

So the rules for verdicts can be changed without repeating the runs.
"""

from collections.abc import Mapping
from dataclasses import replace

from fl_audit.experiments.reproductions.bernau2021 import settings
from fl_audit.experiments.reproductions.bernau2021.advantage_and_belief import ADVANTAGE, EXCEEDED, table_2_of
from fl_audit.experiments.reproductions.bernau2021.claims import (
    UNTESTED,
    counted_advantage,
    exceedance,
    table_of_text_claims,
)
from fl_audit.experiments.reproductions.bernau2021.closed_form_claims import (
    IS_RHO_ALPHA,
    NO_MORE_THAN_DELTA,
    closed_forms,
)
from fl_audit.experiments.reproductions.bernau2021.epsilon_audit_figures import INSIDER, audit_of
from fl_audit.experiments.reproductions.bernau2021.noisy_query import figure_1
from fl_audit.experiments.reproductions.bernau2021.published import TABLE_2
from fl_audit.experiments.reproductions.bernau2021.sensitivities import remarks_of_figure_4
from fl_audit.experiments.reproductions.bernau2021.settings import InsiderDatasetRecipe, InsiderSetting
from fl_audit.experiments.reproductions.claims import PaperClaim
from fl_audit.experiments.reproductions.item_results import ItemResult, ItemRow
from fl_audit.experiments.reproductions.papers import PublishedReproduction
from fl_audit.report.figure_style import new_figure

_AUDITS = ("fig7", "fig8", "fig9")


def rejudge(published: PublishedReproduction) -> Mapping[str, ItemResult]:
    """Return the tables, figures and claims, by key, that can be computed again from published numbers.

    If a figure cannot be drawn from these numbers, it is returned empty, and its published image is kept.
    """
    groups = [one for forms in settings.CANDIDATES.values() for (one,) in forms]
    rows = published.rows("table2")
    data = [one for one in groups if any(row.setting.startswith(f"{one.title}, ") for row in rows)]
    own = {setting.label: setting for setting in settings.main_settings(data)}
    figure_4 = ItemResult(
        published.tables["fig4"], new_figure(), "", remarks_of_figure_4(any(one.is_substitute for one in data))
    )
    return {
        **{item: _audit(published, item, data) for item in _AUDITS if item in published.tables},
        "table2": table_2_of(rows, data),
        "fig1": figure_1(),
        "fig4": figure_4,
        "claims": _claims(published, data, own),
    }


def _audit(published: PublishedReproduction, item: str, data: list[InsiderDatasetRecipe]) -> ItemResult:
    """Return the figure on the audit of epsilon for one data set, made from the rows that were published with it.

    At the main value of rho_beta, our measured advantage of the insider is compared with the advantage in Table 2 of
    the paper.
    """
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


def _claims(
    published: PublishedReproduction, data: list[InsiderDatasetRecipe], own: Mapping[str, InsiderSetting]
) -> ItemResult:
    rows = {(row.setting, row.quantity): row for row in published.rows("table2")}
    fixed = {(one.statement, one.where) for one in (*closed_forms(), *UNTESTED)}
    tested = [_kept(one, rows, own) for one in published.claims if (one.statement, one.where) not in fixed]
    return table_of_text_claims(tested, [one.title for one in data])


def _kept(claim: PaperClaim, rows: Mapping[tuple[str, str], ItemRow], own: Mapping[str, InsiderSetting]) -> PaperClaim:
    """Return a published claim, judged anew if it is about a number of the published Table 2; otherwise unchanged."""
    if claim.statement == NO_MORE_THAN_DELTA:
        row = rows[claim.where, EXCEEDED]
        return exceedance(claim.where, row.found, own[claim.where].data.delta, row.repetitions)
    if claim.statement == IS_RHO_ALPHA:
        row = rows[claim.where, ADVANTAGE]
        return counted_advantage(own[claim.where], row.found, row.repetitions)
    return claim
