"""Forms of honest training that have been taken for pitfalls, or for what cannot be seen: none is accused."""

import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, random_split

from fl_audit.app_audits.local_training.assessment import Assessment, assess
from fl_audit.app_audits.local_training.patches import recorded
from fl_audit.app_audits.local_training.pitfalls import Pitfall
from fl_audit.app_audits.local_training.recorded_trainings import RecordedTrainings
from fl_audit.app_audits.local_training.recorder import Recorder
from fl_audit.app_audits.local_training.training_function_audit import TrainingAuditOptions, audit_training
from fl_audit.verdict.verdict import Verdict
from tests.builders.records import labelled_records

DELTA = 1e-3
Parts = tuple[PrivacyEngine, nn.Module, Any, Any]


def _made(
    model: nn.Module, dataset: Any, workers: int = 0, engine: PrivacyEngine | None = None, **options: Any
) -> Parts:
    engine = engine or PrivacyEngine(accountant="rdp")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(parameters, lr=0.1),
        data_loader=DataLoader(dataset, batch_size=20, num_workers=workers),
        **({"noise_multiplier": 1.0, "max_grad_norm": 1.0} | options),
    )
    return engine, private, optimizer, loader


def _step(private: nn.Module, optimizer: Any, inputs: Tensor, labels: Tensor) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(private(inputs), labels).backward()
    optimizer.step()


def _trained(model: nn.Module, components: Parts) -> nn.Module:
    engine, private, optimizer, loader = components
    for inputs, labels in loader:
        _step(private, optimizer, inputs, labels)
    engine.get_epsilon(DELTA)
    return model


ADAPTIVE: dict[str, Any] = {
    "clipping": "adaptive",
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 10.0,
    "min_clipbound": 0.1,
    "unclipped_num_std": 2.0,
}


class _Centred(AdaClipDPOptimizer):
    """The norm follows bits less one half over the expected number of records, as theorem 1 of Andrew et al. has it."""

    def update_max_grad_norm(self) -> None:
        share = 0.5 + (self.unclipped_num - self.sample_size / 2) / self.expected_batch_size
        moved = torch.exp(-self.clipbound_learning_rate * (share - self.target_unclipped_quantile))
        self.max_grad_norm = float((self.max_grad_norm * moved).clamp(self.min_clipbound, self.max_clipbound))


def _adaptive(model: nn.Module, dataset: Any) -> nn.Module:
    components = _made(model, dataset, **ADAPTIVE)
    components[2].__class__ = _Centred
    return _trained(model, components)


def _adaptive_of_opacus(model: nn.Module, dataset: Any) -> nn.Module:
    return _trained(model, _made(model, dataset, **ADAPTIVE))


class _Before807(AdaClipDPOptimizer):
    """The optimizer as it was: the multiplier that is counted is the one that noises the sum of gradients alone."""

    def add_noise(self) -> None:
        DPOptimizer.add_noise(self)
        noise = torch.normal(0.0, self.unclipped_num_std, (), generator=self.generator)
        self.unclipped_num = float(self.unclipped_num) + noise


def _adaptive_before_807(model: nn.Module, dataset: Any) -> nn.Module:
    components = _made(
        model,
        dataset,
        clipping="adaptive",
        target_unclipped_quantile=0.5,
        clipbound_learning_rate=0.2,
        max_clipbound=10.0,
        min_clipbound=0.1,
        unclipped_num_std=0.75,
    )
    components[2].__class__ = _Before807
    components[2].noise_multiplier = (1 - 1.5**-2) ** -0.5
    return _trained(model, components)


def _frozen_statistics(model: nn.Module, dataset: Any) -> nn.Module:
    layer = nn.BatchNorm1d(5)
    layer.requires_grad_(False)
    wrapped_model = nn.Sequential(layer, model)
    components = _made(wrapped_model, dataset)
    layer.eval()
    return _trained(wrapped_model, components)


