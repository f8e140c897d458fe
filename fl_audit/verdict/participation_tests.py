"""Test whether units took part in rounds as claimed, by exact distributions of counts in the opened samples.

The challenger, who draws the samples, opens them after the run. Under Poisson sampling every unit takes part in every
round of every trial independently with probability q, whatever the secret. So every count is binomial, and every count
given the totals is hypergeometric. Accountants rely on this independence. The target is the unit in which D and D'
differ. If mini-batches have a fixed size or are shuffled, an adversary who knows all other units also knows whether the
target took part.
"""

import math
from dataclasses import replace

import numpy as np

from fl_audit.array_types import Floats, Integers
from fl_audit.privacy.accounting import Accountant
from fl_audit.privacy.claim import Claim
from fl_audit.privacy.events import SampledGaussianRelease
from fl_audit.statistics.exact_counts import BinomialHistogram, binomial_p, dispersion, table_p
from fl_audit.verdict.declared_tests import NotTestedReason, TestName, TestResult, bonferroni, if_known, only_if
from fl_audit.verdict.null_distributions import detectable_deviation
from fl_audit.verdict.opened_secrets import OpenedParticipation, OpenedSecrets

_MOST_TABLES = 40  # of many 2 x 2 tables only this number is tested exactly, those farthest from independence
_EVEN = 0.5  # samples are taken to have a fixed size if the variance of the size is below this share of the claim


def _samples(opened: OpenedSecrets) -> OpenedParticipation:
    only_if(opened.is_sampled or not opened.is_kept, NotTestedReason.NOT_SAMPLED)
    return if_known(opened.samples, NotTestedReason.NOT_OPENED)


def epsilon_if_participation_known(claim: Claim) -> float:
    """Return epsilon, at the claim's delta, against an adversary who sees in which rounds the target takes part.

    Sampling then hides nothing. Such an adversary exists if samples have a fixed size: whoever knows which other units
    are in a sample also knows whether the target is.
    """
    return _epsilon(claim, sees=True)


def epsilon_at_rate(claim: Claim, rate: float) -> float:
    """Return the epsilon of the claimed releases, at the claim's delta, if the target is sampled at another rate.

    `rate`: At 0, epsilon is 0.
    """
    return 0.0 if rate == 0 else _epsilon(claim, rate=rate)


def _epsilon(claim: Claim, sees: bool = False, rate: float | None = None) -> float:
    changed = [
        replace(event, seen=event.seen or sees, sampling_rate=event.sampling_rate if rate is None else rate)
        if isinstance(event, SampledGaussianRelease)
        else event
        for event in claim.events
    ]
    real = Claim(claim.adjacency, changed, claim.delta, claim.prior, Accountant.PLD)
    return real.profile.epsilon(claim.delta)


def _consequence(opened: OpenedSecrets, result: TestResult, real: float | None) -> TestResult:
    """Return a test result with the epsilon that follows from the real sampling, if that exceeds the claimed epsilon.

    Otherwise, and if the test did not fail, the result is returned unchanged. `real` is the rate at which the target is
    really sampled, or None if the adversary can find out in which rounds the target takes part.
    """
    claim = opened.claim
    if not result.violated or claim is None:
        return result
    epsilon = epsilon_if_participation_known(claim) if real is None else epsilon_at_rate(claim, real)
    claimed = _epsilon(claim)
    return (
        replace(result, more={**result.more, "epsilon": epsilon, "claimed_epsilon": claimed})
        if epsilon > claimed
        else result
    )


def _detectable_rate(rate: float, trials: int, level: float) -> float:
    """Return how far above a claimed rate the true rate must be for a two-sided test of `trials` draws to find it."""
    reach = detectable_deviation(level / 2)
    return min(1 - rate, reach * math.sqrt(rate * (1 - rate) / trials))


