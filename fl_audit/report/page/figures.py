"""All figures of a report by name, in the order in which they are shown."""

from collections.abc import Callable

from matplotlib.figure import Figure

from fl_audit.report.contents import RunContents
from fl_audit.report.page.style import to_png
from fl_audit.report.sections.client_figure import client_figure
from fl_audit.report.sections.innovation_figure import innovations_figure
from fl_audit.report.sections.insider_figures import belief_rounds_figure, beliefs_figure, log_odds_figure
from fl_audit.report.sections.membership_figure import membership_figure
from fl_audit.report.sections.training_figures import local_sensitivity_figure, releases_figure

FIGURES: dict[str, Callable[[RunContents], Figure]] = {
    "beliefs": beliefs_figure,
    "belief-rounds": belief_rounds_figure,
    "log-odds": log_odds_figure,
    "membership": membership_figure,
    "innovations": innovations_figure,
    "local-sensitivity": local_sensitivity_figure,
    "releases": releases_figure,
    "client-epsilon-star": client_figure,
}
"""Name of each figure, which is its file name without `.png`, and the function that draws it."""

OF_INSIDER = frozenset({"beliefs", "belief-rounds", "log-odds", "innovations", "local-sensitivity"})
"""Figures that show nothing but what the insider found."""


def draw_all(contents: RunContents) -> dict[str, bytes]:
    """Return every figure of the report as PNG bytes, by name, without those that the run has no numbers for."""
    has = {"membership": contents.has_membership, "client-epsilon-star": contents.has_client_epsilon_star}
    has |= dict.fromkeys(OF_INSIDER, contents.has_insider)
    return {name: to_png(draw(contents)) for name, draw in FIGURES.items() if has.get(name, True)}
