"""The frozen core of VGG-16: its layout, what it computes, and the files it takes its weights from."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from fl_audit.learning.frozen_backbones import VggCore, core_shape, find_weights, load_core
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel
from tests.builders.refusals import assert_refused

PLACES = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)
CHANNELS = (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
PUBLISHED = {
    f"features.{layer_index}.{kind}": (outputs, inputs, 3, 3) if kind == "weight" else (outputs,)
    for layer_index, inputs, outputs in zip(PLACES, CHANNELS[:-1], CHANNELS[1:], strict=True)
    for kind in ("weight", "bias")
}
"""The names and shapes of torchvision's vgg16."""
POOLED_AFTER = (2, 7, 14, 21, 28)
"""Convolutions behind which the image is pooled."""


@pytest.fixture(scope="module")
def tensors() -> dict[str, Tensor]:
    """Random weights that keep activations at about the same size, in half the digits to keep files small."""
    draw = torch.Generator().manual_seed(0)
    weights = {}
    for name, shape in PUBLISHED.items():
        spread = (2 / (shape[1] * 9)) ** 0.5 if len(shape) == 4 else 0.1
        weights[name] = (spread * torch.randn(shape, generator=draw)).half()
    return weights


@pytest.fixture(scope="module")
def file(tensors: dict[str, Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "vgg16.safetensors"
    save_file(tensors | {"classifier.0.weight": torch.zeros(2, 2)}, path)
    return path


def load(path: Path) -> VggCore:
    weights = find_weights("vgg16", str(path))
    assert weights is not None
    return load_core(weights)


def test_the_layout_is_torchvisions() -> None:
    core = VggCore()
    assert {name: tuple(tensor.shape) for name, tensor in core.state_dict().items()} == PUBLISHED
    assert sum(tensor.numel() for tensor in core.state_dict().values()) == 14_714_688
    assert not any(parameter.requires_grad for parameter in core.parameters())


def test_torchvision_says_the_same(tensors: dict[str, Tensor], file: Path) -> None:
    try:
        from torchvision import models, transforms
    except (ImportError, RuntimeError):  # RuntimeError: a build of it for another torch
        pytest.skip("no torchvision, which is no dependency")
    theirs = models.vgg16(weights=None).features.eval()
    theirs.load_state_dict({name.removeprefix("features."): tensor.float() for name, tensor in tensors.items()})
    standardise = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    images = torch.rand(3, 1, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(load(file)(images), theirs(standardise(images.expand(-1, 3, -1, -1))))


def test_it_computes_13_convolutions_and_5_poolings(tensors: dict[str, Tensor], file: Path) -> None:
    images = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(2))
    batch_activations = load(file)(images)
    for image, activations in zip(images, batch_activations, strict=True):
        expected = by_the_formulas(tensors, image.double().numpy())
        assert activations.shape == core_shape("vgg16", (1, 32, 32)) == (512, 1, 1)
        np.testing.assert_allclose(activations.numpy(), expected, atol=1e-5 * np.abs(expected).max())
        assert (expected > 0).mean() > 0.2


def by_the_formulas(tensors: dict[str, Tensor], grey: np.ndarray) -> np.ndarray:
    """Return the activations of one grey image in float64, by products with windows."""
    means = np.array([0.485, 0.456, 0.406])
    spreads = np.array([0.229, 0.224, 0.225])
    image = (np.repeat(grey, 3, axis=0) - means[:, None, None]) / spreads[:, None, None]
    for layer_index in PLACES:
        weight, bias = (tensors[f"features.{layer_index}.{kind}"].double().numpy() for kind in ("weight", "bias"))
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, ((0, 0), (1, 1), (1, 1))), (3, 3), (1, 2))
        image = np.maximum(np.tensordot(weight, windows, axes=([1, 2, 3], [0, 3, 4])) + bias[:, None, None], 0)
        if layer_index in POOLED_AFTER:
            channels, height, width = image.shape
            image = image.reshape(channels, height // 2, 2, width // 2, 2).max(axis=(2, 4))
    return image


def test_an_image_is_seen_alike_in_any_company(file: Path) -> None:
    core = load(file)
    images = torch.rand(17, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(core(images[14:]), core(images)[14:], rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", ["vgg16.pt", "vgg16.pth"])
def test_state_dicts_of_torch_are_read(name: str, tensors: dict[str, Tensor], file: Path, tmp_path: Path) -> None:
    torch.save(tensors, tmp_path / name)
    mine = load(tmp_path / name).state_dict()
    theirs = load(file).state_dict()
    assert all(torch.equal(mine[key], theirs[key]) for key in theirs)
    assert all(torch.equal(mine[key], tensors[key].float()) for key in tensors)


class Trap:
    """An object that runs code where it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return (_spring, (str(self.path),))

    def __init__(self, path: Path) -> None:
        self.path = path


def _spring(path: str) -> None:
    Path(path).write_text("code of the file was run")


def test_no_code_of_a_file_is_run(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    torch.save(tensors | {"trap": Trap(sprung)}, tmp_path / "trap.pt")
    (tmp_path / "trap.pth").write_bytes(pickle.dumps(Trap(sprung)))
    for name in ("trap.pt", "trap.pth"):
        assert_refused(f"{name} .*no tensors", load, tmp_path / name)
    assert not sprung.exists()
    torch.load(tmp_path / "trap.pt", weights_only=False)
    assert sprung.exists(), "the trap is none"


@pytest.mark.parametrize(
    ("change", "expected_message"),
    [
        ({"features.28.bias": None}, r"nothing under features\.28\.bias"),
        ({"features.0.weight": torch.zeros(64, 1, 3, 3)}, r"has \(64, 1, 3, 3\) under features\.0\.weight"),
        ({"features.2.bias": torch.full((64,), torch.nan)}, r"not finite .*features\.2\.bias"),
    ],
)
def test_other_tensors_are_refused(
    change: dict[str, Tensor | None], expected_message: str, tensors: dict[str, Tensor], tmp_path: Path
) -> None:
    changed = {name: tensor for name, tensor in (tensors | change).items() if tensor is not None}
    save_file(changed, tmp_path / "vgg16.safetensors")
    assert_refused(expected_message, load, tmp_path / "vgg16.safetensors")


def test_other_files_are_refused(tmp_path: Path) -> None:
    for name in ("vgg16.safetensors", "vgg16.pt"):
        (tmp_path / name).write_bytes(b"no tensors")
        assert_refused(f"{name} .*no tensors", load, tmp_path / name)
    torch.save([torch.zeros(2)], tmp_path / "list.pt")
    assert_refused(r"list\.pt .*\blist: .*of tensors", load, tmp_path / "list.pt")
    assert_refused(r"gone\.pt .*No such file", load, tmp_path / "gone.pt")
    assert_refused(r"weights is .*vgg16\.h5: .*of tensors", load, tmp_path / "vgg16.h5")


def test_another_file_in_its_place_is_refused(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / "vgg16.safetensors"
    save_file(tensors, path)
    weights = find_weights("vgg16", str(path))
    assert weights is not None
    save_file(tensors | {"features.0.bias": torch.ones(64)}, path)
    assert_refused("the same file", load_core, weights)


def test_who_needs_weights() -> None:
    assert_refused(r"vgg16 needs weights .*\[model\]: .* 26 of", find_weights, "vgg16", None)
    assert_refused(r"weights is a\.pt .*logistic: .*vgg16", find_weights, "logistic", "a.pt")
    assert find_weights("logistic", None) is None


def test_the_head_reads_what_the_core_gives() -> None:
    shape = core_shape("vgg16", (1, 64, 64))
    model = StackedModel.of(ModelSpec("vgg16", shape, 20))
    assert model.layout.size == 512 * 2 * 2 * 20 + 20 == 40_980
    assert model.fast
    assert model.chain is not None
    assert core_shape("vgg16", (3, 250, 224)) == (512, 7, 7)
    for records, expected_message in (
        ((64,), r"shape \(64,\)"),
        ((2, 64, 64), r"shape \(2, 64, 64\)"),
        ((1, 31, 64), "31x64"),
    ):
        assert_refused(f"vgg16: .*{expected_message}", core_shape, "vgg16", records)
