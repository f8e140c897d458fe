"""Measure reconstructions: the rank of the true candidate, and the similarity of reconstructed and true images."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
import torch
from scipy.special import bdtrc, bdtri, ndtr, ndtri
from torch import Tensor

from fl_audit.array_types import Flags, Floats, Floats32, Integers, finite
from fl_audit.audits.reconstruction.image_attacks import USUAL, DescentSettings, PopulationImages, drawn_pictures
from fl_audit.audits.reconstruction.update_function import UpdateFunction
from fl_audit.data.dissimilarity import Dissimilarity, exact_block, prepare
from fl_audit.errors import require
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.statistics.advantage import clopper_pearson
from fl_audit.verdict.declared_tests import DETECTION_POWER, NotTestedReason, TestName, TestResult
from fl_audit.verdict.judging import judged_by_one, judged_with_noise
from fl_audit.verdict.noise_scale import NoiseAlongTarget
from fl_audit.verdict.verdict import AuditKindPhrases, VerdictDetails


def ranks_of_truth(log_likelihood: Floats, truth: Integers) -> Integers:
    """Return the rank of the true candidate in the order of the attacker's guesses, 1 for the first guess, (trials,).

    The attacker guesses in the order of decreasing likelihood, and candidates with equal likelihood in ascending order
    of their numbers.

    Parameters
    ----------
    log_likelihood
        Log-likelihood of each candidate, up to a constant in each trial, shape (trials, candidates).
    truth
        Number of the true candidate, from 0, shape (trials,).

    Raises
    ------
    InputError
        If shapes do not fit or a number is NaN.

    Examples
    --------
    >>> ranks_of_truth(np.array([[0.5, 2.0, -1.0], [0.5, 0.5, 0.5]]), np.array([0, 2])).tolist()
    [2, 3]
    """
    shape = log_likelihood.shape
    accepted = log_likelihood.ndim == 2 and truth.shape == shape[:1] and not bool(np.isnan(log_likelihood).any())
    require(accepted, f"log-likelihoods have shape {shape}: accepted is (trials, candidates), and no NaN")
    of_truth = np.take_along_axis(log_likelihood, truth[:, None], axis=1)
    is_before = np.arange(shape[1]) < truth[:, None]
    ahead = (log_likelihood > of_truth) | ((log_likelihood == of_truth) & is_before)
    return np.asarray(ahead.sum(axis=1) + 1, dtype=np.int64)


_WORDS = AuditKindPhrases(
    shown_by="first guesses",
    next_step="Play more trials to find smaller breaches; other candidates (seed in [data]) may be more exposed.",
)


def judge_hits(
    hits: int,
    trials: int,
    chance: float,
    guarantee: Guarantee,
    confidence: float,
    noise: NoiseAlongTarget | None = None,
) -> VerdictDetails:
    """Return the judgement of the guarantee from the number of hits, i.e. of trials whose first guess was right.

    The guarantee is violated if at least so many hits are too unlikely under the reconstruction bound, or if there is
    less noise than claimed. Otherwise the verdict is that of `judged_with_noise`; without `noise` it is never
    `consistent`.
    The lower bound on epsilon is log((p - delta) / chance), where p is the lower confidence bound on the hit rate:
    under (epsilon, delta)-DP this rate is at most e^epsilon chance + delta.

    Parameters
    ----------
    hits
        Number of trials in which the first guess was right, from 0 to `trials`.
    trials
        Number of independent trials, at least 1.
    chance
        Prior probability of the likeliest candidate, positive: 1 / m for m equally likely candidates.
    guarantee
        The claimed guarantee, which covers all neighbours.
    confidence
        Confidence of the lower bound on epsilon, above 0.5 and below 1.
    noise
        The noise along the contribution of the true candidate in each trial; None if it cannot be computed. The limit
        of detection is that of this noise, because the hit rate under less noise is unknown.
    """
    bound = guarantee.reconstruction_bound(chance)
    assert bound is not None, "the reconstruction audit has global noise"
    p_value = float(bdtrc(hits - 1, trials, bound)) if hits > 0 else 1.0
    limit, share = _share_found(trials, bound), hits / trials
    test = TestResult(TestName.CANDIDATES, float(hits), p_value, share, bound, limit, more={"trials": trials})
    low, at_level = (epsilon_of_hits(hits, trials, chance, guarantee.delta, p) for p in (confidence, 1 - test.level))
    method, assumption = "clopper-pearson", "The candidates were as likely as was said, and nothing else is assumed."
    alone = judged_by_one(
        test,
        (low, at_level),
        NotTestedReason.CANDIDATES_ALONE,
        confidence=confidence,
        method=method,
        assumption=assumption,
    )
    return replace(judged_with_noise(alone, noise, guarantee), words=_WORDS)


def _share_found(trials: int, bound: float) -> float:
    """Return the smallest true hit rate at which the test of `bound` refutes the guarantee with probability 0.9.

    It is infinite if even hits in all trials would not refute it.
    """
    level, counts = TestName.CANDIDATES.level, range(1, trials + 1)
    fewest = 1 + bisect_left(counts, True, key=lambda hits: bool(bdtrc(hits - 1, trials, bound) < level))
    return float(bdtri(fewest - 1, trials, 1 - DETECTION_POWER)) if fewest <= trials else math.inf


def epsilon_of_hits(hits: int, trials: int, chance: float, delta: float, confidence: float) -> float:
    """Return a lower confidence bound on epsilon from the number of trials whose first guess was right.

    Under (epsilon, delta)-DP the hit rate is at most e^epsilon chance + delta.

    Parameters
    ----------
    hits
        Number of trials in which the first guess was right, from 0 to `trials`.
    trials
        Number of trials, at least 1.
    chance
        Hit rate of the best guess without any release, positive: 1 / m for m equally likely candidates.
    delta
        The delta for which epsilon is bounded, at least 0 and below 1.
    confidence
        Confidence of the lower bound, above 0.5 and below 1.
    """
    low = clopper_pearson(hits, trials, 2 * confidence - 1)[0]
    return max(0.0, math.log(max(low - delta, 1e-300) / chance))


_SSIM = Dissimilarity.SSIM
WORST = 0.01
"""Share of the images, those with the best reconstructions, whose mean similarity is reported in addition."""


@dataclass(frozen=True)
class ReconstructionQuality:
    """The similarity of each reconstructed image to the true image: PSNR, SSIM, and identification among candidates."""

    psnr: Floats  # peak signal-to-noise ratio in dB, for pixels from 0 to 1, (images,); infinite for equal images
    ssim: Floats  # structural similarity, at most 1, (images,)
    named: Flags  # whether the true image is the nearest candidate to the reconstruction, (images,)
    candidates: int  # number of candidates for each image, including the true image

    def worst(self, values: Floats) -> float:
        """Return the mean of `values` over the 1 % of images with the largest values, at least one image.

        `values` is `psnr` or `ssim`, so these are the best reconstructions, which is the worst case for privacy.
        """
        return float(np.sort(values)[-max(1, round(WORST * len(values))) :].mean())


@dataclass(frozen=True)
class NoiseLevelGuarantee:
    """A level of noise, with the largest probability of identifying the true candidate under it."""

    epsilon: float  # epsilon of the guarantee with this noise; infinite without noise
    mu: float  # norm of a clipped contribution over the noise, all rounds together; infinite without noise
    bound: float  # largest probability of identifying the true candidate, from 0 to 1

    @classmethod
    def gaussian(cls, epsilon: float, mu: float, chance: float) -> "NoiseLevelGuarantee":
        """Return the values of the guarantee at one level of Gaussian noise.

        The largest probability of identifying the true candidate is Phi(mu + Phi^-1(chance)).

        Parameters
        ----------
        epsilon
            Epsilon of the guarantee.
        mu
            The mu of Gaussian DP of all rounds together, above 0.
        chance
            Largest probability of identifying the true candidate without any release, above 0 and at most 1.
        """
        return cls(epsilon, mu, float(ndtr(mu + ndtri(chance))))


@dataclass(frozen=True)
class NoiseLevelReconstructions:
    """The attacker's reconstructions of all images at one level of noise, with their similarity to the true images."""

    level: NoiseLevelGuarantee  # level of the noise
    pictures: Floats32  # the reconstructed images, float32 (images, *shape)
    likeness: ReconstructionQuality  # similarity of the reconstructed to the true images
    guesses: int = 1  # number of images that are reconstructed for each owner, each of which may be identified


