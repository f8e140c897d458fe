"""Seconds that Epsilon* takes, beside their targets.

    python -m experiments.benchmarks.epsilon_star_speed [--repeat N]

A million losses of members and as many of the population, by normals and by the losses' own distribution functions;
and 1000 worlds of 30 releases with 1000 + 1000 losses each, by normals. Losses are Gamma draws; drawing does not count.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from fl_audit.evidence.star.empirical_star import empirical_epsilon_star
from fl_audit.evidence.star.epsilon_star import parametric_epsilon_star

DELTA = 1e-6
LOSSES = 10**6
WORLDS, RELEASES, SMALL = 1000, 30, 1000
ONE_MODEL_TARGET, RUN_TARGET = 1.0, 10.0


def seconds(work: Callable[[], object]) -> float:
    """Return how long some work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _run_seconds(rng: np.random.Generator, worlds: int = WORLDS, releases: int = RELEASES) -> float:
    """Return how long Epsilon* of all worlds takes, summed over releases."""
    total = 0.0
    for _ in range(releases):
        members, population = rng.gamma(2, 1, (worlds, SMALL)), rng.gamma(2.5, 1, (worlds, SMALL))
        start = time.perf_counter()
        parametric_epsilon_star(members, population, DELTA)
        total += time.perf_counter() - start
    return total


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="repetitions (default: 3)")
    repeat = parser.parse_args().repeat
    rng = np.random.default_rng(0)
    members, population = rng.gamma(2, 1, LOSSES), rng.gamma(2.5, 1, LOSSES)
    name = f"{LOSSES:,} + {LOSSES:,} losses"
    measured = {
        f"{name}, parametric": (
            [seconds(lambda: parametric_epsilon_star(members, population, DELTA)) for _ in range(repeat)],
            ONE_MODEL_TARGET,
        ),
        f"{name}, empirical": (
            [seconds(lambda: empirical_epsilon_star(members, population, DELTA)) for _ in range(repeat)],
            ONE_MODEL_TARGET,
        ),
        f"{WORLDS} worlds x {RELEASES} releases, {SMALL} + {SMALL} losses, parametric": (
            [_run_seconds(rng) for _ in range(repeat)],
            RUN_TARGET,
        ),
    }
    table = Table("what", "seconds (median)", "range", "target", "share of the target")
    for what, (times, target) in measured.items():
        middle = median(times)
        spread = f"{min(times):.3f} - {max(times):.3f}"
        table.add_row(what, f"{middle:.3f}", spread, f"{target:g}", f"{middle / target:.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
