"""Tests of the normal fits to the losses of a run's trials, like those of `estimate_epsilon_star` for one model."""

import numpy as np

from fl_audit.array_types import Floats, Integers
from fl_audit.randomness import Purpose, generator
from fl_audit.released_model.epsilon_star import scores_of_pair
from fl_audit.released_model.minimum_sample_size import FEWEST
from fl_audit.released_model.star_estimate import fit_is_rejected, fit_p_value

FIT = "epsilon_star_fit"
"""Column of the p-values, which are NaN where nothing was tested."""
TRIALS_TESTED = 100
"""Number of tested trials: a test takes milliseconds, and trials of a run are alike, so the first ones suffice."""


def fits_of_trials(member_losses: Floats, population_losses: Floats, trials: Integers, seed: int) -> Floats:
    """Return the smaller p-value of two fits, to members and to the population, of each trial, shape (trials,).

    The result is NaN in trials from `TRIALS_TESTED` on, and where a set has too few losses to state a value of Epsilon*
    at all.

    Parameters
    ----------
    member_losses
        Losses of members in every trial, shape (trials, m).
    population_losses
        Losses of the population sample in every trial, shape (trials, p).
    trials
        Numbers of the trials.
    seed
        Public seed that splits the losses of each trial, independently of the other trials.
    """
    found = np.full(len(trials), np.nan)
    if min(member_losses.shape[1], population_losses.shape[1]) < FEWEST:
        return found
    for place in np.flatnonzero(trials < TRIALS_TESTED):
        draw = generator(seed, Purpose.FIT_TEST, trial=int(trials[place]))
        scores = scores_of_pair(member_losses[place], population_losses[place])
        known = [p for one in scores if (p := fit_p_value(one, 1, draw)) is not None]
        found[place] = min(known, default=np.nan)
    return found


def rejected(p_values: Floats) -> tuple[int, int]:
    """Return the number of trials in which the fit was tested, and the number of those in which it was rejected.

    Parameters
    ----------
    p_values
        The p-values of all trials, shape (trials,), NaN where nothing was tested.
    """
    tested = p_values[np.isfinite(p_values)]
    return len(tested), sum(map(fit_is_rejected, tested.tolist()))
