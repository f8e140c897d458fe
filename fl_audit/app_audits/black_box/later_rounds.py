"""Noise of rounds that no trial plays: a strategy may end it in a later round.

A trial plays the rounds of the claim. A few trials go on for longer, with the same replies: what they release in a
round differs from trial to trial by the noise of this round.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import f as f_distribution

from fl_audit.app_audits.claim_audit.transcript import Transcript
from fl_audit.array_types import Floats

LEAST_SHARE = 0.1
"""Share of the first round's noise below which a later round counts as one without its noise."""
LATER_ROUNDS = 30  # number of rounds of trials that look for rounds without noise
_LEVEL = 1e-6  # largest probability of so small a share by chance, in one round


def rounds_without_noise(noise: Sequence[Floats], is_released: Sequence[bool] | None = None) -> tuple[int, ...]:
    """Return the numbers of the rounds, from 2, whose noise is less than a tenth of that of the first round.

    `noise`: For each round, values that have the variance of its noise in all rounds alike.

    `is_released`: Whether a round released a new model. A round without one, as of a strategy whose budget is spent,
    reveals nothing. None if every round did.
    """
    squares = [float(np.mean(np.square(values))) for values in noise]
    if not squares or not squares[0] > 0:
        return ()
    largest = min(LEAST_SHARE**2, float(f_distribution.ppf(_LEVEL, noise[0].size, noise[0].size)))
    counts = [True] * len(squares) if is_released is None else is_released
    return tuple(
        number
        for number, (square, count) in enumerate(zip(squares, counts, strict=True), start=1)
        if count and square < largest * squares[0]
    )


def late_rounds_without_noise(
    transcripts: Sequence[Transcript], present: NDArray[np.bool_], played: int
) -> tuple[int, ...]:
    """Return the numbers of the rounds after the first `played` in which trials show no noise.

    The trials of each side have the same replies. A round that some trials do not reach is left out.
    """
    steps = np.stack([transcript.steps for transcript in transcripts])
    noise = steps.copy()
    for side in (True, False):
        if np.any(present == side):
            noise[present == side] -= steps[present == side].mean(axis=0)
    is_released = [bool(np.all(np.isfinite(step)) and np.any(step)) for step in np.swapaxes(steps, 0, 1)]
    values = [np.nan_to_num(noise[:, index]).reshape(-1) for index in range(noise.shape[1])]
    return tuple(number for number in rounds_without_noise(values, is_released) if number > played)
