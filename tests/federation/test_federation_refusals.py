"""Refusals of plans of federations and of their runs: each names what is wrong."""

from pathlib import Path

from fl_audit.runs.config import parse_config
from tests.builders.hospital import write_hospital
from tests.builders.refusals import Refusal, refusal_test, refusals
from tests.builders.runs import run_locally, small_plan
from tests.builders.settings import changed_settings
from tests.federation import test_federation_crafted_records as crafted_records
from tests.federation import test_federation_targets as federation_targets
from tests.federation import test_federation_users as federation_users
from tests.federation.test_federation_randomised_records import carts_plan

PIXELS = {"local-randomizer": "pixelation", "pixelation-pixels": 10}

REFUSALS = [
    # Losses of Epsilon*.
    *refusals(
        lambda audit: parse_config({"privacy": {"epsilon": 1.0, "adjacency": "replace-record"}, "audit": audit}),
        ({"epsilon-star-losses": "federated", "epsilon-star": False}, "needs epsilon-star = true"),
        ({"epsilon-star-losses": "secret"}, "'pooled' and 'federated'"),
    ),
    # Where no record can be crafted.
    *refusals(
        lambda changes: small_plan(
            **changed_settings(
                {"audit": {"neighbour": "crafted-opposite"}, "privacy": crafted_records.PRIVACY}, changes
            )
        ),
        ({"privacy": {"adjacency": "add-remove-client"}, "training": {"strategy": "dp-fedavg"}}, "accepted are those"),
        ({"privacy": {"adjacency": "add-remove-record"}}, r"no opposite: .*'crafted'"),
        (
            {
                "audit": {"kind": "membership", "attacks": ["loss"], "neighbour": "crafted"},
                "privacy": {"adjacency": "add-remove-record"},
            },
            "with kind = 'membership'",
        ),
        ({"audit": {"neighbour-rank": 2}}, "neighbour-rank = 2 needs neighbour = most-dissimilar"),
    ),
    # What cannot be randomised.
    *refusals(
        lambda changes: carts_plan(**changes),
        (
            {"data": {"name": "breast-cancer", "loader-parameters": None}},
            r"local-randomizer is 'randomised-response' .*\b0.* accepted are features",
        ),
        ({"privacy": {"local-randomizer": "randomised-edges"}}, r"'randomised-edges' .*no graphs"),
        ({"privacy": PIXELS}, r"'pixelation' .*\(600,\): .*grey images"),
        ({"privacy": {"local-randomizer": "laplace"}}, "privacy.local-randomizer is 'laplace'"),
        ({"privacy": {"record-epsilon": None}}, "randomised-response needs record-epsilon"),
        ({"privacy": {"record-epsilon": -1.0}}, "privacy.record-epsilon is -1"),
        ({"privacy": {"local-randomizer": None}}, "record-epsilon = 1.0 needs a randomizer"),
        ({"privacy": {"pixelation-block": 2}}, "pixelation-block = 2 needs local-randomizer = pixelation"),
        ({"privacy": PIXELS | {"pixelation-pixels": None}}, "pixelation needs pixelation-pixels"),
        ({"privacy": PIXELS | {"record-epsilon": 0}}, "record-epsilon = 0 with local-randomizer = pixelation"),
        (
            {"privacy": {"private": True, "epsilon": 1.0}, "audit": {"insider": True}},
            r"insider is true .*local-randomizer",
        ),
        (
            {"privacy": {"private": True, "epsilon": 1.0}, "training": {"strategy": "dp-sgd-clients"}},
            "'dp-sgd-clients' with local-randomizer",
        ),
    ),
    # Membership audits that cannot be played.
    *refusals(
        lambda changes: small_plan(
            **changed_settings({"privacy": federation_targets.GUARANTEE, "audit": federation_targets.AUDIT}, changes)
        ),
        (
            {"training": {"early-stopping": 1}, "audit": {"epsilon-star-losses": "federated"}},
            r"early-stopping .*epsilon-star-losses = 'federated': .*'pooled'",
        ),
        ({"audit": {"targets": 61}}, "targets is 61 of 60 records: accepted are 2 to 60"),
        ({"audit": {"trials": 5}}, r"trials = 5 .*too few"),
        ({"audit": {"attacks": ["white-box"]}}, r"targets = 20 .*too few .*half"),
        (
            {"audit": {"attacks": ["active"], "targets": 2}, "training": {"strategy": "dp-fedavg"}},
            "active .*-client: .*loss",
        ),
        ({"audit": {"attacks": ["attribute"]}}, r"breast-cancer .*no column"),
        ({"audit": {"attribute": "age"}}, "attribute = age needs attribute"),
        (
            {
                "audit": {"attacks": ["loss", "shadow"], "targets": 2, "insider": False},
                "training": {"strategy": "dp-fedavg"},
            },
            r"shadow .*add-remove-client: .*\bloss",
        ),
        ({"audit": {"kind": "identifiability"}}, "targets = 20 needs kind = membership"),
        ({"audit": {"attacks": ["guess"]}}, "attacks"),
        ({"audit": {"colluders": 2}}, r"one insider, .*colluders"),
        ({"privacy": {"adjacency": "replace-record"}}, "'replace-record' with kind"),
        ({"privacy": {"sensitivity": "local"}}, "sensitivity is 'local' with kind = 'membership'"),
        ({"training": {"strategy": "dp-sgd-clients"}, "privacy": {"clipping-norm": 1.0}}, "'dp-sgd-clients' with kind"),
    ),
    # What does not go with users.
    *refusals(
        lambda changes: federation_users.plan_of(write_hospital(Path.cwd()), **changes),
        ({"data": {"user": None, "drop": ["hospital", "patient_id"]}}, "whose each record"),
        ({"data": {"user": "pat_id"}}, r"column 'pat_id': .*'patient_id'"),
        ({"data": {"user": "readmitted"}}, "the label column"),
        ({"data": {"records": 1}}, "first user"),
        ({"training": {"strategy": "dp-fedavg"}}, r"contributions .*accepted are add-remove-client"),
        ({"audit": {"kind": "membership", "attacks": ["white-box"]}}, "are loss, lira and rmia"),
        ({"privacy": {"adjacency": "add-remove-record"}, "data": {"users": 5}}, "leave users out"),
        ({"audit": {"kind": "canaries", "canaries": 3}}, r"adjacencies .*records and clients"),
    ),
    # The view of models, where rounding hides the release.
    Refusal(
        lambda: run_locally(small_plan(audit={"view": "model"}, training={"learning-rate": 1e-7}), Path("run")),
        r"view is 'model', .*32-bit .*release",
    ),
    # Directories in which no run can be resumed or made.
    Refusal(lambda: run_locally(small_plan(), Path("nothing"), resume=True), "holds no run"),
    Refusal(lambda: run_locally(small_plan(), Path(__file__) / "run"), "cannot be made"),
]

test_federations_are_refused = refusal_test(REFUSALS)
