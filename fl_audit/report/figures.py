"""All figures of a report by name, in the order in which they are shown."""

from collections.abc import Callable

from matplotlib.figure import Figure

from fl_audit.report.contents import RunContents
from fl_audit.report.innovation_figure import innovations_figure
from fl_audit.report.insider_figures import belief_rounds_figure, beliefs_figure, log_odds_figure
from fl_audit.report.membership_figure import membership_figure
from fl_audit.report.style import to_png
from fl_audit.report.training_figures import local_sensitivity_figure, releases_figure

FIGURES: dict[str, Callable[[RunContents], Figure]] = {
    "beliefs": beliefs_figure,
    "belief-rounds": belief_rounds_figure,
    "log-odds": log_odds_figure,
    "membership": membership_figure,
    "innovations": innovations_figure,
    "local-sensitivity": local_sensitivity_figure,
    "releases": releases_figure,
}
"""Name of each figure, which is its file name without `.png`, and the function that draws it."""


def draw_all(contents: RunContents) -> dict[str, bytes]:
    """Return every figure of the report as PNG bytes, by name; that of membership only where it was attacked."""
    left_out = set() if contents.has_membership else {"membership"}
    return {name: to_png(draw(contents)) for name, draw in FIGURES.items() if name not in left_out}
