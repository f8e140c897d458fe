"""The rehearsal of a review: single trials that find the numbers that an app asks for, and the seconds of a trial."""

import re
import time
from dataclasses import replace
from pathlib import Path

from fl_audit.adjacency import Relation
from fl_audit.audits.black_box.claim import StatedClaim
from fl_audit.audits.black_box.transcript import Transcript
from fl_audit.errors import InputError, require
from fl_audit.randomness import Purpose, generator
from fl_audit.strategies.black_box.audited_system import AuditedSystem
from fl_audit.strategies.black_box.black_box_trial import LOSS, BlackBoxTrial
from fl_audit.strategies.black_box.metrics import names_asked
from fl_audit.strategies.black_box.recorder import errors_in
from fl_audit.strategies.black_box.scenarios import BY_NAME, Scenario
from fl_audit.strategies.black_box.working_copy import WorkingCopy, apart

_MOST_NAMES = 30  # most numbers that a strategy may ask of its clients


def rehearsed(system: AuditedSystem, claim: StatedClaim) -> tuple[AuditedSystem, float, float, bool, tuple[str, ...]]:
    """Play until the strategy accepts the numbers that clients report.

    Raises `InputError` if no trial can be played with the app.

    Parameters
    ----------
    system
        The audited system.
    claim
        The claim under test, of one round.

    Returns
    -------
    tuple
        The system with the names of these numbers, seconds of a trial on the app's own model and on a small one,
        whether something writes files in a trial, and names that the app looks for and cannot bear as numbers.
    """
    plain = "removed" if claim.neighbours.relation is Relation.ADD_REMOVE else "opposite"
    own = BY_NAME[f"{plain}, own model"] if system.model is not None else BY_NAME[plain]
    copy, unoffered = WorkingCopy(Path.cwd()), dict[str, None]()
    for _ in range(_MOST_NAMES):
        with names_asked() as names:
            seen, slow, blamed = _timed(system, claim, own, copy)
        # The app looks for numbers that our clients did not report, as its own do: what it asks for, it is given, and
        # first what it cannot do without.
        missing = re.fullmatch(r"KeyError: '([^']+)'", seen.refusal or "")
        known = (LOSS, system.weight, *system.metrics, *unoffered)
        wanted = [name for name in (missing.groups() if missing else names) if name not in known]
        if not wanted:
            break
        tried = replace(system, metrics=(*system.metrics, *dict.fromkeys(wanted)))
        if seen.refusal is None and _timed(tried, claim, own, copy)[0].refusal is not None:
            unoffered |= dict.fromkeys(wanted)
            continue
        system = tried
    _require_played(seen, blamed)
    quick = _timed(system, claim, BY_NAME[plain], copy)[1]
    copy.remove()
    return system, slow, quick, copy.was_written, tuple(unoffered)


def _require_played(seen: Transcript, blamed: str) -> None:
    """Refuse an app of which no trial can be played, naming the cause: its strategy, or its modifiers."""
    errors = errors_in(seen)
    is_refused = seen.refusal is not None
    if (blamed and is_refused) or (errors and (is_refused or not seen.has_release)):
        said = f"{seen.refusal}, {blamed}" if blamed else f"they replied with the error {errors[0]!r}"
        raise InputError(
            f"the modifiers of its clients cannot be played: {said}; accepted are modifiers that bear an ordinary "
            "message to train"
        )
    require(seen.refusal is None, f"the strategy cannot be played: it raised {seen.refusal}")


def _timed(
    system: AuditedSystem, claim: StatedClaim, kind: Scenario, copy: WorkingCopy
) -> tuple[Transcript, float, str]:
    """Play a trial; return its transcript, its seconds, and the modifier that ended it, if one did."""
    began, trial = time.monotonic(), BlackBoxTrial(system, claim, kind, True, generator(0, Purpose.BLACK_BOX))
    with apart(copy, thoroughly=False):
        seen = trial.play()
    return seen, time.monotonic() - began, trial.blamed
