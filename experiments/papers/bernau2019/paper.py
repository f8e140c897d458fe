"""The reproduction of Bernau, Grassal, Robl and Kerschbaum 2019: its tables and figures, made from shared runs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Any

from fl_audit.audits.page.html_building_blocks import page_table
from fl_audit.experiments.papers.bernau2019 import settings
from fl_audit.experiments.papers.bernau2019.adversary_comparison_figure import adversaries_item
from fl_audit.experiments.papers.bernau2019.claims import claims_item, claims_of
from fl_audit.experiments.papers.bernau2019.configurations import EPOCHS_A_ROUND, PATIENCE, all_values
from fl_audit.experiments.papers.bernau2019.epsilon_tables import EpsilonVerdict, guarantees, table_2, table_3
from fl_audit.experiments.papers.bernau2019.figures import figure_of
from fl_audit.experiments.papers.bernau2019.published import MembershipDatasetName
from fl_audit.experiments.papers.bernau2019.runs import (
    DataSetRuns,
    MembershipSettingResults,
    most_epochs,
    played_of,
    run_and_join_parts,
)
from fl_audit.experiments.papers.bernau2019.settings import REPETITIONS, SettingRun
from fl_audit.experiments.papers.claims import verdicts_said
from fl_audit.experiments.papers.dataset_availability import DatasetItem, find_data_of_items
from fl_audit.experiments.papers.item_results import ItemResult
from fl_audit.experiments.papers.legacy_papers import OldPaper
from fl_audit.experiments.papers.papers import ComputeExtent, PaperResults, ReproductionOptions
from fl_audit.experiments.papers.run_scheduling import spent_on
from fl_audit.plurals import plural

QUICK_WARNING = (
    "Quick form: few records, few epochs, some of the levels. It shows that everything works, and proves little."
)
_NO_FACES = (
    "The weights of VGG-16 that were learned from faces cannot be had: a small network stands in for it on LFW, and "
    "the images are those of 64 x 64 pixels of the 62 people with 20 images or more."
)


@dataclass(frozen=True)
class MembershipPaperItem(DatasetItem):
    """A table or figure of the paper, with the function that makes it from the runs on its data sets."""

    build: Callable[[Sequence[DataSetRuns]], ItemResult]


def _figure(number: int, study: MembershipDatasetName) -> MembershipPaperItem:
    title = f"Figure {number}. Accuracy and privacy on {study}"
    return MembershipPaperItem(f"fig{number}", title, partial(figure_of, study), studies=(study,))


_ADVERSARIES = "Who learns more at the same epsilon: the adversaries of all three papers"
_ITEMS = (
    MembershipPaperItem("table2", "Table 2. Epsilon of local DP", lambda played: table_2()),
    MembershipPaperItem("table3", "Table 3. Epsilon of central DP", lambda played: table_3()),
    _figure(3, MembershipDatasetName.TEXAS),
    _figure(4, MembershipDatasetName.PURCHASES),
    _figure(5, MembershipDatasetName.COLLAB),
    _figure(6, MembershipDatasetName.LFW),
    _figure(7, MembershipDatasetName.SKEWED),
    MembershipPaperItem("adversaries", _ADVERSARIES, adversaries_item, studies=settings.WITH_INSIDER),
    MembershipPaperItem("claims", "Claims of sections 5 and 6", claims_item, studies=tuple(MembershipDatasetName)),
)


def _make(items: Sequence[MembershipPaperItem], context: ReproductionOptions) -> PaperResults:
    """Carry out each run that a table or figure (item) needs, and make the items; items without data are left out."""
    found, remarks = find_data_of_items(items, settings.CANDIDATES, context)
    if any(one.study is MembershipDatasetName.LFW for one in found):
        context.announce(_NO_FACES)
        remarks = (*remarks, _NO_FACES)
    data = tuple(one for one in found if one.size(context.extent) is not None)
    played = _play(data, context)
    runs = [run for one in played for run in one.runs]
    makeable = [item for item in items if not item.studies or item.data_of(data)]
    others = [item for item in items if item not in makeable]
    results: Any = tuple((item, _made(item, played, context)) for item in makeable)
    return PaperResults(
        results,
        tuple(f"{item.title}: left out, {_why(item, found, context.extent)}" for item in others),
        remarks,
        (", ".join(one.title for one in data) or "no data needed", plural(len(runs), "run")),
        (QUICK_WARNING,) if context.extent is ComputeExtent.QUICK and runs else (),
        _played(runs),
        _opening(played, results),
    )


def _play(data: Sequence[settings.MembershipDatasetRecipe], context: ReproductionOptions) -> list[DataSetRuns]:
    """Carry out all parts of all settings of some data sets, and return the results by data set."""
    parts = [
        SettingRun(setting, number)
        for recipe in data
        for setting in settings.settings_of(recipe, context.extent)
        for number in range(recipe.parts(context.extent))
    ]
    results = run_and_join_parts(parts, context)
    return [played_of(recipe, results) for recipe in data]


def _made(item: MembershipPaperItem, played: Sequence[DataSetRuns], context: ReproductionOptions) -> ItemResult:
    own = [one for one in played if one.data.study in item.studies]
    runs = [run for one in own for run in one.runs]
    parts = {SettingRun(run.setting, number): run.trials // run.parts for run in runs for number in range(run.parts)}
    spent = spent_on({context.runs / part.name: trials for part, trials in parts.items()})
    return replace(item.build(own), spent=spent)


PAPER = OldPaper(
    "bernau2019",
    "Bernau et al. 2019",
    "D. Bernau, P. W. Grassal, J. Robl, F. Kerschbaum (2019). Assessing differentially private deep learning with "
    "membership inference. arXiv:1912.11328.",
    _ITEMS,
    _make,
    all_values,
)


def _why(item: MembershipPaperItem, found: Sequence[settings.MembershipDatasetRecipe], extent: ComputeExtent) -> str:
    return f"not played in the {extent} form" if item.data_of(found) else "its data are not there"


def _opening(played: Sequence[DataSetRuns], results: Sequence[tuple[MembershipPaperItem, ItemResult]]) -> str:
    """Return sentences on how far the results agree with the paper; empty without runs and Table 3."""
    by_key = {item.key: result for item, result in results}
    if not played and "table3" not in by_key:
        return ""
    said = []
    if "table2" in by_key:
        count, differing = by_key["table2"].computed
        alike = f"{count - len(differing)} of {count} printed epsilons of local DP"
        said.append(f"{alike} follow from theory in all printed digits.")
    printed = list(guarantees())
    of = {verdict: sum(one.verdict is verdict for one in printed) for verdict in EpsilonVerdict}
    said.append(
        f"What agrees with the paper: of {len(printed)} printed epsilons of central DP the authors' accountant gives "
        f"{of[EpsilonVerdict.AS_PRINTED]} to the printed digit, nearly all on LFW, and {of[EpsilonVerdict.SMALLER]} "
        "more are smaller in print than all stated epochs would make them, as training that ends early would; "
        f"{of[EpsilonVerdict.LARGER]} are larger, those of COLLAB by far."
    )
    if played:
        said += [
            verdicts_said(claims_of(played)),
            "Its test accuracies, AUCs and phi are printed as pictures only, so that no number of ours stands beside "
            "them.",
            *_missing([one.data for one in played]),
        ]
    return " ".join(said)


def _missing(data: Sequence[settings.MembershipDatasetRecipe]) -> Iterator[str]:
    """Yield sentences on the paper's data sets and models that are not available and were replaced."""
    replaced = [str(one.study) for one in data if one.name == "location30"]
    if replaced:
        yield f"What cannot be had are the data of {' and '.join(replaced)}, for which Location-30 stands in."
    if any(one.study is MembershipDatasetName.LFW for one in data):
        yield "The archive of faces has no 100 people, and weights learned from faces cannot be had."


def _played(runs: Sequence[MembershipSettingResults]) -> str:
    if not runs:
        return "<p>Nothing: everything here follows from closed forms.</p>"
    common = (
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
    rows = [
        (run.setting.label, run.setting.data.model.rpartition(":")[2], f"{run.config.data.records:,}",
         f"{most_epochs(run.config):.0f}", f"{run.chosen_epoch.mean():.1f}", f"{run.epsilon:.4g}", f"{run.trials}")
        for run in runs
    ]  # fmt: skip
    columns = ("Setting", "Model", "Targets", "Epochs at most", "Epochs chosen", "Epsilon of a record", "Trials")
    return f"<p>{escape(common)}</p>\n{page_table(columns, rows, numbers=range(2, 7))}"
