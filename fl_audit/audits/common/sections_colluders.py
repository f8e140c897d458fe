"""Finding and report section on the guarantee against colluding clients."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fl_audit.array_types import finite
from fl_audit.federation.findings import Findings, json_of
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.mechanism import effective_noise_multiplier
from fl_audit.mechanisms.noises.mechanism_noise import NoiseOrigin
from fl_audit.mechanisms.threat_model import Adversary, ThreatModel
from fl_audit.privacy.accounting import account
from fl_audit.report.report_elements import ReportContents, Section, Table
from fl_audit.words import number_text

MOST_POINTS = 25  # largest number of coalition sizes for which epsilon is computed


@dataclass(frozen=True)
class GuaranteeAgainstAdversary:
    """The multiplier of the noise that an adversary does not know, and the epsilon against this adversary."""

    clients: int  # number of clients whose noise the adversary knows, including the insider; 0 for the server
    noise_multiplier: float  # noise multiplier of the noise that the adversary does not know
    epsilon: float  # epsilon against the adversary, at the delta and by the accountant of the guarantee


@dataclass(frozen=True)
class ColludersFinding:
    """Epsilon against coalitions of clients and against the server, and the noise that each of them does not know."""

    groups: tuple[GuaranteeAgainstAdversary, ...]  # one entry for each coalition size, in ascending order
    server: GuaranteeAgainstAdversary

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `colluders`, for `summary.json`."""
        return {"colluders": json_of(self)}


def measure_colluders(run: FinishedRun, _: Findings) -> ColludersFinding | None:
    """Return, for coalitions of clients and for the server, the noise that they do not know, and epsilon against them.

    None without a guarantee, or if the clients do not add the noise in shares.
    """
    plan = run.plan
    mechanism = plan.federation.mechanism
    # Noise inside a client's own training protects only its own records, so coalitions do not reduce it.
    if not plan.has_guarantee or mechanism.noise.origin is not NoiseOrigin.CLIENTS:
        return None
    most_colluders = plan.federation.clients - 1
    counts = np.unique(np.linspace(1, most_colluders, min(most_colluders, MOST_POINTS)).round().astype(int))
    groups = tuple(_left(plan, ThreatModel(colluders=int(count) - 1)) for count in counts)
    return ColludersFinding(groups, _left(plan, ThreatModel(Adversary.SERVER)))


def _left(plan: RunPlan, threat_model: ThreatModel) -> GuaranteeAgainstAdversary:
    guarantee = plan.guarantee
    mechanism = plan.federation.mechanism
    assert guarantee is not None, "what was not claimed does not shrink"
    claim = replace(guarantee.claim, events=mechanism.events(plan.federation.rounds, threat_model))
    epsilon = account(claim.profile, claim.accountant, claim.delta)
    return GuaranteeAgainstAdversary(
        threat_model.known_shares, effective_noise_multiplier(mechanism.noise, threat_model), epsilon
    )


def _colluders_sentence(finding: ColludersFinding, _: ReportContents) -> str:
    effective = (finding.groups[0], finding.groups[-1], finding.server)
    alone, with_most, server = (
        f"{number_text(adversary.noise_multiplier, 3)} (epsilon {number_text(finite(adversary.epsilon), 3)})"
        for adversary in effective
    )
    return (
        "Every client knows the noise that it added itself, and clients who trust each other can put theirs together "
        f"and subtract it. A client alone faces a noise multiplier of {alone}, all clients but one {with_most}; the "
        f"honest-but-curious server, which sees every contribution by itself, {server}."
    )


def _colluders_tables(finding: ColludersFinding, contents: ReportContents) -> list[Table]:
    guarantee = contents.guarantee
    epsilon = f"Epsilon at delta {guarantee.delta:g} ({guarantee.accountant}, nats)"
    columns = ("Who knows a part of the noise", "Noise multiplier faced", epsilon)
    names = {1: "a client alone, its own"}
    rows = [
        (names.get(group.clients, f"{group.clients:,} clients together"), group.noise_multiplier, finite(group.epsilon))
        for group in finding.groups
    ]
    server = ("the server, which sees every contribution by itself", *list(asdict(finding.server).values())[1:])
    title = "What is left of noise that clients add, where clients tell each other theirs"
    return [Table(title, columns, (*rows, server))]


COLLUDERS = Section(
    "colluders",
    "What clients who collude take off the guarantee",
    ColludersFinding,
    measure_colluders,
    keys=("colluders",),
    sentence=_colluders_sentence,
    tables=_colluders_tables,
)