def target_turns(opened: OpenedSecrets) -> TestResult:
    """Test whether the target takes part at the claimed rate, independently of the secret and of other units.

    There are three exact tests, corrected by Bonferroni:

    * The share of rounds in which the target takes part is compared with the claimed rate.
    * This share in trials with D is compared with the share in trials with D'.
    * The number of other units in rounds with the target is compared with the number in rounds without it.
    """
    samples = _samples(opened)
    takes_part = if_known(samples.target, NotTestedReason.TARGETS_ALONE)
    members = opened.members
    count = int(takes_part.sum())
    draws = int(takes_part.size)
    looks = {"": float(binomial_p(count, draws, samples.rate))}
    if members.any() and not members.all():
        rows = int(takes_part[members].size)
        looks["with D against without it"] = table_p(int(takes_part[members].sum()), count, rows, draws - rows)
    if 0 < count < draws:
        total_units = int(samples.sizes.sum())
        inside = int(samples.sizes[takes_part].sum())
        sizes = count * samples.units, (draws - count) * samples.units
        looks["where others take part"] = table_p(inside, total_units, *sizes)
    location = min(looks, key=lambda name: looks[name])
    limit = _detectable_rate(samples.rate, draws, TestName.TARGET_TURNS.level / len(looks))
    p_value = bonferroni(len(looks), looks[location])
    result = TestResult(
        TestName.TARGET_TURNS, count, p_value, count / draws, samples.rate, limit, location, {"draws": draws}
    )
    real = None if location else count / draws
    return _consequence(opened, result, real)


def unit_turns(opened: OpenedSecrets) -> TestResult:
    """Test whether every unit except the target takes part at the claimed rate, independently of secret and target.

    Three exact p-values of each unit are corrected by Bonferroni: for its rate, for a dependence on the secret, and for
    a dependence on whether the target takes part.
    """
    samples = _samples(opened)
    draws = int(samples.sizes.size)
    counts: Integers = samples.of_units.sum(axis=1)
    p_values: Floats = binomial_p(counts, draws, samples.rate)
    at = int(p_values.argmin())
    looks = samples.units
    best = float(p_values[at])
    location = f"number {samples.numbers[at]}"
    if samples.target is not None:
        cells = np.array(
            [
                int((samples.target == takes_part)[opened.members == side].sum())
                for side in (True, False)
                for takes_part in (True, False)
            ]
        )
        for rows, name in (((0, 1), "with D against without it"), ((0, 2), "where the target takes part")):
            first = int(cells[list(rows)].sum())
            if not 0 < first < draws:
                continue
            looks += samples.units
            inside = samples.of_units[:, list(rows)].sum(axis=1)
            row, p_value = _least_table(inside, counts, first, draws - first)
            if p_value < best:
                best = p_value
                at = row
                location = f"number {samples.numbers[row]}, {name}"
    limit = _detectable_rate(samples.rate, draws, TestName.UNIT_TURNS.level / looks)
    p_value_of_looks = bonferroni(looks, best)
    share = float(counts[at]) / draws
    details = {"looks": looks}
    result = TestResult(
        TestName.UNIT_TURNS, float(counts[at]), p_value_of_looks, share, samples.rate, limit, location, details
    )
    return _consequence(opened, result, None) if "target" in location else result


def _least_table(inside: Integers, totals: Integers, first: int, second: int) -> tuple[int, float]:
    """Return the index of the 2 x 2 table with the smallest p-value for independence, and that p-value.

    The rows of every table contain `first` and `second` elements. Table i has totals[i] marked elements, of which
    inside[i] are in the first row. Only the tables farthest from independence are tested.
    """
    whole = first + second
    share = totals / whole
    spread = np.sqrt(np.maximum(1e-12, share * (1 - share) * first * second / max(1, whole - 1)))
    order = np.argsort(-np.abs(inside - first * share) / spread)[:_MOST_TABLES]
    p_values = [table_p(int(inside[row]), int(totals[row]), first, second) for row in order]
    best = int(np.argmin(p_values))
    return int(order[best]), p_values[best]


def sample_sizes(opened: OpenedSecrets) -> TestResult:
    """Test whether the sizes of the samples vary like binomial counts at the claimed sampling rate.

    The test is exact and two-sided. Its statistic is the sum of squared deviations of all sizes from their expectation.
    """
    samples = _samples(opened)
    often = np.bincount(samples.sizes.reshape(-1), minlength=samples.units + 1)
    return _spread(opened, TestName.SAMPLE_SIZES, (BinomialHistogram(samples.units, samples.rate, often),))


