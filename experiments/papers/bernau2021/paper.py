"""The reproduction of Bernau et al. 2021: its tables and figures, which share runs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape

from fl_audit.audits.page.html_building_blocks import page_table
from fl_audit.experiments.papers.bernau2021 import settings
from fl_audit.experiments.papers.bernau2021.advantage_and_belief import figure_6, table_2
from fl_audit.experiments.papers.bernau2021.attack_cost_scaling import table_1
from fl_audit.experiments.papers.bernau2021.claims import claims_item
from fl_audit.experiments.papers.bernau2021.closed_forms import table_3
from fl_audit.experiments.papers.bernau2021.epsilon_audit_figures import audit_of_epsilon
from fl_audit.experiments.papers.bernau2021.noisy_query import figure_1, figure_2, figure_3
from fl_audit.experiments.papers.bernau2021.runs import InsiderResultsBySetting, InsiderRunResults, play
from fl_audit.experiments.papers.bernau2021.sensitivities import figure_4, figure_5
from fl_audit.experiments.papers.bernau2021.settings import (
    CLIPPING_NORM,
    LEARNING_RATE,
    OPTIMIZER,
    InsiderDatasetName,
    InsiderDatasetRecipe,
    InsiderSetting,
)
from fl_audit.experiments.papers.dataset_availability import DatasetItem, find_data_of_items
from fl_audit.experiments.papers.item_results import ItemResult
from fl_audit.experiments.papers.papers import ComputeExtent, Paper, PaperResults, ReproductionOptions
from fl_audit.experiments.papers.run_scheduling import spent_on
from fl_audit.plurals import plural
from fl_audit.report.formatting import number_text
from fl_audit.report.mechanism_messages import AUDIT_DEVICE

NO_DATA = "none of its data sets is there"
QUICK_WARNING = "Quick form: few trials, wide intervals. It shows that everything works, and proves little."


@dataclass(frozen=True)
class ItemFromInsiderRuns(DatasetItem):
    """A table or figure of the paper, made from runs that other tables and figures may use as well."""

    # Makes the item from its available data sets and all runs. It is called only if a data set is available or none is
    # needed.
    build: Callable[[InsiderResultsBySetting], ItemResult]
    # Returns the settings that it needs to be run on given data sets.
    settings: Callable[[Iterable[InsiderDatasetRecipe]], tuple[InsiderSetting, ...]] = lambda data: ()


def _audit(number: int, study: InsiderDatasetName) -> ItemFromInsiderRuns:
    title = f"Figure {number}. Audit of epsilon on {study}"
    return ItemFromInsiderRuns(f"fig{number}", title, audit_of_epsilon, settings.audit_settings, studies=(study,))


_ALL = tuple(InsiderDatasetName)
_ITEMS = (
    ItemFromInsiderRuns("table1", "Table 1. How the work grows with records and rounds", lambda played: table_1()),
    ItemFromInsiderRuns(
        "table2", "Table 2. Advantage and delta' at rho_beta = 0.9", table_2, settings.main_settings, studies=_ALL
    ),
    ItemFromInsiderRuns("table3", "Table 3. epsilon and rho_alpha for rho_beta and delta", lambda played: table_3()),
    ItemFromInsiderRuns("fig1", "Figure 1. The decision boundary of the adversary", lambda played: figure_1()),
    ItemFromInsiderRuns("fig2", "Figure 2. Regions of error by epsilon", lambda played: figure_2()),
    ItemFromInsiderRuns("fig3", "Figure 3. rho_beta and rho_alpha by epsilon and delta", lambda played: figure_3()),
    ItemFromInsiderRuns(
        "fig4", "Figure 4. Local sensitivity by neighbour", figure_4, settings.neighbour_settings, studies=_ALL
    ),
    ItemFromInsiderRuns(
        "fig5", "Figure 5. Sensitivities over the rounds", figure_5, settings.main_settings, studies=_ALL
    ),
    ItemFromInsiderRuns("fig6", "Figure 6. Beliefs and test accuracy", figure_6, settings.main_settings, studies=_ALL),
    _audit(7, InsiderDatasetName.MNIST),
    _audit(8, InsiderDatasetName.PURCHASE),
    _audit(9, InsiderDatasetName.ADULT),
    ItemFromInsiderRuns("claims", "Claims of the text", claims_item, settings.all_settings, studies=_ALL),
)


def _make(items: Sequence[ItemFromInsiderRuns], context: ReproductionOptions) -> PaperResults:
    """Carry out each run that a table or figure (item) needs, and make the items; items without data are left out."""
    found, remarks = find_data_of_items(items, settings.CANDIDATES, context)
    makeable = tuple(item for item in items if not item.studies or item.data_of(found))
    runs = play([setting for item in makeable for setting in item.settings(item.data_of(found))], context)
    played = tuple(runs.values())
    return PaperResults(
        tuple((item, _made(item, InsiderResultsBySetting(item.data_of(found), runs), context)) for item in makeable),
        tuple(f"{item.title}: left out, {NO_DATA}" for item in items if item not in makeable),
        remarks,
        (", ".join(one.title for one in found) or "no data needed", plural(len(played), "run")),
        tuple(_warnings(played, context.extent)),
        _played(played),
    )


def _made(item: ItemFromInsiderRuns, played: InsiderResultsBySetting, context: ReproductionOptions) -> ItemResult:
    own = dict.fromkeys(item.settings(played.data))
    spent = spent_on({context.runs / one.name: played.runs[one].repetitions for one in own})
    return replace(item.build(played), spent=spent)


PAPER = Paper(
    "bernau2021",
    "Bernau et al. 2021",
    "D. Bernau, G. Eibl, P. W. Grassal, H. Keller, F. Kerschbaum (2021). Quantifying identifiability to choose and "
    "audit epsilon in differentially private deep learning. PVLDB 14(13).",
    _ITEMS,
    _make,
    settings.all_values,
)


def _warnings(runs: Sequence[InsiderRunResults], extent: ComputeExtent) -> list[str]:
    if not runs:
        return []
    quick = [f"{QUICK_WARNING} {_other_measures(runs)}".strip()] if extent is ComputeExtent.QUICK else []
    return [*quick, f"Settings marked LS: {AUDIT_DEVICE}"]


def _other_measures(runs: Sequence[InsiderRunResults]) -> str:
    """Return a sentence on data sets whose neighbours were chosen by another measure than the paper's; else ""."""
    others = {
        f"on {found.setting.data.title} by the {found.config.audit.dissimilarity} measure instead of "
        f"{found.setting.data.dissimilarity}"
        for found in runs
        if str(found.config.audit.dissimilarity) != found.setting.data.dissimilarity
    }
    return f"Neighbours are chosen {', '.join(sorted(others))}." if others else ""


def _played(runs: Sequence[InsiderRunResults]) -> str:
    if not runs:
        return "<p>Nothing: everything here follows from closed forms and a simulated query.</p>"
    common = (
        f"Every run: {settings.ROUNDS} full-batch rounds over 10 clients, C = {CLIPPING_NORM:g}, "
        f"{OPTIMIZER.capitalize()} at learning rate {LEARNING_RATE:g} as in the authors' code, noise by "
        f"{settings.ACCOUNTANT}; the most dissimilar neighbour unless another one is named."
    )
    rows = [
        (found.setting.label, f"{found.setting.data.model}, n = {found.setting.data.records:,}",
         str(found.config.audit.dissimilarity), number_text(found.summary["guarantee"]["noise_multiplier"]),
         f"{found.repetitions:,}", str(found.summary["timing"]["engine"] or "not noted"))
        for found in runs
    ]  # fmt: skip
    columns = ("Setting", "Model and records", "Dissimilarity", "Noise multiplier", "Trials", "Engine")
    return f"<p>{escape(common)}</p>\n{page_table(columns, rows, numbers=(3, 4))}"
