"""The frozen prefix of a model is computed once for a record, changes no result, and keeps within its budget."""

from collections.abc import Callable
from io import FileIO

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fl_audit.learning import frozen_prefix, prefix_cache
from fl_audit.learning.gradient_norms_and_products import record_gradients
from fl_audit.learning.model_execution_profile import ModelExecutionProfile
from fl_audit.learning.module_preparation import set_aside_frozen
from fl_audit.learning.stacked_model import StackedModel

SHAPE, CLASSES = (4, 5), 3


class Branched(nn.Module):
    """A frozen core that is read at two places, with arithmetic of its own, and trained layers behind it."""

    def __init__(self, core: nn.Module) -> None:
        super().__init__()
        self.core, self.first = core.requires_grad_(False), nn.Linear(7, 6)
        self.second = nn.Linear(6 + 7, CLASSES)
        self.register_buffer("scale", torch.linspace(0.5, 1.0, 7))
        self.temperature = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        steps = self.core(x) * self.scale
        is_large = (steps.mean(2, keepdim=True) > 0).float()
        pooled = (steps * is_large).sum(1)
        hidden = torch.tanh(self.first(pooled)) * self.temperature
        return self.second(torch.cat([hidden, steps.amax(1)], dim=1))  # type: ignore[no-any-return]


def branched() -> nn.Module:
    return Branched(nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 7)))


def headed() -> nn.Module:
    core = nn.Sequential(nn.Flatten(), nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 9)).requires_grad_(False)
    return nn.Sequential(core, nn.ReLU(), nn.Linear(9, CLASSES))


@pytest.fixture(autouse=True)
def _small_prefixes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_prefix, "_FEWEST", 1)


def pair(made: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> tuple[StackedModel, StackedModel]:
    torch.manual_seed(3)
    module = made()
    split = StackedModel(module, SHAPE)
    with monkeypatch.context() as patch:
        patch.setattr(frozen_prefix, "_FEWEST", 10**12)
        return split, StackedModel(module, SHAPE)


@pytest.mark.parametrize("made", [branched, headed])
def test_results_are_the_same_as_without_it(made: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    split, whole = pair(made, monkeypatch)
    assert split.prefix is not None
    assert whole.prefix is None
    source = torch.Generator().manual_seed(1)
    models = 0.3 * torch.randn(4, split.layout.size, generator=source)
    features, labels = torch.randn(9, *SHAPE, generator=source), torch.arange(9) % CLASSES
    taking_part = torch.rand(4, 9, generator=source) < 0.3
    own, own_labels = torch.randn(4, 5, *SHAPE, generator=source), torch.arange(20).reshape(4, 5) % CLASSES

    def everything(model: StackedModel) -> list[Tensor]:
        return [
            model.clipped_sum(models, features, labels, 0.5),
            model.clipped_sum(models, features, labels, 0.5, taking_part=taking_part),
            model.clipped_sum(models, own, own_labels, 0.5),
            model.mean_gradients(models, features, labels),
            model.mean_gradients(models[:1], features, labels),
            model.losses(models, features, labels),
            *record_gradients(model, models, features, labels, models),
        ]

    for found, expected in zip(everything(split), everything(whole), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max()))


def test_a_record_passes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    split, _ = pair(branched, monkeypatch)
    assert split.prefix is not None
    passed, way = list[Tensor](), split.prefix.of_record
    monkeypatch.setattr(split.prefix, "of_record", lambda record: passed.append(record) or way(record))  # type: ignore[func-returns-value]
    features, labels, models = torch.rand(9, *SHAPE), torch.arange(9) % CLASSES, torch.randn(4, split.layout.size)
    for some in (slice(0, 4), slice(0, 9), slice(3, 9)):
        split.clipped_sum(models, features[some], labels[some], 1.0)
        split.losses(models, features[some].clone(), labels[some])
    assert len(passed) == 9


@pytest.mark.parametrize(("in_memory", "on_disk"), [(9, 0), (2, 3), (0, 9), (2, 0), (0, 0)])
def test_memory_disk_and_no_cache_give_the_same_results(
    in_memory: int, on_disk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, _ = pair(branched, monkeypatch)
    kept, _ = pair(branched, monkeypatch)
    assert split.prefix is not None
    assert kept.prefix is not None
    before, width = split.prefix.records, split.prefix.width
    features, labels, models = torch.rand(9, *SHAPE), torch.arange(9) % CLASSES, torch.randn(2, split.layout.size)
    order = torch.tensor([3, 0, 8, 5, 1, 7, 2, 6, 4])
    expected = kept.losses(models, features, labels)
    # On some processors the last bits of a record's loss depend on its place among the records.
    in_order = kept.losses(models, features[order], labels[order])
    torch.testing.assert_close(in_order, expected[:, order], rtol=1e-5, atol=1e-6)
    assert kept.prefix._kept.on_disk == 0
    monkeypatch.setattr(prefix_cache, "MEMORY_BUDGET", (before + in_memory) * width)
    monkeypatch.setattr(prefix_cache, "DISK_BUDGET", on_disk * width)
    for _ in range(2):
        assert torch.equal(split.losses(models, features, labels), expected)
        assert torch.equal(split.losses(models, features[order], labels[order]), in_order)
    assert split.prefix.records == before + in_memory + on_disk
    assert split.prefix._kept.on_disk == on_disk


def test_a_full_disk_ends_what_is_kept_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    split, whole = pair(branched, monkeypatch)
    assert split.prefix is not None
    features, labels, models = torch.rand(9, *SHAPE), torch.arange(9) % CLASSES, torch.randn(2, split.layout.size)
    monkeypatch.setattr(prefix_cache, "MEMORY_BUDGET", 0)
    monkeypatch.setattr(prefix_cache.tempfile, "TemporaryFile", lambda buffering: FileIO("/dev/full", "w"))
    before = split.prefix.records
    found, expected = (one.losses(models, features, labels) for one in (split, whole))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert split.prefix.records == before


def test_a_process_without_records_does_what_the_one_with_them_did(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    module = branched()
    first = StackedModel(module, SHAPE)
    second = StackedModel(module, SHAPE, known=first.properties)
    models, features = torch.randn(2, first.layout.size), torch.rand(5, *SHAPE)
    assert torch.equal(first.logits(models, features), second.logits(models, features))
    whole = StackedModel(module, SHAPE, known=ModelExecutionProfile(first.fast, first.activations))
    assert whole.prefix is None


def test_what_draws_or_asks_for_numbers_or_trains_all_runs_as_it_is() -> None:
    class Drawing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.rand(x.shape[1:])

    class Asking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * 1.0 if float(x.detach().sum()) > -1e9 else x

    def split(first: nn.Module) -> frozen_prefix.FrozenPrefix | None:
        module = nn.Sequential(first, *headed())
        set_aside_frozen(module)
        return frozen_prefix.frozen_prefix(module.requires_grad_(False), SHAPE)

    assert split(Drawing()) is None
    assert split(Asking()) is None
    assert split(nn.Identity()) is not None
    assert StackedModel(nn.Sequential(nn.Flatten(), nn.Linear(20, CLASSES)), SHAPE).prefix is None


def test_what_a_record_becomes_does_not_depend_on_who_is_asked_for_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    split, _ = pair(headed, monkeypatch)
    again, _ = pair(headed, monkeypatch)
    assert split.prefix is not None
    assert again.prefix is not None
    features = torch.rand(40, *SHAPE)
    order = torch.from_numpy(np.random.default_rng(0).permutation(40))
    assert torch.equal(split.prefix.rows(features)[order], again.prefix.rows(features[order]))
