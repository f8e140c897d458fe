"""The runner of all papers: looks for data sets, plays the runs that items need, and makes the items from them."""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from math import isfinite, nan
from pathlib import Path
from typing import Any

from fl_audit.adjacency import Adjacency, NeighbourPair
from fl_audit.atomic_files import write_json
from fl_audit.audits.registry import audit_named
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.dissimilarity import Measure
from fl_audit.data.neighbours import NeighbourChoice, ranked_neighbours
from fl_audit.data.record_selection import select_records
from fl_audit.errors import InputError
from fl_audit.experiments.papers.item_results import ItemResult, ItemRunProvenance
from fl_audit.experiments.papers.papers import (
    ComputeExtent,
    PageNotes,
    Paper,
    PaperDataset,
    PaperItem,
    PaperResults,
    PaperRun,
    ReproductionOptions,
    StoredPaperRun,
    StoredPaperRuns,
)
from fl_audit.federation.run_plan import RunPlan
from fl_audit.report.page import joined_html, list_html, page_table, paragraph_html, strong_html
from fl_audit.run_files import read_json
from fl_audit.runs.config import RunConfig
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.federation_of_config import data_spec
from fl_audit.runs.many_runs import Execution, OnRound, ScheduledRun, one_by_one, play_run, play_runs, side_by_side
from fl_audit.runs.mechanism_of_config import rounds_of
from fl_audit.runs.planning import plan_run
from fl_audit.runs.provenance import read_provenance
from fl_audit.runs.run_directory import RunDirectory, read_public
from fl_audit.words import plural

NO_RUNS = "No run: everything here follows from closed forms and simulations."
QUICK_WARNING = (
    "Quick form: few trials, small samples, short training. It shows that everything works, and proves little."
)

RANKS = 3  # number of most and of least dissimilar neighbours that one search keeps
_RANKED = (NeighbourChoice.MOST_DISSIMILAR, NeighbourChoice.LEAST_DISSIMILAR)
_MOST_PROCESSES = 8


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
        _procedures_html(notes, results),
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


def _procedures_html(notes: PageNotes, results: Iterable[tuple[PaperItem, ItemResult]]) -> str:
    """Return HTML that says what was trained or simulated: a paragraph and a table of all runs, and a line an item."""
    lines = list_html(strong_html(f"{item.title}.", result.procedure) for item, result in results if result.procedure)
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
            available_versions = [version for version in versions if version not in missing]
            if available_versions:
                available.extend(available_versions)
                if reasons:
                    remarks.append(
                        f"{study} is not there ({'; '.join(reasons)}): {available_versions[0].name} stands in for it"
                    )
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


def shared_pair(config: RunConfig, other_runs: Iterable[tuple[RunConfig, RunDirectory]] = ()) -> NeighbourPair | None:
    """Return the difference of D and D' for a configuration; None if no ranking of neighbours chooses it.

    If one of `other_runs` has the same neighbour and has begun, the difference is read from its directory.
    """
    if config.audit.neighbour not in _RANKED or not audit_named(config.audit.kind).chooses_pair:
        return None
    search, rank = search_and_rank = _search_and_rank(config)
    for other_config, run in other_runs:
        if _search_and_rank(other_config) == search_and_rank and run.is_begun:
            with suppress(InputError):  # it is just being written, by another process
                return read_public(run.path)[0].pair
    return _ranked(*search)[rank - 1]


def _search_and_rank(config: RunConfig) -> tuple[tuple[Any, ...], int]:
    """Return the arguments of `_ranked` for a configuration, and the rank of its neighbour."""
    data = config.data
    audit = config.audit
    farthest = audit.neighbour is NeighbourChoice.MOST_DISSIMILAR
    search = (
        data_spec(data),
        data.records,
        data.test_records,
        data.seed,
        config.privacy.adjacency,
        audit.dissimilarity,
        farthest,
    )
    return search, audit.neighbour_rank or 1


