"""Hunting animals: every claim is held against games; what came of it becomes a row of a table, and of a page."""

import csv
import inspect
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from pathlib import Path

from fl_audit.audits.black_box import features, leads, trial
from fl_audit.audits.black_box.trial import QUICK, Budget, Tell, Trial
from fl_audit.strategies.games import campaign, kinds, models
from fl_audit.verdict.verdict import Verdict
from fl_audit.whole_files import whole_file
from tests.validation.zoo.honest import Animal, Honest

BUDGETS = tuple(replace(budget, until_broken=True) for budget in (QUICK, Budget()))
"""Those of `fl-audit strategy`, quick and full: the full one is played where the quick one finds nothing.

A trial ends with the first lead that breaks the claim.
"""
CONFIDENCE = 1 - 0.05 / len(BUDGETS)
"""Of each of the trials, so that a claim that holds is called violated by neither with a probability of 95 %."""

FLOATING = "floating-point leak"
"""Of a mechanism that keeps its claim about real numbers, and whose low bits tell more."""


@dataclass(frozen=True)
class TrialRow:
    """What came of one trial."""

    name: str  # of the animal or the honest mechanism
    claim: str  # in words
    verdict: str  # of the trial
    # `game`, `group`: where most was told, and by what; empty if nothing could be played.
    game: str
    group: str
    # `bound`, `allowed`, `delta`: Epsilon certified there, the epsilon that the claim allows, and the delta of both.
    bound: float
    allowed: float
    delta: float
    # `right`, `allowed_right`: share of games guessed right, and the most that the claim allows.
    right: float
    allowed_right: float
    games: int  # games of the attempt
    seconds: float  # that it took
    processor_seconds: float  # that it took on all cores together: on busy machines `seconds` says little
    rule: str = ""  # digest of the rule by which it was hunted


def rule_of(budgets: Sequence[Budget]) -> str:
    """Return a digest of how animals are hunted: the budgets, and the code that finds and judges leads."""
    code = [inspect.getsource(module) for module in (features, leads, trial, campaign, kinds, models)]
    return sha256("\n".join([repr(budgets), *code]).encode()).hexdigest()[:8]


def hunt(
    what: Animal | Honest,
    budgets: Sequence[Budget] = BUDGETS,
    processes: int = 2,
    seed: int = 0,
    tell: Tell = lambda _: None,
) -> TrialRow:
    """Hold one mechanism to its claim, and return the row of the table.

    Parameters
    ----------
    what, budgets
        An animal or an honest mechanism, and how many games, in trials of which each is the last if it finds something.
    processes, seed, tell
        Games played at the same time, their seed, and what takes progress.
    """
    start, processor, rule = time.monotonic(), _processor_seconds(), rule_of(budgets)
    for budget in budgets:
        came = campaign.hold_to_claim(
            what.subject, what.claim, budget=budget, confidence=CONFIDENCE, seed=seed, processes=processes,
            only=what.games, tell=tell,
        )  # fmt: skip
        row = _row(what, came, time.monotonic() - start, _processor_seconds() - processor)
        if not problems([(what, row)]) and isinstance(what, Animal):
            break
    return replace(row, rule=rule)


def _processor_seconds() -> float:
    """Return what this process and its children that have ended used of processors so far."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _row(what: Animal | Honest, trial: Trial, seconds: float, processor: float) -> TrialRow:
    worst, verdict, nothing = trial.worst, str(trial.verdict), float("nan")
    if trial.verdict is not Verdict.VIOLATED and trial.floating is not None and trial.floating.is_broken:
        worst, verdict = trial.floating, FLOATING
    game, group, bound, allowed, delta, right, games = "", "", nothing, nothing, nothing, nothing, 0
    if worst is not None:
        game, group, bound, games, right = worst.lead.kind, worst.lead.group, worst.bound, worst.games, worst.right
        right, allowed, delta = right / games, worst.lead.limit.epsilon, worst.lead.limit.delta
    return TrialRow(
        what.name, trial.claim.words, verdict, game, group, bound, allowed, delta, right, trial.claim.success, games,
        seconds, processor,
    )  # fmt: skip


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


def read_csv(path: Path, rule: str) -> dict[str, TrialRow]:
    """Return the rows of a table that were hunted by a rule, by name; none if there is no such file.

    Parameters
    ----------
    path, rule
        The file of the table, and the name of the rule.
    """
    if not path.exists():
        return {}
    numbers = {field.name: field.type for field in fields(TrialRow) if field.type in (int, float)}
    with path.open(newline="") as file:
        rows = [entry for entry in csv.DictReader(file) if entry["rule"] == rule]
    return {row["name"]: TrialRow(**row | {name: kind(row[name]) for name, kind in numbers.items()}) for row in rows}


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


_HEAD = """# Sharp edges of federated DP

Pitfalls of private federated training, each played as a mechanism of the zoo and held to the promise that its author
would make. They are ranked by how much they tell: by how far the share of games that were guessed right passes the
largest share that the promise allows. The bounds on epsilon assume nothing of the mechanism; they end where so many
games can prove no more. Each is hunted as `fl-audit strategy --quick` does it, and as it does without `--quick` where
that finds nothing; in 95 % of such hunts a claim that holds is not called violated. All of it is made by
`python -m tests.validation.zoo --out DIR`, and every pitfall alone by the command below its name.
"""


def page(caught: Mapping[Animal, TrialRow], honest: Mapping[str, TrialRow]) -> str:
    """Return the page, the most telling animal first.

    Parameters
    ----------
    caught, honest
        What came of every animal, and of the honest mechanisms by name.
    """
    ranked = dict(sorted(caught.items(), key=lambda entry: entry[1].allowed_right - entry[1].right))
    sections = (
        f"\n## {animal.name}\n\n{animal.wrong}\n\n    python -m tests.validation.zoo --only {animal.name}\n\n"
        f"* Seen: {animal.source}\n* Mend: {animal.mend}\n"
        f"* Told by: {row.game}, {row.group}; {row.right:.1%} of {row.games} games guessed right, the claim allows "
        f"{row.allowed_right:.1%}."
        for animal, row in ranked.items()
    )
    return "\n".join([_HEAD, *_table(ranked, honest), *sections]) + "\n"


def told(row: TrialRow) -> str:
    """Return the bound of a row beside what its claim allows."""
    return f"{row.bound:.2f} of {row.allowed:.2f} at delta {row.delta:.2g}" if row.games else "-"


def _table(caught: Mapping[Animal, TrialRow], honest: Mapping[str, TrialRow]) -> list[str]:
    verdicts = {name: row.verdict for name, row in honest.items()}
    return [
        "| pitfall | claim | guessed right, of allowed | epsilon at least, of claimed | told by | honest twin |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| [{animal.name}](#{animal.name}) | {row.claim} | {row.right:.1%} of {row.allowed_right:.1%} "
            f"| {told(row)} | {row.game}: {row.group} "
            f"| {animal.twin.name}: {verdicts.get(animal.twin.name, 'not played')} |"
            for animal, row in caught.items()
        ),
    ]
