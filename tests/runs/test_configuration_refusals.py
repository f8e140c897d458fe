"""Refusals of configurations: each names what is wrong."""

from functools import partial
from pathlib import Path

from fl_audit.runs.config import parse_config
from fl_audit.runs.config.settings_reference import settings
from fl_audit.runs.run_requirements import require_runnable
from fl_audit.runs.signed_statement import new_key
from fl_audit.runs.sweeps.grid import Axis, grid, parse_axis
from tests.builders.refusals import Refusal, refusal_test, refusals
from tests.builders.runs import small_plan
from tests.builders.settings import changed_settings, small_settings
from tests.federation import test_federation_one_private_step as federation_one_private_step
from tests.federation import test_federation_reconstruction as federation_reconstruction
from tests.federation import test_laplace_runs as laplace_runs
from tests.federation.test_federation_one_private_step import SOME
from tests.federation.test_federation_one_run import AVERAGED, one_run_plan
from tests.runs import test_regression_runs as regression_runs
from tests.runs.sweeps.test_sweeps_grid import VALUES
from tests.runs.test_plan import ALONE, sampled_plan
from tests.runs.test_private_training_settings import PRIVACY, TRAINING
from tests.runs.test_runs_graphs_and_cores import DGCNN
from tests.runs.test_settings import changed
from tests.test_new_audit import _plan

MEMBERSHIP = {"kind": "membership", "trials": 70}

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
    # Rounds, samples and claims that do not go together.
    *refusals(
        lambda sections: small_plan(**sections),
        ({"training": {"epochs": 2, "rounds": 3}}, "rounds = 3 and epochs = 2.0 .*both given"),
        (
            {"training": {"sampling-rate": 0.5, "expected-batch": 3}},
            "sampling-rate = 0.5 and expected-batch = 3 .*both given",
        ),
        ({"training": {"sampling-rate": 1.5}}, "sampling-rate"),
        ({"training": {"expected-batch": 61}, "audit": ALONE}, "expected-batch is 61 of 60 records"),
        ({"training": {"sampling-rate": 0.5}}, "sensitivity is 'local' .*rate 0.5: .*'global'"),
        (
            {"training": {"sampling-rate": 0.5}, "audit": ALONE, "privacy": {"adjacency": "add-remove-record"}},
            "sensitivity is 'local' .*rate 0.5",
        ),
        ({"audit": ALONE}, "sensitivity is 'local' .*without the insider"),
        ({"privacy": {"private": False}}, "clipping-norm = 1.0 and sensitivity = local .*private = false"),
        (
            {"privacy": {"private": False, "belief": None, "clipping-norm": None, "sensitivity": None}},
            r"nothing to weigh .*: set insider = false in \[audit\]",
        ),
        (
            {"privacy": {"private": False, "belief": None, "clipping-norm": None, "sensitivity": "global"}},
            "sensitivity = global .*private = false, .*guarantees nothing",
        ),
    ),
    # Accountants refuse samples that they do not cover, whatever is asked for.
    *(
        Refusal(partial(sampled_plan, accountant, adjacency, **target), named)
        for accountant, adjacency, named in (
            ("gdp", "add-remove-record", "gdp .*without sampling only"),
            ("gdp", "replace-record", "gdp .*without sampling only"),
            ("rdp", "replace-record", "^rdp .*sampling only .*comes or goes"),
            ("rdp-classic", "replace-record", "^rdp-classic .*sampling only .*comes or goes"),
        )
        for target in ({}, {"noise-multiplier": None, "epsilon": 2.0})
    ),
    # What does not go with training of clients by DP-SGD.
    *refusals(
        lambda changes: small_plan(**changed_settings({"training": TRAINING, "privacy": PRIVACY}, changes)),
        ({"privacy": {"adjacency": "replace-record"}}, "accountant of Opacus, .*records that come"),
        ({"privacy": {"adjacency": "add-remove-client"}}, "clipped .*contributions of a record"),
        ({"privacy": {"noise": "central"}}, "noise is 'central' .*: .*'inside-training'"),
        ({"privacy": {"noise": "local"}}, "noise is 'local' .*: .*'inside-training'"),
        ({"privacy": {"clipping": "adaptive"}}, "clipping is 'adaptive'.*: .*'fixed'"),
        ({"privacy": {"sensitivity": "local"}}, "sensitivity is 'local'.*: .*'global'"),
        ({"privacy": {"accountant": "gdp"}}, "gdp"),
        ({"training": {"cohort": 2}}, "cohort = 2 needs strategy = dp-fedavg"),
        ({"training": {"sampling-rate": 0.5}}, "sampling-rate = 0.5 needs strategy = dp-fedsgd"),
        ({"training": {"local-epochs": 1, "local-steps": 1}}, "local-epochs .*local-steps .*: .*one of"),
        ({"training": {"strategy": "dp-fedsgd", "local-batch": 5}}, "dp-fedavg or dp-sgd-clients"),
        (
            {"training": {"strategy": "dp-fedsgd"}, "privacy": {"noise": "inside-training"}},
            "inside-training.*not train by",
        ),
        ({"audit": {"colluders": 2}}, "accepted are 0 to 1"),
        # Without a guarantee there is no private training.
        (
            {"privacy": {"private": False, "epsilon": None, "clipping-norm": None}, "audit": {"insider": False}},
            r"without a guarantee .*'dp-fedsgd' and 'dp-fedavg'",
        ),
        # Sizes that overflow.
        ({"privacy": {"clipping-norm": 1e40}}, "clipping-norm"),
        ({"training": {"local-learning-rate": 1e40}}, "local-learning-rate"),
        ({"training": {"learning-rate": 1e39}}, "learning-rate"),
    ),
    # Quantities have no classes to partition, craft, attack or measure by.
    *refusals(
        lambda changes: regression_runs.plan_of(Path(), **changes),
        ({"data": {"partition": "dirichlet"}}, "partition is 'dirichlet'.* accepted"),
        ({"audit": {"neighbour": "crafted"}}, "neighbour is 'crafted'.* accepted"),
        ({"audit": MEMBERSHIP | {"attacks": ["loss", "shadow"]}}, "attacks shadow look at classes.* accepted"),
        ({"audit": MEMBERSHIP | {"attacks": ["attribute"]}}, "attacks attribute look at classes.* accepted"),
        ({"training": {"metrics": ["auroc"]}}, "auroc is not defined for labels that are quantities.* accepted"),
    ),
    # Without its line a kind is unknown.
    Refusal(lambda: _plan(), r"audit\.kind is 'first-target': .* 'identifiability'"),
]

test_it_is_refused = refusal_test(REFUSALS)