class _Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Adds random numbers of Python's and numpy's to every record that is read."""

    def __init__(self, dataset: TensorDataset) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        inputs, label = self._dataset[index]
        return inputs + random.gauss(0, 0.5) + float(np.random.normal()), label  # noqa: NPY002


class _Stream(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        yield from torch.zeros(7, 5)


def _with_stream(model: nn.Module, dataset: Any) -> nn.Module:
    _trained(model, _made(model, dataset))
    with torch.no_grad():
        for inputs in DataLoader(_Stream(), batch_size=4):
            model(inputs)
    return model


def _beside_public_data(model: nn.Module, dataset: Any) -> nn.Module:
    engine, private, optimizer, loader = _made(model, dataset)
    for (inputs, labels), _ in zip(loader, DataLoader(labelled_records(200), batch_size=20), strict=False):
        _step(private, optimizer, inputs, labels)
    engine.get_epsilon(DELTA)
    return model


def _two_models(model: nn.Module, dataset: Any) -> dict[str, Tensor]:
    second_model = nn.Linear(5, 3)
    engine, private, optimizer, loader = _made(model, dataset)
    second = _made(second_model, dataset, engine=engine)
    for inputs, labels in loader:
        _step(private, optimizer, inputs, labels)
    _trained(second_model, second)
    return {**model.state_dict(), **{f"other.{name}": value for name, value in second_model.state_dict().items()}}


class _OwnSampler:
    """Draws every record by itself, without Opacus."""

    def __init__(self, records: int) -> None:
        self._records = records

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(len(self)):
            yield torch.nonzero(torch.rand(self._records) < 0.2).reshape(-1).tolist()


def _with_own_sampler(model: nn.Module, dataset: Any) -> nn.Module:
    engine = PrivacyEngine(accountant="rdp")
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        data_loader=DataLoader(dataset, batch_sampler=_OwnSampler(len(dataset))),
        poisson_sampling=False,
    )
    return _trained(model, (engine, private, optimizer, loader))


def _with_public_rate(model: nn.Module, dataset: Any) -> nn.Module:
    engine, private, optimizer, loader = _made(model, dataset)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer.original_optimizer)
    for _ in range(2):
        _trained(model, (engine, private, optimizer, loader))
        inputs, labels = labelled_records(200).tensors
        with torch.no_grad():
            scheduler.step(float(nn.functional.cross_entropy(model(inputs), labels)))
    return model


def _with_public_data_before(model: nn.Module, dataset: Any) -> nn.Module:
    inner = nn.Linear(5, 5)
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)
    for inputs, labels in DataLoader(labelled_records(200), batch_size=20):
        _step(inner, optimizer, inputs, labels)
    return _trained(model, _made(model, dataset))


def _in_parts(largest: int, reads: int | None = None, is_read_twice: bool = False) -> Callable[[nn.Module, Any], Any]:
    """Return a training that clips each batch in parts, and steps after the last one, as Opacus' virtual steps do.

    It leaves out the records of a batch after the first `reads`; None uses all. With `is_read_twice`, all records are
    in one more part.
    """

    def train(model: nn.Module, dataset: Any) -> nn.Module:
        engine, private, optimizer, loader = _made(model, dataset)
        for inputs, labels in loader:
            parts = list(zip(inputs[:reads].split(largest), labels[:reads].split(largest), strict=True))
            parts += [(inputs, labels)] if is_read_twice else []
            for number, (part, part_labels) in enumerate(parts, 1):
                optimizer.signal_skip_step(do_skip=number < len(parts))
                nn.functional.cross_entropy(private(part), part_labels).backward()
                optimizer.step()
                optimizer.zero_grad()
        engine.get_epsilon(DELTA)
        return model

    return train


def _in_order_of_features(model: nn.Module, dataset: Any) -> nn.Module:
    """Sort the records of each batch, as a training on texts does by their lengths."""
    engine, private, optimizer, loader = _made(model, dataset)
    for inputs, labels in loader:
        order = inputs[:, 0].argsort()
        _step(private, optimizer, inputs[order], labels[order])
    engine.get_epsilon(DELTA)
    return model


def _with_more_records(repeats: bool) -> Callable[[nn.Module, Any], Any]:
    """Return a training that adds to each batch its records of one class again, or the same public records."""

    def train(model: nn.Module, dataset: Any) -> nn.Module:
        engine, private, optimizer, loader = _made(model, dataset)
        public_inputs, public_labels = labelled_records(6).tensors
        for inputs, labels in loader:
            is_added = labels == 2
            more_inputs = inputs[is_added] if repeats else public_inputs
            more_labels = labels[is_added] if repeats else public_labels
            _step(private, optimizer, torch.cat([inputs, more_inputs]), torch.cat([labels, more_labels]))
        engine.get_epsilon(DELTA)
        return model

    return train


HONEST: dict[str, Callable[[nn.Module, Any], Any]] = {
    "adaptive clipping": _adaptive,
    "tiny norm": lambda model, dataset: _trained(model, _made(model, dataset, max_grad_norm=1e-6)),
    "frozen statistics": _frozen_statistics,
    "augmentation by other generators": lambda model, dataset: _trained(model, _made(model, _Noisy(dataset))),
    "a stream beside it": _with_stream,
    "public batches beside private ones": _beside_public_data,
    "two models of one engine": _two_models,
    "another model on public data before": _with_public_data_before,
    "a learning rate by public data": _with_public_rate,
    "batches in parts by hand": _in_parts(9),
    "record by record": _in_parts(1),
    "batches in an order of their own": _in_order_of_features,
}
UNSEEN = {
    "a sampler of one's own": (_with_own_sampler, "_OwnSampler"),
    "public records in each batch": (_with_more_records(repeats=False), "which records have several gradients"),
}
"""Honest forms of which it cannot be seen that they are honest, and what is named then."""


def _audited(train: Callable[..., Any]) -> Assessment:
    return audit_training(train, "train", nn.Linear(5, 3), labelled_records(), TrainingAuditOptions())


@pytest.mark.few_cases(2)
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_form_is_not_accused(name: str, needs_opacus: Callable[[int, int, str], None]) -> None:
    if name == "adaptive clipping":
        needs_opacus(1, 6, "its adaptive clipping leaves the released count out of the account, or is missing")
    assessment = _audited(HONEST[name])
    assert (assessment.pitfalls, assessment.verdict) == ((), Verdict.CONSISTENT)


def test_a_batch_in_parts_that_leaves_records_out_is_still_found() -> None:
    found = _audited(_in_parts(4, reads=10))
    assert Pitfall.CUT_BATCH in {pitfall.pitfall for pitfall in found.pitfalls}


def test_batches_in_parts_that_use_records_twice_are_found() -> None:
    found = _audited(_in_parts(9, is_read_twice=True))
    assert found.verdict is Verdict.VIOLATED
    assert Pitfall.OVER_NORM in {pitfall.pitfall for pitfall in found.pitfalls}
    assert any("which records have several gradients" in reason for reason in found.unseen)


def test_records_of_a_class_that_are_used_twice_are_never_consistent() -> None:
    """A replay leaves out three records, which need not be of that class."""
    found = _audited(_with_more_records(repeats=True))
    assert found.verdict is not Verdict.CONSISTENT
    assert any("which records have several gradients" in reason for reason in found.unseen)


@pytest.mark.parametrize("name", UNSEEN)
def test_an_honest_form_that_cannot_be_seen_is_named_and_not_accused(name: str) -> None:
    train, expected_reason = UNSEEN[name]
    assessment = _audited(train)
    assert (assessment.pitfalls, assessment.verdict) == ((), Verdict.INCONCLUSIVE)
    assert any(expected_reason in reason for reason in assessment.unseen)


@pytest.mark.long
def test_a_loader_with_workers_is_not_accused_and_its_training_is_the_same() -> None:
    assessment = _audited(lambda model, dataset: _trained(model, _made(model, dataset, workers=2)))
    assert (assessment.pitfalls, assessment.verdict) == ((), Verdict.CONSISTENT)
    weights = []
    for is_recorded in (False, True):
        torch.manual_seed(4)
        model = nn.Linear(5, 3)
        recorder = Recorder()
        if is_recorded:
            with recorded(recorder):
                _trained(model, _made(model, labelled_records(), workers=2))
            steps = recorder.training().steps
            assert [step.batches for step in steps] == [(number,) for number in range(len(steps))]
        else:
            _trained(model, _made(model, labelled_records(), workers=2))
        weights.append(model.weight.detach().clone())
    assert torch.equal(*weights)


def test_layers_that_still_mix_records_are_named() -> None:
    def train(model: nn.Module, dataset: Any) -> nn.Module:
        layer = nn.BatchNorm1d(5)
        layer.requires_grad_(False)
        wrapped_model = nn.Sequential(layer, model)
        _trained(wrapped_model, _made(wrapped_model, dataset))
        return wrapped_model.eval()

    assert Pitfall.BATCH_NORM in {finding.pitfall for finding in _audited(train).pitfalls}


def _with_own_samples(hook: Callable[[RDPAccountant], Callable[[Any], None]]) -> Callable[[nn.Module, Any], nn.Module]:
    def train(model: nn.Module, dataset: TensorDataset) -> nn.Module:
        private = GradSampleModule(model)
        accountant = RDPAccountant()
        optimizer = DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=19
        )
        optimizer.attach_step_hook(hook(accountant))
        for _ in range(5):
            chosen = torch.rand(len(dataset)) < 0.2
            _step(private, optimizer, dataset.tensors[0][chosen], dataset.tensors[1][chosen])
        if accountant.history:
            accountant.get_epsilon(DELTA)
        return model

    return train


def test_samples_that_no_loader_draws_are_unseen_and_not_taken_for_repeated_ones() -> None:
    assessment = _audited(_with_own_samples(lambda accountant: accountant.get_optimizer_hook_fn(sample_rate=0.2)))
    assert (assessment.pitfalls, assessment.verdict) == ((), Verdict.INCONCLUSIVE)
    assert assessment.composed is not None
    # Nothing is amplified that was not seen, and no step is forgotten.
    assert assessment.composed.steps == ((1.0, 1.0, 5),)


def test_steps_that_another_library_counts_are_unseen() -> None:
    assessment = _audited(_with_own_samples(lambda _: lambda _: None))
    assert (assessment.pitfalls, assessment.verdict) == ((), Verdict.INCONCLUSIVE)
    assert len(assessment.trainings.unseen) == 2


def test_records_that_are_split_off_before_the_engine_are_left_out_behind_the_split() -> None:
    def train(model: nn.Module, dataset: Any) -> nn.Module:
        subset, _ = random_split(dataset, [77, len(dataset) - 77])
        return _trained(model, _made(model, subset))

    assessment = _audited(train)
    assert (assessment.pitfalls, assessment.verdict) == ((), Verdict.INCONCLUSIVE)
    assert all(replay.is_kept and not replay.is_coupled for replay in assessment.trainings.replays)
    assert len(assessment.trainings.replays) == 3


@pytest.mark.long
def test_an_accountant_that_goes_on_over_rounds_with_other_noise_is_not_accused() -> None:
    history = []
    trainings = []
    for number, noise in enumerate((1.5, 1.2, 1.0), 1):
        recorder = Recorder()
        with recorded(recorder):
            model = nn.Linear(5, 3)
            engine = PrivacyEngine(accountant="rdp")
            engine.accountant.history = list(history)
            _trained(model, _made(model, labelled_records(), engine=engine, noise_multiplier=noise))
            history[:] = engine.accountant.history
        trainings.append(recorder.training(None, 0, number))
    assert trainings[-1].counted_here == ((1.0, 0.2, 5),)
    assert assess("app", RecordedTrainings(tuple(trainings), 3)).pitfalls == ()


def test_a_count_that_an_adaptive_norm_releases_uncounted_is_named(
    needs_opacus: Callable[[int, int, str], None],
) -> None:
    needs_opacus(1, 5, "it has no adaptive clipping")
    assessment = _audited(_adaptive_before_807)
    assert {finding.pitfall for finding in assessment.pitfalls} == {
        Pitfall.CLAIMED_EPSILON,
        Pitfall.WRONG_NOISE_COUNTED,
    }
    evidence_text = next(
        finding.observation for finding in assessment.pitfalls if finding.pitfall is Pitfall.WRONG_NOISE_COUNTED
    )
    # The sum has multiplier (1 - 1.5^-2)^-.5, the count .75 over one bit: together (1 - 1.5^-2 + .75^-2)^-.5.
    assert re.search(r"multiplier 1\.342, .*\b0\.6547\b", evidence_text)
    assert assessment.verdict is Verdict.VIOLATED
    assert assessment.composed is not None
    assert [noise for noise, _, _ in assessment.composed.steps] == pytest.approx([(1 - 1.5**-2 + 0.75**-2) ** -0.5])


def test_a_count_over_the_size_of_the_sample_moves_by_more_than_half_a_bit(
    needs_opacus: Callable[[int, int, str], None],
) -> None:
    needs_opacus(1, 6, "its adaptive clipping does not account for the count")
    assessment = _audited(_adaptive_of_opacus)
    # An epsilon by the RDP accountant has room for so much less noise.
    assert [finding.pitfall for finding in assessment.pitfalls] == [Pitfall.WRONG_NOISE_COUNTED]
    assert assessment.composed is not None
    # The noise of the sum is made for a count that moves by one half, 1 - 1/4^2, and it moves by one: + 1/2^2.
    assert [noise for noise, _, _ in assessment.composed.steps] == pytest.approx([(1 - 1 / 16 + 1 / 4) ** -0.5])


@pytest.mark.parametrize(("kind", "expected_shift"), [(AdaClipDPOptimizer, 1.0), (_Centred, 0.5)])
def test_replayed_norms_move_as_far_as_the_count_is_said_to(
    needs_opacus: Callable[[int, int, str], None], kind: type[AdaClipDPOptimizer], expected_shift: float
) -> None:
    """A record alone is within the norm, or alone is clipped, among `size` records of a step."""
    needs_opacus(1, 6, "its adaptive clipping does not account for the count")
    # 19 is a fifth of 98 records, rounded down
    size = 20
    expected = 19
    noise = 1e-4

    def norm(lengths: list[float]) -> float:
        model = nn.Linear(1, 1, bias=False)
        dataset = TensorDataset(torch.ones(98, 1))
        components = _made(model, dataset, **(ADAPTIVE | {"unclipped_num_std": noise, "noise_multiplier": 1e-6}))
        optimizer = components[2]
        optimizer.__class__ = kind
        # The gradients of single records are as long as their features.
        components[1](torch.tensor(lengths).unsqueeze(1)).mean().backward()
        torch.manual_seed(3)
        optimizer.step()
        return float(optimizer.max_grad_norm)

    shifts = []
    for length, other_length in ((0.5, 2.0), (2.0, 0.5)):
        without = [other_length] * (size - 1)
        moved = np.log(norm([*without, length]) / norm(without)) / ADAPTIVE["clipbound_learning_rate"]
        shifts.append(abs(moved) * (expected if kind is _Centred else size))
    assert shifts == pytest.approx([expected_shift, expected_shift], rel=0.05)
