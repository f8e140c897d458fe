"""Finding and report section on the local DP guarantee of records that their owners randomise before the training."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

import numpy as np

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Floats
from fl_audit.data.randomizers import LaplacePixelation, LocalRandomizer, RandomisedBits, RandomisedEdges, pure_epsilon
from fl_audit.errors import require
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.locally_randomised_records import LocalRandomizerGuarantee
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.events import RandomizedResponse, ReleaseEvent
from fl_audit.privacy.identifiability_bounds import response_advantage
from fl_audit.report import mechanism_messages
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section
from fl_audit.statistics.advantage import AdvantageInterval, clopper_pearson
from fl_audit.words import number_text, plural

ACCOUNTANT = "pure epsilon"  # accountant that adds the epsilons of independent releases, with delta 0
_COLUMNS = ("record_log_odds", "other_log_odds")


@dataclass(frozen=True)
class RecordPairLocalDP:
    """The local DP guarantee against distinguishing two records: epsilon, allowed advantage and measured advantage."""

    differing: int  # number of features in which the two records differ
    epsilon: float  # largest log-likelihood ratio between the two records, in nats
    advantage: float  # largest advantage TPR - FPR in telling the two records apart, given the randomised one
    is_exact: bool  # whether `advantage` is exact; otherwise it is an upper bound
    measured: AdvantageInterval | None  # measured advantage of the optimal test; None if no trials were drawn


@dataclass(frozen=True)
class LocalDPFinding:
    """The local DP guarantee of records that their owners randomise before the training."""

    local_randomizer: LocalRandomizer  # the randomisation of the records
    epsilon: float  # epsilon of one unit (a bit, a pair of nodes, or a number of changed pixels), in nats
    counted: int  # number of units over which the paper on this randomizer composes
    counted_epsilon: float  # sum of their epsilons, in nats
    whole_epsilon: float  # epsilon between any two records, in nats
    # The guarantee for one record of the run and another record; None if there is no pair to compare.
    pair: RecordPairLocalDP | None

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `record_guarantee`, for `summary.json`."""
        values = {"local_randomizer": self.local_randomizer.kind, "accountant": ACCOUNTANT, "delta": 0.0}
        return {"record_guarantee": json_of(self) | values | {"unit": unit_of(self.local_randomizer)}}


def unit_of(local_randomizer: LocalRandomizer) -> str:
    """Return a noun phrase for the unit that a local randomizer's epsilon protects, such as "feature"."""
    match local_randomizer:
        case RandomisedBits():
            return "feature"
        case RandomisedEdges():
            return "pair of nodes"
        case LaplacePixelation():
            changed = local_randomizer.neighbourhood
            return f"change of {changed} pixel{'s' * (changed != 1)}"
        case _:
            assert_never(local_randomizer)


def advantage_of(events: tuple[ReleaseEvent, ...]) -> float:
    """Return the largest membership advantage (total variation distance) that some releases allow; 0 without releases.

    For a single release of randomised bits the value is exact. Otherwise it is an upper bound from a pessimistic
    privacy loss distribution.
    """
    match events:
        case ():
            return 0.0
        case (RandomizedResponse(epsilon, count),):
            return response_advantage(epsilon, count)
        case _:
            return PrivacyProfile(events, Adjacency.REPLACE_RECORD).advantage()


def measured_advantage(of_first: Floats, of_second: Floats, confidence: float) -> AdvantageInterval:
    """Return the measured advantage TPR - FPR of the optimal test between two records, with a confidence interval.

    The test names the first record if the log-odds are above 0. TPR and FPR are the shares of trials with the first and
    with the second record in which the test names the first record.

    Shapes: `of_first` (trials,), `of_second` (trials,).

    `confidence`: The intervals of TPR and FPR each have half of the error probability.
    """
    trials = len(of_first)
    alike = trials == len(of_second) and trials > 0
    require(alike, f"{trials} and {len(of_second)} log-odds: accepted are equally many")
    counts = [int(np.count_nonzero(log_odds > 0)) for log_odds in (of_first, of_second)]
    first, second = (clopper_pearson(count, trials, (1 + confidence) / 2) for count in counts)
    advantage = (counts[0] - counts[1]) / trials
    return AdvantageInterval(trials, advantage, first[0] - second[1], first[1] - second[0], confidence)


def measure_record_guarantee(run: FinishedRun, _: Findings) -> LocalDPFinding | None:
    """Return the local DP guarantee of the records of a run; None if the records are not randomised."""
    if (claim := run.record_claim) is None:
        return None
    local_randomizer = claim.local_randomizer
    shape = claim.shape
    return LocalDPFinding(
        local_randomizer=local_randomizer,
        epsilon=local_randomizer.epsilon,
        counted=_counted(claim),
        counted_epsilon=pure_epsilon(local_randomizer.counted_events(shape)),
        whole_epsilon=pure_epsilon(local_randomizer.events_of_opposite_records(shape)),
        pair=None if claim.pair is None else _pair(claim, claim.pair, run),
    )


def _counted(guarantee: LocalRandomizerGuarantee) -> int:
    """Return the number of releases whose epsilons Bernau et al. 2019 add up to the epsilon of a record.

    Releases are the bits of a record, the possible edges of a node, or the blocks of an image.
    """
    match guarantee.local_randomizer:
        case RandomisedBits():
            return math.prod(guarantee.shape)
        case RandomisedEdges():
            return guarantee.shape[-1] - 1
        case LaplacePixelation():
            return math.prod(guarantee.shape) // guarantee.local_randomizer.block**2
        case _:
            assert_never(guarantee.local_randomizer)


