"""Report section on adaptive clipping."""

from fl_audit.audits.common import findings_guarantee as evidence
from fl_audit.mechanisms.contribution import AdaptiveClipping
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section
from fl_audit.words import number_text, percent


def _clipping_sentence(finding: evidence.AdaptiveClippingFinding, contents: ReportContents) -> str:
    clipping = contents.plan.federation.mechanism.clipping
    assert isinstance(clipping, AdaptiveClipping), "measured only where it is adaptive"
    return (
        f"The clipping norm follows the length that {percent(clipping.quantile)} of the updates keep within. Every "
        "round also releases how many did, with noise of its own, and the next norm moves by that. Both releases are "
        f"accounted: together they have noise multiplier {number_text(finding.noise_multiplier, 3)}, where the sum "
        f"alone has {number_text(finding.sum_noise_multiplier, 3)}, each over its sensitivity."
    )


def _clipping_rows(finding: evidence.AdaptiveClippingFinding, _: ReportContents) -> list[ReportNumber]:
    chosen = "chosen before the run"
    return [
        ReportNumber("Clipping norm of the first round", finding.first_norm, chosen),
        ReportNumber(
            "Clipping norm of the last round, median",
            finding.last_norm,
            "over the trials; it follows a count with noise, so it is as private as the releases",
        ),
        ReportNumber("Noise multiplier of the sum of updates", finding.sum_noise_multiplier, chosen),
        ReportNumber(
            "Noise multiplier of the count",
            finding.count_noise_multiplier,
            "of the updates that are within the norm, each counted as 1/2 or -1/2",
        ),
        ReportNumber(
            "Noise multiplier of both releases together",
            finding.noise_multiplier,
            "root of 1 / (sum of their inverse squares); Andrew et al. 2021, theorem 1",
        ),
    ]


CLIPPING = Section(
    "clipping-norm",
    "Adaptive clipping",
    evidence.AdaptiveClippingFinding,
    evidence.measure_clipping,
    keys=("clipping",),
    sentence=_clipping_sentence,
    rows=_clipping_rows,
)
