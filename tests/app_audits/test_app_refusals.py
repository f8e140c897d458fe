"""Refusals of strategies, apps and trainings of others: each names what is wrong."""

import math
from pathlib import Path

import numpy as np
from flwr.serverapp.strategy import FedAvg

from fl_audit.app_audits.black_box import Audit, StatedClaim
from fl_audit.app_audits.black_box.audited_system import AuditedSystem
from fl_audit.app_audits.claim_audit.claim_audit_results import TrialBudget
from fl_audit.app_audits.live.canary import Canary
from fl_audit.app_audits.live.observed_strategies import watched
from fl_audit.app_audits.live.observer_store import TrainingObserver
from tests.app_audits.black_box.test_audited_system import WEIGHT
from tests.app_audits.black_box.toy_app import toy_audit
from tests.builders.refusals import Refusal, refusal_test, refusals

REFUSALS = [
    # Another model or strategy is refused.
    *refusals(
        lambda arguments: AuditedSystem(**{"strategy": FedAvg} | arguments),
        ({"strategy": FedAvg()}, "strategy is a FedAvg: accepted is a function or class"),
        ({"model": {}}, "model is a dict without tensors"),
        ({"model": [WEIGHT]}, "model is a list without tensors"),
        ({"model": {"weight": "text"}}, "model has 'weight' of type <U4"),
        ({"model": {"steps": np.zeros(3, np.int64)}}, "model has no tensor of floats"),
        ({"clients": "4"}, r"clients .*'4': .*from 2"),
        ({"norm": math.nan}, r"norm is nan: .*above 0 .*1000000"),
        ({"is_clipped": "no"}, "is_clipped is 'no': accepted are True and False"),
        ({"metrics": "loss"}, r"metrics is 'loss': .*tuples"),
        ({"observer": "me"}, r"observer is 'me': .*client and server"),
    ),
    *refusals(
        lambda numbers: StatedClaim("add-remove-client", **numbers),
        ({"epsilon": -1.0}, None),
        ({"epsilon": 1.0, "delta": 1.0}, None),
        ({"noise_multiplier": 0.0}, None),
        ({"epsilon": 1.0, "noise_multiplier": 1.0}, None),
        ({}, None),
        ({"epsilon": 1.0, "rounds": 0}, None),
    ),
    # Wrong settings are refused in one line.
    *refusals(
        lambda changes: toy_audit(Path(), **changes),
        ({"trials": 20}, r"trials are 20: .*\bfrom 21"),
        ({"trials": 40}, r"trials are 40: .*\bfrom 41, .*\bfrom 21 with contribution='own'"),
        ({"observer": "nobody"}, r"observer is 'nobody': .*client and server"),
        ({"knows_others": "no"}, "knows_others is 'no': accepted are True and False"),
        ({"claim": StatedClaim("add-remove-record", epsilon=1.0), "contribution": "crafted"}, "accepted is own"),
    ),
    # Bad budgets are refused.
    *refusals(
        lambda wrong: TrialBudget(**wrong),
        ({"pilot": 30}, None),
        ({"stages": (20,), "shares": (1.0,)}, None),
        ({"shares": (0.5, 0.5, 0.5)}, None),
    ),
    # What cannot be is refused.
    Refusal(
        lambda: Audit(StatedClaim("add-remove-client", noise_multiplier=1.0)).watch(3), r"strategy .*\bint\b.*Flower's"
    ),
    Refusal(lambda: Canary(0, 5, 5, 1.0), "one seed"),
    Refusal(lambda: Canary(0, 5, 6, 0.0), "clipping_norm is 0"),
    Refusal(lambda: watched(3, TrainingObserver(Path(), 1, 1)), r"strategy .*\bint\b"),
]

test_it_is_refused = refusal_test(REFUSALS)