def measured_of_pair(run: FinishedRun, confidence: float) -> AdvantageInterval | None:
    """Return the measured advantage of the optimal test between two records; None if the run did not measure it."""
    table = run.tables.trials
    if not all(column in table for column in _COLUMNS):
        return None
    of_first, of_second = (table[column].to_numpy(dtype=np.float64) for column in _COLUMNS)
    return measured_advantage(of_first, of_second, confidence)


def _pair(guarantee: LocalRandomizerGuarantee, pair: tuple[ReleaseEvent, ...], run: FinishedRun) -> RecordPairLocalDP:
    assert guarantee.differing is not None, "a pair differs in some number of features, or in none"
    measured = measured_of_pair(run, run.plan.confidence)
    is_exact = isinstance(guarantee.local_randomizer, RandomisedBits)
    return RecordPairLocalDP(guarantee.differing, pure_epsilon(pair), advantage_of(pair), is_exact, measured)


_LARGEST_SHOWN = 30.0  # largest epsilon, in nats, for which the factor e^epsilon is shown as a number
_INDEPENDENT = "draws of the owners are independent, and labels are not hidden; pure epsilon, without a delta"


def _phrases(local_randomizer: LocalRandomizer) -> tuple[str, str, str]:
    """Return three phrases of a local randomizer, for reports.

    They name the features of a record, the releases whose epsilons Bernau et al. 2019 add up, and the two most unlike
    records.
    """
    match local_randomizer:
        case RandomisedBits():
            return "features", "all features", "records that differ in all features"
        case RandomisedEdges():
            return "pairs of nodes", "all pairs of one node", "graphs that differ in all pairs of nodes"
        case LaplacePixelation():
            return "pixels", "all released values", "a black image and a white one"
        case _:
            assert_never(local_randomizer)


def _record_sentence(finding: LocalDPFinding, _: ReportContents) -> str:
    unit_name = unit_of(finding.local_randomizer)
    randomizer = mechanism_messages.randomizer_text(finding.local_randomizer)
    own_factor, whole = map(_factor, (finding.epsilon, finding.whole_epsilon))
    return (
        f"Before anything was trained, every owner {randomizer}, once. So whatever anybody sees later, evidence "
        "about one "
        f"{unit_name} stays within a factor of {own_factor}, and about a whole record within {whole}."
    )


def _factor(epsilon: float) -> str:
    """Return the factor e^epsilon as text, such as "exp(1.5) = 4.48"; only "exp(40)" if epsilon exceeds 30."""
    text = f"exp({number_text(epsilon, 3)})"
    return text if epsilon > _LARGEST_SHOWN else f"{text} = {number_text(math.exp(epsilon), 3)}"


def _record_rows(finding: LocalDPFinding, contents: ReportContents) -> list[ReportNumber]:
    counted_text, whole = _phrases(finding.local_randomizer)[1:]
    unit_name = unit_of(finding.local_randomizer)
    rows = [
        ReportNumber(f"Epsilon of one {unit_name} (nats)", finding.epsilon, f"chosen before the run; {_INDEPENDENT}"),
        ReportNumber(
            f"Epsilon counted over {counted_text} (nats)",
            finding.counted_epsilon,
            f"{finding.counted:,} times that of one, as Bernau et al. 2019 count",
        ),
        ReportNumber("Epsilon of any two records (nats)", finding.whole_epsilon, f"largest log-odds, of {whole}"),
    ]
    return rows if finding.pair is None else rows + _pair_rows(finding, finding.pair, contents)


def _pair_rows(finding: LocalDPFinding, pair: RecordPairLocalDP, contents: ReportContents) -> list[ReportNumber]:
    bound = "" if pair.is_exact else ", at most"
    differ = _phrases(finding.local_randomizer)[0]
    between = f"between one record and another that differ in {pair.differing:,} {differ}"
    formula = "P(B > d/2) - P(B < d/2), B binomial over the d features that differ"
    method = formula if pair.is_exact else "total variation, from a pessimistic privacy loss distribution"
    basis_text = f"{method}; {between}; both records are known"
    label = f"Advantage on one randomised record{bound}"
    rows = [ReportNumber(f"Epsilon of the pair{bound} (nats)", pair.epsilon, f"largest log-odds, {between}")]
    rows.append(ReportNumber(label, pair.advantage, basis_text))
    if (measured := pair.measured) is not None:
        basis = (
            "share of trials in which the log-odds named the record that was randomised, less the share in which they "
            f"named it where the other one was; two Clopper-Pearson intervals; {plural(measured.trials, 'trial')}"
        )
        rows.append(
            ReportNumber(
                "Advantage on one randomised record, measured",
                measured.advantage,
                basis,
                measured.low,
                measured.high,
                measured.confidence,
                pair.advantage,
                largest=1.0,
                on_page=True,
                wide=partial(_ends_of_pair, contents.run),
            )
        )
    return rows


def _ends_of_pair(run: FinishedRun, confidence: float) -> tuple[float, float]:
    interval = measured_of_pair(run, confidence)
    assert interval is not None, "it was measured at another confidence"
    return interval.low, interval.high


RECORD_GUARANTEE = Section(
    "record-guarantee",
    "What each record is claimed by itself",
    LocalDPFinding,
    measure_record_guarantee,
    on_page=True,
    keys=("record_guarantee",),
    sentence=_record_sentence,
    rows=_record_rows,
)
