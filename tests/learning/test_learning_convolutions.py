"""Max pooling of our own is torch's, ties and odd sides included."""

import pytest
import torch
from torch import Tensor, nn

from fl_audit.learning.convolutions import MaxPool2x2, is_pool_2x2


def _pooled(pool: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    leaf = images.clone().requires_grad_()
    outputs = pool(leaf)
    weights = torch.arange(1.0, outputs.numel() + 1).view(outputs.shape)
    return outputs.detach(), torch.autograd.grad((outputs * weights).sum(), leaf)[0]


@pytest.mark.parametrize("sides", [(2, 2), (6, 8), (5, 7), (13, 4)])
@pytest.mark.parametrize("levels", [2, 3, 1000])
def test_pooling_is_torchs(sides: tuple[int, int], levels: int) -> None:
    images = torch.randint(levels, (5, 3, *sides), generator=torch.Generator().manual_seed(levels)).float()
    for computed, expected in zip(_pooled(MaxPool2x2(), images), _pooled(nn.MaxPool2d(2), images), strict=True):
        assert torch.equal(computed, expected)


@pytest.mark.parametrize(
    ("pool", "is_replaced"),
    [
        (nn.MaxPool2d(2), True),
        (nn.MaxPool2d((2, 2), stride=2), True),
        (nn.MaxPool2d(3), False),
        (nn.MaxPool2d(2, stride=1), False),
        (nn.MaxPool2d(2, padding=1), False),
        (nn.MaxPool2d(2, dilation=2), False),
        (nn.MaxPool2d(2, ceil_mode=True), False),
        (nn.MaxPool2d(2, return_indices=True), False),
        (nn.AvgPool2d(2), False),
    ],
)
def test_only_plain_2x2_pooling_is_replaced(pool: nn.Module, is_replaced: bool) -> None:
    assert is_pool_2x2(pool) == is_replaced
