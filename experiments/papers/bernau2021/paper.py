"""Bernau et al. 2021: its tables and figures, which share runs."""

from fl_audit.experiments.papers.bernau2021 import insider_runs
from fl_audit.experiments.papers.bernau2021.advantage_and_belief import figure_6, table_2
from fl_audit.experiments.papers.bernau2021.attack_cost_scaling import table_1
from fl_audit.experiments.papers.bernau2021.claims import claims_item
from fl_audit.experiments.papers.bernau2021.closed_forms import table_3
from fl_audit.experiments.papers.bernau2021.epsilon_audit_figures import audit_of_epsilon
from fl_audit.experiments.papers.bernau2021.insider_runs import BASE, CANDIDATES, audit_runs, main_runs, neighbour_runs
from fl_audit.experiments.papers.bernau2021.noisy_query import figure_1, figure_2, figure_3
from fl_audit.experiments.papers.bernau2021.sensitivities import figure_4, figure_5
from fl_audit.experiments.papers.papers import ItemResults, PageNotes, Paper, PaperItem, StoredPaperRun, StoredPaperRuns
from fl_audit.report.mechanism_messages import AUDIT_DEVICE
from fl_audit.words import number_text


def _audit(number: int, study: str) -> PaperItem:
    title = f"Figure {number}. Audit of epsilon on {study}"
    return PaperItem(f"fig{number}", title, audit_of_epsilon, (study,), audit_runs)


_ALL = tuple(CANDIDATES)
_ITEMS = (
    PaperItem("table1", "Table 1. How the work grows with records and rounds", table_1),
    PaperItem("table2", "Table 2. Advantage and delta' at rho_beta = 0.9", table_2, _ALL, main_runs),
    PaperItem("table3", "Table 3. epsilon and rho_alpha for rho_beta and delta", table_3),
    PaperItem("fig1", "Figure 1. The decision boundary of the adversary", figure_1),
    PaperItem("fig2", "Figure 2. Regions of error by epsilon", figure_2),
    PaperItem("fig3", "Figure 3. rho_beta and rho_alpha by epsilon and delta", figure_3),
    PaperItem("fig4", "Figure 4. Local sensitivity by neighbour", figure_4, _ALL, neighbour_runs),
    PaperItem("fig5", "Figure 5. Sensitivities over the rounds", figure_5, _ALL, main_runs),
    PaperItem("fig6", "Figure 6. Beliefs and test accuracy", figure_6, _ALL, main_runs),
    *(_audit(number, study) for number, study in enumerate(_ALL, start=7)),
    PaperItem("claims", "Claims of the text", claims_item, _ALL, insider_runs.all_runs),
)


def _notes(paper_runs: StoredPaperRuns, results: ItemResults) -> PageNotes:
    runs = tuple(paper_runs.runs.values())
    return PageNotes(
        f"Every run: {BASE['training.rounds']} full-batch rounds over {BASE['data.clients']} clients, "
        f"C = {BASE['privacy.clipping-norm']:g}, {BASE['training.optimizer'].capitalize()} at learning rate "
        f"{BASE['training.learning-rate']:g} as in the authors' code, noise by {BASE['privacy.accountant']}; the most "
        "dissimilar neighbour unless another one is named.",
        ("Setting", "Model and records", "Dissimilarity", "Noise multiplier", "Trials", "Engine"),
        (3, 4),
        tuple(map(_row, runs)),
        warnings=(*_other_measures(paper_runs), f"Settings marked LS: {AUDIT_DEVICE}") if runs else (),
    )


def _row(paper_run: StoredPaperRun) -> tuple[str, ...]:
    run = paper_run.run
    summary = paper_run.summary
    return (
        run.label,
        f"{run['model.name']}, n = {run['data.records']:,}",
        str(run["audit.dissimilarity"]),
        number_text(summary["guarantee"]["noise_multiplier"]),
        f"{paper_run.repetitions:,}",
        str(summary["timing"]["engine"] or "not noted"),
    )


def _other_measures(paper_runs: StoredPaperRuns) -> tuple[str, ...]:
    """Return a sentence on data sets whose neighbours are chosen by another measure than the paper's, if there are
    any."""
    key = "audit.dissimilarity"
    pairs = [(data, CANDIDATES[data.study][0][0][key]) for data in paper_runs.data]
    other_measures = [
        f"on {data.title} by the {data[key]} measure instead of {usual}" for data, usual in pairs if data[key] != usual
    ]
    return (f"Neighbours are chosen {', '.join(sorted(other_measures))}.",) if other_measures else ()


PAPER = Paper(
    "bernau2021",
    "Bernau et al. 2021",
    "D. Bernau, G. Eibl, P. W. Grassal, H. Keller, F. Kerschbaum (2021). Quantifying identifiability to choose and "
    "audit epsilon in differentially private deep learning. PVLDB 14(13).",
    _ITEMS,
    CANDIDATES,
    insider_runs.all_runs,
    _notes,
)
