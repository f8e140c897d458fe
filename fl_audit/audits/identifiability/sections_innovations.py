"""Finding and report section on the innovations, the standardised increments of the insider's log-odds.

In round i the log-odds L_i of D against D' change by a normal increment N(+-mu_i^2/2, mu_i^2). Here mu_i is the local
sensitivity divided by the standard deviation of the noise. The mean is positive if D was used and negative if D' was
used. The standardised increment (L_i - L_{i-1} -+ mu_i^2/2) / mu_i is called the innovation. It is N(0, 1) and
independent of the past, even if mu_i was chosen adaptively. Its test is the strongest test of a whole run, because
noise, secret bits, sensitivities and log-odds all enter it.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fl_audit.array_types import Flags, Floats
from fl_audit.federation.findings import Findings
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.privacy.accounting_enums import NoiseDistribution
from fl_audit.report.report_elements import ReportContents, Section, Table
from fl_audit.verdict.log_odds_innovations import SMALLEST_SIGNAL
from fl_audit.verdict.stored_measurements import measured_in
from fl_audit.words import number_text, plural

LARGEST_Z_SCORE = 4.0  # the test of innovations fails if the absolute value of a z-score is larger
SMALLEST_P_VALUE = 0.001  # the test of innovations fails if the Kolmogorov-Smirnov p-value is not larger


@dataclass(frozen=True)
class LlrIncrementStatistics:
    """Statistics of the innovations (standardised increments of the log-odds) in the trials with one secret bit."""

    count: int  # number of innovations; below 2 the other fields have their expected values, z-scores 0 and p-value 1
    mean: float  # mean of all innovations; 0 is expected
    variance: float  # variance of all innovations; 1 is expected
    serial_correlation: float  # correlation between consecutive rounds of the same trial; 0 is expected
    mean_z: float  # mean minus expected mean, in standard errors
    variance_z: float  # variance minus expected variance, in standard errors
    serial_correlation_z: float  # serial correlation in standard errors
    ks_p_value: float  # p-value of the Kolmogorov-Smirnov test against N(0, 1)

    @property
    def holds(self) -> bool:
        """Whether the innovations agree with N(0, 1).

        They agree if every z-score is at most 4 in absolute value, and the p-value is above 0.001.
        """
        largest = max(abs(self.mean_z), abs(self.variance_z), abs(self.serial_correlation_z))
        return self.ks_p_value > SMALLEST_P_VALUE and largest <= LARGEST_Z_SCORE


@dataclass(frozen=True)
class LlrIncrementTest:
    """Tests that innovations (standardised increments of the log-odds) are N(0, 1), one for D and one for D'."""

    members: LlrIncrementStatistics  # the innovations of trials with D
    nonmembers: LlrIncrementStatistics  # the innovations of trials with D'
    rounds: int  # number of rounds of all trials together
    left_out: int  # number of these rounds without an innovation, because their signal is below `SMALLEST_SIGNAL`

    @property
    def holds(self) -> bool:
        """Whether the innovations pass the test, both for trials with D and for trials with D'.

        Innovations are the standardised increments of the log-odds. A correct run fails with a probability of about 0.2
        %.
        """
        return self.members.holds and self.nonmembers.holds

    @property
    def groups(self) -> tuple[tuple[int, LlrIncrementStatistics], ...]:
        """Pairs of a secret bit and the statistics of the trials with this bit: first bit 1 (D), then bit 0 (D')."""
        return (1, self.members), (0, self.nonmembers)

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `innovations`, for `summary.json`."""
        groups = []
        names = ("count", "mean", "variance", "serial_correlation")
        for bit, group in self.groups:
            groups.append({"bit": bit} | {name: getattr(group, name) for name in names} | {"ks_p": group.ks_p_value})
        return {"innovations": {"holds": self.holds, "rounds_left_out": self.left_out, "groups": groups}}


def check_scores(values: Floats, bits: NDArray[np.integer] | Flags) -> LlrIncrementTest:
    """Test whether innovations are independent and N(0, 1), separately for trials with D and with D'.

    Shapes: `values` (trials, rounds), `bits` (trials,).

    `values`: NaN in rounds without information. If the increments are not Gaussian, normal scores of the noise instead.
    """
    member = bits.astype(bool)
    groups = _group(values[member]), _group(values[~member])
    return LlrIncrementTest(*groups, values.size, int(np.isnan(values).sum()))


def _group(values: Floats) -> LlrIncrementStatistics:
    """Return the test statistics of innovations, (trials, rounds), in which NaN means that there is none."""
    used = values[~np.isnan(values)]
    count = int(used.size)
    if count < 2:
        return LlrIncrementStatistics(count, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    mean = float(np.mean(used))
    variance = float(np.var(used, ddof=1))
    products = (values[:, :-1] - mean) * (values[:, 1:] - mean)
    pairs = products[~np.isnan(products)]  # of consecutive rounds within trials
    correlation = float(np.mean(pairs)) / variance if pairs.size and variance else 0.0
    return LlrIncrementStatistics(
        count=count,
        mean=mean,
        variance=variance,
        serial_correlation=correlation,
        mean_z=mean * math.sqrt(count),
        variance_z=(variance - 1) * math.sqrt((count - 1) / 2),
        serial_correlation_z=correlation * math.sqrt(pairs.size),
        ks_p_value=float(scipy.stats.kstest(used, "norm").pvalue),
    )


def measure_innovations(run: FinishedRun, _: Findings) -> LlrIncrementTest | None:
    """Return the test of the innovations, which are the standardised increments of the insider's log-odds.

    None without a guarantee, an insider or an exact log-likelihood ratio.
    """
    if not run.plan.has_guarantee or not run.has_insider or not run.plan.federation.mechanism.knows_llr:
        return None
    return check_scores(measured_in(run).innovations, run.bits)


def _innovations_sentence(test: LlrIncrementTest, contents: ReportContents) -> str:
    is_gaussian = contents.noise.distribution is NoiseDistribution.GAUSSIAN
    noise = "the noise itself" if is_gaussian else "the noise, made normal,"
    subject = (
        "One innovation is one round's step of the log-odds, less its expectation, in units of its spread."
        if contents.run.scores is None
        else f"A round's step of the log-odds is not normal here, so {noise} stands in for it."
    )
    text = (
        f"{subject} They must be independent N(0, 1): {'nothing contradicts that' if test.holds else 'they are NOT'}."
    )
    if not test.left_out:
        return text
    return (
        f"{text} Of {plural(test.rounds, 'round')} of all trials, {test.left_out:,} "
        f"{'was' if test.left_out == 1 else 'were'} left out: there D and D' differed by less than "
        f"{number_text(SMALLEST_SIGNAL)} of the noise."
    )


def _innovations_tables(test: LlrIncrementTest, _: ReportContents) -> list[Table]:
    columns = (
        "Trials",
        "Count",
        "Mean (expected: 0)",
        "Variance (expected: 1)",
        "Serial correlation (expected: 0)",
        "p-value, Kolmogorov-Smirnov",
    )
    rows = tuple(
        (f"b = {bit}", statistics.count, *numbers_of_test)
        if statistics.count
        else (f"b = {bit}", 0, *[None] * len(numbers_of_test))
        for bit, statistics in test.groups
        for numbers_of_test in (
            (statistics.mean, statistics.variance, statistics.serial_correlation, statistics.ks_p_value),
        )
    )
    return [Table("Innovations against independent N(0, 1)", columns, rows)]


INNOVATIONS = Section(
    "innovations",
    "Whether every step of the evidence follows its distribution",
    LlrIncrementTest,
    measure_innovations,
    keys=("innovations",),
    sentence=_innovations_sentence,
    tables=_innovations_tables,
)
