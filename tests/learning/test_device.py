"""The devices of the parties: no card rounds what a processor does not, unless somebody asks for it."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from fl_audit import torch_device
from fl_audit.device import Device
from fl_audit.federation.contributions import ContributionByTrial, RoundContext, zero_contribution
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.learning import local_training
from fl_audit.learning.local_training import LocalSchedule, local_batches
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_layers import cached_rows
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.torch_device import settle_device
from tests.builders.refusals import assert_refused
from tests.builders.runs import small_plan


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    products = torch.backends.cuda.matmul
    convolutions = torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    yield
    products.allow_tf32, convolutions.allow_tf32 = before


def _allowed() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


def test_a_card_does_not_round_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself torch rounds those of convolutions, and not those of products."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = True, True
    settle_device(Device.CUDA)
    assert _allowed() == (False, False)


def test_a_processor_changes_no_setting_of_a_card() -> None:
    before = _allowed()
    settle_device(Device.CPU)
    assert _allowed() == before


def test_every_party_settles_its_device() -> None:
    """The setting travels in the public federation: each process that loads it has the arithmetic of the run."""
    public = small_plan(run={"device": "cuda"}).federation
    assert public.device is Device.CUDA
    assert type(public).from_json(public.to_json()) == public
    if not torch.cuda.is_available():
        assert_refused(r"device is 'cuda', .*torch .*none .*: .*'cpu'", load_federation, public)


ELSEWHERE = torch.device("meta")
"""A device that computes no values, and that refuses, as a card does, a tensor of the CPU beside its own."""


@pytest.mark.parametrize("records", [8, 300], ids=["one stretch", "several stretches"])
@pytest.mark.parametrize("name", ["dense-128", "logistic"])
def test_local_training_stays_on_the_device_of_the_models(name: str, records: int) -> None:
    spec = ModelSpec(name, (5,), 3)
    schedule = LocalSchedule(0.1, 4, epochs=2)
    model = StackedModel.of(spec)
    batches = local_batches(records, schedule, np.random.default_rng(0))
    models = initial_models(spec, 0, range(2)).to(ELSEWHERE)
    features = torch.zeros(records, 5, device=ELSEWHERE)
    labels = torch.zeros(records, dtype=torch.int64, device=ELSEWHERE)
    updates = local_training.local_updates(model, models, features, labels, schedule, batches)
    assert (updates.shape, updates.device) == (models.shape, ELSEWHERE)


def test_bits_and_missing_contributions_lie_where_the_models_are() -> None:
    models = torch.zeros(2, 4, device=ELSEWHERE)
    absent = zero_contribution(models, is_adaptive=True)
    assert absent.within is not None
    tensors = (absent.total, absent.within, absent.centred_bits, ContributionByTrial(models).centred_bits)
    assert {tensor.device for tensor in tensors} == {ELSEWHERE}
    rows = torch.zeros(2, dtype=torch.int64, device=ELSEWHERE)
    moment = RoundContext(1, torch.ones(2, dtype=torch.float64, device=ELSEWHERE)).rows(rows)
    assert moment.norms is not None
    assert moment.norms.device == ELSEWHERE


def test_a_card_takes_the_trials_of_large_models_together() -> None:
    """Each slice of a processor fits its cache; a card would wait for a hundred of them."""
    parameters = 89_828
    assert len(list(cached_rows(100, parameters))) == 100
    assert [*cached_rows(100, parameters, on_card=True)] == [slice(0, 100)]
    covered = [row for rows in cached_rows(500, parameters, on_card=True) for row in range(rows.start, rows.stop)]
    assert covered == list(range(500))


def test_arrays_go_to_a_card_and_back_through_page_locked_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ordinary memory in its place, and the CPU as the other device."""
    staged: list[tuple[int, ...]] = []

    def plain(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        staged.append(tuple(shape))
        return torch.empty(shape, dtype=dtype)

    monkeypatch.setattr(torch_device, "_page_locked", plain)
    sent = np.arange(6, dtype=np.float32).reshape(2, 3)
    sent.flags.writeable = False
    meant = torch_device.to_device(sent, Device.CPU)
    assert staged == []
    monkeypatch.setattr(
        torch.Tensor, "to", lambda source_tensor, device, non_blocking: (source_tensor, device, non_blocking)
    )
    received_tensor, device, at_once = torch_device.to_device(sent, Device.CUDA)  # type: ignore[misc]
    assert (staged, device, at_once) == ([(2, 3)], "cuda", True)
    assert torch.equal(received_tensor, meant)
    assert received_tensor.data_ptr() != sent.ctypes.data
    assert np.shares_memory(torch_device.to_numpy(meant), meant.numpy())
