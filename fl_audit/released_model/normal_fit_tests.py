"""Kolmogorov-Smirnov tests of the normal fits from which Epsilon* (privacy risk) of each trial is computed.

`estimate_epsilon_star` makes the same test for a single model.
"""

import numpy as np

from fl_audit.array_types import Floats, Integers
from fl_audit.randomness import Purpose, generator
from fl_audit.released_model.minimum_sample_size import FEWEST
from fl_audit.released_model.parametric_star import scores_of_pair
from fl_audit.released_model.star_warnings import fit_is_rejected, fit_p_value

FIT = "epsilon_star_fit"
"""Name of the column of the p-values in the table of trials; the p-value of an untested trial is NaN."""
TRIALS_TESTED = 100
"""Largest number of tested trials. A test takes milliseconds, and the first trials represent all trials of a run."""


def fits_of_trials(member_losses: Floats, population_losses: Floats, trials: Integers, seed: int) -> Floats:
    """Return, for each trial, the p-value of a test that its losses fit normal distributions, shape (trials,).

    It is the smaller p-value of two Kolmogorov-Smirnov tests, one of the members' scores and one of the population's.
    It is NaN if the trial's number is `TRIALS_TESTED` or more, or if a set has fewer than `FEWEST` losses.

    Shapes: `member_losses` (trials, m), `population_losses` (trials, p), `trials` (trials,).
    """
    p_values = np.full(len(trials), np.nan)
    if min(member_losses.shape[1], population_losses.shape[1]) < FEWEST:
        return p_values
    for row in np.flatnonzero(trials < TRIALS_TESTED):
        draw = generator(seed, Purpose.FIT_TEST, trial=int(trials[row]))
        scores = scores_of_pair(member_losses[row], population_losses[row])
        known_p_values = [p for scores_of_set in scores if (p := fit_p_value(scores_of_set, 1, draw)) is not None]
        p_values[row] = min(known_p_values, default=np.nan)
    return p_values


def rejected(p_values: Floats) -> tuple[int, int]:
    """Return the number of trials whose fit was tested, and how many of these fits were rejected (p at most 0.05).

    Shapes: `p_values` (trials,).
    """
    tested = p_values[np.isfinite(p_values)]
    return len(tested), sum(map(fit_is_rejected, tested.tolist()))
