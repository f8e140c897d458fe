"""Is the noise independent over worlds and over rounds? Sums over either, and consecutive rounds, of the sample.

Independent noise adds up like independent noise: a part that is shared adds up faster, noise that cancels slower. The
scale of the noise is taken from the measurements themselves, so that noise above the promise is not taken for shared
noise; under the claimed law the tests are exact all the same.
"""

import math

import numpy as np
from scipy.special import fdtr, fdtrc, fdtri

from fl_audit.arrays import Floats
from fl_audit.evidence.belief.family import DETECTION_POWER, Missing, NotOffered, TestName, TestResult, of_looks
from fl_audit.evidence.belief.measured import Measured
from fl_audit.evidence.belief.noise_drift import detectable_mean, student_p


def shared_over_worlds(measured: Measured) -> TestResult | NotOffered:
    """Test whether worlds share noise: the variance of sums over W worlds against the variance of what is left.

    At J coordinates in k rounds the ratio is F(J k, J k (W - 1)). Two-sided: noise that cancels between worlds, as
    antithetic draws do, lies in the lower tail.
    """
    if measured.worlds < 2:
        return NotOffered(Missing.ONE_WORLD)
    return _sharing(TestName.SHARED_OVER_WORLDS, measured, axis=0)


def shared_over_rounds(measured: Measured) -> TestResult | NotOffered:
    """Test whether rounds share noise: the variance of sums over k rounds against the variance of what is left.

    At J coordinates in W worlds the ratio is F(J W, J W (k - 1)). Two-sided: noise that cancels over rounds, which
    protects every round and not the final model, lies in the lower tail.
    """
    if measured.rounds < 2:
        return NotOffered(Missing.ONE_ROUND)
    return _sharing(TestName.SHARED_OVER_ROUNDS, measured, axis=1)


def _sharing(name: TestName, measured: Measured, axis: int) -> TestResult | NotOffered:
    sample = measured.even_sample
    if sample is None:
        return NotOffered(Missing.NOT_MEASURED)
    added, means = sample.shape[axis], sample.mean(axis=axis, keepdims=True)
    if added < 2:
        return NotOffered(Missing.ONE_WORLD)
    freedom = int(means.size)
    rest = freedom * (added - 1)
    common = added * float(np.sum(np.square(means))) / freedom
    left = float(np.sum(np.square(sample - means))) / rest
    if common == 0 and left == 0:
        return NotOffered(Missing.NO_NOISE)
    statistic = common / left if left > 0 else math.inf
    p_value = of_looks(2, np.minimum(fdtr(freedom, rest, statistic), fdtrc(freedom, rest, statistic)))
    return TestResult(
        name=name,
        statistic=statistic,
        p_value=p_value,
        measured=statistic,
        promised=1.0,
        limit=detectable_share(added, freedom, name.level),
    )


def detectable_share(added: int, freedom: int, level: float, power: float = DETECTION_POWER) -> float:
    """Return the share of the variance in common to all that the two-sided F-test finds with a probability.

    With a share s in common, sums over m have (1 - s + m s) / (1 - s) times the variance of what is left.

    Parameters
    ----------
    added
        m, at least 2: over how many worlds or rounds the sums run.
    freedom
        How many sums there are.
    level
        Level of the test, above 0 and below 1.
    power
        Probability with which the share is found.

    Examples
    --------
    >>> round(detectable_share(20, 480, 5e-5), 3)
    0.02
    """
    rest = freedom * (added - 1)
    factor = float(fdtri(freedom, rest, 1 - level / 2) / fdtri(freedom, rest, 1 - power))
    return (factor - 1) / (added - 1 + factor)


def serial_correlation(measured: Measured) -> TestResult | NotOffered:
    """Test whether consecutive rounds of a world are correlated, at the sampled coordinates: Student's t, two-sided.

    Given the noise p of a round, <p, q> / |p| with the noise q of the next is normal with the same spread whatever p
    is, so these are independent and normal over rounds and worlds. Noise like a moving average shows here with far more
    power than sums over rounds have.
    """
    if measured.rounds < 2:
        return NotOffered(Missing.ONE_ROUND)
    sample = measured.even_sample
    if sample is None:
        return NotOffered(Missing.NOT_MEASURED)
    steps = _steps(sample)
    if steps.size < 3:
        return NotOffered(Missing.TOO_FEW)
    t, p_value = student_p(steps)
    length = _mean_length(sample.shape[-1])
    scale = math.sqrt(float(np.mean(np.square(sample))))
    return TestResult(
        name=TestName.SERIAL_CORRELATION,
        statistic=t,
        p_value=p_value,
        measured=float(steps.mean()) / length / scale,
        promised=0.0,
        limit=min(1.0, detectable_mean(steps.size, TestName.SERIAL_CORRELATION.level) / length),
    )


def _steps(projections: Floats) -> Floats:
    """Return the noise of each round along that of the round before, where there was some."""
    before, after = projections[:, :-1], projections[:, 1:]
    lengths = np.linalg.norm(before, axis=-1)
    some = lengths > 0
    return np.asarray(np.einsum("wij,wij->wi", before, after)[some] / lengths[some], dtype=np.float64)


def _mean_length(dimensions: int) -> float:
    """Return the mean length of a standard normal vector, sqrt(2) Gamma((J + 1)/2) / Gamma(J/2)."""
    return math.sqrt(2) * math.exp(math.lgamma((dimensions + 1) / 2) - math.lgamma(dimensions / 2))
