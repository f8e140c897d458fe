import itertools

import numpy as np
import pytest
from skimage.metrics import structural_similarity

from fl_audit.data import dissimilarity as module
from fl_audit.data.dissimilarity import Dissimilarity, exact_block, prepare, screening_block
from fl_audit.data.dissimilarity_ranking import approximate_totals, ranked_pairs, ranked_records, total_dissimilarity
from fl_audit.data.records import Records
from tests.builders.refusals import assert_refused

SSIM = Dissimilarity.SSIM


def images(number: int, shape: tuple[int, ...], seed: int = 0) -> Records:
    """Return smooth, noisy, constant, black and equal images of bytes scaled to [0, 1]."""
    draw = np.random.default_rng(seed)
    slope = np.linspace(0, 200, shape[-1]) * draw.random((number, *[1] * len(shape)))
    values = np.clip(slope + draw.normal(0, 40, (number, *shape)), 0, 255).astype(np.uint8)
    values[1], values[2], values[-1] = 0, 255, values[0]
    return Records(values / np.float32(255), np.zeros(number), classes=1)


def reference(first_records: Records, second_records: Records) -> np.ndarray:
    channels = 0 if len(first_records.shape) == 3 else None
    values = [
        1
        - structural_similarity(
            first_image.astype(float), second_image.astype(float), data_range=1.0, channel_axis=channels
        )
        for first_image, second_image in itertools.product(first_records.features, second_records.features)
    ]
    return np.array(values).reshape(len(first_records), len(second_records))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 9, 12), (7, 7), (8, 11)])
def test_equals_scikit_image(shape: tuple[int, ...]) -> None:
    first_images = images(6, shape)
    second_images = images(9, shape, seed=1)
    patches = prepare(first_images.features, SSIM), prepare(second_images.features, SSIM)
    exact = exact_block(*patches, SSIM)
    fast, error = screening_block(*patches, SSIM)
    np.testing.assert_allclose(exact, reference(first_images, second_images), rtol=0, atol=1e-12)
    assert np.abs(fast - exact).max() <= error < 1e-4


def test_exact_values_are_symmetric_and_do_not_depend_on_the_block() -> None:
    first_patches, second_patches = (
        prepare(images(number, (1, 12, 9), number - 7).features, SSIM) for number in (7, 8)
    )
    whole = exact_block(first_patches, second_patches, SSIM)
    assert np.array_equal(exact_block(second_patches, first_patches, SSIM).T, whole)
    for row, column in itertools.product(range(7), range(8)):
        single_block = exact_block(first_patches[np.array([row])], second_patches[np.array([column])], SSIM)
        assert single_block[0, 0] == whole[row, column]
    assert np.array_equal(np.diag(exact_block(first_patches, first_patches, SSIM)), np.zeros(7))


@pytest.mark.parametrize("farthest", [True, False])
def test_ranks_are_those_of_scikit_image(farthest: bool) -> None:
    inside = images(15, (1, 10, 10))
    outside = images(22, (1, 10, 10), seed=1)
    sign = -1 if farthest else 1
    pairs = np.argsort(np.round(sign * reference(inside, outside), 11), axis=None, kind="stable")[:40]
    sums = np.argsort(np.round(sign * reference(inside, inside).sum(axis=1), 11), kind="stable")[:8]
    for block in (8 * 100 * 49 * 4, module.BLOCK_BYTES):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "BLOCK_BYTES", block)
            fast, error = approximate_totals(inside, SSIM)
            assert np.abs(fast - total_dissimilarity(inside, SSIM)).max() <= error
            assert ranked_records(inside, SSIM, 8, farthest) == tuple(sums)
            ranking = ranked_pairs(inside, outside, SSIM, 40, farthest)
            assert ranking == tuple(divmod(int(pair), 22) for pair in pairs)


@pytest.mark.parametrize(
    ("features", "words"),
    [
        (np.zeros((3, 64)), r"records have shape \(64,\): .*ssim.* images"),
        (np.zeros((3, 1, 28, 6)), r"shape \(1, 28, 6\): .* at least 7x7"),
        (np.zeros((3, 2, 1, 9, 9)), r"shape \(2, 1, 9, 9\): .*ssim.* images"),
        (np.full((3, 9, 9), 1.5), "pixel is 1.5: .*ssim.* 0 to 1"),
        (np.full((3, 9, 9), -0.5), "pixel is -0.5"),
    ],
)
def test_other_than_images_are_refused(features: np.ndarray, words: str) -> None:
    records = Records(features, np.zeros(3), classes=1)
    assert_refused(words, ranked_records, records, SSIM, 1)
    assert_refused(words, ranked_pairs, records, records, SSIM, 1)


def test_published_images(published: str) -> None:
    from fl_audit.data.catalogue import DataSpec, load_source

    pool = load_source(DataSpec("mnist", published)).pool
    inside = pool.take(range(20))
    outside = pool.take(range(20, 60))
    distances = reference(inside, outside)
    ranked = ranked_pairs(inside, outside, SSIM, 800)
    assert np.all(np.diff([distances[pair] for pair in ranked]) <= 1e-12)
    assert len(set(ranked)) == 800
