"""What games in place came to, in words."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fl_audit.laboratory.findings import Finding, findings, opening, refusal_words
from fl_audit.laboratory.seen import Seen
from fl_audit.laboratory.trial import Refusal, Trial
from strategies.in_place.listening import ERROR

_WORDS = {
    "removed": "one client's contribution against almost none",
    "replaced": "one client's contribution against the opposite",
    "removed record": "one client with and without its first record",
    "replaced record": "one client with its first record and with another one",
}
_MEND = (
    "Check that contributions are clipped before they are summed, that all arrays of a client are clipped together, "
    "that noise is scaled to the norm over the number of clients that the mean divides by, and every array gets it."
)
CLIENTS = "replies of clients"
ZERO = "an update of exactly zero"


def with_refusals(
    trial: Trial, kind: str, seen: Sequence[Seen], present: NDArray[np.bool_], probe: str | None
) -> Trial:
    """Return a trial with what the strategy refused to play.

    Parameters
    ----------
    trial
        The trial.
    kind
        The kind of game.
    seen, present
        The games, and whether D was played.
    probe
        What was said to an update of exactly zero; empty or None for nothing.
    """
    refused = np.array([one.refusal is not None for one in seen])
    found = []
    if np.any(refused):
        said = next(one.refusal for one in seen if one.refusal is not None)
        shares = (float(np.mean(refused[present])), float(np.mean(refused[~present])))
        found.append(Refusal(kind, said, *shares, is_allowed=False))
    said_by_clients = {name.removeprefix(ERROR) for one in seen for name in one.numbers if name.startswith(ERROR)}
    for said in sorted(said_by_clients):
        where = np.array([ERROR + said in one.numbers for one in seen])
        shares = (float(np.mean(where[present])), float(np.mean(where[~present])))
        found.append(Refusal(CLIENTS, said, *shares, is_allowed=False))
    if probe:
        found.append(Refusal(ZERO, probe, 0.0, 1.0, is_allowed=False))
    return replace(trial, refusals=tuple(found))


def in_place_findings(trial: Trial) -> tuple[Finding, ...]:
    """Return what the games came to."""
    return findings(trial, _WORDS, dict.fromkeys(_WORDS, _MEND))


def _refused(refusal: Refusal) -> str:
    if refusal.kind != ZERO:
        return refusal_words(refusal)
    return (
        f"An update of exactly zero, as of a client that has learned nothing, is not borne: {refusal.said}. Games have "
        "the smallest change of one value in its place."
    )


def report_text(trial: Trial, found: Sequence[Finding], notes: Sequence[str]) -> str:
    """Return the report for the console.

    Parameters
    ----------
    trial, found
        The trial and its findings.
    notes
        What a reader has to know besides.
    """
    lines = [opening(trial)]
    for finding in found:
        lines.append(f"  {finding.sentence}")
        if finding.attempt.is_broken:
            lines += [f"    {line}" for line in finding.attempt.lines]
            lines.append(f"    {finding.mend}")
        if finding.noise is not None:
            lines.append(f"    {finding.noise.words}")
    lines += [f"  {_refused(refusal)}" for refusal in trial.refusals]
    lines += [f"  {note}" for note in notes]
    return "\n".join(lines)
