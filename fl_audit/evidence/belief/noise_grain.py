"""Is the noise as fine as real numbers of full precision are, and the sensitivity within the claim?

Noise of few significant bits (half precision has 11) betrays itself in its low bits: the phases of its values in units
of the last of 11 bits are uniform for continuous noise, and all 0 for noise that was rounded. Noise on a grid of any
step shows in its characteristic function, which is 0 for normal noise at high frequencies and near 1 at that of the
grid. Either way the release lies on one grid under D and on another under D', and tells them apart.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.fft import rfft
from scipy.special import ndtr, ndtri

from fl_audit.adversaries.residuals import LOW_BITS_KINDS
from fl_audit.arrays import Floats
from fl_audit.evidence.belief.family import DETECTION_POWER, Missing, NotOffered, TestName, TestResult, of_looks
from fl_audit.evidence.belief.measured import Measured

FEWEST_COORDINATES = 50
"""Number of coordinates from which the sum of cosines is close to normal; its tails are lighter than normal ones."""

FEWEST_VALUES = 1000
"""Number of sampled values from which squared characteristic functions have exponential tails far enough out."""

ROUNDING = 1e-5  # relative excess of a sensitivity that float32 gradients explain

_BINS = 2**20
_HALF_WIDTH = 8.0
_SHARE_OF_STEP = 0.25
_LOWEST_FREQUENCY = 4.0
"""In units of 1 / sigma: the characteristic function of normal noise is below 1e-100 from here on."""


def low_bits(measured: Measured) -> TestResult | NotOffered:
    """Test the low bits: sum of cosines over everything / sqrt(count / 2), upper tail, Bonferroni over the kinds.

    The law is normal in the limit of many coordinates, and for few the p-value is a little too large rather than too
    small: a cosine of a uniform phase is bounded.
    """
    if measured.residuals is None:
        return NotOffered(Missing.NOT_MEASURED)
    sums, counts = measured.residuals.low_bits[:, :, 0], measured.residuals.low_bits_count[:, :, 0]
    known = ~np.isnan(sums)
    total, count = np.where(known, sums, 0.0).sum(axis=(0, 1)), np.where(known, counts, 0).sum(axis=(0, 1))
    offered = {
        kind: float(total[at]) / math.sqrt(count[at] / 2)
        for at, kind in enumerate(LOW_BITS_KINDS)
        if count[at] >= FEWEST_COORDINATES
    }
    if not offered:
        return NotOffered(Missing.ROUNDING)
    kind = max(offered, key=lambda name: offered[name])
    place = LOW_BITS_KINDS.index(kind)
    reach = float(ndtri(DETECTION_POWER) - ndtri(TestName.LOW_BITS.level / len(offered)))
    fewest = float(min(count[LOW_BITS_KINDS.index(name)] for name in offered))
    return TestResult(
        name=TestName.LOW_BITS,
        statistic=offered[kind],
        p_value=of_looks(len(offered), float(ndtr(-offered[kind]))),
        measured=float(total[place] / count[place]),
        promised=0.0,
        limit=min(1.0, reach / math.sqrt(2 * fewest)),
        place=kind,
    )


@dataclass(frozen=True)
class _Look:
    """Values whose characteristic function is looked at, and the frequencies at which a grid would show."""

    unit: str  # in units of what the values and frequencies are
    values: Floats  # the noise
    # `lowest`, `highest`: below the lowest frequency normal noise shows itself, above the highest the rounding of
    # 32-bit numbers does.
    lowest: float
    highest: float


def grid(measured: Measured) -> TestResult | NotOffered:
    """Test the characteristic function of the sampled noise at all frequencies that a grid may have.

    With N values, N |phi|^2 is exponential with mean 1 at each; Bonferroni over all frequencies, of the noise over its
    claimed scale and, where that scale changes, of the noise itself: the p-value is never too small. Steps that float32
    rounding makes are left out.
    """
    if measured.sample is None or measured.residuals is None:
        return NotOffered(Missing.NOT_MEASURED)
    looks = [look for look in _looks(measured, measured.sample) if look.highest >= 2 * look.lowest]
    if not looks:
        return NotOffered(Missing.ROUNDING)
    count = measured.sample.size
    if count < FEWEST_VALUES:
        return NotOffered(Missing.TOO_FEW)
    found = [(*_strongest_frequency(look), look) for look in looks]
    power, frequency, _, look = max(found, key=lambda one: one[0])
    looked_at = sum(number for _, _, number, _ in found)
    reach = math.sqrt(math.log(looked_at / TestName.GRID.level)) + float(ndtri(DETECTION_POWER)) / math.sqrt(2)
    return TestResult(
        name=TestName.GRID,
        statistic=power,
        p_value=of_looks(looked_at, math.exp(-power)),
        measured=math.sqrt(power / count),
        promised=0.0,
        limit=min(1.0, reach / math.sqrt(count)),
        place=look.unit,
        more={"step": 1 / frequency, "finest": 1 / look.highest},
    )


def _looks(measured: Measured, sample: Floats) -> Iterator[_Look]:
    assert measured.residuals is not None
    known = measured.sampled_worlds
    sigma, grain = measured.sigma[known], measured.residuals.grain[known]
    widest, narrowest = float(sigma.max()), float(sigma.min())
    finest = _BINS / (8 * _HALF_WIDTH)
    yield _Look(
        "of the claimed noise",
        sample.reshape(-1),
        _LOWEST_FREQUENCY,
        min(finest, _SHARE_OF_STEP / max(1e-30, float(grain.max()))),
    )
    if widest - narrowest > 1e-9 * widest:
        step = float((grain * sigma).max()) / widest
        yield _Look(
            "of the largest claimed noise",
            (sample * (sigma / widest)[..., None]).reshape(-1),
            _LOWEST_FREQUENCY * widest / narrowest,
            min(finest, _SHARE_OF_STEP / max(1e-30, step)),
        )


def _strongest_frequency(look: _Look) -> tuple[float, float, int]:
    """Return the largest N |phi|^2 of the frequencies of a look, that frequency, and how many were looked at."""
    counts, _ = np.histogram(look.values, bins=_BINS, range=(-_HALF_WIDTH, _HALF_WIDTH))
    frequencies = np.arange(_BINS // 2 + 1) / (2 * _HALF_WIDTH)
    looked_at = (frequencies >= look.lowest) & (frequencies <= look.highest)
    power = np.square(np.abs(rfft(counts.astype(np.float64))[looked_at])) / look.values.size
    at = int(power.argmax())
    return float(power[at]), float(frequencies[looked_at][at]), int(looked_at.sum())


def sensitivity(measured: Measured) -> TestResult | NotOffered:
    """Test whether every sensitivity is within the claim: nothing is random here, the p-value is 0 or 1.

    No round may pass sigma / z. Where the claim limits a whole run, no world may pass that either: the square root of
    the sum of (sensitivity / sigma)^2 over its rounds.
    """
    largest, place = max(_shares(measured), key=lambda share: round(share[0], 6))  # of equal ones the round
    return TestResult(
        name=TestName.SENSITIVITY,
        statistic=largest,
        p_value=0.0 if largest > 1 + ROUNDING else 1.0,
        measured=largest,
        promised=1.0,
        limit=ROUNDING,
        place=place,
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
