"""Is a law of this software accused that keeps its promise? Two hundred audits of every one, from real runs.

    python -m experiments.studies.law_audits [--audits 200] [--worlds 10] [--only TEXT] [--seed N]

Every combination of strategy, relation, clipping, participation, noise and adversary that is offered is played in one
run of as many worlds as all its audits have together. Worlds are independent repetitions of the game, so the run falls
into audits of a few worlds each, and each gets the verdict that a run of these worlds alone would get. A verdict is to
be `violated` in at most one of a thousand audits; here at most 5 % are allowed, and what chance adds to that: the exit
status is 1 where a law is accused more often.

The sensitivities are the largest that the promise allows (`guarantee_settings` says how that is made), so the audits
stand at the edge of what is promised.
"""

import argparse
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

from experiments.cli.main import guarded
from experiments.runs.engines import Engine
from experiments.runs.run import run_audit
from experiments.studies.guarantee_settings import Combination, combinations, is_repetition, plan_of, write_records
from experiments.zoo.false_alarms import allowed
from fl_audit.errors import InputError, require
from fl_audit.evidence.belief.verdict import Verdict
from fl_audit.evidence.findings.found import Findings
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.evidence.run_tables import RunTables
from fl_audit.report.sections.verdict import VERDICT

PROMISED = {"epsilon": 2.0}
MOST_PRIVATE_WORLDS = 4
"""Worlds of an audit whose clients train with Opacus, which takes about a quarter of a second a world."""


@dataclass(frozen=True)
class Audited:
    """A law, the verdicts of its audits, and how long they took in seconds."""

    combination: Combination
    verdicts: tuple[Verdict, ...]
    seconds: float

    @property
    def violated(self) -> int:
        """How many audits accuse it."""
        return self.verdicts.count(Verdict.VIOLATED)

    @property
    def is_accused(self) -> bool:
        """Whether that is more than chance explains."""
        return self.violated > allowed(len(self.verdicts))


def audits_of(run: FinishedRun, worlds: int) -> Iterator[FinishedRun]:
    """Cut a run into runs of so many worlds each; what is left over is left out.

    Parameters
    ----------
    run
        The run.
    worlds
        How many worlds an audit has.
    """
    numbers = run.tables.worlds["world"].to_numpy()
    for start in range(0, len(numbers) - worlds + 1, worlds):
        yield replace(run, tables=_of_worlds(run.tables, numbers[start : start + worlds].tolist()))


def _of_worlds(tables: RunTables, chosen: list[int]) -> RunTables:
    parts: dict[str, pd.DataFrame | None] = {}
    for field in fields(tables):
        table: pd.DataFrame | None = getattr(tables, field.name)
        parts[field.name] = None if table is None else table[table["world"].isin(chosen)].reset_index(drop=True)
    return RunTables(**parts)  # type: ignore[arg-type]


def verdict_of(run: FinishedRun) -> Verdict:
    """Return the verdict that the report of a run states."""
    numbers = VERDICT.measure(run, Findings({}))
    assert numbers is not None, "every run has a verdict"
    return numbers.verdict


def audit(combination: Combination, records: Path, audits: int, worlds: int, seed: int) -> Audited | None:
    """Play a combination and audit it; None where it is refused, or says what another says.

    Parameters
    ----------
    combination
        Which combination.
    records
        The data, as `write_records` writes it.
    audits
        Number of audits.
    worlds
        Number of worlds in each.
    seed
        The challenger's.
    """
    began = time.monotonic()
    if combination.strategy == "dp-sgd-clients":
        worlds = min(worlds, MOST_PRIVATE_WORLDS)
    try:
        plan = plan_of(combination, records, audits * worlds, seed, PROMISED)
    except InputError:
        return None
    if is_repetition(plan):
        return None
    with tempfile.TemporaryDirectory() as directory:
        contents = run_audit(plan, Path(directory) / "run", Engine.LOCAL, with_report=False)
    verdicts = tuple(verdict_of(part) for part in audits_of(contents.run, worlds))
    return Audited(combination, verdicts, time.monotonic() - began)


def offered(only: str = "") -> list[Combination]:
    """Return the combinations with the usual view and optimizer, refused ones among them, whose name has a text."""
    return [one for one in combinations() if one.is_usual and only in str(one)]


def table_of(found: list[Audited]) -> Table:
    """Return a row for every law."""
    table = Table("law and adversary", "audits", "violated", "allowed", "consistent", "inconclusive", "s")
    for one in found:
        counts = Counter(one.verdicts)
        numbers = (len(one.verdicts), one.violated, allowed(len(one.verdicts)))
        others = (counts[Verdict.CONSISTENT], counts[Verdict.INCONCLUSIVE])
        table.add_row(str(one.combination), *map(str, (*numbers, *others)), f"{one.seconds:.0f}")
    return table


def main() -> None:
    """Audit, and print the counts.

    Raises
    ------
    InputError
        If no audit is asked for.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audits", type=int, default=200, help="audits of every law")
    parser.add_argument("--worlds", type=int, default=10, help="worlds of an audit")
    parser.add_argument("--only", default="", help="laws whose name contains this text")
    parser.add_argument("--seed", type=int, default=0, help="another number plays other games (default: 0)")
    options = parser.parse_args()
    require(options.audits >= 1, f"audits are {options.audits}: accepted are whole numbers from 1")
    require(options.worlds >= 2, f"worlds are {options.worlds}: accepted are whole numbers from 2")
    torch.set_num_threads(1)
    console, found = Console(stderr=True, width=140), list[Audited]()
    with tempfile.TemporaryDirectory() as directory:
        records = Path(directory) / "records.npz"
        write_records(records)
        for one in offered(options.only):
            seed = zlib.crc32(f"{options.seed}: {one}".encode())
            row = audit(one, records, options.audits, options.worlds, seed)
            if row is not None:
                found.append(row)
                console.print(f"{one}: {row.violated} of {len(row.verdicts)} violated, {row.seconds:.0f} s")
    Console(width=160).print(table_of(found))
    total, violated = sum(len(one.verdicts) for one in found), sum(one.violated for one in found)
    print(f"{len(found)} laws, {total} audits, {violated} violated")
    accused = [str(one.combination) for one in found if one.is_accused]
    print("\n".join(f"{name} is accused too often" for name in accused) or "no law is accused too often")
    sys.exit(1 if accused else 0)


if __name__ == "__main__":
    guarded(main)
