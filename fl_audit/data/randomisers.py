"""Local differential privacy: data owners randomise their records before anybody else sees them.

A randomiser changes every record on its own, once, before training (Bernau et al. 2019, section 2.2, Definitions 4 and
5). Whoever sees a randomised record weighs the two records that it can come from by `log_odds`. What is promised is
said as releases, which `PrivacyProfile` composes, in two ways:

* `counted_events`: as the paper counts, every feature a release of epsilon_i of its own, whatever two records are told
  apart.
* `pair_events`: what tells two given records apart, and no more. For randomised bits and pixelation this is the exact
  law of `log_odds`; for graphs whose nodes without an edge were joined to others it is an upper bound.

Labels are not randomised, as in the paper. The draws come from a generator that the caller keys by
`Purpose.RECORD_RANDOMISER`, world and client, so that every world has draws of its own; records that follow later never
change what is drawn for those before them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl_audit.data.graphs import Adjacency
from fl_audit.errors import InputError, require
from fl_audit.privacy.events import LaplaceRelease, RandomizedResponse, ReleaseEvent
from fl_audit.privacy.gaussian import require_epsilon
from fl_audit.privacy.randomised_response import truth_probability

Features = NDArray[np.float32]
Floats = NDArray[np.float64]

_DRAWS = 2**20
"""Numbers drawn at a time, so that memory does not grow with the records."""
_FINEST_DIFFERENCE = 1e-6
"""Differences of block means are rounded up to multiples of this, so that few distinct releases remain."""


def pure_epsilon(events: Iterable[ReleaseEvent]) -> float:
    """Return the sum of the epsilons of all releases: Definition 5 of Bernau et al. 2019. Of no release it is 0.

    Raises
    ------
    InputError
        If a release has Gaussian noise, which promises no epsilon without a delta.
    """
    total = 0.0
    for event in events:
        if not isinstance(event, LaplaceRelease | RandomizedResponse):
            raise InputError(f"event is a {event}: accepted are Laplace releases and randomized response")
        total += event.count * event.epsilon
    return total


@dataclass(frozen=True)
class RandomisedBits:
    """Randomised response on every feature of records of 0 and 1.

    Each bit is told truly with probability e^epsilon / (1 + e^epsilon) (Eq. (1) of the paper; module
    `fl_audit.privacy.randomised_response`), independently.

    Parameters
    ----------
    epsilon
        epsilon_i of one feature, from 0 (fair coins that tell nothing).

    Raises
    ------
    InputError
        If epsilon is negative or not finite.

    Examples
    --------
    >>> from fl_audit.randomness import Purpose, generator
    >>> told = RandomisedBits(2.0).perturb(np.ones((1, 8)), generator(0, Purpose.RECORD_RANDOMISER))
    >>> told.shape, set(told.ravel().tolist()) <= {0.0, 1.0}
    ((1, 8), True)
    >>> RandomisedBits(2.0).pair_events(np.array([0, 1, 1]), np.array([1, 1, 0]))
    (RandomizedResponse(epsilon=2.0, count=2),)
    """

    epsilon: float

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)

    def perturb(self, features: NDArray[np.generic], generator: np.random.Generator) -> Features:
        """Return randomised records.

        Parameters
        ----------
        features
            0 and 1, shape (records, features...).
        generator
            Where one number a feature is drawn from, record after record.

        Raises
        ------
        InputError
            If a feature is neither 0 nor 1.
        """
        _require_bits(features)
        lies = _draws_above(truth_probability(self.epsilon), features.size, generator)
        told: Features = np.where(lies.reshape(features.shape), 1 - features, features).astype(np.float32)
        return told

    def log_odds(
        self, observed: NDArray[np.generic], first: NDArray[np.generic], second: NDArray[np.generic]
    ) -> Floats:
        """Return log P(observed | first) / P(observed | second), in nats.

        Each differing bit adds epsilon where it agrees with the first record and takes it away where it agrees with the
        second.

        Parameters
        ----------
        observed
            Randomised records, shape (..., features...).
        first, second
            The two records that they can come from, shape (features...).

        Returns
        -------
        NDArray
            Shape (...): one number for each observed record.

        Raises
        ------
        InputError
            If the shapes do not fit, or a feature is neither 0 nor 1.
        """
        _require_pair(observed, first, second)
        for bits in (observed, first, second):
            _require_bits(bits)
        agreeing = (observed == first).astype(np.int64) - (observed == second)
        return np.asarray(self.epsilon * agreeing.sum(axis=_record_axes(first)), dtype=np.float64)

    def counted_events(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return what the paper promises for records of a shape, a release for each feature: 600 epsilon_i in all.

        No two records can differ in more, so it is also the exact law for records that differ everywhere.
        """
        return _responses(self.epsilon, int(np.prod(shape)))

    def pair_events(self, first: NDArray[np.generic], second: NDArray[np.generic]) -> tuple[ReleaseEvent, ...]:
        """Return what tells two records apart: a release for each feature in which they differ."""
        _require_pair(first, first, second)
        for bits in (first, second):
            _require_bits(bits)
        return _responses(self.epsilon, int(np.count_nonzero(first != second)))