@dataclass(frozen=True)
class TrueAndReconstructedImages:
    """The true images, and their reconstructions at each level of noise by an attacker who knows all other data."""

    true: Floats32  # the true images, float32 (images, *shape)
    drawings: tuple[NoiseLevelReconstructions, ...]  # one entry for each level of noise, from no noise to the most
    own: int  # index in `drawings` of the reconstructions at the run's own noise

    def to_json(self) -> dict[str, Any]:
        """Return this finding as a dict with the one key `pictures`, for `summary.json`.

        Its value is a list with one entry for each level of noise.
        """
        told = [_entry(one) | {"own": number == self.own} for number, one in enumerate(self.drawings)]
        return {"pictures": told}


def _entry(drawing: NoiseLevelReconstructions) -> dict[str, Any]:
    level, found = drawing.level, drawing.likeness
    return {
        "psnr": finite(float(found.psnr.mean())),
        "psnr_worst": finite(found.worst(found.psnr)),
        "epsilon": finite(level.epsilon),
        "candidates": found.candidates,
        "guesses": drawing.guesses,
        "bound": level.bound,
        "named": float(found.named.mean()),
        "ssim": float(found.ssim.mean()),
        "ssim_worst": found.worst(found.ssim),
    }


@dataclass(frozen=True)
class ImageTargets:
    """The images to be reconstructed, and other images as candidates among which each is to be identified."""

    pictures: Tensor  # the true images, float32 (owners, images, *shape)
    labels: Tensor  # classes of the true images, int64 (owners, images)
    candidates: Tensor  # other images, the same candidates for each true image, float32 (candidates, *shape)


