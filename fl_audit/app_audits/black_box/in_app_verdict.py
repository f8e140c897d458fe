"""The report of an audit inside a Flower app: text for the console, and the files `summary.json` and `verdict.txt`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fl_audit.adjacency import Relation
from fl_audit.app_audits.black_box.recorder import ERROR, FAILED, evidence_names
from fl_audit.app_audits.black_box.transcript_store import ResultColumns, TranscriptStore
from fl_audit.app_audits.black_box.trial_messages import AbsentTargetMetrics, Observer, TargetAction
from fl_audit.app_audits.black_box.working_copy import outside_words
from fl_audit.app_audits.claim_audit.claim_audit_messages import refusal_words
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, TrialErrorShares
from fl_audit.app_audits.claim_audit.online_guessing import audit_online, fewest_trials
from fl_audit.app_audits.claim_audit.transcript import Transcript, stacked
from fl_audit.app_audits.claim_audit.trial_results import ScenarioTexts, findings, in_app_result
from fl_audit.atomic_files import write_json, write_text
from fl_audit.errors import InputError
from fl_audit.report.template_files import template_lines, template_texts
from fl_audit.verdict.audit_result import AuditResult

if TYPE_CHECKING:  # Clients import the module of `Audit`, which imports this one late.
    from fl_audit.app_audits.black_box.in_app_audit import Audit

_KNOWS_OTHERS = "  knows_others=True has the claim cover such an observer, and judges the same trials anew."
_MOST_ERRORS = 5  # most errors of clients that are shown, the most frequent first
_CLIENTS = "replies of clients"
_ZERO = "an update of exactly zero"


def _refusals(
    kind: str, transcripts: Sequence[Transcript], present: NDArray[np.bool_], probe: str | None
) -> Iterator[TrialErrorShares]:
    """Yield each kind of failure, with the share of trials with D and of trials with D' in which it occurred.

    There are three kinds: refusals of the app, which are reported under the name `kind`; errors of clients; and the
    error `probe`, which the app raised on an update of zero.
    """

    def refusal(problem: str, message: str, refused: Iterable[bool]) -> TrialErrorShares:
        where = np.array(list(refused))
        shares = (float(np.mean(where[present])), float(np.mean(where[~present])))
        return TrialErrorShares(problem, message, *shares, is_allowed=False)

    refusal_text = next((transcript.refusal for transcript in transcripts if transcript.refusal is not None), None)
    if refusal_text is not None:
        yield refusal(kind, refusal_text, (transcript.refusal is not None for transcript in transcripts))
    for error in _errors(transcripts)[:_MOST_ERRORS]:
        yield refusal(_CLIENTS, error.removeprefix(ERROR), (error in transcript.numbers for transcript in transcripts))
    if probe:
        yield TrialErrorShares(_ZERO, probe, 0.0, 1.0, is_allowed=False)


def _errors(transcripts: Sequence[Transcript]) -> list[str]:
    """Return the names of clients' errors in trials, the most frequent first, then by name."""
    counter = Counter(name for transcript in transcripts for name in transcript.numbers if name.startswith(ERROR))
    return sorted(counter, key=lambda name: (-counter[name], name))


def _hindrance(transcripts: Sequence[Transcript], present: NDArray[np.bool_], is_about_records: bool) -> str:
    """Return a sentence on how often the target's client gave no valid reply under D and D'; empty if it always did.

    For claims about records, the sentence adds that the audit's own change of the records may be the cause.
    """
    failed = np.array([FAILED in transcript.numbers for transcript in transcripts])
    if not np.any(failed):
        return ""
    errors = _errors([transcript for transcript, is_failed in zip(transcripts, failed, strict=True) if is_failed])
    problem = f"replied with an error or not at all ({errors[0].removeprefix(ERROR)})" if errors else "did not reply"
    shares = f"in {failed[present].mean():.0%} of trials with D and {failed[~present].mean():.0%} with D'"
    changed = (
        " The audit changes its records in trials, and the change itself may be the cause." if is_about_records else ""
    )
    return f"The target's client {problem} {shares}.{changed} No such trial counts as evidence."


def _refused(refusal: TrialErrorShares) -> str:
    if refusal.kind == _CLIENTS:
        shares = f"in {refusal.share_present:.0%} of trials with D and {refusal.share_absent:.0%} with D'"
        return f"{_CLIENTS}: an error {shares} ({refusal.error})."
    if refusal.kind != _ZERO:
        return refusal_words([refusal])[0]
    return (
        f"An update of exactly zero, as of a client that has learned nothing, is not borne: {refusal.error}. Trials "
        "have the smallest change of one value in its place."
    )


