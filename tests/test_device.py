"""The devices of the parties: no card rounds what a processor does not, unless somebody asks for it."""

from collections.abc import Iterator

import pytest
import torch
from small_audits import MakePlan

from fl_audit.device import Device
from fl_audit.errors import InputError
from fl_audit.federation.loaded_federation import load_federation
from fl_audit.torch_device import settle_device


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    yield
    products.allow_tf32, convolutions.allow_tf32 = before


def _allowed() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("tf32", [False, True])
def test_a_card_rounds_factors_only_where_it_is_allowed_to(tf32: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself torch rounds those of convolutions, and not those of products."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = not tf32, not tf32
    settle_device(Device.CUDA, tf32)
    assert _allowed() == (tf32, tf32)


def test_a_processor_changes_no_setting_of_a_card() -> None:
    before = _allowed()
    settle_device(Device.CPU, not before[0])
    assert _allowed() == before


def test_every_party_settles_its_device(small_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting travels in the public federation: each process that loads it has the arithmetic of the run."""
    public = small_plan(run={"device": "cuda", "tf32": True}).public
    assert (public.device, public.tf32) == (Device.CUDA, True)
    assert type(public).from_json(public.to_json()) == public
    assert not small_plan().public.tf32
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match=r"device is 'cuda', .*torch .*none .*: .*'cpu'"):
            load_federation(public)
