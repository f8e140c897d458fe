"""The environments of scenarios: the other clients and the model, beside the default ones."""

from fl_audit.app_audits.black_box.scenario import ModelKind, OtherClientsAndModel, OtherContributions

FEW = 4
MANY = 20
STAGES = (
    OtherClientsAndModel("others spread", OtherContributions.SPREAD),
    OtherClientsAndModel("others in pairs", OtherContributions.PAIRS),
    OtherClientsAndModel("around a median", OtherContributions.MEDIAN),
    OtherClientsAndModel("around a median, few", OtherContributions.MEDIAN, FEW),
    OtherClientsAndModel("around a median, many", OtherContributions.MEDIAN, MANY),
    OtherClientsAndModel("others spread, many", OtherContributions.SPREAD, MANY),
    OtherClientsAndModel("large model", model=ModelKind.LARGE),
    OtherClientsAndModel("own model", model=ModelKind.OWN),
    OtherClientsAndModel("own model, around a median", OtherContributions.MEDIAN, model=ModelKind.OWN),
    OtherClientsAndModel("lengths around a median", OtherContributions.LENGTHS),
    OtherClientsAndModel("lengths around a median, many", OtherContributions.LENGTHS, MANY),
    OtherClientsAndModel("non-zero model", model=ModelKind.NON_ZERO),
)
"""Environments other than the default one, in which the simplest scenarios are run again."""
