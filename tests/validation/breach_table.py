"""The table of all breaches: what was claimed, what is true, what the verdict was, and which test found it."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fl_audit.adjacency import Adjacency
from fl_audit.atomic_files import atomic_file
from fl_audit.mechanisms.noises.registry import STANDARD_GAUSSIAN
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import gaussian_rounds
from fl_audit.privacy.guarantee import derive_guarantee
from fl_audit.report.unit_words import unit_words
from fl_audit.verdict.declared_tests import TestName, TestResult
from fl_audit.verdict.judging import run_family
from fl_audit.verdict.noise_estimate import epsilon_limit
from fl_audit.verdict.run_measurements import NoiseMeasurements
from fl_audit.verdict.target_contribution_tests import limit_of_run
from fl_audit.verdict.verdict import verdict_on
from fl_audit.verdict.verdict_messages import message_of
from tests.validation.breach_kinds import Breach
from tests.validation.breach_truths import DELTA, MULTIPLIER, ROUNDS, claimed, true_epsilon
from tests.validation.opened_breaches import OpenedBreach

FACTOR = 1.5  # true epsilon over the claimed one above which a breach has to be found
_WORDS = unit_words(Adjacency.REPLACE_RECORD)


class Line(NamedTuple):
    """One kind of breach, with what was found in its runs."""

    breach: Breach | OpenedBreach
    measured: NoiseMeasurements  # its first made-up run
    found: tuple[int, int]  # made-up runs in which it was found, and all of them
    real: tuple[int, int]  # the same of real runs
    by: str  # the test that found it most often; empty where none did

    @property
    def missed(self) -> int:
        """Number of runs in which it was not found."""
        return self.found[1] + self.real[1] - self.found[0] - self.real[0]

    @property
    def is_large(self) -> bool:
        """Whether its true epsilon is known to be above 1.5 times the claim."""
        true = true_epsilon(self.breach)
        return true is not None and true > FACTOR * claimed(self.breach)


def columns(line: Line) -> tuple[str, ...]:
    """Return the cells of a line."""
    true = true_epsilon(line.breach)
    true_text = "no closed form" if true is None else "none" if math.isinf(true) else f"{true:.2f}"
    real = f"{line.real[0]} of {line.real[1]}" if line.real[1] else ""
    return (
        line.breach.name,
        f"{claimed(line.breach):.2f}",
        true_text,
        _verdict(line),
        f"{line.found[0]} of {line.found[1]}",
        real,
        line.by,
        _limit(line),
        line.breach.below,
    )


def _verdict(line: Line) -> str:
    """Return the verdict on its runs; where some were missed, that of these comes after."""
    if not line.missed:
        return "violated"
    return f"violated; where missed, {_missed_verdict(line)}" if line.by else _missed_verdict(line)


def _missed_verdict(line: Line) -> str:
    """Return the verdict on a run of this kind of which no test failed, by what its trials could have found."""
    measured = line.measured
    breach = line.breach
    multiplier = 2.0 if isinstance(breach, OpenedBreach) else breach.multiplier or MULTIPLIER
    relation = Adjacency.ADD_REMOVE_RECORD if isinstance(breach, OpenedBreach) else Adjacency.REPLACE_RECORD
    guarantee = derive_guarantee(Claim(relation, gaussian_rounds(multiplier, ROUNDS, 1.0), DELTA))
    noise = epsilon_limit(int(measured.used_innovations.size), measured.trials, guarantee, STANDARD_GAUSSIAN)
    return str(verdict_on(False, noise.conclusive and limit_of_run(measured).conclusive))


def _limit(line: Line) -> str:
    """Return what the test that found a breach would have found, in words."""
    if not line.by:
        return ""
    results: tuple[TestResult, ...] = run_family(line.measured, (TestName(line.by),))[0]
    return message_of(results[0], _WORDS, STANDARD_GAUSSIAN).limit if results else ""


_TITLES = (
    "breach",
    "claimed",
    "true",
    "verdict",
    "made-up runs",
    "real runs",
    "test",
    "would have been found",
    "remark",
)


def page(every: Sequence[Line], tests: int, date: str) -> list[str]:
    """Return the lines of the page."""
    counts = [line.found[1] for line in every]
    real = [line.real[1] for line in every if line.real[1]]
    missed = [line for line in every if line.missed]
    of_each = f"{_range(counts)} of a kind"
    head = f"{date}, a family of {tests} tests: {sum(counts):,} made-up runs of {len(every)} kinds, {of_each}"
    head += f"; {sum(real):,} real runs of {len(real)} kinds, {_range(real)} of each." if real else "."
    large = [f"`{line.breach.name}`" for line in missed if line.is_large]
    rows = [columns(line) for line in every]
    return [
        head,
        "",
        f"Not found in every run: {len(missed)} kinds; with a true epsilon that is known to be above {FACTOR:g} times "
        f"the claim: {', '.join(large) or 'none'}.",
        "",
        f"| {' | '.join(_TITLES)} |",
        f"|{' --- |' * len(_TITLES)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def write(lines: Sequence[Line], tests: int, date: str, path: Path) -> None:
    """Write the page."""
    with atomic_file(path) as temporary:
        temporary.write_text("\n".join(page(lines, tests, date)) + "\n", encoding="utf-8")


def _range(counts: Sequence[int]) -> str:
    """Return the smallest and the largest of some counts, or the one count that all have."""
    lowest_count = min(counts)
    highest_count = max(counts)
    return f"{lowest_count:,}" if lowest_count == highest_count else f"{lowest_count:,} to {highest_count:,}"
