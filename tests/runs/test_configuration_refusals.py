"""Refusals of configurations: each names what is wrong."""

from pathlib import Path

from fl_audit.runs.config import parse_config
from fl_audit.runs.config.settings_reference import settings
from fl_audit.runs.run_requirements import require_runnable
from fl_audit.runs.signed_statement import new_key
from fl_audit.runs.sweeps.grid import Axis, grid, parse_axis
from tests.builders.refusals import Refusal, refusal_test, refusals
from tests.builders.runs import small_plan
from tests.builders.settings import small_settings
from tests.federation import test_federation_one_private_step as federation_one_private_step
from tests.federation import test_federation_reconstruction as federation_reconstruction
from tests.federation import test_laplace_runs as laplace_runs
from tests.federation.test_federation_one_private_step import SOME
from tests.federation.test_federation_one_run import AVERAGED, one_run_plan
from tests.runs import test_regression_runs as regression_runs
from tests.runs.sweeps.test_sweeps_grid import VALUES
from tests.runs.test_runs_graphs_and_cores import DGCNN
from tests.runs.test_settings import changed
from tests.test_new_audit import _plan

REFUSALS = [
    # Axes that are none.
    *refusals(
        parse_axis,
        ("privacy.epsilon", "accepted is section.key=value,value"),
        ("epsilon=1,2", "accepted is section.key=value,value"),
        ("privacy.epsilon=1,,2", "accepted is section.key=value,value"),
        ("privacy.epsilon=1,1", "a value twice"),
        ("data.drop=[0,5],[0,9]", "but no lists"),
    ),
    # Points that are refused name their settings.
    *refusals(
        lambda axis: grid(VALUES, [axis]),
        (Axis("privacy.epsilonn", (1,)), "point privacy.epsilonn = 1: .*nearest is 'epsilon'"),
        (Axis("privacy.epsilon", (1, -1)), r"privacy\.epsilon = -1: .*above 0"),
        (Axis("privacy.delta.more", (1,)), "'delta' is no section"),
    ),
    # One key on two axes.
    Refusal(lambda: grid(VALUES, [Axis("privacy.epsilon", (1,)), Axis("privacy.epsilon", (2,))]), "different keys"),
    # Noise over a norm needs a multiplier of noise that is scaled to it.
    *refusals(
        lambda privacy: small_plan(privacy=privacy),
        ({"noise-over": "clipping-norm", "belief": 0.9}, "noise-over = clipping-norm .*noise-multiplier"),
        (
            {"noise-over": "clipping-norm", "belief": None, "noise-multiplier": 2.0, "sensitivity": "local"},
            "noise-over = clipping-norm .*sensitivity = local",
        ),
    ),
    # Quantities have no classes to weigh or smooth.
    *refusals(
        lambda name, value: regression_runs.plan_of(Path(), training={name: value}),
        ("class-weights", [1.0, 2.0], "^class-weights is set, and the labels are quantities"),
        ("label-smoothing", 0.1, "^label-smoothing is set, and the labels are quantities"),
    ),
    # Other data are no graphs.
    Refusal(lambda: require_runnable(small_plan(model={"name": DGCNN})), r"dgcnn: .*\(30,\)"),
    # A sweep over the seed is refused.
    Refusal(lambda: grid(small_settings(), [Axis("run.seed", (1, 2))]), "challenger's secret"),
    # A new key is a file.
    *refusals(
        lambda name: new_key(Path(name)),
        ("", "accepted is a file"),
        (".", "accepted is a file"),
        ("/", "accepted is a file"),
    ),
    # An unknown place is answered with the nearest.
    *refusals(settings, ("prvacy", "nearest is 'privacy'"), ("privacy.nois", "nearest is 'noise'")),
    # Two targets on the command line remain an error.
    Refusal(lambda: parse_config(changed("privacy.epsilon=2", "privacy.belief=0.9")), "accepted is exactly one of"),
    # A secret that is told is refused.
    Refusal(
        lambda: federation_one_private_step.plan_of(training={"local-batch": SOME}, audit={"participation": "seen"}),
        "accepted is 'secret'",
    ),
    # What does not go together is refused.
    *refusals(
        lambda training, changes: one_run_plan(training, **changes),
        (AVERAGED, {"privacy": {"noise": "tree"}}, "fresh noise"),
        (AVERAGED, {"privacy": {"noise": "local"}}, "fresh noise"),
        (AVERAGED, {"audit": {"insider": True}}, "one observer"),
        (AVERAGED, {"audit": {"adversary": "server"}}, "see every canary"),
        (
            AVERAGED,
            {
                "privacy": {
                    "private": False,
                    "noise-multiplier": None,
                    "accountant": None,
                    "delta": None,
                    "clipping-norm": None,
                }
            },
            "private is false",
        ),
        (AVERAGED, {"audit": {"targets": 5}}, r"targets = 5 .*kind = membership, .*kind is canaries"),
        (AVERAGED, {"audit": {"kind": "membership"}}, r"canaries = 6 .*kind = canaries, .*kind is membership"),
    ),
    # What makes no such federation is refused.
    *refusals(
        lambda changes: federation_reconstruction.plan_of(**changes),
        ({"audit": {"candidates": 61}}, "candidates is 61 of 60 records"),
        ({"audit": {"attribute": "0"}}, r"values .*candidates"),
        ({"audit": {"kind": "identifiability"}}, "candidates = 20 needs kind = reconstruction"),
        ({"audit": {"attacks": ["loss"]}}, "needs kind = membership"),
        ({"privacy": {"adjacency": "replace-record"}}, "with kind = 'reconstruction'"),
    ),
    # Adam is refused under the view model.
    Refusal(lambda: small_plan(audit={"view": "model"}, training={"optimizer": "adam"}), "'sgd' and 'momentum'"),
    # What does not go is refused in a line.
    *refusals(
        lambda training: small_plan(training=training),
        ({"class-weights": [1.0, 2.0, 3.0]}, "class-weights has length 3, and the labels have 2 classes"),
        ({"class-weights": [1.0, -2.0]}, "class-weights"),
        ({"label-smoothing": 1.0}, "label-smoothing"),
        ({"learning-rate-decay": 1.5}, "learning-rate-decay"),
        ({"learning-rate-decay": "linear"}, "learning-rate-decay"),
        ({"learning-rate-decay": 1e-9}, "which leaves a step size of 1e-27 in round 4"),
        ({"learning-rate-decay": 0.5, "strategy": "dp-sgd-clients"}, "needs strategy = dp-fedsgd or dp-fedavg"),
        ({"learning-rate-decay": 0.5, "aggregation": "fedadam"}, "learning-rate-decay = 0.5 has no effect"),
        ({"momentum": 0.5}, "momentum = 0.5 needs optimizer = momentum, and optimizer is sgd"),
        ({"momentum": 0.5, "optimizer": "adam"}, "momentum = 0.5 needs optimizer = momentum, and optimizer is adam"),
    ),
    # What is not weighed under laplace noise is refused.
    Refusal(
        lambda: laplace_runs.plan_of(audit={"kind": "membership", "targets": 4}),
        r"kind = 'membership' with noise = 'laplace', .*: accepted are noise = 'cent",
    ),
    Refusal(
        lambda: laplace_runs.plan_of(privacy={"sensitivity": "local"}), "sensitivity is 'local' with noise = 'laplace'"
    ),
    Refusal(lambda: laplace_runs.plan_of(privacy={"accountant": "rdp"}), "rdp accounts for Gaussian releases only"),
    # Without its line a kind is unknown.
    Refusal(lambda: _plan(), r"audit\.kind is 'first-target': .* 'identifiability'"),
]

test_it_is_refused = refusal_test(REFUSALS)
