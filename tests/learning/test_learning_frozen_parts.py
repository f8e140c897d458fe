"""Frozen parts of models: in numbers of 8 and 16 bits, held once by all threads, and in bounded memory."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import psutil
import pytest
import torch
from torch import Tensor, nn

from fl_audit.learning import models
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel
from tests.builders.models import built_model
from tests.builders.refusals import assert_refused
from tests.learning.gradient_truth import clip_and_sum, record_gradients

CLASSES = 3
RECORDS = torch.randn(20, 6, generator=torch.Generator().manual_seed(2))


def built(factory: Callable[[], nn.Module], records: Tensor = RECORDS) -> StackedModel:
    return built_model(factory, records, CLASSES)


class Whole(nn.Module):
    """A dense layer whose frozen weights are whole numbers of 8 bits."""

    def __init__(self) -> None:
        super().__init__()
        weights = torch.randint(-128, 128, (8, 6), dtype=torch.int8)
        self.weights = nn.Parameter(weights, requires_grad=False)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(x @ (self.weights.to(x.dtype) * 0.01).T))  # type: ignore[no-any-return]


class Narrow(nn.Module):
    """A core in 16 bits, which is given numbers of 32 bits, or turns them itself."""

    def __init__(self, turns: bool, is_first: bool = True) -> None:
        super().__init__()
        self.core = nn.Linear(6, 6).requires_grad_(False).to(torch.bfloat16)
        self.turns = turns
        self.is_first = is_first
        self.first, self.head = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_first:
            x = self.first(x)
        x = self.core(x.to(torch.bfloat16)).to(x.dtype) if self.turns else self.core(x)
        return self.head(torch.tanh(x if not self.is_first else self.first(x)))  # type: ignore[no-any-return]


@pytest.mark.parametrize("factory", [Whole, lambda: Narrow(turns=False), lambda: Narrow(turns=False, is_first=False)])
def test_a_frozen_part_of_fewer_bits_is_taken_and_gradients_are_exact(factory: Callable[[], nn.Module]) -> None:
    torch.manual_seed(1)
    module = factory()
    model = built(lambda: module)
    flat = torch.cat([parameter.detach().flatten() for parameter in module.parameters() if parameter.requires_grad])
    labels = torch.arange(len(RECORDS)) % CLASSES
    computed_sum = model.clipped_sum(flat.unsqueeze(0), RECORDS, labels, 0.5)[0]
    (expected,) = clip_and_sum(record_gradients(module, RECORDS, labels).unsqueeze(0), 0.5)
    torch.testing.assert_close(computed_sum.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_first", [True, False])
def test_what_turns_numbers_into_16_bits_itself_is_told_what_to_give_a_layer(is_first: bool) -> None:
    assert_refused(r"call \.float\(\) on", lambda: built(lambda: Narrow(turns=True, is_first=is_first)))
    built(lambda: Narrow(turns=False, is_first=is_first))


def large() -> nn.Module:
    core = nn.EmbeddingBag(2_000_000, 8).requires_grad_(False)
    return nn.Sequential(nn.Sequential(Ids(), core), nn.Linear(8, CLASSES))


class Ids(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.long()


def test_threads_hold_one_frozen_part() -> None:
    core = nn.Linear(6, 6).requires_grad_(False)
    model = built(lambda: nn.Sequential(core, nn.Tanh(), nn.Linear(6, CLASSES)))
    together = threading.Barrier(3)

    def place(number: int) -> int:
        together.wait()
        return int(model.template.get_submodule("0").weight.data_ptr())  # type: ignore[operator, union-attr]

    with ThreadPoolExecutor(3) as threads:
        addresses = set(threads.map(place, range(3)))
    assert addresses == {core.weight.data_ptr()}


@pytest.mark.long
def test_a_large_frozen_part_is_held_at_most_twice_while_a_run_is_set_up() -> None:
    size = 4 * 2_000_000 * 8
    process = psutil.Process()
    records = torch.randint(0, 2_000_000, (20, 6)).float()
    # The first gradients by torch.func import torch's compiler, which takes as much memory as a copy.
    small = nn.EmbeddingBag(2_000_000, 1)
    built(lambda: nn.Sequential(nn.Sequential(Ids(), small.requires_grad_(False)), nn.Linear(1, CLASSES)), records)
    before = process.memory_info().rss
    peak_bytes = [0]
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.wait(0.002):
            peak_bytes[0] = max(peak_bytes[0], process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    large_model = built(large, records)
    with mock.patch.object(models, "import_factory", return_value=large):
        initial_models(ModelSpec("theirs:build", (6,), CLASSES), 0, range(3))
    is_done.set()
    watcher.join()
    assert large_model.layout.size == 27
    assert peak_bytes[0] - before < 2.2 * size
