"""Finding and report section on adaptive clipping."""

from dataclasses import dataclass
from typing import Any

from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_tables import NORM_COLUMN
from fl_audit.mechanisms.contribution import AdaptiveClipping
from fl_audit.report.report_elements import ReportContents, ReportNumber, Section
from fl_audit.words import number_text, percent


@dataclass(frozen=True)
class AdaptiveClippingFinding:
    """The clipping norms of a run with adaptive clipping, in its first and last round, and its noise multipliers."""

    first_norm: float  # clipping norm of the first round
    last_norm: float  # median over trials of the clipping norm of the last round
    sum_noise_multiplier: float  # noise multiplier of the released sum of updates
    count_noise_multiplier: float  # noise multiplier of the released count of updates within the clipping norm
    noise_multiplier: float  # noise multiplier of both releases together

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `clipping`, for `summary.json`."""
        return {"clipping": json_of(self)}


def measure_clipping(run: FinishedRun, _: Findings) -> AdaptiveClippingFinding | None:
    """Return the clipping norms and noise multipliers of a run with adaptive clipping; None if the norm is fixed."""
    mechanism = run.plan.federation.mechanism
    rounds = run.tables.rounds
    if not isinstance(mechanism.clipping, AdaptiveClipping) or NORM_COLUMN not in rounds:
        return None
    last = rounds.loc[rounds["round"] == rounds["round"].max(), NORM_COLUMN]
    z = run.plan.effective_noise_multiplier
    threat_model = run.plan.federation.threat_model
    return AdaptiveClippingFinding(
        first_norm=mechanism.clipping_norm,
        last_norm=float(last.median()),
        sum_noise_multiplier=z,
        count_noise_multiplier=z * mechanism.clipping.bit_noise,
        noise_multiplier=mechanism.claimed_multiplier(threat_model),
    )


def _clipping_sentence(finding: AdaptiveClippingFinding, contents: ReportContents) -> str:
    clipping = contents.plan.federation.mechanism.clipping
    assert isinstance(clipping, AdaptiveClipping), "measured only where it is adaptive"
    return (
        f"The clipping norm follows the length that {percent(clipping.quantile)} of the updates keep within. Every "
        "round also releases how many did, with noise of its own, and the next norm moves by that. Both releases are "
        f"accounted: together they have noise multiplier {number_text(finding.noise_multiplier, 3)}, where the sum "
        f"alone has {number_text(finding.sum_noise_multiplier, 3)}, each over its sensitivity."
    )


def _clipping_rows(finding: AdaptiveClippingFinding, _: ReportContents) -> list[ReportNumber]:
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
    AdaptiveClippingFinding,
    measure_clipping,
    keys=("clipping",),
    sentence=_clipping_sentence,
    rows=_clipping_rows,
)
