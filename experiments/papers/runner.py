"""The runner of all papers: looks for data sets, plays the runs that items need, and makes the items from them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from fl_audit.data.catalogue import load_source
from fl_audit.errors import InputError
from fl_audit.experiments.papers.item_results import ItemResult
from fl_audit.experiments.papers.papers import (
    ComputeExtent,
    PageNotes,
    Paper,
    PaperDataset,
    PaperItem,
    PaperResults,
    ReproductionOptions,
    StoredPaperRuns,
)
from fl_audit.experiments.papers.run_scheduling import play, spent_on
from fl_audit.report.page import joined_html, list_html, page_table, paragraph_html, strong_html
from fl_audit.runs.federation_of_config import data_spec
from fl_audit.words import plural

NO_RUNS = "No run: everything here follows from closed forms and simulations."
QUICK_WARNING = (
    "Quick form: few trials, small samples, short training. It shows that everything works, and proves little."
)


def make(paper: Paper, items: Sequence[PaperItem], options: ReproductionOptions) -> PaperResults:
    """Carry out each run that some tables and figures (items) need, and make the items; those without data are left
    out."""
    studies = dict.fromkeys(study for item in items for study in item.studies)
    there, remarks = find_data(paper, studies, options.data_dir)
    data = tuple(form for dataset in there if (form := dataset.in_form(options.extent)) is not None)
    remarks = (*remarks, *dict.fromkeys(dataset.remark for dataset in data if dataset.remark))
    for remark in remarks:
        options.announce(remark)
    runs = play([run for item in items for dataset in item.shown(data) for run in item.runs(dataset)], options)
    finished = StoredPaperRuns(data, runs, options.extent)
    makeable = [item for item in items if item.can_be_made(data)]
    results = tuple((item, _made(item, finished)) for item in makeable)
    notes = paper.notes(finished, results)
    # Closed forms are the same in both forms.
    is_smaller = options.extent is ComputeExtent.QUICK and (bool(runs) or paper.constants(options.extent) is not None)
    return PaperResults(
        results,
        tuple(f"{item.title}: left out, {_why(item, there, options)}" for item in items if item not in makeable),
        remarks,
        (", ".join(dataset.title for dataset in data) or "no data needed", plural(len(runs), "run")),
        (*((QUICK_WARNING,) if is_smaller else ()), *notes.warnings),
        _played_html(notes, results),
        notes.opening,
    )


def _made(item: PaperItem, paper_runs: StoredPaperRuns) -> ItemResult:
    item_runs = replace(paper_runs, data=item.shown(paper_runs.data))
    runs = dict.fromkeys(run for data in item_runs.data for run in item.runs(data))
    result = item.build(item_runs)
    claims = result.claims or tuple(item.claims(item_runs))
    return replace(result, claims=claims, spent=spent_on([paper_runs[run] for run in runs]))


def _why(item: PaperItem, there: Iterable[PaperDataset], options: ReproductionOptions) -> str:
    return f"not played in the {options.extent} form" if item.shown(there) else "none of its data sets is there"


def _played_html(notes: PageNotes, results: Iterable[tuple[PaperItem, ItemResult]]) -> str:
    """Return HTML that says what was trained or simulated: a paragraph and a table of all runs, and a line an item."""
    lines = list_html(strong_html(f"{item.title}.", result.played) for item, result in results if result.played)
    rows = page_table(notes.columns, notes.rows, notes.numbers) if notes.rows else ""
    return joined_html(paragraph_html(notes.training) if rows else "", rows, lines) or paragraph_html(NO_RUNS)


def find_data(
    paper: Paper, studies: Iterable[str], data_dir: Path | None
) -> tuple[tuple[PaperDataset, ...], tuple[str, ...]]:
    """Return the available data sets of a paper, and a sentence on each one that is substituted or missing.

    `studies`: Of each of these, the first candidate is used that is available. A candidate may have several versions,
    such as numbers of classes: all available versions are used.
    """
    available: list[PaperDataset] = []
    remarks: list[str] = []
    for study in studies:
        reasons: list[str] = []
        for versions in paper.candidates[study]:
            missing = {
                version: reason for version in versions if (reason := _missing(paper, version, data_dir)) is not None
            }
            there = [version for version in versions if version not in missing]
            if there:
                available.extend(there)
                if reasons:
                    remarks.append(f"{study} is not there ({'; '.join(reasons)}): {there[0].name} stands in for it")
                break
            reasons.extend(f"{dataset.name.rpartition(':')[2]}: {reason}" for dataset, reason in missing.items())
        else:
            remarks.append(f"{study} is left out ({'; '.join(reasons)})")
    return tuple(available), tuple(remarks)


def _missing(paper: Paper, dataset: PaperDataset, data_dir: Path | None) -> str | None:
    """Return the reason why a data set cannot be loaded; None if it can."""
    run = next(iter(paper.runs(dataset)))
    try:
        load_source(data_spec(run.config(data_dir).data))
    except InputError as error:
        return str(error)
    return None
