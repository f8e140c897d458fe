"""Is anybody accused who is honest? `python -m experiments.zoo.false_alarms [--audits 200] [--only NAME,...]`.

Every honest mechanism of the zoo is audited many times, with games of its own each time; an audit plays some kinds of
games, the next audit others, so that all kinds have their turn. At a confidence of 95 % at
most 5 % of the audits may call it violated, but for chance: of 200, up to 18 (with probability 0.99 or more if each is
called with probability 5 %). With `--out` the verdicts are written as they come, and a second call goes on after them.

What trains with the software's own strategy (`strategies.dp_strategy`) cannot be played here: its clients hold data,
compute gradients of stacked worlds and answer in records of their own, where the laboratory sends model updates. Its
release laws are audited by `python -m experiments.studies.verdicts`; the honest mechanisms here follow the same laws:
central, distributed and local Gaussian noise, adaptive clipping, sampled records, and both relations.
"""

import argparse
import csv
import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table
from scipy.stats import binom

from experiments.cli.main import guarded
from experiments.zoo.honest import HONEST
from fl_audit.errors import InputError, require
from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.laboratory.trial import Budget
from fl_audit.whole_files import whole_file
from strategies.games.campaign import hold_to_claim

LEVEL = 0.05
SMALL = Budget(pilot=40, stages=(120,), shares=(1.0,), tried=2, most=3, deep=1)
"""Of one audit: the number of audits counts here, not what one of them could find."""
KINDS_AT_ONCE = 3
_FIRST_SEED = 1_000_000
Verdicts = dict[tuple[str, int], str]
"""By mechanism and number of the audit."""


def allowed(audits: int) -> int:
    """Return how many of so many audits may accuse, but with probability 0.01, if each does with probability 5 %."""
    return int(binom.ppf(0.99, audits, LEVEL))


def audit(mechanism_and_number: tuple[str, int]) -> tuple[tuple[str, int], str]:
    """Audit an honest mechanism with the games of a number."""
    name, number = mechanism_and_number
    honest = next(one for one in HONEST if one.name == name)
    kinds = honest.games
    only = [kinds[(KINDS_AT_ONCE * number + place) % len(kinds)] for place in range(KINDS_AT_ONCE)]
    trial = hold_to_claim(honest.subject, honest.claim, budget=SMALL, seed=_FIRST_SEED + number, only=only)
    return mechanism_and_number, str(trial.verdict)


def audits(asked: list[tuple[str, int]], processes: int) -> Iterator[tuple[tuple[str, int], str]]:
    """Give the verdicts of audits as they come.

    Parameters
    ----------
    asked
        Mechanism and number of each audit.
    processes
        How many audits are held at once.
    """
    if processes == 1:
        yield from map(audit, asked)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap_unordered(audit, asked)


def read_verdicts(path: Path) -> Verdicts:
    """Return what was written before, if anything was."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {(row["mechanism"], int(row["audit"])): row["verdict"] for row in csv.DictReader(file)}


def write_verdicts(verdicts: Verdicts, path: Path) -> None:
    """Write verdicts, whole or not at all.

    Parameters
    ----------
    verdicts
        What came of each audit.
    path
        The file.
    """
    with whole_file(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["mechanism", "audit", "verdict"])
        writer.writerows([name, number, verdict] for (name, number), verdict in sorted(verdicts.items()))


def counts_table(verdicts: Verdicts, names: list[str]) -> tuple[Table, list[str]]:
    """Return the table of counts, and the names of mechanisms that were accused too often.

    Parameters
    ----------
    verdicts
        What came of each audit.
    names
        The mechanisms to be listed.
    """
    table = Table("honest mechanism", "audits", "violated", "allowed", "consistent", "inconclusive")
    accused = []
    for name in names:
        own = [verdict for (who, _), verdict in verdicts.items() if who == name]
        violated = own.count(Verdict.VIOLATED)
        if own and violated > allowed(len(own)):
            accused.append(name)
        counts = (violated, allowed(len(own)), own.count(Verdict.CONSISTENT), own.count(Verdict.INCONCLUSIVE))
        table.add_row(name, str(len(own)), *map(str, counts))
    return table, accused


def main() -> None:
    """Audit, print the counts, and write the verdicts.

    Raises
    ------
    InputError
        If no audit is asked for, or a mechanism is not known.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=200, help="audits of every honest mechanism")
    parser.add_argument("--only", metavar="NAME,...", help="these mechanisms instead of all")
    parser.add_argument("--processes", type=int, default=2, help="audits at the same time")
    parser.add_argument("--out", type=Path, help="where false_alarms.csv is written and read")
    options = parser.parse_args()
    require(options.audits >= 1, f"audits are {options.audits}: accepted are whole numbers from 1")
    require(options.processes >= 1, f"processes are {options.processes}: accepted are whole numbers from 1")
    known = [one.name for one in HONEST]
    names = known if options.only is None else options.only.split(",")
    for name in names:
        if name not in known:
            raise InputError(f"honest mechanism is {name!r}: accepted are {', '.join(known)}")
    path = options.out / "false_alarms.csv" if options.out else None
    verdicts = read_verdicts(path) if path else {}
    missing = [(name, number) for number in range(options.audits) for name in names if (name, number) not in verdicts]
    console = Console(width=140)
    with console.status("starting") as status:
        for which, verdict in audits(missing, options.processes):
            verdicts[which] = verdict
            status.update(f"{len(verdicts)} audits, the last of {which[0]}: {verdict}")
            if path:
                write_verdicts(verdicts, path)
    table, accused = counts_table(verdicts, names)
    console.print(table)
    print("\n".join(f"{name} is accused too often" for name in accused) or "nobody honest is accused too often")
    sys.exit(1 if accused else 0)


if __name__ == "__main__":
    guarded(main)
