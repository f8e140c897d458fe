"""Is the noise as fine as real numbers of full precision are, and the sensitivity within the claim?

Noise of few significant bits (half precision has 11) betrays itself in its low bits: the phases of its values in units
of the last of 11 bits are uniform for continuous noise, and all 0 for noise that was rounded.
"""

import math

import numpy as np
from scipy.special import ndtr, ndtri

from fl_audit.adversaries.noise_meter import LOW_BITS_KINDS
from fl_audit.evidence.belief.family import DETECTION_POWER, NOT_MEASURED, NotOffered, TestName, TestResult, percent
from fl_audit.evidence.belief.measured import Measured

FEWEST_COORDINATES = 50
"""Number of coordinates from which the sum of cosines is close to normal; its tails are lighter than normal ones."""

ROUNDING = 1e-5
"""Relative excess of a sensitivity that float32 gradients explain."""

_KINDS = {
    "noise": "the noise itself",
    "standard-noise": "the noise in units of its standard deviation",
    "release": "the released sum",
}


def low_bits(measured: Measured) -> TestResult | NotOffered:
    """Test the low bits: sum of cosines over everything / sqrt(count / 2), upper tail, Bonferroni over the kinds.

    The hypothesis of each world is chosen by its bit. The law is normal in the limit of many coordinates, and for few
    the p-value is a little too large rather than too small: a cosine of a uniform phase is bounded.
    """
    if measured.residuals is None:
        return NOT_MEASURED
    with_d, seen = measured.members[:, None, None], measured.residuals
    sums = np.where(with_d, seen.low_bits[:, :, 0], seen.low_bits[:, :, 1])
    counts = np.where(with_d, seen.low_bits_count[:, :, 0], seen.low_bits_count[:, :, 1])
    known = ~np.isnan(sums)
    total, count = np.where(known, sums, 0.0).sum(axis=(0, 1)), np.where(known, counts, 0).sum(axis=(0, 1))
    offered = {
        kind: float(total[at]) / math.sqrt(count[at] / 2)
        for at, kind in enumerate(LOW_BITS_KINDS)
        if count[at] >= FEWEST_COORDINATES
    }
    if not offered:
        return NotOffered(f"The low bits of fewer than {FEWEST_COORDINATES} coordinates are known.")
    kind = max(offered, key=lambda name: offered[name])
    place = LOW_BITS_KINDS.index(kind)
    level = TestName.LOW_BITS.level
    reach = float(ndtri(DETECTION_POWER) - ndtri(level / len(offered)))
    share = reach / math.sqrt(2 * float(min(count[LOW_BITS_KINDS.index(name)] for name in offered)))
    found = percent(min(1.0, share))
    return TestResult(
        name=TestName.LOW_BITS,
        statistic=offered[kind],
        p_value=min(1.0, len(offered) * float(ndtr(-offered[kind]))),
        level=level,
        measured=f"low bits of {_KINDS[kind]} that agree to {100 * total[place] / count[place]:.2f} %",
        promised="low bits that agree to 0 %, as those of continuous noise do",
        limit=f"noise with 11 significant bits in {found} of the coordinates looked at would have been found",
        where=_KINDS[kind],
    )


def sensitivity(measured: Measured) -> TestResult | NotOffered:
    """Test whether every sensitivity is within the claim: nothing is random here, the p-value is 0 or 1.

    No round may pass sigma / z. Where the claim limits a whole run, no world may pass that either: the square root of
    the sum of (sensitivity / sigma)^2 over its rounds.
    """
    largest, where = max(_shares(measured), key=lambda share: round(share[0], 6))  # of equal ones the round
    return TestResult(
        name=TestName.SENSITIVITY,
        statistic=largest,
        p_value=0.0 if largest > 1 + ROUNDING else 1.0,
        level=TestName.SENSITIVITY.level,
        measured=f"a largest sensitivity of {largest:.4g} times the claimed one, in {where}",
        promised="at most the claimed one",
        limit="any sensitivity above the claim that occurred would have been found",
        where=where,
    )


def _shares(measured: Measured) -> list[tuple[float, str]]:
    """Return the largest shares of what the claim allows, in a round and in a whole run, and where they are."""
    signal = measured.sensitivity / measured.sigma
    world, number = divmod(int(signal.argmax()), measured.rounds)
    shares = [(float(signal.max()) * measured.noise_multiplier, f"world {world} round {number + 1}")]
    if measured.largest_mu is not None:
        whole = np.linalg.norm(signal, axis=1) / measured.largest_mu
        shares.append((float(whole.max()), f"all rounds of world {int(whole.argmax())} together"))
    return shares
