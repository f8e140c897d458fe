"""Settings of client-side DP-SGD: what is filled in, what it guarantees, and what is refused with which reason."""

from typing import Any

import numpy as np
import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.errors import InputError
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.noises.inside_training import LocalDPSGD
from fl_audit.mechanisms.threat_model import CLIENT_ALONE, Adversary, ThreatModel
from fl_audit.privacy.accounting import Accountant, client_epsilons
from fl_audit.privacy.events import local_events
from fl_audit.runs.config import parse_config
from fl_audit.runs.planning import plan_run
from tests.builders.runs import small_plan
from tests.builders.settings import changed_settings, small_settings

TRAINING: dict[str, Any] = {"strategy": "dp-sgd-clients", "learning-rate": None}
PRIVACY: dict[str, Any] = {"belief": None, "epsilon": 4.0, "sensitivity": None}


def test_defaults_are_those_of_the_strategy() -> None:
    config = parse_config(small_settings(training=TRAINING, privacy=PRIVACY))
    training = config.training
    assert (training.local_epochs, training.local_batch, training.local_learning_rate) == (1, 10, 0.1)
    assert training.learning_rate == 1.0
    assert (config.privacy.adjacency, config.privacy.noise) == (Adjacency.ADD_REMOVE_RECORD, "inside-training")
    assert parse_config(config.as_dict()) == config


def test_noise_is_calibrated_for_every_client() -> None:
    plan = small_plan(training=TRAINING, privacy=PRIVACY, data={"partition": "linear", "clients": 3})
    mechanism = plan.federation.mechanism
    guarantee = plan.guarantee
    assert isinstance(mechanism.noise, LocalDPSGD)
    assert guarantee is not None
    assert guarantee.epsilon == pytest.approx(4.0, rel=1e-3)
    shards = [len(shard) for shard in load_federation(plan.federation).shards]
    epsilons = client_epsilons(
        shards, 10, 4, mechanism.noise.multiplier, guarantee.delta, guarantee.accountant, epochs=1
    )
    assert len(set(epsilons)) > 1
    assert max(epsilons) == guarantee.epsilon <= 4.0
    events = tuple(local_events(records, 10, 4, mechanism.noise.multiplier, epochs=1) for records in sorted(shards))
    for threat_model in (CLIENT_ALONE, ThreatModel(colluders=1), ThreatModel(Adversary.SERVER)):
        assert mechanism.events_of_each(4, threat_model) == events
    assert (
        guarantee.claim.events
        == events[int(np.argmax([epsilons[shards.index(records)] for records in sorted(shards)]))]
    )
    assert mechanism.denominator == 3
    assert mechanism.is_private_release
    assert not mechanism.knows_llr


def test_the_smallest_shard_may_have_a_smaller_epsilon() -> None:
    """109 records over 10 clients, batches of 10: those of 11 records make two steps, the one of 10 only one."""
    plan = small_plan(
        training=TRAINING | {"rounds": 1},
        privacy=PRIVACY | {"epsilon": 8.0, "delta": 1e-5, "accountant": "pld"},
        data={"records": 109, "clients": 10},
    )
    mechanism = plan.federation.mechanism
    guarantee = plan.guarantee
    assert guarantee is not None
    assert isinstance(mechanism.contribution, PrivateTraining)
    assert mechanism.contribution.shards == (10, 11)
    fewest, largest_epsilon = client_epsilons(
        (10, 11), 10, 1, mechanism.noise_multiplier, 1e-5, Accountant.PLD, epochs=1
    )
    assert fewest < largest_epsilon == guarantee.epsilon
    assert guarantee.epsilon == pytest.approx(8.0, rel=1e-3)
    assert guarantee.epsilon <= 8.0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
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
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    base = {"training": TRAINING, "privacy": PRIVACY}
    settings = small_settings(**changed_settings(base, changes))
    with pytest.raises(InputError, match=reason) as error:
        plan_run(parse_config(settings))
    assert "\n" not in str(error.value)


def test_without_a_guarantee_there_is_no_private_training() -> None:
    nothing = dict.fromkeys(("belief", "sensitivity", "clipping-norm"), None)
    with pytest.raises(InputError, match=r"without a guarantee .*'dp-fedsgd' and 'dp-fedavg'"):
        small_plan(training=TRAINING, privacy={**nothing, "private": False}, audit={"insider": False})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"privacy": {"clipping-norm": 1e40}}, "clipping-norm"),
        ({"training": {"local-learning-rate": 1e40}}, "local-learning-rate"),
        ({"training": {"learning-rate": 1e39}}, "learning-rate"),
    ],
)
def test_sizes_that_overflow_are_refused_before_the_run(changes: dict[str, Any], reason: str) -> None:
    base = {"training": TRAINING, "privacy": PRIVACY}
    with pytest.raises(InputError, match=reason) as error:
        small_plan(**{name: base[name] | changes.get(name, {}) for name in base})
    assert "\n" not in str(error.value)
