"""Membership attacks where nothing leaks: do their intervals cover an AUC of one half?

    python -m experiments.studies.membership_coins [--quick] [--targets N] [--only TEXT]

Releases that no coin has moved, with records of a world far from independent. Every attack is played 200 times in two
ways: 24 worlds are attacked with 24 others as shadows, or all of 24 worlds are each other's shadows. An interval is one
of four that hold together with 95 %, so that of the AUC by itself errs in 1.25 % of runs (Bonferroni): slightly
cautious for whoever looks at the AUC alone, and right for whoever looks at all four figures. The exit status is 1 where
the AUC's interval covers 1/2 in less than 95 % of the runs, or where the mean AUC of all runs is not 1/2.

With 100 targets or more there are records enough for the TPR at an FPR of 0.1 %, and a column counts the runs in which
all four intervals cover. The attribute attack says yes or no; no FPR that small can be had from it, and its TPR is 0.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from experiments.cli.main import guarded
from experiments.studies.membership_releases import (
    ATTACKS,
    LEARNS_FROM_TARGETS,
    SLOW,
    WITHOUT_SHADOWS,
    YES_OR_NO,
    gaussian_mean,
)
from fl_audit.arrays import Floats
from fl_audit.errors import InputError
from fl_audit.evidence.membership.rates import SMALL_RATES, MembershipRates, membership_rates
from fl_audit.game.membership import Membership

RUNS, QUICK_RUNS = 200, 60
CONFIDENCE = 0.95
LARGEST_Z = 4.0  # standard errors that the mean AUC may lie from 1/2: exceeded by chance in 0.006 % of rows

_WORLDS, _TARGETS = 24, 10
_TARGETS_TO_LEARN_FROM = 40
_TARGETS_FOR_SMALL_RATES = 100
_SHARED = 1.0
_RESAMPLES = 400


@dataclass(frozen=True)
class Coverage:
    """What the intervals of an attack did over runs in which nothing leaks."""

    attack: str  # which attack
    separate: bool  # whether shadow worlds were others than those attacked
    targets: int  # how many each world had
    aucs: Floats  # the AUC of each run
    # `covered`, `above`, `below`: in how many runs the interval of the AUC held 1/2, or lay above or below it.
    covered: int
    above: int
    below: int
    all_covered: int  # in how many all four intervals held what they estimate

    @property
    def runs(self) -> int:
        """Number of runs."""
        return self.aucs.size

    @property
    def z(self) -> float:
        """Distance of the mean AUC from 1/2 in standard errors."""
        return float((self.aucs.mean() - 0.5) / (self.aucs.std(ddof=1) / np.sqrt(self.runs)))

    def problems(self) -> list[str]:
        """Return what contradicts the claims."""
        name = f"{self.attack}, {'shadows apart' if self.separate else 'shadows of each other'}"
        found = []
        if self.covered < CONFIDENCE * self.runs:
            found.append(f"{name}: {self.covered} of {self.runs} intervals cover 1/2")
        if abs(self.z) > LARGEST_Z:
            found.append(f"{name}: the mean AUC is {self.aucs.mean():.4f}, {self.z:+.1f} standard errors from 1/2")
        return found


def study(attack: str, separate: bool, runs: int, targets: int = _TARGETS, seed: int = 0) -> Coverage:
    """Play games of coins and count which intervals cover.

    Parameters
    ----------
    attack
        A name of `ATTACKS`.
    separate
        Whether shadow worlds are others than those attacked.
    runs
        Number of games, at least 2.
    targets
        Number of targets; an attack that learns from them gets 40 at least.
    seed
        Games of the same number are the same for all attacks.
    """
    if attack in LEARNS_FROM_TARGETS:
        targets = max(targets, _TARGETS_TO_LEARN_FROM)
    rates = [_play(attack, separate, targets, np.random.default_rng((seed, run))) for run in range(runs)]
    low, high = (np.array([getattr(one.auc, end) for one in rates]) for end in ("low", "high"))
    return Coverage(
        attack,
        separate,
        targets,
        aucs=np.array([one.auc.value for one in rates]),
        covered=int(((low <= 0.5) & (high >= 0.5)).sum()),
        above=int((low > 0.5).sum()),
        below=int((high < 0.5).sum()),
        all_covered=sum(_all_cover(attack, one) for one in rates),
    )


def _play(attack: str, separate: bool, targets: int, draw: np.random.Generator) -> MembershipRates:
    """Play one game; where a target has too few shadows for an attack, another one."""
    worlds = 2 * _WORLDS if separate else _WORLDS
    shadows = np.arange(worlds) >= _WORLDS if separate else None
    while True:
        release = gaussian_mean(0.0).release(draw, worlds, targets, _SHARED)
        try:
            scores = ATTACKS[attack](release, shadows)[:_WORLDS]
        except InputError:
            continue
        attacked = Membership(release.membership.is_in[:_WORLDS])
        each_other = not separate and attack not in WITHOUT_SHADOWS
        return membership_rates(scores, attacked, draw, CONFIDENCE, _RESAMPLES, each_other)


def _all_cover(attack: str, rates: MembershipRates) -> bool:
    small = (rates.tpr_at_fpr_0001, rates.tpr_at_fpr_001)
    at_small = [0.0 if attack in YES_OR_NO else rate for rate in SMALL_RATES]
    expected = [(rates.auc, 0.5), (rates.balanced_accuracy, 0.5), *zip(small, at_small, strict=True)]
    return all(one.low <= truth <= one.high for one, truth in expected)


def coins_table(rows: Sequence[Coverage]) -> Table:
    """Return the table of all attacks."""
    table = Table(title=f"Coins: {_WORLDS} attacked worlds, intervals of {CONFIDENCE:.0%} for four figures together")
    columns = (
        "attack",
        "shadows",
        "targets",
        "runs",
        "AUC covers 1/2",
        "above",
        "below",
        "all four cover",
        "mean AUC",
        "z",
    )
    for column in columns:
        table.add_column(column, justify="left" if column in columns[:2] else "right")
    for row in rows:
        shadows = "apart" if row.separate else "each other"
        shadows = "none" if row.attack in WITHOUT_SHADOWS else shadows
        every = str(row.all_covered) if row.targets >= _TARGETS_FOR_SMALL_RATES else ""
        counts = (str(row.targets), str(row.runs), str(row.covered), str(row.above), str(row.below), every)
        table.add_row(row.attack, shadows, *counts, f"{row.aucs.mean():.4f}", f"{row.z:+.1f}")
    return table


def games(is_quick: bool, only: str | None = None) -> list[tuple[str, bool]]:
    """Return the attacks and ways to play them; quick ones leave out those that train large models.

    Parameters
    ----------
    is_quick
        Whether large models are left out.
    only
        Text that a name must contain; None takes all.
    """
    chosen = [name for name in ATTACKS if (only or "") in name and not (is_quick and name in SLOW)]
    return [
        (name, separate) for name in chosen for separate in (True, False) if separate or name not in WITHOUT_SHADOWS
    ]


def main() -> None:
    """Print the table; the exit status is 1 where something contradicts the claims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_RUNS} runs of the fast attacks, not {RUNS} of all"
    )
    parser.add_argument("--targets", type=int, default=_TARGETS, help=f"targets of a world (default: {_TARGETS})")
    parser.add_argument("--only", help="attacks whose name contains this text")
    options = parser.parse_args()
    runs, progress = QUICK_RUNS if options.quick else RUNS, Console(stderr=True)
    rows = [
        study(*one, runs, options.targets)
        for one in track(games(options.quick, options.only), "games", console=progress)
    ]
    Console(width=140).print(coins_table(rows))
    found = [problem for row in rows for problem in row.problems()]
    print("\n".join(found) or "nothing contradicts the claims")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    guarded(main)
