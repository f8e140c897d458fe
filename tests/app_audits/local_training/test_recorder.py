"""The recorder writes down what Opacus does, changes nothing, and is gone afterwards; composed steps give epsilon."""

import math

import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from fl_audit.app_audits.local_training.composition import composed
from fl_audit.app_audits.local_training.edited_datasets import (
    crafted_record,
    is_sized,
    length_of,
    most_dissimilar,
    with_other_labels,
    with_record,
    without_record,
)
from fl_audit.app_audits.local_training.patches import recorded
from fl_audit.app_audits.local_training.recorder import Recorder
from fl_audit.app_audits.local_training.training_facts import (
    Batch,
    BatchSamplingKind,
    Noise,
    PrivateStep,
    RecordedTraining,
)
from fl_audit.app_audits.local_training.training_function_audit import (
    TrainingAuditOptions,
    arguments_of,
    audit_training,
)
from tests.builders.records import labelled_records
from tests.builders.refusals import assert_refused


def _trained(seed: int, **options) -> tuple[torch.Tensor, float]:
    torch.manual_seed(seed)
    model = nn.Linear(5, 3)
    engine = PrivacyEngine(accountant="prv")
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.1),
        data_loader=DataLoader(labelled_records(), batch_size=20),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        **options,
    )
    for inputs, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(private(inputs), labels).backward()
        optimizer.step()
    return model.weight.detach().clone(), engine.get_epsilon(1e-3)


def _patched() -> list[object]:
    return [
        DPOptimizer.pre_step,
        DPOptimizer.__init__,
        PrivacyEngine.make_private,
        RDPAccountant.get_epsilon,
        _BaseDataLoaderIter._next_index,
    ]


def test_a_recorded_training_is_the_same_to_the_last_bit() -> None:
    state = torch.get_rng_state()
    before = _patched()
    weights, epsilon = _trained(1)
    recorder = Recorder(kept_steps=3)
    with recorded(recorder):
        again, answered = _trained(1)
    assert torch.equal(weights, again)
    assert answered == epsilon
    assert _patched() == before
    torch.set_rng_state(state)
    recorded_training = recorder.training()
    assert [entry.epsilon for entry in recorded_training.answers] == [epsilon]
    assert (len(recorded_training.noised), recorded_training.counted, recorded_training.history) == (
        5,
        5,
        ((1.0, 0.2, 5),),
    )
    assert [step.rows for step in recorded_training.steps] == [
        len(entry.indices) for entry in recorded_training.batches
    ]
    assert recorded_training.engines[0].expected_batch == 19
    assert recorded_training.moved == ()


def test_classes_are_put_back_after_an_error() -> None:
    before = _patched()
    with pytest.raises(ZeroDivisionError), recorded(Recorder()):
        _ = 1 / 0
    assert _patched() == before


def _steps(sampling: BatchSamplingKind, rate: float | None, epochs: int = 1) -> RecordedTraining:
    """Return 125 steps an epoch over 4,000 records, as of Flower's example with Opacus."""
    noise = Noise(10_000, 10_000.0, (), torch.zeros(0).numpy(), 0)
    batches = (
        tuple(Batch(tuple(range(32 * index, 32 * index + 32)), 0, sampling, "", rate, 4000) for index in range(125))
        * epochs
    )
    steps = tuple(
        PrivateStep("", (number,), True, 32, True, True, 1.0, 1.0, 0.1, noise) for number in range(len(batches))
    )
    return RecordedTraining(batches=batches, steps=steps)


@pytest.mark.parametrize(
    ("sampling", "rate", "rounds", "epsilon"),
    [
        (BatchSamplingKind.POISSON, 0.008, 1, 0.614),
        (BatchSamplingKind.POISSON, 0.008, 3, 0.926),
        (BatchSamplingKind.FIXED, None, 1, 4.377),
        (BatchSamplingKind.FIXED, None, 3, 8.385),
    ],
)
def test_composed_steps_give_the_known_epsilon(
    sampling: BatchSamplingKind, rate: float | None, rounds: int, epsilon
) -> None:
    composition = composed([_steps(sampling, rate)], 1e-5, rounds)
    assert composition.epsilon == pytest.approx(epsilon, abs=2e-3)


def test_steps_on_one_batch_share_its_sample() -> None:
    training = _steps(BatchSamplingKind.POISSON, 0.008)
    twice = [PrivateStep(**{**vars(step), "is_fresh": False}) for step in training.steps[:1]]
    again = RecordedTraining(batches=training.batches, steps=(training.steps[0], *twice))
    assert composed([again], 1e-5).steps == ((pytest.approx(1 / math.sqrt(2)), pytest.approx(0.008), 1),)


def test_steps_without_noise_have_no_bound() -> None:
    bare = _steps(BatchSamplingKind.POISSON, 0.008)
    bare = RecordedTraining(batches=bare.batches, steps=(PrivateStep(**{**vars(bare.steps[0]), "noise": None}),))
    assert composed([bare], 1e-5).epsilon == math.inf
    assert_refused("delta is 2", composed, [bare], 2.0)


def test_neighbours_differ_in_what_they_should() -> None:
    data = labelled_records()
    fewer = without_record(data, 3)
    assert len(fewer) == 97
    assert torch.equal(fewer[3][0], data[4][0])
    changed_records = with_record(data, 3, crafted_record(data[3]))
    assert torch.equal(changed_records[3][0], 100 * data[3][0])
    assert torch.equal(changed_records[4][0], data[4][0])
    labels = with_other_labels(data)
    assert torch.equal(labels.tensors[0], data.tensors[0])
    assert not torch.equal(labels.tensors[1], data.tensors[1])
    assert most_dissimilar(changed_records, range(98)) == 3
    assert (is_sized(data), is_sized(7)) == (True, False)


def test_a_list_of_records_differs_as_a_data_set_of_them_does() -> None:
    """Of a list each entry is a record, unless all of them are arrays: then they are the columns of all records."""
    records = [{"x": torch.full((2,), float(index)), "label": index % 3} for index in range(5)]
    assert (is_sized(records), length_of(records)) == (True, 5)
    assert without_record(records, 1) == [records[index] for index in (0, 2, 3, 4)]
    assert with_record(records, 1, records[4]) == [records[index] for index in (0, 4, 2, 3, 4)]
    assert sorted(record["label"] for record in with_other_labels(records)) == sorted(
        record["label"] for record in records
    )
    assert most_dissimilar(with_record(records, 2, crafted_record(records[4])), range(5)) == 2
    assert (is_sized([1, 2, 3]), is_sized(["a", "b"])) == (False, False)


@pytest.mark.long
def test_a_training_on_a_list_of_records_is_compared_without_them() -> None:
    records = [{"x": features, "y": label} for features, label in labelled_records()]

    def train(model: nn.Module, dataset: list[dict[str, torch.Tensor]]) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(dataset, batch_size=20)
        private, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
            module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0
        )
        for batch in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(batch["x"]), batch["y"]).backward()
            optimizer.step()

    assessment = audit_training(
        train, "train", nn.Linear(records[0]["x"].numel(), 10), records, TrainingAuditOptions(1, 2)
    )
    assert (assessment.unseen, len(assessment.trainings.replays)) == ((), 3)


def test_arguments_of_a_training_function_are_read_off_its_signature() -> None:
    assert arguments_of(lambda: 0, "f") == ()
    assert arguments_of(lambda data: 0, "f") == ("dataset",)
    assert arguments_of(lambda net, data, rate=0.1: 0, "f") == ("model", "dataset")
    assert_refused("3 arguments", arguments_of, lambda net, data, rate: 0, "f")