def _report_text(result: AuditResult, knows_others: str) -> str:
    """Return the result as text: the headline, and a line for each finding below it."""
    warning = [] if result.warning is None else [f"  warning: {result.warning}"]
    lines = [f"  {subject}: {text}" for subject, text in result.lines]
    return "\n".join([result.headline, *warning, *filter(None, [knows_others]), *lines])


def finished_result(audit: "Audit") -> ClaimAudit:
    """Return the result of an audit from its stored trials; raise `InputError` if some have not been run yet."""
    store = TranscriptStore.finished(audit)
    if store is None:
        raise InputError(f"{audit.directory} holds no finished audit: run the app until all trials are played")
    return _result(store)


def finish(
    store: TranscriptStore, columns: ResultColumns, outside: Sequence[str], rounds_of_training: int | None = None
) -> str:
    """Return the text of the audit's report, and write it as `summary.json` and `verdict.txt`.

    If trials are still missing, nothing is written, and the text says how many have been run.

    `rounds_of_training`: Number of rounds of the app's own training; None if it is not known.
    """
    if missing := len(store.missing):
        trials = store.audit.trials
        played = f"{trials - missing} of {trials} trials are played, kept in {store.directory}"
        return f"{played}: run the app again for the others"
    store.keep_columns(columns)
    result = _result(store)
    audit_findings = findings(result, _scenario_texts(is_crafted=store.chosen_update == TargetAction.CRAFTED))
    notes = _notes(store, outside, rounds_of_training)
    refusals = tuple(map(_refused, result.refusals))
    stored_result = in_app_result(store.directory.name, result, audit_findings, rounds_of_training, refusals, notes)
    knows_others = _KNOWS_OTHERS if result.knowing is not None else ""
    text = _report_text(stored_result, knows_others)
    write_json(store.directory / "summary.json", stored_result.to_json())
    write_text(store.directory / "verdict.txt", f"{text}\n")
    return f"{text}\nWritten to {store.directory}/summary.json."


def _scenario_texts(*, is_crafted: bool) -> dict[str, ScenarioTexts]:
    """Return the texts on the scenarios, keyed by name; `is_crafted` says whether trials sent a crafted update."""
    words = template_texts("in_app_scenarios.md")
    fix = words.pop("usual fix")
    proviso = template_texts("update_provisos.md")["inside-app"] if is_crafted else ""
    return {name: ScenarioTexts(text, fix, proviso) for name, text in words.items()}


def _result(store: TranscriptStore) -> ClaimAudit:
    audit = store.audit
    numbers = store.evaluated_trials
    transcripts = [store.trial(number) for number in numbers]
    present = np.array([store.is_present(number) for number in numbers])
    kind = "removed" if audit.claim.neighbours.relation is Relation.ADD_REMOVE else "replaced"
    kind += " record" if audit.is_about_records else ""
    trials = stacked(transcripts, store.columns, evidence_names(transcripts))
    failed = [FAILED in transcript.numbers for transcript in transcripts]
    knows = audit.knows_others or store.is_of_server
    result = audit_online(audit.claim, kind, trials, present, audit.confidence, knows, np.array(failed))
    refusals = tuple(_refusals(kind, transcripts, present, store.zero_update_error))
    hindrance = _hindrance(transcripts, present, audit.is_about_records)
    return replace(result, not_covered=store.not_covered or result.not_covered, refusals=refusals, hindrance=hindrance)


def _notes(store: TranscriptStore, outside: Sequence[str], rounds_of_training: int | None) -> tuple[str, ...]:
    """Return sentences for the end of the report: on files that trials wrote elsewhere, trial numbers, and limits."""
    audit = store.audit
    is_of_client = audit.observer is Observer.CLIENT
    notes = template_lines(
        "in_app_notes.md",
        trials=audit.trials,
        needed=fewest_trials(audit.claim, audit.confidence) + audit.trials - len(store.evaluated_trials),
        contributions=store.contributions,
        chosen=store.chosen_update,
        ignores_numbers=audit.numbers is AbsentTargetMetrics.KEPT and not audit.is_about_records,
        is_of_client=is_of_client,
        knows_others=is_of_client and (audit.knows_others or store.is_of_server),
        is_still=store.not_covered is None,
        rounds=rounds_of_training,
        played_rounds=audit.claim.rounds,
    )
    return (outside_words(outside), *notes) if outside else tuple(notes)
