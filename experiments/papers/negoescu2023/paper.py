"""The reproduction of Negoescu et al. 2023: its figures, and the claims of its text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

from fl_audit.experiments.papers.item_results import ItemResult
from fl_audit.experiments.papers.legacy_papers import NoDataError, OldPaper, OldPaperItem
from fl_audit.experiments.papers.negoescu2023 import error_rate_log_ratios, estimators, mixture_fits
from fl_audit.experiments.papers.negoescu2023.error_rate_log_ratios import figure_3
from fl_audit.experiments.papers.negoescu2023.estimators import figure_4, figure_5
from fl_audit.experiments.papers.negoescu2023.mixture_fits import figure_6
from fl_audit.experiments.papers.negoescu2023.privacy_utility import figure_1, figure_2
from fl_audit.experiments.papers.negoescu2023.studies import CANDIDATES
from fl_audit.experiments.papers.negoescu2023.textual_claims import UNTESTED, table_of_text_claims, theorem_2
from fl_audit.experiments.papers.papers import ComputeExtent, PaperResults, ReproductionOptions
from fl_audit.experiments.papers.run_scheduling import totals_of_runs

QUICK_WARNING = "Quick form: small samples and few repetitions. It shows that everything works, and proves little."


@dataclass(frozen=True)
class _Figure(OldPaperItem):
    """A figure of the paper; results that several figures need are stored in files under `ReproductionOptions.runs`."""

    build: Callable[[ReproductionOptions], ItemResult]  # raises `NoDataError` if a data set is missing


_CLAIMS = OldPaperItem("claims", "Claims of the text")
_FIGURES = (
    _Figure("fig1", "Figure 1. Privacy and utility of a many-class task", figure_1),
    _Figure("fig2", "Figure 2. Privacy and utility of Adult", figure_2),
    _Figure("fig3", "Figure 3. Log ratios of Epsilon* over the FPR", figure_3),
    _Figure("fig4", "Figure 4. Estimators where the distributions of losses are identical", figure_4),
    _Figure("fig5", "Figure 5. Estimators where the distributions of losses move apart", figure_5),
    _Figure("fig6", "Figure 6. Fits of normal mixtures to training losses", figure_6),
)


def _make(items: Sequence[OldPaperItem], context: ReproductionOptions) -> PaperResults:
    """Return the results of the wanted figures and table of claims; figures without data are left out.

    The table of claims needs the results of all figures, so all of them are computed for it.
    """
    made: dict[str, ItemResult] = {}
    left_out: list[str] = []
    for figure in (one for one in _FIGURES if one in items or _CLAIMS in items):
        try:
            made[figure.key] = figure.build(context)
        except NoDataError as error:
            left_out.append(f"{figure.title}: left out, {error}")
    data = dict.fromkeys(title for result in made.values() for title in result.data)
    played = "\n".join(
        f"<li><strong>{escape(item.title)}.</strong> {escape(made[item.key].played)}</li>"
        for item in _FIGURES if item.key in made and made[item.key].played
    )  # fmt: skip
    results = made | ({_CLAIMS.key: _claims_of(made)} if _CLAIMS in items else {})
    found: Any = tuple((item, results[item.key]) for item in items if item.key in results)
    return PaperResults(
        found,
        tuple(left_out),
        basis=(", ".join(data) or "no data needed",),
        warnings=(QUICK_WARNING,) if context.extent is ComputeExtent.QUICK else (),
        played=f"<ul>\n{played}\n</ul>",
    )


def _claims_of(figures: Mapping[str, ItemResult]) -> ItemResult:
    claims = [theorem_2(), *(claim for figure in figures.values() for claim in figure.claims), *UNTESTED]
    data = dict.fromkeys(title for figure in figures.values() for title in figure.data)
    # The models of figure 6 are some of those of figure 2.
    spent = totals_of_runs(figures[key].spent for key in ("fig1", "fig2") if key in figures)
    return replace(table_of_text_claims(claims, tuple(data)), spent=spent)


def _settings(extent: ComputeExtent) -> Iterator[Any]:
    """Yield all settings of the sweeps and the simulations; a hash of them shows whether settings have changed."""
    for studies in CANDIDATES.values():
        for study in studies:
            own = study.in_form(extent)
            yield asdict(own), own.values(None)
    yield asdict(estimators.SETTINGS[extent]), asdict(estimators.MANY[extent])
    yield (
        error_rate_log_ratios.LOSSES[extent],
        error_rate_log_ratios.SAMPLES[extent],
        mixture_fits.SIZES[extent],
        mixture_fits.COMPONENTS[extent],
    )


PAPER = OldPaper(
    "negoescu2023",
    "Negoescu et al. 2023",
    "D. Negoescu et al. (2023). Epsilon*: Privacy metric for machine learning models. PPAI-24.",
    (*_FIGURES, _CLAIMS),
    _make,
    lambda extent: list(_settings(extent)),
)
