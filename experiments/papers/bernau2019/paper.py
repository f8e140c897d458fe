"""Bernau, Grassal, Robl and Kerschbaum 2019: its tables and figures, made from shared runs."""

from collections.abc import Iterator, Sequence

from fl_audit.experiments.papers.bernau2019.adversary_comparison_figure import adversaries_item
from fl_audit.experiments.papers.bernau2019.attacked_models import (
    AttackedModels,
    DatasetModels,
    models_by_dataset,
    most_epochs,
)
from fl_audit.experiments.papers.bernau2019.claims import claims_item, claims_of
from fl_audit.experiments.papers.bernau2019.epsilon_tables import EpsilonVerdict, guarantees, table_2, table_3
from fl_audit.experiments.papers.bernau2019.figures import figure_of
from fl_audit.experiments.papers.bernau2019.hyperparameters import LFW, STUDIES
from fl_audit.experiments.papers.bernau2019.membership_data import CANDIDATES
from fl_audit.experiments.papers.bernau2019.membership_runs import (
    EPOCHS_A_ROUND,
    PATIENCE,
    REPETITIONS,
    WITH_INSIDER,
    runs_of,
)
from fl_audit.experiments.papers.claims import verdicts_said
from fl_audit.experiments.papers.papers import ItemResults, PageNotes, Paper, PaperDataset, PaperItem, StoredPaperRuns


def _figure(number: int, study: str) -> PaperItem:
    return PaperItem(f"fig{number}", f"Figure {number}. Accuracy and privacy on {study}", figure_of, (study,), runs_of)


_ADVERSARIES = "Who learns more at the same epsilon: the adversaries of all three papers"
_ITEMS = (
    PaperItem("table2", "Table 2. Epsilon of local DP", table_2),
    PaperItem("table3", "Table 3. Epsilon of central DP", table_3),
    *(_figure(number, study) for number, study in enumerate(STUDIES, start=3)),
    PaperItem("adversaries", _ADVERSARIES, adversaries_item, WITH_INSIDER, runs_of),
    PaperItem("claims", "Claims of sections 5 and 6", claims_item, STUDIES, runs_of),
)

TRAINING = (
    "Every run is a membership audit: each target is in with probability 1/2 in each trial. Every trial's model "
    "is attacked, with all other trials' models as its shadow models, so that target and shadow models come from "
    f"one run. The paper repeats each experiment {REPETITIONS} times; here every trial is a repetition, numbers "
    f"are means over all of them, and the rows name what {REPETITIONS} of them give. Batch, clipping norm and "
    "learning rates are those of Table 3 where nothing else is said. Central DP is DP-Adam on Poisson samples of "
    "records; all other models are trained by Adam in shuffled batches, whose moments begin anew every "
    f"{EPOCHS_A_ROUND} epochs. Training ends where the loss on records that are neither targets nor test records "
    f"has not fallen for {PATIENCE} epochs, while the guarantee counts all epochs. Under local DP models are "
    "trained on perturbed records, and asked about true ones. What was cut: n, epochs, the number of shadow "
    "models, and of some data sets the levels between the largest and the smallest epsilon. Every setting is "
    "played in parts of equally many trials, which are each other's shadow models."
)
"""Words on the training of the models of all runs."""


def _notes(paper_runs: StoredPaperRuns, results: ItemResults) -> PageNotes:
    datasets = models_by_dataset(paper_runs)
    return PageNotes(
        TRAINING,
        ("Setting", "Model", "Targets", "Epochs at most", "Epochs chosen", "Epsilon of a record", "Trials"),
        tuple(range(2, 7)),
        tuple(_row(models) for of_data in datasets for models in of_data.settings),
        _opening(datasets, results),
    )


def _row(models: AttackedModels) -> tuple[str, ...]:
    return (
        models.label,
        models.run["model.name"].rpartition(":")[2],
        f"{models.config.data.records:,}",
        f"{most_epochs(models.config):.0f}",
        f"{models.chosen_epoch.mean():.1f}",
        f"{models.epsilon:.4g}",
        f"{models.trials}",
    )


def _opening(datasets: Sequence[DatasetModels], results: ItemResults) -> str:
    """Return sentences on how far the results agree with the paper; empty without runs and Table 3."""
    by_key = {item.key: result for item, result in results}
    if not datasets and "table3" not in by_key:
        return ""
    sentences = []
    if "table2" in by_key:
        count, differing = by_key["table2"].computed
        alike = f"{count - len(differing)} of {count} printed epsilons of local DP"
        sentences.append(f"{alike} follow from theory in all printed digits.")
    printed = list(guarantees())
    of = {verdict: sum(guarantee.verdict is verdict for guarantee in printed) for verdict in EpsilonVerdict}
    sentences.append(
        f"What agrees with the paper: of {len(printed)} printed epsilons of central DP the authors' accountant gives "
        f"{of[EpsilonVerdict.AS_PRINTED]} to the printed digit, nearly all on LFW, and {of[EpsilonVerdict.SMALLER]} "
        "more are smaller in print than all stated epochs would make them, as training that ends early would; "
        f"{of[EpsilonVerdict.LARGER]} are larger, those of COLLAB by far."
    )
    if datasets:
        sentences += [
            verdicts_said(claims_of(datasets)),
            "Its test accuracies, AUCs and phi are printed as pictures only, so that no number of ours stands beside "
            "them.",
            *_missing([models.data for models in datasets]),
        ]
    return " ".join(sentences)


def _missing(data: Sequence[PaperDataset]) -> Iterator[str]:
    """Yield sentences on the paper's data sets and models that are not available and were replaced."""
    replaced = [str(dataset.study) for dataset in data if dataset.name == "location30"]
    if replaced:
        yield f"What cannot be had are the data of {' and '.join(replaced)}, for which Location-30 stands in."
    if any(dataset.study == LFW for dataset in data):
        yield "The archive of faces has no 100 people, and weights learned from faces cannot be had."


PAPER = Paper(
    "bernau2019",
    "Bernau et al. 2019",
    "D. Bernau, P. W. Grassal, J. Robl, F. Kerschbaum (2019). Assessing differentially private deep learning with "
    "membership inference. arXiv:1912.11328.",
    _ITEMS,
    CANDIDATES,
    runs_of,
    _notes,
)
