"""The report of a run: joins the results of its trial batches, and writes tables, summary and report."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from fl_audit.atomic_files import atomic_file, write_json
from fl_audit.audits.page.ordinary_training import is_shown_as_training
from fl_audit.audits.page.report_files import write_report
from fl_audit.audits.registry import audit_of
from fl_audit.errors import InputError
from fl_audit.federation.run_plan import RunPlan
from fl_audit.federation.run_tables import SECRET_TABLES, RunTables
from fl_audit.report.report_elements import ReportContents, SectionError, noted_in
from fl_audit.run_files import read_json
from fl_audit.runs.attacks import with_attacks
from fl_audit.runs.epsilon_by_round import with_epsilon
from fl_audit.runs.image_reconstruction import DRAWING_STEPS, reconstruct_images
from fl_audit.runs.non_private_run import note_unprotected, read_unprotected
from fl_audit.runs.progress import at_work, steps_bar
from fl_audit.runs.provenance import read_provenance
from fl_audit.runs.run_directory import TIMING, RunDirectory, read_plan
from fl_audit.runs.run_report_contents import summarise
from fl_audit.runs.stored_models import write_model
from fl_audit.runs.trial_batch_store import write_table

_UNKNOWN: dict[str, Any] = dict.fromkeys(("setup_seconds", "training_seconds", "trials_per_second", "engine"))
"""Durations of a run that was ended between its last batch and its report."""


def finish(
    plan: RunPlan, run: RunDirectory, with_report: bool = True, pdf_with_appendix: bool = False
) -> ReportContents:
    """Join the results of all batches of trials, and write tables, summary and report of a run."""
    with at_work("joining the tables"):
        store = run.store(plan.config)
        frames = store.tables(plan.config.audit.trials)
        errors = list[SectionError]()
        if "targets" in frames and audit_of(plan.federation).keeps_outputs(plan.federation):
            frames["targets"] = with_attacks(plan, store, frames["targets"], errors)
        frames["releases"] = with_epsilon(plan, frames["releases"])
        for label, frame in frames.items():
            if label in SECRET_TABLES:  # participation and the like stay with the challenger
                continue
            with atomic_file(run.path / f"{label}.parquet") as file:
                write_table(frame, file)
        write_model(plan, run.path)
    images = None
    if plan.config.audit.reconstruct_samples is not None:
        subject = "The search for training images"
        with noted_in(errors, subject), steps_bar("drawing the pictures", DRAWING_STEPS) as on_step:
            images = reconstruct_images(plan, on_step)
    with at_work("holding what was measured against the guarantee"):
        known_facts = _timing(run), read_provenance(run), read_unprotected(run)
        looks = _looks(run, plan.config.audit.trials)
        contents = summarise(plan, RunTables(**frames), *known_facts, images, looks, errors)
    contents.summary["shown_as_training"] = is_shown_as_training(contents)
    write_json(run.summary, contents.summary)
    if with_report:
        with at_work("drawing the figures, writing the report"):
            write_report(contents, run.path, pdf_with_appendix)
    return contents


def _looks(run: RunDirectory, trials: int) -> tuple[int, ...]:
    """Return the numbers of trials, ascending, after which a verdict was computed, including the present one."""
    earlier = set[int]()
    with suppress(AttributeError, TypeError, ValueError):  # no summary, or a damaged one
        earlier = set(map(int, read_json(run.summary).get("looks") or ()))
    return tuple(sorted(earlier | {trials}))


def _timing(run: RunDirectory) -> dict[str, Any]:
    """Return the recorded durations and the name of the engine; all are None if their file is missing or unreadable."""
    with suppress(InputError, AttributeError):
        stored: dict[str, Any] = read_json(run.path / TIMING)
        if stored.keys() == _UNKNOWN.keys():
            return stored
    return _UNKNOWN


def rebuild_report(
    directory: Path, without_privacy: Path | None = None, pdf_with_appendix: bool = False
) -> ReportContents:
    """Write the report of a finished run again from its stored results, and return the stored summary and tables.

    Raises `InputError` if the directory holds no finished run, if its files were damaged, or if
    `without_privacy` holds a run of another training.

    `without_privacy`: None keeps the comparison that is stored in the run, if any.
    """
    plan = read_plan(directory)
    run = RunDirectory(directory)
    with run.locked():
        if without_privacy is not None:
            note_unprotected(directory, without_privacy)
        return finish(plan, run, pdf_with_appendix=pdf_with_appendix)
