"""The report section on the local DP guarantee of records that their owners randomise."""

import math
from functools import partial
from typing import assert_never

from fl_audit.audits.common import findings_record_guarantee as evidence
from fl_audit.data.randomizers import LaplacePixelation, LocalRandomizer, RandomisedBits, RandomisedEdges
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.report import mechanism_messages
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section
from fl_audit.words import number_text, plural

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


def _record_sentence(finding: evidence.LocalDPFinding, _: ReportContents) -> str:
    unit_name = evidence.unit_of(finding.local_randomizer)
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


def _record_rows(finding: evidence.LocalDPFinding, contents: ReportContents) -> list[ReportNumber]:
    counted_text, whole = _phrases(finding.local_randomizer)[1:]
    unit_name = evidence.unit_of(finding.local_randomizer)
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


def _pair_rows(
    finding: evidence.LocalDPFinding, pair: evidence.RecordPairLocalDP, contents: ReportContents
) -> list[ReportNumber]:
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
    interval = evidence.measured_of_pair(run, confidence)
    assert interval is not None, "it was measured at another confidence"
    return interval.low, interval.high


RECORD_GUARANTEE = Section(
    "record-guarantee",
    "What each record is claimed by itself",
    evidence.LocalDPFinding,
    evidence.measure_record_guarantee,
    on_page=True,
    keys=("record_guarantee",),
    sentence=_record_sentence,
    rows=_record_rows,
)
