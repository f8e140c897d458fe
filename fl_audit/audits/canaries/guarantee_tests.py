"""Tests of the guarantee by one-run audits, in which an observer scores the releases along canaries' directions."""

from fl_audit.adjacency import Unit
from fl_audit.audits.audit import GuaranteeTests
from fl_audit.audits.canaries.canary_detection_limit import planned_canaries
from fl_audit.audits.canaries.sections_one_run import judge_canaries
from fl_audit.audits.common.federation_requirements import require_clients, require_computable_llr
from fl_audit.errors import require
from fl_audit.federation.federation import Federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.noises.registry import quoted_names
from fl_audit.mechanisms.threat_model import Adversary
from fl_audit.privacy.accounting_enums import SensitivityKind


def _require_supported(federation: Federation) -> None:
    """Raise `InputError` if the canary audit does not support the federation.

    The audit needs fresh noise of a known scale in every round. It has one observer, and no insider or colluder.
    """
    mechanism = federation.mechanism
    setting = "kind = 'canaries'"
    require_clients(federation, 2)
    adjacency = f"{setting} with adjacency '{mechanism.adjacency}'"
    require(mechanism.unit is not Unit.USER, f"{adjacency}: accepted are adjacencies of records and clients")
    problem = f"private is false with {setting}, which holds noise against a guarantee"
    require(mechanism.adds_noise, f"{problem}: set private = true")
    alone = not federation.with_insider and federation.threat_model.colluders == 0
    require(alone, f"{setting} has one observer, who weighs no pair: leave out insider and colluders")
    is_supported = mechanism.noise.carries_canaries and mechanism.scaling is SensitivityKind.GLOBAL
    names = quoted_names(condition=lambda kind: kind.carries_canaries)
    accepted = f"accepted are noise = {names}, with sensitivity 'global'"
    require(is_supported, f"{setting} reads fresh noise of a known scale in every round: {accepted}")
    trains_privately = isinstance(mechanism.contribution, PrivateTraining)
    by_server = federation.threat_model.adversary is Adversary.SERVER and not trains_privately
    require(not by_server, f"adversary is 'server' with {setting}, which would see every canary: accepted is 'client'")
    require_computable_llr(federation)


def _covers(plan: RunPlan) -> str:
    """Return a sentence on the training and seed that a verdict covers, and on noise that canaries do not show."""
    return (
        "A verdict covers this training and this seed (the challenger's secret) only, and what canaries see: how much "
        "noise hides one of them in a round. Noise that depends on anybody's data was not looked for."
    )


CANARY_TESTS = GuaranteeTests(
    require_supported=_require_supported, judge=judge_canaries, covers=_covers, planned_canaries=planned_canaries
)
"""Tests of the guarantee in the audit kind `canaries`, in which secret coins decide which canaries are in."""
