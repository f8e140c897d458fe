"""What games in place came to, in words, and as files of their directory."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fl_audit.adjacency import Relation
from fl_audit.audits.black_box.findings import Finding, findings, opening, refusal_words, trial_json
from fl_audit.audits.black_box.guesses import fewest_games, guess_trial
from fl_audit.audits.black_box.seen import Seen, stacked
from fl_audit.audits.black_box.trial import Refusal, Trial
from fl_audit.errors import InputError
from fl_audit.strategies.games.agreement import Agreement, Contribution
from fl_audit.strategies.games.files import outside_words
from fl_audit.strategies.games.hearing import ERROR, FAILED, telling_names
from fl_audit.strategies.games.notes import Numbers, Observer
from fl_audit.strategies.games.store import Campaign, Columns
from fl_audit.whole_files import whole_file

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
_CRAFTED = (
    "The games sent a crafted update, longer than any clipping norm. Where the clients' own training code clips inside "
    'of the insider, no such update can come, and contribution="own" sends what the client has learned.'
)
_MOST_ERRORS = 5  # most errors of clients that are shown, the most frequent first
_CLIENTS, _ZERO = "replies of clients", "an update of exactly zero"


def _refusals(kind: str, seen: Sequence[Seen], present: NDArray[np.bool_], probe: str | None) -> Iterator[Refusal]:
    """Give what was refused: games by the strategy and by clients, and an update of exactly zero."""

    def refusal(what: str, said: str, refused: Iterable[bool]) -> Refusal:
        where = np.array(list(refused))
        shares = (float(np.mean(where[present])), float(np.mean(where[~present])))
        return Refusal(what, said, *shares, is_allowed=False)

    said = next((one.refusal for one in seen if one.refusal is not None), None)
    if said is not None:
        yield refusal(kind, said, (one.refusal is not None for one in seen))
    for error in _errors(seen)[:_MOST_ERRORS]:
        yield refusal(_CLIENTS, error.removeprefix(ERROR), (error in one.numbers for one in seen))
    if probe:
        yield Refusal(_ZERO, probe, 0.0, 1.0, is_allowed=False)


def _errors(seen: Sequence[Seen]) -> list[str]:
    """Return the names of the errors that clients replied with, the most frequent first."""
    found = Counter(name for one in seen for name in one.numbers if name.startswith(ERROR))
    return sorted(found, key=lambda name: (-found[name], name))


def _hindrance(seen: Sequence[Seen], present: NDArray[np.bool_], is_about_records: bool) -> str:
    """Return in how many games the target's client gave no answer, and why that says nothing; empty if in none."""
    failed = np.array([FAILED in one.numbers for one in seen])
    if not np.any(failed):
        return ""
    errors = _errors([one for one, is_failed in zip(seen, failed, strict=True) if is_failed])
    what = f"replied with an error or not at all ({errors[0].removeprefix(ERROR)})" if errors else "did not reply"
    shares = f"in {failed[present].mean():.0%} of games with D and {failed[~present].mean():.0%} with D'"
    changed = (
        " The audit changes its records in games, and the change itself may be the cause." if is_about_records else ""
    )
    return f"The target's client {what} {shares}.{changed} No such game counts as evidence."


def _refused(refusal: Refusal) -> str:
    if refusal.kind == _CLIENTS:
        shares = f"in {refusal.share_present:.0%} of games with D and {refusal.share_absent:.0%} with D'"
        return f"{_CLIENTS}: an error {shares} ({refusal.said})."
    if refusal.kind != _ZERO:
        return refusal_words([refusal])[0]
    return (
        f"An update of exactly zero, as of a client that has learned nothing, is not borne: {refusal.said}. Games have "
        "the smallest change of one value in its place."
    )