@dataclass(frozen=True)
class RandomisedEdges:
    """Randomised response on every pair of nodes of an undirected graph: edge-local differential privacy.

    Each pair of different nodes is told truly, joined or not, with probability e^epsilon / (1 + e^epsilon); the matrix
    stays symmetric. Edges from a node to itself are left out. Then every node gets "at least one symmetric edge"
    (section 4.3 of the paper, which does not say how): going through the nodes in order, one without an edge is joined
    to the next node, the last one to the one before it. This rule looks at the randomised matrix alone, so it costs no
    privacy, and it leaves the exact log-odds simple: an edge that the rule may have made is there whether or not the
    randomised matrix had it, so that seeing it tells nothing.

    Parameters
    ----------
    epsilon
        epsilon_i of one pair of nodes, from 0 (a random graph that tells nothing).

    Raises
    ------
    InputError
        If epsilon is negative or not finite.
    """

    epsilon: float

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)

    def perturb(self, adjacency: Adjacency, generator: np.random.Generator) -> Adjacency:
        """Return a randomised adjacency matrix.

        Parameters
        ----------
        adjacency
            Symmetric truth values, shape (nodes, nodes), at least two nodes.
        generator
            Where one number a pair of nodes is drawn from: (0, 1), (0, 2), ..., (1, 2), ...

        Raises
        ------
        InputError
            If the matrix is not symmetric, or there are fewer than two nodes.
        """
        _require_graph(adjacency)
        above = np.triu_indices(len(adjacency), 1)
        lies = _draws_above(truth_probability(self.epsilon), above[0].size, generator)
        told = np.zeros_like(adjacency)
        told[above] = adjacency[above] ^ lies
        return _without_lonely_nodes(told | told.T)

    def log_odds(self, observed: Adjacency, first: Adjacency, second: Adjacency) -> Floats:
        """Return log P(observed | first) / P(observed | second) of what `perturb` returns, in nats.

        Each pair of nodes in which the graphs differ counts as a bit does (`RandomisedBits.log_odds`), except the only
        edge of a node that leads to the next node (of the last node: to the one before it): it would be there anyhow.

        Parameters
        ----------
        observed
            Randomised matrices, shape (..., nodes, nodes).
        first, second
            The two matrices that they can come from, shape (nodes, nodes).

        Returns
        -------
        NDArray
            Shape (...): one number for each observed matrix.

        Raises
        ------
        InputError
            If a matrix is not symmetric, shapes do not fit, or an observed node has no edge.
        """
        _require_pair(observed, first, second)
        for matrices in (observed, first, second):
            _require_graph(matrices)
        require(bool(observed.any(axis=-1).all()), "an observed node has no edge: accepted is what `perturb` returns")
        agreeing = (observed == first).astype(np.int64) - (observed == second)
        agreeing[_made_anyhow(observed)] = 0
        return np.asarray(self.epsilon * np.triu(agreeing, 1).sum(axis=(-2, -1)), dtype=np.float64)

    def counted_events(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return what the paper promises for graphs of up to `shape` = (nodes, nodes): all pairs of one node.

        The paper multiplies epsilon_i by a largest degree of 2,000. COLLAB's largest graph has 492 nodes, and its
        largest degree is 491.
        """
        return _responses(self.epsilon, shape[-1] - 1)

    def pair_events(self, first: Adjacency, second: Adjacency) -> tuple[ReleaseEvent, ...]:
        """Return what tells two graphs apart at most: a release for each pair of nodes in which they differ."""
        _require_pair(first, first, second)
        for matrices in (first, second):
            _require_graph(matrices)
        return _responses(self.epsilon, int(np.count_nonzero(np.triu(first != second, 1))))


@dataclass(frozen=True)
class LaplacePixelation:
    """Coarse grey images with Laplace noise (Fan 2018, used in section 2.2 of Bernau et al. 2019).

    An image is cut into blocks of b x b pixels. The mean of each block gets Laplace noise, of scale
    255 m / (b^2 epsilon) in grey levels or m / (b^2 epsilon) for pixels in [0, 1] as here, is clipped to [0, 1], and
    stands for all pixels of its block. Images that differ in at most m pixels are told apart by at most epsilon.

    Clipping costs an observer nothing: all values beyond one end of [0, 1] have the same log-odds.

    Parameters
    ----------
    epsilon
        epsilon_i of m changed pixels, positive.
    neighbourhood
        m, number of pixels in which neighbouring images may differ, from 1. The paper takes 250 of 250 x 250.
    block
        b, side of a block in pixels, from 1 (no coarsening, as in the paper).

    Raises
    ------
    InputError
        If a number is out of its range.

    Examples
    --------
    >>> LaplacePixelation(epsilon=2.0, neighbourhood=16, block=4).scale
    0.5
    """

    epsilon: float
    neighbourhood: int
    block: int = 1

    def __post_init__(self) -> None:
        require_epsilon(self.epsilon)
        require(self.epsilon > 0, f"epsilon is {self.epsilon}: accepted are positive finite numbers")
        for name, value in (("neighbourhood", self.neighbourhood), ("block", self.block)):
            require(
                value >= 1 and int(value) == value, f"{name} is {value}: accepted are whole numbers of pixels from 1"
            )

    @property
    def scale(self) -> float:
        """Scale of the noise, m / (b^2 epsilon), in units of the range of a pixel (255 grey levels)."""
        return self.neighbourhood / (self.block**2 * self.epsilon)

    def perturb(self, features: NDArray[np.floating], generator: np.random.Generator) -> Features:
        """Return pixelated images of the same shape.

        Parameters
        ----------
        features
            Grey images in [0, 1], shape (images, 1, height, width) or (images, height, width).
        generator
            Where one number a block is drawn from, image after image.

        Raises
        ------
        InputError
            If a pixel is outside [0, 1], there are several channels, or a side is no multiple of the block's.
        """
        self._require_images(features)
        means = self._block_means(features)
        noisy = np.clip(means + generator.laplace(scale=self.scale, size=means.shape), 0.0, 1.0).astype(np.float32)
        return noisy.repeat(self.block, axis=-2).repeat(self.block, axis=-1)

    def log_odds(
        self, observed: NDArray[np.floating], first: NDArray[np.floating], second: NDArray[np.floating]
    ) -> Floats:
        """Return log p(observed | first) / p(observed | second), in nats.

        The sum over blocks of (|o - mean'| - |o - mean|) / scale, o the observed value. It holds as it stands where o
        was clipped to 0 or 1: there both probabilities are tails of Laplace laws.

        Parameters
        ----------
        observed
            Pixelated images, shape (..., height, width).
        first, second
            The two images that they can come from, shape (1, height, width) or (height, width).

        Returns
        -------
        NDArray
            Shape of `observed` without the axes of an image: one number for each observed image.

        Raises
        ------
        InputError
            If a pixel is outside [0, 1], shapes do not fit, or a side is no multiple of the block's.
        """
        _require_pair(observed, first, second)
        for images in (observed, first, second):
            self._require_images(images)
        seen = observed[..., :: self.block, :: self.block].astype(np.float64)
        distances = np.abs(seen - self._block_means(second)) - np.abs(seen - self._block_means(first))
        return np.asarray(distances.sum(axis=_record_axes(first)) / self.scale, dtype=np.float64)

    def counted_events(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return what the paper promises for images of a shape: a release of epsilon_i for every released value.

        So it counts 62,500 epsilon_i for 250 x 250 pixels. That is far too much: the noise of one value covers m
        changed pixels, and its block has b^2 of them. `whole_events` has what can be told of any two images.
        """
        return (LaplaceRelease(self.neighbourhood / self.block**2, self.scale, self._blocks(shape)),)

    def whole_events(self, shape: tuple[int, ...]) -> tuple[ReleaseEvent, ...]:
        """Return what tells two images of a shape apart at most: a black one from a white one, epsilon_i pixels / m."""
        return (LaplaceRelease(1.0, self.scale, self._blocks(shape)),)

    def pair_events(self, first: NDArray[np.floating], second: NDArray[np.floating]) -> tuple[ReleaseEvent, ...]:
        """Return what tells two images apart: a release for each block whose means differ, none if no means differ.

        Differences are rounded up to millionths of the range of a pixel, and equal ones are counted together.
        """
        _require_pair(first, first, second)
        for images in (first, second):
            self._require_images(images)
        differences = np.abs(self._block_means(first) - self._block_means(second))
        steps, counts = np.unique(np.ceil(differences / _FINEST_DIFFERENCE), return_counts=True)
        found = zip(steps.tolist(), counts.tolist(), strict=True)
        return tuple(LaplaceRelease(step * _FINEST_DIFFERENCE, self.scale, count) for step, count in found if step > 0)

    def _blocks(self, shape: tuple[int, ...]) -> int:
        return int(np.prod(shape)) // self.block**2

    def _block_means(self, images: NDArray[np.floating]) -> Floats:
        *leading, height, width = images.shape
        cut = (*leading, height // self.block, self.block, width // self.block, self.block)
        return np.asarray(images.astype(np.float64).reshape(cut).mean(axis=(-3, -1)), dtype=np.float64)

    def _require_images(self, images: NDArray[np.floating]) -> None:
        one_channel = images.ndim in (2, 3) or (images.ndim > 3 and images.shape[-3] == 1)
        require(
            one_channel and images.size > 0, f"images have shape {images.shape}: accepted are grey ones, (n, 1, h, w)"
        )
        height, width = images.shape[-2:]
        require(
            height % self.block == 0 and width % self.block == 0,
            f"images have {height}x{width} pixels: accepted are multiples of the block's side, {self.block}",
        )
        low, high = float(images.min()), float(images.max())
        wrong = high if low >= 0 else low
        require(low >= 0 and high <= 1, f"a pixel is {wrong:g}: accepted are numbers from 0 to 1")


RecordRandomiser = RandomisedBits | LaplacePixelation
"""A randomiser of records that are arrays of features; `RandomisedEdges` is the one of graphs."""


def _responses(epsilon: float, count: int) -> tuple[ReleaseEvent, ...]:
    return (RandomizedResponse(epsilon, count),) if epsilon > 0 and count > 0 else ()


def _draws_above(limit: float, count: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    found = np.empty(count, dtype=np.bool_)
    for start in range(0, count, _DRAWS):
        part = found[start : start + _DRAWS]
        part[:] = generator.random(part.size) >= limit
    return found


def _record_axes(record: NDArray[np.generic]) -> tuple[int, ...]:
    return tuple(range(-record.ndim, 0))


def _require_pair(observed: NDArray[np.generic], first: NDArray[np.generic], second: NDArray[np.generic]) -> None:
    fits = first.ndim >= 1 and first.shape == second.shape == observed.shape[observed.ndim - first.ndim :]
    require(
        fits,
        f"observed records have shape {observed.shape} and the two records {first.shape} and {second.shape}: "
        "accepted are two equal shapes, and observed ones with axes of their own before",
    )


def _require_bits(features: NDArray[np.generic]) -> None:
    wrong = (features != 0) & (features != 1)
    if wrong.any():
        raise InputError(f"a feature is {features[wrong][0]}: accepted for randomised response are 0 and 1")


def _require_graph(matrices: Adjacency) -> None:
    square = matrices.ndim >= 2 and matrices.shape[-1] == matrices.shape[-2] >= 2 and matrices.dtype == np.bool_
    require(
        square,
        f"adjacency matrices have shape {matrices.shape} of {matrices.dtype}: accepted are truth values of shape "
        "(nodes, nodes), at least two nodes",
    )
    require(bool((matrices == matrices.swapaxes(-1, -2)).all()), "an adjacency matrix is not symmetric")


def _partners(nodes: int) -> NDArray[np.int64]:
    """Return whom each node is joined to where it has no edge: the next node, of the last one the node before it."""
    partners = np.arange(1, nodes + 1)
    partners[-1] = nodes - 2
    return partners


def _without_lonely_nodes(told: Adjacency) -> Adjacency:
    joined = told.copy()
    for node, partner in enumerate(_partners(len(told)).tolist()):
        # Asked in order: a node may have been joined to the one before it.
        if not joined[node].any():
            joined[node, partner] = joined[partner, node] = True
    return joined


def _made_anyhow(observed: Adjacency) -> Adjacency:
    """Return which edges would be there even if the randomised matrix had not had them; shape of `observed`."""
    nodes = np.arange(observed.shape[-1])
    partners = _partners(nodes.size)
    only = observed[..., nodes, partners] & (observed.sum(axis=-1) == 1)
    made = np.zeros_like(observed)
    made[..., nodes, partners] = only
    made |= made.swapaxes(-1, -2)
    return made