def drawings(
    shared: UpdateFunction,
    victims: ImageTargets,
    others: PopulationImages,
    levels: Sequence[NoiseLevelGuarantee],
    draws: Callable[[int], np.random.Generator],
    descent: DescentSettings = USUAL,
    on_step: Callable[[int], None] = lambda done: None,
) -> Iterator[NoiseLevelReconstructions]:
    """Yield, for each level of noise, the reconstructions by an attacker who knows all contributions but one.

    All releases are computed at the same model parameters, so that all rounds carry the same signal and their noise
    averages out. This is the strongest attack of a server that the guarantee covers.

    Parameters
    ----------
    shared
        The function from an owner's images to its update; it needs a clipping norm if a level has noise.
    victims
        The images to be reconstructed, with other candidates.
    others
        Images of other people that the attacker knows.
    levels
        The levels of noise, each with its mu over all rounds.
    draws
        Function from the index of a level to the generator of its noise and of the images from which searches start.
    descent
        Settings of the search by gradient descent.
    on_step
        Callback that receives the number of finished iterations over all starts.
    """
    updates, each = shared.of_many(victims.pictures, victims.labels), victims.pictures.shape[1]
    true, candidates = victims.pictures.cpu().numpy(), victims.candidates.cpu().numpy()
    for number, level in enumerate(levels):
        draw, seen, noise = draws(number), updates, 0.0
        if math.isfinite(level.mu):
            assert shared.clipping_norm is not None, "noise has a clipping norm"
            noise = shared.clipping_norm / level.mu
            normals = torch.from_numpy(draw.standard_normal(updates.shape, dtype=np.float32))
            seen = updates + noise * normals.to(updates.device)
        drawn = drawn_pictures(shared, seen, each, noise, others, draw, descent, on_step).cpu().numpy()
        found = matched(true, drawn).reshape(-1, *true.shape[2:])
        yield NoiseLevelReconstructions(level, found, likeness(true.reshape(found.shape), found, candidates), each)


def matched(true: Floats32, drawn: Floats32) -> Floats32:
    """Return each owner's reconstructed images in the order of its true images, with the shape of `drawn`.

    An update does not reveal the order of its images. So each reconstruction is assigned to one true image, with the
    smallest sum of squared errors.

    Parameters
    ----------
    true
        The owners' true images, shape (owners, images, *shape).
    drawn
        Reconstructions of the owners' images in any order, shape (owners, images, *shape).
    """
    found = np.empty_like(drawn)
    for owner, (mine, theirs) in enumerate(zip(true, drawn, strict=True)):
        apart = np.square(mine[:, None] - theirs[None]).reshape(len(mine), len(theirs), -1).sum(axis=2)
        found[owner] = theirs[scipy.optimize.linear_sum_assignment(apart)[1]]
    return found


def likeness(true: Floats32, drawn: Floats32, population: Floats32) -> ReconstructionQuality:
    """Return the similarity of reconstructed to true images: PSNR, SSIM, and identification among candidates.

    Parameters
    ----------
    true
        The true images with pixels from 0 to 1, (images, *shape), the last two axes height and width.
    drawn
        Reconstructions of the images, in the order and shape of `true`.
    population
        Other images, shape (others, *shape), which are the candidates besides the true image.

    Raises
    ------
    InputError
        If shapes differ.
    """
    shapes = {true.shape[1:], drawn.shape[1:], population.shape[1:]}
    alike, seen = true.shape == drawn.shape and len(shapes) == 1, f"{true.shape}, {drawn.shape} and {population.shape}"
    accepted = "drawings of each true picture, and others of their shape"
    require(alike, f"pictures have shapes {seen}: accepted are {accepted}")
    error = np.square(true.astype(np.float64) - drawn).reshape(len(true), -1).mean(axis=1)
    with np.errstate(divide="ignore"):
        psnr = -10 * np.log10(error)
    pairs = [(prepare(one[None], _SSIM), prepare(other[None], _SSIM)) for one, other in zip(true, drawn, strict=True)]
    ssim = np.array([1 - exact_block(one, other, _SSIM)[0, 0] for one, other in pairs])
    # A reconstruction identifies its true image if no other image is nearer to it by squared error.
    flat, others = (one.reshape(len(one), -1).astype(np.float64) for one in (drawn, population))
    apart = np.square(flat).sum(1)[:, None] - 2 * flat @ others.T + np.square(others).sum(1)
    named = error * flat.shape[1] < apart.min(axis=1, initial=np.inf)
    return ReconstructionQuality(psnr, ssim, named, len(population) + 1)
