"""Settings of client-side DP-SGD: what is filled in, what it guarantees, and what is refused with which reason."""

from typing import Any

import numpy as np
import pytest

from fl_audit.adjacency import Adjacency
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.mechanisms.contribution import PrivateTraining
from fl_audit.mechanisms.noises.inside_training import LocalDPSGD
from fl_audit.mechanisms.threat_model import CLIENT_ALONE, Adversary, ThreatModel
from fl_audit.privacy.accounting import Accountant, client_epsilons
from fl_audit.privacy.events import local_events
from fl_audit.runs.config import parse_config
from tests.builders.runs import small_plan
from tests.builders.settings import small_settings

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