def _spread(
    opened: OpenedSecrets, name: TestName, counts: tuple[BinomialHistogram, ...], location: str = ""
) -> TestResult:
    dispersion_of_counts = dispersion(counts)
    number = sum(int(count.often.sum()) for count in counts)
    reach = detectable_deviation(name.level / 2)
    limit = min(1.0, reach * math.sqrt(2 / number))
    details = {"counts": number}
    result = TestResult(
        name,
        dispersion_of_counts.ratio,
        dispersion_of_counts.p_value,
        dispersion_of_counts.ratio,
        1.0,
        limit,
        location,
        details,
    )
    is_certain = dispersion_of_counts.ratio < _EVEN  # whoever knows all others then knows whether the target took part
    return _consequence(opened, result, None) if is_certain else result


def even_turns(opened: OpenedSecrets) -> TestResult:
    """Test whether the rounds of a trial sample units independently, by two exact binomial tests with Bonferroni.

    The first test finds one sample that is used for a whole trial: the numbers of rounds in which units take part then
    vary too much. The second test finds shuffled mini-batches, where a unit has to wait for its next turn: too few
    units then take part in two consecutive rounds.
    """
    samples = _samples(opened)
    only_if(samples.sizes.shape[1] >= 2, NotTestedReason.ONE_ROUND)
    turns = _spread(opened, TestName.EVEN_TURNS, (samples.turns,), "rounds of a unit")
    # In disjoint pairs of rounds, every unit is in both rounds with probability q^2, independently.
    pairs = samples.overlaps[:, 1::2]
    draws = int(pairs.size) * samples.units
    both_present = int(pairs.sum())
    p_value = float(binomial_p(both_present, draws, samples.rate**2))
    if turns.p_value <= p_value:
        return replace(turns, p_value=bonferroni(2, turns.p_value))
    ratio = both_present / draws / samples.rate**2
    result = TestResult(
        TestName.EVEN_TURNS,
        both_present,
        bonferroni(2, p_value),
        ratio,
        1.0,
        turns.limit,
        "units in two rounds in a row",
        {"counts": draws},
    )
    return _consequence(opened, result, None) if ratio < _EVEN else result


def shared_samples(opened: OpenedSecrets) -> TestResult:
    """Test whether trials sample units independently of each other, by two tests with Bonferroni's correction.

    For each unit and round, the first test takes the number of trials in which the unit takes part. These numbers must
    vary like binomial counts (exact, two-sided). The second test counts repetitions of the same sample.
    """
    samples = _samples(opened)
    only_if(len(samples.sizes) >= 2, NotTestedReason.ONE_TRIAL)
    crowds = tuple(crowd for crowd in samples.crowds if crowd.trials > 1) or samples.crowds
    spread = _spread(opened, TestName.SHARED_SAMPLES, crowds, "trials of a unit in a round")
    number = samples.digests.size
    often = np.unique(samples.digests, return_counts=True)[1]
    repeats = int(np.sum(often // 2))
    details = {"counts": number}
    p_value = _repeats_p(samples, repeats)
    if spread.p_value <= p_value:
        return replace(spread, p_value=bonferroni(2, spread.p_value))
    name = TestName.SHARED_SAMPLES
    location = "distinct samples"
    return TestResult(name, repeats, bonferroni(2, p_value), 1 + repeats / number, 1.0, spread.limit, location, details)


def _repeats_p(participation: OpenedParticipation, repeats: int) -> float:
    """Return an upper bound on the probability that at least `repeats` disjoint pairs of samples are equal.

    It is (P p)^m / m!, where m is `repeats`, P the number of all pairs, and p the probability that a pair is equal.
    There are at most P^m / m! sets of m disjoint pairs, and disjoint pairs are independent.
    """
    if repeats == 0:
        return 1.0
    number = participation.digests.size
    equal = math.exp(participation.units * math.log(participation.rate**2 + (1 - participation.rate) ** 2)) + 2.0**-52
    log_p = repeats * math.log(number * (number - 1) / 2 * equal) - math.lgamma(repeats + 1)
    return math.exp(min(0.0, log_p))
