"""Hunting animals: every claim is held against games, and what came of it becomes a row of one table."""

import csv
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from experiments.zoo.animal import Animal, Honest
from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.laboratory.trial import Budget, Tell, Trial
from fl_audit.whole_files import whole_file
from strategies.games.campaign import hold_to_claim

BUDGET = Budget(pilot=400, stages=(600, 2000, 8000), shares=(0.3, 0.3, 0.4), tried=3, most=6, deep=2, until_broken=True)
"""Enough games to catch every animal; a trial ends with the first lead that breaks the claim."""
QUICK = Budget(pilot=80, stages=(400, 1200), shares=(0.5, 0.5), tried=2, most=4, deep=1, until_broken=True)

FLOATING = "floating-point leak"
"""Of a mechanism that keeps its claim about real numbers, and whose low bits tell more."""


@dataclass(frozen=True)
class TrialRow:
    """What came of one trial.

    Parameters
    ----------
    name
        Of the animal or the honest mechanism.
    claim
        In words.
    verdict
        Of the trial.
    game, group
        Where most was told, and by what; empty if nothing could be played.
    bound, allowed, delta
        Epsilon certified there, the epsilon that the claim allows, and the delta of both.
    right, allowed_right
        Share of games guessed right, and the most that the claim allows.
    games
        Games of the attempt.
    seconds
        That it took.
    processor_seconds
        That it took on all cores together: on busy machines `seconds` says little.
    """

    name: str
    claim: str
    verdict: str
    game: str
    group: str
    bound: float
    allowed: float
    delta: float
    right: float
    allowed_right: float
    games: int
    seconds: float
    processor_seconds: float


def hunt(
    what: Animal | Honest, budget: Budget = BUDGET, processes: int = 2, seed: int = 0, tell: Tell = lambda _: None
) -> TrialRow:
    """Hold one mechanism to its claim, and return the row of the table.

    Parameters
    ----------
    what
        An animal or an honest mechanism.
    budget
        How many games.
    processes
        Games played at the same time.
    seed
        Of the games.
    tell
        Takes progress.
    """
    start, processor = time.monotonic(), _processor_seconds()
    trial = hold_to_claim(
        what.subject, what.claim, budget=budget, seed=seed, processes=processes, only=what.games, tell=tell
    )
    return _row(what, trial, time.monotonic() - start, _processor_seconds() - processor)


def _processor_seconds() -> float:
    """Return what this process and its children that have ended used of processors so far."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _row(what: Animal | Honest, trial: Trial, seconds: float, processor: float) -> TrialRow:
    worst, verdict = trial.worst, str(trial.verdict)
    if trial.verdict is not Verdict.VIOLATED and trial.floating is not None and trial.floating.is_broken:
        worst, verdict = trial.floating, FLOATING
    nothing = float("nan")
    return TrialRow(
        name=what.name,
        claim=trial.claim.words,
        verdict=verdict,
        game=worst.lead.kind if worst else "",
        group=worst.lead.group if worst else "",
        bound=worst.bound if worst else nothing,
        allowed=worst.lead.limit.epsilon if worst else nothing,
        delta=worst.lead.limit.delta if worst else nothing,
        right=worst.right / worst.games if worst else nothing,
        allowed_right=trial.claim.success,
        games=worst.games if worst else 0,
        seconds=seconds,
        processor_seconds=processor,
    )


def problems(rows: Sequence[tuple[Animal | Honest, TrialRow]]) -> list[str]:
    """Return what contradicts the zoo: animals that were not caught, and honest mechanisms that were."""
    found = []
    for what, row in rows:
        is_caught = row.verdict == Verdict.VIOLATED
        if isinstance(what, Animal) and not (is_caught or (what.is_rounding and row.verdict == FLOATING)):
            found.append(f"{row.name} was not caught: {row.verdict}")
        if isinstance(what, Honest) and is_caught:
            found.append(f"{row.name} is honest, and was called violated in {row.game!r} by {row.group!r}")
    return found


def write_csv(rows: Sequence[TrialRow], path: Path) -> None:
    """Write rows as a table of comma-separated values, whole or not at all.

    Parameters
    ----------
    rows, path
        The rows, and the file.
    """
    with whole_file(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(TrialRow)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