def _report_text(trial: Trial, found: Sequence[Finding], notes: Sequence[str]) -> str:
    """Return the report for the console."""
    lines = [opening(trial)]
    if trial.knowing is not None:
        lines.append("  knows_others=True has the claim cover such an observer, and judges the same games anew.")
    for finding in found:
        if finding.attempt.is_broken:
            lines.append(f"  {finding.cause}")
        lines.append(f"  {finding.sentence}")
        if finding.attempt.is_broken:
            lines += [f"    {line}" for line in (*finding.attempt.lines, finding.mend)]
        if finding.noise is not None:
            lines.append(f"    {finding.noise.words}")
    lines += [f"  {_refused(refusal)}" for refusal in trial.refusals]
    return "\n".join([*lines, *(f"  {note}" for note in notes)])


def finished_trial(audit: Agreement) -> Trial:
    """Return what came of an audit; refused unless its games are all played."""
    campaign = Campaign.finished(audit)
    if campaign is None:
        raise InputError(f"{audit.directory} holds no finished audit: run the app until all games are played")
    return _trial(campaign)


def finish(campaign: Campaign, columns: Columns, outside: Sequence[str]) -> str:
    """Return what came of the games in words, and write it into their directory if all are played.

    Parameters
    ----------
    campaign, columns, outside
        The games, names and slices of what was seen of the model, and where games of this run wrote that could not be
        kept apart.
    """
    if left := len(campaign.missing):
        games = campaign.audit.games
        played = f"{games - left} of {games} games are played, kept in {campaign.directory}"
        return f"{played}: run the app again for the others"
    campaign.keep_columns(columns)
    trial = _trial(campaign)
    provisos = dict.fromkeys(_WORDS, _CRAFTED) if campaign.chosen == Contribution.CRAFTED else {}
    found, notes = findings(trial, _WORDS, dict.fromkeys(_WORDS, _MEND), provisos), _notes(campaign, outside)
    text = _report_text(trial, found, notes)
    with whole_file(campaign.directory / "verdict.json") as file:
        values = trial_json(trial, found) | {"notes": list(notes)}
        file.write_text(json.dumps(values, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    with whole_file(campaign.directory / "verdict.txt") as file:
        file.write_text(f"{text}\n", encoding="utf-8")
    return f"{text}\nWritten to {campaign.directory}/verdict.json."


def _trial(campaign: Campaign) -> Trial:
    audit, numbers = campaign.audit, campaign.counted
    seen = [campaign.game(number) for number in numbers]
    present = np.array([campaign.is_present(number) for number in numbers])
    kind = "removed" if audit.claim.neighbours.relation is Relation.ADD_REMOVE else "replaced"
    kind += " record" if audit.is_about_records else ""
    games, failed = stacked(seen, campaign.columns, telling_names(seen)), [FAILED in one.numbers for one in seen]
    knows = audit.knows_others or campaign.is_of_server
    trial = guess_trial(audit.claim, kind, games, present, audit.confidence, knows, np.array(failed))
    refusals = tuple(_refusals(kind, seen, present, campaign.probe))
    hindrance = _hindrance(seen, present, audit.is_about_records)
    return replace(trial, unrefuted=campaign.unrefuted or trial.unrefuted, refusals=refusals, hindrance=hindrance)


def _notes(campaign: Campaign, outside: Sequence[str]) -> tuple[str, ...]:
    """Return what a reader has to know of these games besides."""
    audit, found = campaign.audit, [outside_words(outside)] if outside else []
    needed = fewest_games(audit.claim, audit.confidence) + audit.games - len(campaign.counted)
    if needed > audit.games:
        found.append(f"A claim as weak as this one takes {needed} games at least; {audit.games} were played.")
    if len(campaign.contributions) > 1:
        tried = f"The first games tried the contributions {' and '.join(campaign.contributions)}"
        found.append(f"{tried}; all others played {campaign.chosen}, which told more.")
    if audit.numbers is Numbers.KEPT and not audit.is_about_records:
        kept = "The numbers that clients report were left as they are: nothing is said of them."
        found.append(f'{kept} numbers="withheld" has a claim cover them.')
    if audit.observer is Observer.CLIENT:
        knows = "knows" if audit.knows_others or campaign.is_of_server else "does not know"
        found.append(f"The observer is a client that {knows} what all others sent, and sees every release.")
    if campaign.unrefuted is None:
        same = "Everybody else replied the same in every game"
        found.append(f"{same}: the noise of the server alone has to keep the claim.")
    return tuple(found)
