"""Rates at which the learned distinguisher finds each breach, and at which it errs.

`python -m tests.verdict.distinguisher_rates [HONEST_RUNS] [RUNS_OF_EACH_BREACH]` prints
two tables, of honest runs and of breaches. In honest runs everything differs between D and D' that may.
"""

import sys

import numpy as np

from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.distinguisher import distinguisher
from tests.verdict.opened_noise import BREACHES, HELD_BACK, SIGNS, UNSEEN, play


def _p_values(breach: str, runs: int, trials: int, rounds: int) -> np.ndarray:
    p_values = []
    for run in range(runs):
        result = distinguisher(play(breach, np.random.default_rng([run, trials, len(breach)]), trials, rounds))
        p_values.append(result.p_value)
    return np.array(p_values)


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(honest: int = 2000, runs: int = 20) -> None:
    """Print both tables, of so many runs of each kind."""
    levels = (0.5, 0.1, 0.05, 0.01, 0.001, TestName.DISTINGUISHER.level)
    _say("honest: trials, rounds, runs, share of p-values under " + ", ".join(f"{level:g}" for level in levels))
    for trials, rounds in ((100, 30), (40, 3)):
        p_values = _p_values("", honest, trials, rounds)
        _say(trials, rounds, honest, *(f"{np.mean(p_values < level):.4f}" for level in levels))
    _say("breach, 100 trials x 30 rounds: found, of runs, median p-value")
    for name in (*BREACHES, SIGNS, *HELD_BACK, *UNSEEN):
        p_values = _p_values(name, runs, 100, 30)
        share = f"{np.count_nonzero(p_values < TestName.DISTINGUISHER.level)} of {runs}"
        _say(f"{name:62s} {share} {np.median(p_values):.1e}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
