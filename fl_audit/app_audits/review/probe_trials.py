"""The dry run of a review: single trials find which metrics an app's strategy looks up, and how long a trial takes."""

import re
import time
from dataclasses import replace
from pathlib import Path

from fl_audit.adjacency import Relation
from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.black_box_trial import LOSS, BlackBoxTrial
from fl_audit.app_audits.black_box.metric_lookups import names_asked
from fl_audit.app_audits.black_box.recorder import errors_in
from fl_audit.app_audits.black_box.scenario import Scenario
from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.black_box.working_copy import WorkingCopy, in_working_copy
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.transcript import Transcript
from fl_audit.errors import InputError, require
from fl_audit.randomness import Purpose, generator

_MOST_NAMES = 30  # largest number of metrics that a strategy may look up in replies


def probed(system: AuditedSystem, claim: StatedClaim) -> tuple[AuditedSystem, float, float, bool, tuple[str, ...]]:
    """Run single trials to find out which metrics the app's strategy needs in replies, and how long a trial takes.

    Clients report more and more metrics until nothing is missing. Raises `InputError` if the app fails in the last
    trial.
    """
    plain = "removed" if claim.neighbours.relation is Relation.ADD_REMOVE else "opposite"
    scenario = BY_NAME[f"{plain}, own model"] if system.model is not None else BY_NAME[plain]
    copy = WorkingCopy(Path.cwd())
    unoffered = dict[str, None]()
    for _ in range(_MOST_NAMES):
        with names_asked() as names:
            transcript, slow, blamed = _timed(system, claim, scenario, copy)
        # The app looks up metrics that the trial's clients did not report. They are added, first those without which
        # the app fails.
        missing = re.fullmatch(r"KeyError: '([^']+)'", transcript.refusal or "")
        known_numbers = (LOSS, system.weight, *system.metrics, *unoffered)
        wanted_names = [name for name in (missing.groups() if missing else names) if name not in known_numbers]
        if not wanted_names:
            break
        tried = replace(system, metrics=(*system.metrics, *dict.fromkeys(wanted_names)))
        if transcript.refusal is None and _timed(tried, claim, scenario, copy)[0].refusal is not None:
            unoffered |= dict.fromkeys(wanted_names)
            continue
        system = tried
    longer = replace(scenario, present=replace(scenario.present, length=2.0))
    _require_scalable(system, _timed(system, claim, longer, copy)[0])
    _require_played(transcript, blamed)
    quick = _timed(system, claim, BY_NAME[plain], copy)[1]
    copy.remove()
    return system, slow, quick, copy.was_written, tuple(unoffered)


def _require_played(transcript: Transcript, blamed: str) -> None:
    """Raise `InputError` if a trial failed, naming the strategy or the client mod `blamed` as the cause."""
    errors = errors_in(transcript)
    is_refused = transcript.refusal is not None
    if (blamed and is_refused) or (errors and (is_refused or not transcript.has_release)):
        error_text = f"{transcript.refusal}, {blamed}" if blamed else f"they replied with the error {errors[0]!r}"
        raise InputError(
            f"the modifiers of its clients cannot be played: {error_text}; accepted are modifiers that bear an "
            "ordinary "
            "message to train"
        )
    require(transcript.refusal is None, f"the strategy cannot be played: it raised {transcript.refusal}")


def _require_scalable(system: AuditedSystem, transcript: Transcript) -> None:
    """Raise `InputError` if a strategy fails when it has to clip an update, because the model has integer tensors.

    Flower's wrappers for differential privacy clip by scaling every tensor in place, which NumPy refuses for integers.
    `transcript` is a trial with an update of twice the clipping norm, which has to be clipped for certain.
    """
    whole = [name for name, array in (system.model or {}).items() if array.dtype.kind in "iub"]
    has_failed = "UFuncTypeError" in (transcript.refusal or "") and bool(whole)
    require(
        not has_failed,
        f"the strategy cannot be played: at an update longer than its clipping norm it raised {transcript.refusal}; it "
        f"cannot scale the model's arrays of whole numbers ({', '.join(whole)}): leave them out of the state that is "
        "sent, as with register_buffer(..., persistent=False)",
    )


def _timed(
    system: AuditedSystem, claim: StatedClaim, scenario: Scenario, copy: WorkingCopy
) -> tuple[Transcript, float, str]:
    """Run one trial with the target; return its transcript, its duration in seconds, and the name of the failing part.

    The part is a Flower mod of the app. The name is "" if no mod failed.
    """
    began = time.monotonic()
    trial = BlackBoxTrial(system, claim, scenario, True, generator(0, Purpose.BLACK_BOX))
    with in_working_copy(copy, thoroughly=False):
        transcript = trial.play()
    return transcript, time.monotonic() - began, trial.blamed
