"""Pictures out of updates: each part against what is known of it without the attack."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fl_audit.audits.reconstruction.image_attacks import (
    DescentSettings,
    PopulationImages,
    _inferred_labels,
    _of_first_layer,
    _of_population,
    drawn_pictures,
    images_by_descent,
    reads_first_layer,
    total_variation,
)
from fl_audit.audits.reconstruction.update_function import UpdateFunction
from fl_audit.learning.local_training import LocalSchedule, local_batches, local_updates
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.learning.training_enums import LocalOptimizer
from tests.builders.refusals import assert_refused

SHAPE = (1, 10, 10)
CLASSES = 4


def started(name: str) -> tuple[StackedModel, Tensor]:
    torch.manual_seed(3)
    model = StackedModel.of(ModelSpec(name, SHAPE, CLASSES))
    return model, model.layout.flatten(dict(model.template.named_parameters()))


def records(owners: int, records_per_owner: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = np.random.default_rng(seed)
    features = draw.random((owners, records_per_owner, *SHAPE), dtype=np.float32)
    return torch.from_numpy(features), torch.from_numpy(draw.integers(0, CLASSES, (owners, records_per_owner)))


@pytest.mark.parametrize("name", ["dense-128", "mnist-cnn"])
@pytest.mark.parametrize("norm", [None, 0.7])
def test_what_the_attacker_works_out_is_what_owners_share(name: str, norm: float | None) -> None:
    (model, start), (features, labels) = started(name), records(3, 5)
    updates = UpdateFunction(model, start, norm).of_many(features, labels)
    true = model.clipped_sum(start.expand(3, -1).clone(), features, labels, norm)
    assert torch.allclose(updates, true, atol=1e-5)


def test_local_training_that_the_attacker_works_out_is_that_of_clients() -> None:
    (model, start), (features, labels) = started("dense-128"), records(2, 6)
    schedule = LocalSchedule(0.3, 4, epochs=2)
    batches = local_batches(6, schedule, np.random.default_rng(1))
    updates = UpdateFunction(model, start, schedule=schedule, batches=batches).of_many(features, labels)
    for update, mine, client_labels in zip(updates, features, labels, strict=True):
        assert torch.allclose(
            update, local_updates(model, start[None], mine, client_labels, schedule, batches)[0], atol=1e-5
        )
    clipped = UpdateFunction(model, start, 0.1, schedule, batches).of_many(features, labels)
    assert torch.allclose(clipped, updates * (0.1 / updates.norm(dim=1, keepdim=True)), atol=1e-6)
    assert torch.equal(UpdateFunction(model, start, 100.0, schedule, batches).of_many(features, labels), updates)
    adam = LocalSchedule(0.3, 4, epochs=1, optimizer=LocalOptimizer.ADAM)
    assert_refused(r"accepted .*inversion .*'sgd'", UpdateFunction, model, start, schedule=adam)


@pytest.mark.parametrize("name", ["logistic", "dense-128"])
def test_a_first_dense_layer_writes_the_picture_down(name: str) -> None:
    (model, start), (features, labels) = started(name), records(20, 1)
    assert reads_first_layer(model)
    pictures = _of_first_layer(model, UpdateFunction(model, start, 0.1).of_many(features, labels))
    assert torch.allclose(pictures, features, atol=1e-4)
    noisy = torch.from_numpy(np.random.default_rng(5).random((1, model.layout.size), dtype=np.float32))
    rows = noisy[0, : CLASSES * 100].reshape(CLASSES, 100)
    biases = noisy[0, CLASSES * 100 : CLASSES * 101]
    if name == "logistic":
        best = np.linalg.lstsq(biases[:, None].numpy(), rows.numpy(), rcond=None)[0][0]
        assert np.allclose(_of_first_layer(model, noisy).numpy().ravel(), best.clip(0, 1), atol=1e-5)
    assert not reads_first_layer(started("mnist-cnn")[0])


def labels_told(shared: UpdateFunction, records_per_owner: int) -> float:
    features, labels = records(40, records_per_owner, seed=1)
    like, like_labels = (tensor.flatten(0, 1) for tensor in records(1, 200, seed=2))
    inferred_labels = _inferred_labels(shared, shared.of_many(features, labels), records_per_owner, like, like_labels)
    return float((inferred_labels == labels.sort(dim=1).values).double().mean())


def test_the_last_bias_tells_the_classes() -> None:
    model, start = started("dense-128")
    schedule = LocalSchedule(0.01, 2, epochs=1)
    local = UpdateFunction(
        model, start, schedule=schedule, batches=local_batches(4, schedule, np.random.default_rng(0))
    )
    assert labels_told(UpdateFunction(model, start), 1) == 1
    assert labels_told(UpdateFunction(model, start, 0.01), 1) == 1
    assert labels_told(UpdateFunction(model, start), 16) > 0.9
    assert labels_told(UpdateFunction(model, start, 0.5), 4) > 0.9
    assert labels_told(local, 4) > 0.9
    assert labels_told(replace(local, clipping_norm=0.01), 4) > 0.85
    bare = StackedModel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(100, CLASSES, bias=False)), SHAPE)
    named = r"accepted .*labels .*4 classes"
    assert_refused(named, lambda: labels_told(UpdateFunction(bare, start[: CLASSES * 100]), 1))


@pytest.mark.long
def test_descent_finds_the_pictures_of_a_dense_network() -> None:
    (model, start), (features, labels) = started("dense-128"), records(3, 1)
    smooth = torch.nn.functional.avg_pool2d(features.flatten(0, 1), 5, 1, 2).reshape(features.shape)
    shared = UpdateFunction(model, start)
    progress = list[int]()
    updates = shared.of_many(smooth, labels)
    descent = DescentSettings(iterations=250, smoothness=1e-3)
    pictures = images_by_descent(shared, updates, labels, np.random.default_rng(0), descent, progress.append)
    assert float((pictures - smooth).square().mean()) < 0.002  # 27 dB; a grey picture has 0.02
    assert progress == list(range(1, 251))
    assert pictures.min() >= 0
    assert pictures.max() <= 1


def test_of_two_starts_the_one_that_fits_better_counts() -> None:
    (model, start), (features, labels) = started("dense-128"), records(4, 2)
    shared = UpdateFunction(model, start)
    updates = shared.of_many(features, labels)

    def misfit(restarts: int) -> Tensor:
        pictures = images_by_descent(
            shared, updates, labels, np.random.default_rng(0), DescentSettings(15, 0.1, 0.0, restarts)
        )
        return 1 - torch.cosine_similarity(shared.of_many(pictures, labels), updates)

    assert (misfit(3) <= misfit(1) + 1e-6).all()
    assert (misfit(3) < misfit(1) - 1e-4).any()


def test_a_time_limit_ends_the_search() -> None:
    (model, start), (features, labels) = started("logistic"), records(2, 1)
    shared = UpdateFunction(model, start)
    progress = list[int]()
    descent = DescentSettings(iterations=10**6, restarts=5, seconds=0.2)
    images_by_descent(
        shared, shared.of_many(features, labels), labels, np.random.default_rng(0), descent, progress.append
    )
    assert 1 <= len(progress) < 10**5


def test_total_variation_is_that_of_loops() -> None:
    picture = records(1, 1)[0][0, 0, 0]
    down = np.mean([abs(picture[row + 1, column] - picture[row, column]) for row in range(9) for column in range(10)])
    across = np.mean([abs(picture[row, column + 1] - picture[row, column]) for row in range(10) for column in range(9)])
    assert float(total_variation(picture)) == pytest.approx(down + across, rel=1e-5)


def test_the_population_fills_in_what_noise_hides_as_gauss_and_markov_say() -> None:
    draw = np.random.default_rng(4)
    pictures = draw.normal(0.5, 0.1, (40, 1, 3, 4))
    mixing = draw.normal(size=(12, 7))
    updates = pictures.reshape(40, 12) @ mixing
    noisy_updates = updates[:5] + draw.normal(size=(5, 7))
    noise = 0.3
    reconstruction = _of_population(
        *(torch.from_numpy(array) for array in (noisy_updates,)),
        noise,
        torch.from_numpy(pictures),
        torch.from_numpy(updates),
    )
    flat = pictures.reshape(40, 12) - pictures.reshape(40, 12).mean(0)
    apart = updates - updates.mean(0)
    gain = flat.T @ apart / 40 @ np.linalg.inv(apart.T @ apart / 40 + noise**2 * np.eye(7))
    best = pictures.reshape(40, 12).mean(0) + (noisy_updates - updates.mean(0)) @ gain.T
    assert np.allclose(reconstruction.numpy().reshape(5, 12), best.clip(0, 1), atol=1e-5)
    nothing = _of_population(
        torch.from_numpy(noisy_updates), 1e6, torch.from_numpy(pictures), torch.from_numpy(updates)
    )
    assert np.allclose(nothing[0].numpy(), pictures.mean(0), atol=1e-4)


def test_of_several_pictures_noise_leaves_those_of_each_class() -> None:
    """Pictures are as bright as their class: the mean of the k-th of four drawn at once, by class, is that of order."""
    (model, start), (features, labels) = started("dense-128"), records(2, 4)
    draw = np.random.default_rng(8)
    class_labels = torch.from_numpy(draw.integers(0, CLASSES, 400))
    population = PopulationImages(
        (class_labels.float() / 4)[:, None, None, None].expand(-1, *SHAPE).contiguous(), class_labels
    )
    shared = UpdateFunction(model, start, 1.0)
    reconstructions = drawn_pictures(shared, shared.of_many(features, labels), 4, 1e6, population, draw)
    ranked = np.sort(draw.integers(0, CLASSES, (10**5, 4)), axis=1).mean(axis=0) / 4
    assert reconstructions.shape == (2, 4, *SHAPE)
    assert np.allclose(reconstructions.mean(dim=(2, 3, 4)).numpy(), ranked, atol=0.03)
