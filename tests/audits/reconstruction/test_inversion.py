"""Similarity of reconstructed images: beside scikit-image, and beside loops."""

import numpy as np
import pytest
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from fl_audit.audits.reconstruction.reconstruction_metrics import image_similarity, in_order_of_true_images

DRAW = np.random.default_rng(0)
TRUE = DRAW.random((30, 1, 12, 9), dtype=np.float32)
DRAWN = np.clip(TRUE + DRAW.normal(0, 0.2, TRUE.shape), 0, 1).astype(np.float32)
OTHERS = DRAW.random((50, 1, 12, 9), dtype=np.float32) * 0.2 + 0.4


def test_likeness_is_that_of_scikit_image() -> None:
    similarity = image_similarity(TRUE, DRAWN, OTHERS)
    for number, (true, drawing) in enumerate(zip(TRUE.astype(float), DRAWN.astype(float), strict=True)):
        assert similarity.psnr[number] == pytest.approx(peak_signal_noise_ratio(true, drawing, data_range=1), abs=1e-9)
        assert similarity.ssim[number] == pytest.approx(
            structural_similarity(true[0], drawing[0], data_range=1), abs=1e-6
        )
        nearest = min(np.square(drawing - other_image).sum() for other_image in OTHERS)
        assert similarity.named[number] == (np.square(drawing - true).sum() < nearest)
    assert similarity.candidates == 51
    assert similarity.named.mean() > 0
    assert similarity.worst(similarity.psnr) == similarity.psnr.max()
    assert np.isinf(image_similarity(TRUE, TRUE, OTHERS).psnr).all()


def test_the_worst_share_is_that_of_the_pictures_that_were_drawn_best() -> None:
    values = np.arange(400.0)
    assert image_similarity(TRUE, DRAWN, OTHERS).worst(values) == np.mean([396, 397, 398, 399])


def test_drawings_are_matched_whatever_their_order() -> None:
    shuffled = np.stack([group[DRAW.permutation(5)] for group in TRUE.reshape(6, 5, 1, 12, 9)])
    assert np.array_equal(in_order_of_true_images(TRUE.reshape(6, 5, 1, 12, 9), shuffled).reshape(TRUE.shape), TRUE)