@lru_cache(maxsize=32)
def _ranked(
    data: DataSpec,
    records: int,
    test_records: int,
    seed: int,
    adjacency: Adjacency,
    dissimilarity: Measure,
    farthest: bool,
) -> tuple[NeighbourPair, ...]:
    """Return the neighbours that are most dissimilar, or least, the most extreme one first."""
    split = select_records(load_source(data), records, test_records, seed)
    return ranked_neighbours(adjacency, split.inside, split.outside, dissimilarity, RANKS, farthest)


def play(runs: Iterable[PaperRun], options: ReproductionOptions) -> dict[PaperRun, StoredPaperRun]:
    """Carry out the runs that are not finished, and return all of them."""
    stored_runs = {
        run: StoredPaperRun(run, run.config(options.data_dir), options.runs / run.name) for run in dict.fromkeys(runs)
    }
    # Once the first run has begun that has a neighbour, the others read it there instead of searching again.
    directories = [(stored.config, RunDirectory(stored.path)) for stored in stored_runs.values()]
    pending = [
        ScheduledRun(
            stored.run.label,
            stored.path,
            stored.config.audit.trials * rounds_of(stored.config),
            partial(_planned, stored.config, directories),
        )
        for stored in stored_runs.values()
        if not RunDirectory(stored.path).is_finished(stored.config)
    ]
    play_runs(pending, execution_of(len(pending), options), options.progress, stops_at_failure=True)
    return stored_runs


def _planned(config: RunConfig, other_runs: Iterable[tuple[RunConfig, RunDirectory]]) -> RunPlan:
    """Return the plan of a run, whose neighbour is read from one of the other runs if it has the same."""
    return plan_run(config, shared_pair(config, other_runs))


def execution_of(runs: int, options: ReproductionOptions) -> Execution:
    """Return how to play a number of runs: in processes, one per core, or with Ray one after the other.

    With one core or one run, it is played in this process.
    """
    processes = min(runs, parallel_runs())
    if options.engine is Engine.RAY:
        return partial(one_by_one, play=partial(_play_timed, engine=Engine.RAY, ray_address=options.ray_address))
    if processes <= 1:
        return partial(one_by_one, play=_play_timed)
    return partial(side_by_side, play=_play_timed, processes=processes)


def parallel_runs() -> int:
    """Return the number of runs at a time: one per usable core, up to a limit, since each run needs 1 to 2 GB."""
    return min(_MOST_PROCESSES, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


def _play_timed(
    run: ScheduledRun, on_round: OnRound, engine: Engine = Engine.LOCAL, ray_address: str | None = None
) -> None:
    """Play a run, and record how long it took beside the durations of its earlier parts."""
    begun = time.monotonic()
    play_run(run, on_round, engine, ray_address)
    seconds = time.monotonic() - begun
    file = _seconds_file(run.directory)
    before = float(read_json(file)["seconds"]) if file.exists() else 0.0
    write_json(file, {"seconds": before + seconds})


def _seconds_file(run: Path) -> Path:
    """Return the path of the file that records a run's duration; the file is next to the run directory."""
    return run.with_name(f"{run.name}.seconds.json")


def seconds_of(run: Path) -> float:
    """Return the duration of a finished run in seconds; NaN if unknown.

    If no duration was recorded, the result is the sum of the durations of setup and training.
    """
    file = _seconds_file(run)
    if file.exists():
        return float(read_json(file)["seconds"])
    try:
        timing = read_json(run / "timing.json")
    except InputError:
        return nan
    return float(timing["setup_seconds"]) + float(timing["training_seconds"])


def spent_on(runs: Iterable[StoredPaperRun]) -> ItemRunProvenance:
    """Return the total number of trials, the total duration, and the commits with which runs were made."""
    wanted_runs = list(runs)
    commits = set[str]()
    for run in wanted_runs:
        origin = read_provenance(RunDirectory(run.path))
        commits |= {session.commit for session in origin.sessions if session.commit} if origin else set()
    seconds = sum(seconds_of(run.path) for run in wanted_runs)
    trials = sum(run.config.audit.trials for run in wanted_runs)
    return ItemRunProvenance(trials, seconds / 60 if isfinite(seconds) else nan, tuple(sorted(commits)))
