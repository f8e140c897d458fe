"""Negoescu et al. 2023: its figures, and the claims of its text."""

from dataclasses import asdict, replace
from typing import Any

from fl_audit.experiments.papers.claims import untested
from fl_audit.experiments.papers.claims_table import claims_table
from fl_audit.experiments.papers.item_results import ItemResult
from fl_audit.experiments.papers.negoescu2023 import error_rate_log_ratios, estimators, mixture_fits
from fl_audit.experiments.papers.negoescu2023.epsilon_star_runs import (
    ADULT,
    CANDIDATES,
    CLAIMS,
    PURCHASE,
    all_runs,
    extreme_runs,
)
from fl_audit.experiments.papers.negoescu2023.error_rate_log_ratios import claims_of_figure_3, figure_3, theorem_2
from fl_audit.experiments.papers.negoescu2023.estimators import (
    claims_of_figure_4,
    claims_of_figure_5,
    figure_4,
    figure_5,
)
from fl_audit.experiments.papers.negoescu2023.mixture_fits import claims_of_figure_6, figure_6
from fl_audit.experiments.papers.negoescu2023.privacy_utility import claims_of_figure, figure_of
from fl_audit.experiments.papers.papers import ComputeExtent, PageNotes, Paper, PaperItem, StoredPaperRuns

_FIGURES = (
    PaperItem(
        "fig1",
        "Figure 1. Privacy and utility of a many-class task",
        figure_of,
        (PURCHASE.study,),
        all_runs,
        claims_of_figure,
    ),
    PaperItem("fig2", "Figure 2. Privacy and utility of Adult", figure_of, (ADULT.study,), all_runs, claims_of_figure),
    PaperItem("fig3", "Figure 3. Log ratios of Epsilon* over the FPR", figure_3, claims=claims_of_figure_3),
    PaperItem(
        "fig4",
        "Figure 4. Estimators where the distributions of losses are identical",
        figure_4,
        claims=claims_of_figure_4,
    ),
    PaperItem(
        "fig5", "Figure 5. Estimators where the distributions of losses move apart", figure_5, claims=claims_of_figure_5
    ),
    PaperItem(
        "fig6",
        "Figure 6. Fits of normal mixtures to training losses",
        figure_6,
        (ADULT.study,),
        extreme_runs,
        claims_of_figure_6,
    ),
)


def claims_item(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return the table of all claims: those of the figures, those of the text alone, and untestable ones."""
    of_figures = [
        claim
        for figure in _FIGURES
        if figure.can_be_made(paper_runs.data)
        for claim in figure.claims(replace(paper_runs, data=figure.shown(paper_runs.data)))
    ]
    text = "Numbers of a sweep are means of settings over repetitions of training on the same records, as the paper's."
    titles = [data.title for data in paper_runs.data]
    return claims_table([theorem_2(), *of_figures, *untested(CLAIMS)], (text,), titles)


def _constants(extent: ComputeExtent) -> Any:
    return (
        asdict(estimators.SETTINGS[extent]),
        asdict(estimators.MANY[extent]),
        error_rate_log_ratios.LOSSES[extent],
        error_rate_log_ratios.SAMPLES[extent],
        mixture_fits.SIZES[extent],
        mixture_fits.COMPONENTS[extent],
    )


PAPER = Paper(
    "negoescu2023",
    "Negoescu et al. 2023",
    "D. Negoescu et al. (2023). Epsilon*: Privacy metric for machine learning models. PPAI-24.",
    (*_FIGURES, PaperItem("claims", "Claims of the text", claims_item, tuple(CANDIDATES), all_runs, needs_data=False)),
    CANDIDATES,
    all_runs,
    lambda finished, results: PageNotes(),
    _constants,
)
