"""An app that cannot be reviewed: the remedy that its refusal offers works."""

from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.black_box.system_audit import audit_system
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import TrialBudget
from fl_audit.app_audits.review.app_loading import read_app
from tests.app_audits.review.apps import caught, with_strategy, write_app
from tests.builders.refusals import assert_refused

pytestmark = pytest.mark.usefixtures("small_working_directory", "searched_as_before")
SHAPE = (3, 5)


class Picky(DifferentialPrivacyServerSideFixedClipping):
    """A strategy that loads what is released into the model of its app, and so refuses other models."""

    def aggregate_train(self, server_round, replies):  # type: ignore[no-untyped-def]
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None:
            arrays["weight"].numpy().reshape(SHAPE)
        return arrays, metrics


def _strategy() -> FedAvg:
    return Picky(FedAvg(fraction_evaluate=0.0, min_train_nodes=4, min_available_nodes=4), 1.0, 1.0, 4)


@pytest.mark.parametrize("is_old", [True, False])
def test_a_refusal_names_the_audit_of_the_strategy_alone(tmp_path: Path, is_old: bool) -> None:
    loads = with_strategy("FedAvg()").replace("    strategy =", "    open('data-of-clients.csv')\n    strategy =")
    app = tmp_path if is_old else write_app(tmp_path, "loading_app", loads)
    named = r"fl-audit strategy PACKAGE.MODULE:FACTORY.*AuditedSystem\(make_strategy, mo"
    assert_refused(named, read_app if is_old else caught, app)


def test_the_strategy_alone_is_audited_on_the_model_of_its_app() -> None:
    claim = StatedClaim("add-remove-client", noise_multiplier=1.0)
    budget = TrialBudget(40, (400,), (1.0,), 1, 1)
    refused = audit_system(AuditedSystem(_strategy), claim, budget=budget, include=["removed"])
    assert refused.tests == ()
    assert "model=initial_arrays" in refused.hindrance
    model = {name: array.numpy() for name, array in ArrayRecord({}).items()} | {"weight": np.zeros(SHAPE, np.float32)}
    system = AuditedSystem(_strategy, model=model)
    played = audit_system(system, claim, budget=budget, include=["removed", "removed, own model"])
    assert [test.distinguisher.kind for test in played.tests] == ["removed, own model"]
