"""Page and text about a private selection: what was chosen, what the choice spends, and what may be published."""

import shlex
from pathlib import Path

from fl_audit.learning.metric_names import metric_text, metric_title
from fl_audit.report.banner import Banner, VerdictLook
from fl_audit.report.mechanism_messages import SIMULATION_NOTICE
from fl_audit.report.page import html_page, page_table
from fl_audit.runs.sweeps.grid import describe
from fl_audit.runs.sweeps.selection import SELECTED, PrivateSelection

PUBLISH = (
    f"All files in {SELECTED} may be published. Nothing else may: not challenger/, which holds the other trainings, "
    "not what the terminal showed while they were trained, and not how long that took; each tells how many there were."
)
_STEP = "Add the selection to the ledger of these records; a second selection on them spends as much again."


def selection_rows(selection: PrivateSelection) -> list[tuple[str, str]]:
    """Return the names and texts of what a private selection publishes."""
    claim = selection.claim
    number = f"drawn in secret, {selection.rule.count} with the mean {selection.rule.mean:,}"
    return [
        ("Chosen settings", "none" if selection.settings is None else describe(selection.settings)),
        (f"Test {metric_title(selection.metric)}", metric_text(selection.metric, selection.score)),
        ("Number of trainings", number),
        ("Epsilon of the choice", f"{selection.epsilon:.6g} at delta {claim.delta:g} by rdp"),
        ("Epsilon of one training", f"{selection.single_epsilon:.6g}, which does not cover the choice"),
        ("Neighbours", f"by {claim.adjacency} (the unit is a {claim.adjacency.unit})"),
    ]


def ledger_command(selection: PrivateSelection) -> str:
    """Return the command that adds a private selection to a ledger."""
    if not selection.ledger_options:
        return "none: the releases of the trainings differ, so that no one line states them"
    return f"fl-audit account --ledger FILE {shlex.join(selection.ledger_options)}"


def outcome_text(selection: PrivateSelection) -> str:
    """Return a sentence on what a private selection chose and spends."""
    if selection.settings is None:
        return (
            f"The number of trainings that was drawn is 0, which {selection.rule.count} draws now and then: no model "
            f"is published, and epsilon {selection.epsilon:.4g} is spent all the same."
        )
    return (
        f"The best of a secret number of private trainings, by {metric_title(selection.metric)} on test records, "
        f"spends epsilon {selection.epsilon:.4g}, and not the {selection.single_epsilon:.4g} of one training (Papernot "
        "and Steinke 2022)."
    )


def selection_page(selection: PrivateSelection, title: str) -> str:
    """Return the HTML page about a private selection, which may be published itself."""
    return html_page(
        title=title,
        heading=title,
        subtitle=f"Chosen by {metric_title(selection.metric)} on test records, which the guarantee does not cover",
        opening=PUBLISH,
        body=page_table(
            ("What", "Result"), [*selection_rows(selection), ("Line of the ledger", ledger_command(selection))]
        ),
        footer=SIMULATION_NOTICE,
        banner=Banner("Private selection", outcome_text(selection), VerdictLook.NONE),
        step=_STEP,
        warning=selection.warning,
    )


def page_path(directory: Path) -> Path:
    """Return the path of the page in the directory of a private selection."""
    return directory / SELECTED / "selection.html"
