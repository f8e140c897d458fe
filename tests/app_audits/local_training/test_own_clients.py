"""The clients of `dp-sgd-clients` train as they claim: the same checks as for the clients of other people's apps."""

import numpy as np
import pytest
import torch

from fl_audit.app_audits.local_training.assessment import assess
from fl_audit.app_audits.local_training.patches import recorded
from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.app_audits.local_training.recorder import Recorder
from fl_audit.app_audits.local_training.training_facts import BatchSamplingKind, RecordedTraining
from fl_audit.learning.local_training import LocalSchedule
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.private_training import LocalDPSGDSettings, private_updates
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.privacy.accounting import Accountant, client_epsilons
from fl_audit.randomness import Purpose, generator

RECORDS = 98
BATCH = 20
ROUNDS = 2
STEPS = LocalDPSGDSettings(LocalSchedule(0.3, batch=BATCH, epochs=1), 1.0, 1.0)


def _round(
    number: int, client: int, accountant: str | None, recorder: Recorder, without: int | None = None
) -> tuple[RecordedTraining, str]:
    draw = torch.Generator().manual_seed(client)
    spec = ModelSpec("adult-mlp", (5,), 3)
    features = torch.randn(RECORDS, 5, generator=draw)
    labels = torch.randint(3, (RECORDS,), generator=draw)
    present = None
    if without is not None:
        present = np.ones((1, RECORDS), dtype=bool)
        present[0, without] = False
    source = generator(1, Purpose.CLIENT_TRAINING, trial=client, round=number)
    model = StackedModel.of(spec)
    models = initial_models(spec, 0, range(1))
    with recorded(recorder):
        updates = private_updates(model, models, features, labels, STEPS, [source], present, accountant)
    return recorder.training(None, client, number), updates.accountant


def test_own_clients_are_what_they_claim_over_all_rounds() -> None:
    trainings = []
    for client in range(2):
        accountant = None
        for number in range(1, ROUNDS + 1):
            training, accountant = _round(number, client, accountant, Recorder())
            trainings.append(training)
    evidence = RecordedTrainings(tuple(trainings), ROUNDS, delta=1e-3)
    assert assess("dp-sgd-clients", evidence).pitfalls == ()
    assert {batch.sampling for training in trainings for batch in training.batches} == {BatchSamplingKind.POISSON}
    claimed = client_epsilons([RECORDS], BATCH, ROUNDS, 1.0, 1e-3, Accountant.PLD, epochs=1)
    composed = evidence.composed_of()
    assert composed is not None
    assert composed.epsilon == pytest.approx(claimed[0], rel=1e-6)


def test_a_record_of_own_clients_moves_a_sum_by_the_clipping_norm_at_most() -> None:
    leader = Recorder(kept_steps=5)
    longer, _ = _round(1, 0, None, leader)
    record = longer.batches[0].indices[0]
    shorter, _ = _round(1, 0, None, Recorder(5, leader.track), without=record)
    moved = []
    for step, two in zip(longer.noised, shorter.noised, strict=True):
        assert step.total is not None
        assert two.total is not None
        assert step.expected_batch == two.expected_batch == RECORDS / 5
        moved.append(float(np.linalg.norm(step.total - two.total)))
        is_in = record in longer.batches[step.batches[-1]].indices
        assert moved[-1] <= (1 + 1e-5 if is_in else 1e-5)
    assert max(moved) > 0.01
