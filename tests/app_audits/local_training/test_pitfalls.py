"""Planted pitfalls are found and rightly named, and honest twins are not accused."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from fl_audit.app_audits.local_training.assessment import CHECKS, Assessment, assess
from fl_audit.app_audits.local_training.assessment_messages import report_lines
from fl_audit.app_audits.local_training.patches import recorded
from fl_audit.app_audits.local_training.pitfalls import FoundPitfall, Pitfall, Severity
from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.app_audits.local_training.recorder import Recorder
from fl_audit.app_audits.local_training.training_facts import TrainingOutputs
from fl_audit.app_audits.local_training.training_function_audit import TrainingAuditOptions, audit_training
from fl_audit.report.template_files import template_texts
from fl_audit.verdict.verdict import Verdict
from tests.builders.records import labelled_records
from tests.validation.faulty_mechanisms.private_trainings import EXAMPLES, HONEST, PLANTED, Example, private_setup

FEDERATED = {Pitfall.SHARED_NOISE, Pitfall.EXACT_COUNT, Pitfall.CLEAR_METRICS, Pitfall.CLEAR_EVALUATION}
"""Pitfalls that show only where something leaves a client, or there are several."""
OF_SIZE = {Pitfall.PRIVATE_SIZE}
"""Pitfalls that are planted by the number of records."""
NO_GHOSTS = "it has no ghost clipping"
QUICK = (Pitfall.NO_POISSON, Pitfall.OVER_NORM, Pitfall.SEEDED_NOISE)


def _audited(train, example: Example, rounds: int = 1, records: int = 98) -> Assessment:
    options = TrainingAuditOptions(rounds, max(2, rounds))
    return audit_training(train, "train", example.model(), example.dataset(0, records), options)


def _names(assessment: Assessment) -> set[Pitfall]:
    return {finding.pitfall for finding in assessment.pitfalls}


def _held(pitfall: Pitfall, example: Example) -> None:
    assessment = _audited(partial(PLANTED[pitfall], example), example)
    assert pitfall in _names(assessment)
    broken = {finding.weight for finding in assessment.pitfalls}
    expected = {
        Severity.BREAKS: Verdict.VIOLATED,
        Severity.DOUBT: Verdict.INCONCLUSIVE,
        Severity.NOTE: Verdict.CONSISTENT,
    }
    worst = next(weight for weight in Severity if weight in broken)
    assert assessment.verdict is expected[worst]


@pytest.mark.parametrize("pitfall", QUICK)
def test_a_planted_pitfall_is_named(pitfall: Pitfall) -> None:
    _held(pitfall, EXAMPLES[0])


@pytest.mark.long
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example_case: example_case.name)
@pytest.mark.parametrize("pitfall", PLANTED)
def test_every_planted_pitfall_is_named(pitfall: Pitfall, example: Example) -> None:
    if pitfall is Pitfall.EMPTY_SKIPPED and isinstance(example.dataset()[0], dict):
        pytest.skip("Opacus ends with an error at an empty batch of values by name, so none is skipped")
    _held(pitfall, example)


def test_every_pitfall_is_planted_somewhere() -> None:
    assert set(PLANTED) | FEDERATED | OF_SIZE == set(Pitfall)
    assert list(template_texts("pitfall_fixes.md")) == [str(pitfall) for pitfall in Pitfall]
    assert len(PLANTED) >= 25


@pytest.mark.long
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example_case: example_case.name)
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_twin_is_not_accused(
    name: str, example: Example, needs_opacus: Callable[[int, int, str], None]
) -> None:
    if name == "ghost clipping":
        needs_opacus(1, 5, NO_GHOSTS)
    assessment = _audited(partial(HONEST[name], example), example)
    assert assessment.pitfalls == ()
    assert assessment.verdict is Verdict.CONSISTENT


def _small(model: nn.Module, dataset: TensorDataset) -> nn.Module:
    engine, private, optimizer, loader = private_setup(model, dataset)
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(private(inputs), labels).backward()
        optimizer.step()
    engine.get_epsilon(1e-3)
    return model


def _accused(seeds: range) -> list[tuple[int, tuple[FoundPitfall, ...]]]:
    accusations = []
    for seed in seeds:
        came = audit_training(_small, "train", nn.Linear(5, 3), labelled_records(seed=seed), TrainingAuditOptions(1, 2))
        accusations += [(seed, came.pitfalls)] if came.pitfalls or came.verdict is not Verdict.CONSISTENT else []
    return accusations


def test_few_honest_trainings_are_not_accused() -> None:
    assert _accused(range(5)) == []


@pytest.mark.campaign
def test_many_honest_trainings_are_not_accused() -> None:
    assert _accused(range(150)) == []


@pytest.mark.long
def test_batches_trained_in_parts_are_compared_although_fewer_records_make_other_parts() -> None:
    """With this seed every sample without one of the records has another number of parts."""
    example = EXAMPLES[0]
    torch.manual_seed(7)
    train = partial(HONEST["physical batches"], example)
    came = audit_training(train, "train", example.model(), example.dataset(7), TrainingAuditOptions(1, 2))
    assert (came.verdict, came.pitfalls, came.unseen) == (Verdict.CONSISTENT, (), ())
    assert all(replay.is_replaced and replay.claimed == 2 for replay in came.trainings.replays)
    # A size that shows is named all the same.
    torch.manual_seed(11)
    came = audit_training(train, "train", example.model(), example.dataset(11, 100), TrainingAuditOptions(1, 2))
    assert all(replay.is_replaced for replay in came.trainings.replays)
    assert _names(came) == {Pitfall.PRIVATE_SIZE}


def test_a_size_that_shows_is_named() -> None:
    came = audit_training(
        _small, "train", nn.Linear(5, 3), labelled_records(seed=0, records=100), TrainingAuditOptions(1, 2)
    )
    assert Pitfall.PRIVATE_SIZE in _names(came)
    # Of 99 records Opacus expects 19 in a batch, of 100 records 20.
    assert next(replay.schedule for replay in came.trainings.replays) == (("expected batch", 20.0, 19.0),)


def test_an_accountant_that_begins_anew_is_named_with_what_the_steps_give() -> None:
    came = audit_training(_small, "train", nn.Linear(5, 3), labelled_records(seed=0), TrainingAuditOptions(3, 3))
    assert _names(came) == {Pitfall.FRESH_ACCOUNTANT, Pitfall.CLAIMED_EPSILON}
    assert came.composed is not None
    assert came.composed.steps == ((1.0, 0.2, 15),)


def test_an_accountant_that_goes_on_is_not_accused() -> None:
    history = []

    def train(model: nn.Module, dataset: TensorDataset) -> nn.Module:
        engine, private, optimizer, loader = private_setup(model, dataset)
        engine.accountant.history = list(history)
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(inputs), labels).backward()
            optimizer.step()
        history[:] = engine.accountant.history
        engine.get_epsilon(1e-3)
        return model

    # One with the rounds of a federation: replays would go on counting.
    trainings = []
    for number in (1, 2, 3):
        recorder = Recorder()
        with recorded(recorder):
            train(nn.Linear(5, 3), labelled_records(seed=0))
        trainings.append(recorder.training(None, 0, number))
    assert assess("app", RecordedTrainings(tuple(trainings), 3)).pitfalls == ()


def _client(seed: int | None, outputs: TrainingOutputs, client: int):
    recorder = Recorder()
    with recorded(recorder):
        if seed is not None:
            torch.manual_seed(seed)
        _small(nn.Linear(5, 3), labelled_records(seed=client))
    return recorder.training(outputs, client, 1)


def test_what_two_clients_share_and_send_is_named() -> None:
    state = torch.get_rng_state()
    lefts = [
        TrainingOutputs({"num-examples": 98, "train_loss": 2.0 + client}, {"loss": 1.5 + client}) for client in range(2)
    ]
    shared = RecordedTrainings(tuple(_client(3, outputs, client) for client, outputs in enumerate(lefts)), 1)
    torch.set_rng_state(state)
    names = _names(assess("app", shared))
    assert names >= FEDERATED
    public = [TrainingOutputs({"num-examples": 1, "noise": 1.0}, {}) for _ in range(2)]
    apart = RecordedTrainings(tuple(_client(None, outputs, client) for client, outputs in enumerate(public)), 1)
    assert _names(assess("app", apart)) == set()


def test_claims_of_a_user_are_about_all_rounds_and_persons() -> None:
    options = TrainingAuditOptions(2, 2, epsilon=1.0, delta=1e-3, records_per_user=2)
    came = audit_training(_small, "train", nn.Linear(5, 3), labelled_records(seed=0), options)
    assert Pitfall.CLAIMED_EPSILON in _names(came)
    assert came.of_users is not None
    assert came.composed is not None
    assert came.of_users.epsilon > came.composed.epsilon


def test_a_training_without_opacus_is_not_audited() -> None:
    def train(model: nn.Module, dataset: TensorDataset) -> nn.Module:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(dataset.tensors[0]), dataset.tensors[1]).backward()
        optimizer.step()
        return model

    came = audit_training(train, "train", nn.Linear(5, 3), labelled_records(seed=0), TrainingAuditOptions())
    assert (came.verdict, came.pitfalls) == (Verdict.NOT_AUDITED, ())


@pytest.mark.long
def test_ghosts_without_gradients_of_records_are_replayed_all_the_same(
    needs_opacus: Callable[[int, int, str], None],
) -> None:
    needs_opacus(1, 5, NO_GHOSTS)
    example = EXAMPLES[0]
    came = _audited(partial(HONEST["ghost clipping"], example), example)
    assert [replay.gradient_change_of_others for replay in came.trainings.replays] == [None] * 3
    assert all(replay.is_kept for replay in came.trainings.replays)


def test_a_count_is_named_although_an_evaluation_reports_another_one_by_the_same_name() -> None:
    outputs = SimpleNamespace(numbers={"num-examples": 98.0}, evaluation={"num-examples": 30.0})
    training = SimpleNamespace(engines=[SimpleNamespace(records=98)], batches=[], left=outputs, answers=[])
    evidence: Any = SimpleNamespace(private_trainings=(training,))
    assert "num-examples is 98" in CHECKS[Pitfall.EXACT_COUNT](evidence)


@pytest.mark.parametrize("names_epsilon", [True, False])
def test_steps_with_less_noise_than_make_private_was_given_are_named(names_epsilon: bool) -> None:
    """An epsilon that counts them makes them honest, as a schedule of noise does; without one, 1 is the claim."""

    def train(model: nn.Module, dataset: TensorDataset) -> nn.Module:
        engine, private, optimizer, loader = private_setup(model, dataset)
        optimizer.noise_multiplier = 0.25
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(inputs), labels).backward()
            optimizer.step()
        if names_epsilon:
            engine.get_epsilon(1e-3)
        return model

    assessment = audit_training(train, "train", nn.Linear(5, 3), labelled_records(seed=0), TrainingAuditOptions(1, 2))
    assert _names(assessment) == (set() if names_epsilon else {Pitfall.SMALL_NOISE})
    assert assessment.verdict is (Verdict.CONSISTENT if names_epsilon else Verdict.VIOLATED)
    assert "down to 0.25" in dict(report_lines(assessment))["Claimed"]
