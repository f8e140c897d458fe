"""Strategy matrices: sensitivities by trying every set of rounds, errors against jax-privacy and dpcrpy, and the
distribution.

Numbers of jax-privacy are those of version 2.0.0 in float64, of dpcrpy those of version 1.0.0.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import kstest, norm

from fl_audit.adjacency import Adjacency
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.events import GaussianRelease
from fl_audit.privacy.strategy_matrices import (
    StrategyMatrixKind,
    _sensitivity_upper_bound,
    _square_root_coefficients,
    banded_coefficients,
    correlated_event,
    inverse,
    sensitivity,
    strategy_matrix,
)
from tests.builders.refusals import assert_refused
from tests.few_examples import examples

TREE = StrategyMatrixKind.TREE
BANDED = StrategyMatrixKind.BANDED


def prefix_error(strategy: NDArray[np.float64], sensitivity: float) -> float:
    """Root mean square error of prefix sums at equal privacy: sens(C) ||A C^-1||_F / sqrt(k), A of ones."""
    error = np.cumsum(inverse(strategy), axis=0)
    return sensitivity * float(np.linalg.norm(error)) / math.sqrt(len(strategy))


def square_root(rounds: int, bands: int) -> NDArray[np.float64]:
    """The banded square root."""
    coefficients = _square_root_coefficients(bands)
    return sum((c * np.eye(rounds, k=-lag) for lag, c in enumerate(coefficients)), np.zeros((rounds, rounds)))


def tried(strategy: NDArray[np.float64], separation: int, participations: int) -> float:
    """The largest norm of a sum of columns over all sets of rounds: what equal contributions move."""
    rounds = range(strategy.shape[0])
    sets = itertools.chain(*(itertools.combinations(rounds, count) for count in range(1, participations + 1)))
    return max(
        float(np.linalg.norm(strategy[:, list(chosen)].sum(axis=1)))
        for chosen in sets
        if all(later - earlier >= separation for earlier, later in itertools.pairwise(chosen))
    )


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.sampled_from([TREE, BANDED]))
@settings(max_examples=examples(80), derandomize=True)
def test_sensitivity_is_the_largest_of_all_sets(
    rounds: int, bands: int, separation: int, participations: int, kind: StrategyMatrixKind
) -> None:
    strategy = strategy_matrix(kind, rounds, min(bands, rounds))
    exact = tried(strategy, separation, participations)
    assert sensitivity(strategy, separation, participations) == pytest.approx(exact, rel=1e-12)
    assert _sensitivity_upper_bound(strategy, separation, participations) >= exact * (1 - 1e-12)


@given(st.integers(2, 9), st.integers(1, 9), st.integers(1, 4), st.integers(0, 10**6))
@settings(max_examples=examples(40), derandomize=True)
def test_signs_are_bounded_and_orthogonal_columns_exact(
    rounds: int, bands: int, participations: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    full = np.tril(rng.standard_normal((rounds, rounds)))
    strategy = full - np.tril(full, -min(bands, rounds))
    exact = tried(strategy, bands, participations)  # columns at least `bands` apart are orthogonal: signs do not count
    assert sensitivity(strategy, bands, participations) == pytest.approx(exact, rel=1e-12)
    signs = rng.choice([-1.0, 1.0], rounds)
    assert sensitivity(full, 1, rounds) >= np.linalg.norm(full @ signs) * (1 - 1e-12)
    assert sensitivity(full, 1, participations) >= tried(full, 1, participations) * (1 - 1e-12)
    # A first column that falls says nothing of the other columns.
    positive = np.abs(full)
    positive[:, 0] = np.sort(positive[:, 0])[::-1]
    exact = tried(positive, bands, participations)
    assert sensitivity(positive, bands, participations) == pytest.approx(exact, rel=1e-12)


def test_sensitivities_of_jax_privacy() -> None:
    strategy = square_root(40, 8)
    for separation, participations, exact in ((8, 5, 2.931193663944347), (3, 5, 3.9909957928560087)):
        assert sensitivity(strategy, separation, participations) == pytest.approx(exact, rel=1e-12)
    assert sensitivity(strategy, 1, 40) == pytest.approx(18.956141477903696, rel=1e-12)
    assert _sensitivity_upper_bound(strategy, 3, 5) == pytest.approx(4.311367632598568, rel=1e-12)
    random = np.tril(np.random.default_rng(0).standard_normal((12, 12)))
    banded = random - np.tril(random, -3)
    assert sensitivity(banded, 3, 4) == pytest.approx(3.950688486674868, rel=1e-12)
    assert sensitivity(banded, 4, 2) == pytest.approx(3.23202421352565, rel=1e-12)
    for rounds, separation, participations, bound in ((30, 10, 3, 3.605551275463989), (100, 5, 20, 18.788294228055936)):
        tree = strategy_matrix(TREE, rounds)
        assert _sensitivity_upper_bound(tree, separation, participations) == pytest.approx(bound, rel=1e-12)


def test_the_tree_is_the_binary_mechanism_of_dpcrpy() -> None:
    """Over 16 rounds dpcrpy's `BinMech` has sensitivity sqrt(5), and prefix t one noise for each 1 of t."""
    strategy = strategy_matrix(TREE, 16)
    assert sensitivity(strategy, 1, 1) == pytest.approx(math.sqrt(5), rel=1e-15)
    variances = np.sum(np.cumsum(inverse(strategy), axis=0) ** 2, axis=1)
    assert variances.tolist() == [1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4, 1]
    assert prefix_error(strategy, math.sqrt(5)) == pytest.approx(math.sqrt(5 * 33 / 16), rel=1e-14)
    for rounds in (1, 2, 5, 31, 100):
        once = sensitivity(strategy_matrix(TREE, rounds), rounds, 1)
        assert once == pytest.approx(math.sqrt(math.floor(math.log2(rounds)) + 1), rel=1e-14)


@pytest.mark.parametrize(
    ("rounds", "bands", "of_square_root", "optimised"),
    [(10, 4, 1.6843, 1.6824), (30, 4, 2.4380, 2.4071), (100, 8, 3.2448, 3.1253), (1000, 32, 5.4805, 4.9107)],
)
def test_prefix_errors_of_jax_privacy(rounds: int, bands: int, of_square_root: float, optimised: float) -> None:
    """Square root of `toeplitz.loss`: for `optimal_max_error_strategy_coefs` and for `optimize_banded_toeplitz`."""
    for strategy, error in (
        (square_root(rounds, bands), of_square_root),
        (strategy_matrix(BANDED, rounds, bands), optimised),
    ):
        assert prefix_error(strategy, sensitivity(strategy, rounds, 1)) == pytest.approx(error, abs=6e-5)


@pytest.mark.parametrize(("separation", "participations"), [(100, 1), (10, 10)])
def test_correlation_helps_at_equal_privacy(separation: int, participations: int) -> None:
    """Over 100 rounds: banded under the tree under independent noise, whose error is sqrt(m (k + 1) / 2)."""
    independent, tree, banded = (
        prefix_error(strategy, sensitivity(strategy, separation, participations))
        for strategy in (np.eye(100), strategy_matrix(TREE, 100), strategy_matrix(BANDED, 100, 8))
    )
    assert independent == pytest.approx(math.sqrt(participations * 101 / 2), rel=1e-12)
    assert banded < tree < independent


def test_where_everybody_takes_part_every_time_correlation_costs() -> None:
    errors = [
        prefix_error(strategy, sensitivity(strategy, 1, 30))
        for strategy in (np.eye(30), strategy_matrix(BANDED, 30, 4), strategy_matrix(TREE, 30))
    ]
    assert errors == sorted(errors)


def test_shapes_and_coefficients() -> None:
    np.testing.assert_allclose(square_root(50, 50) @ square_root(50, 50), np.tri(50), atol=1e-12)
    for rounds, bands in ((12, 4), (700, 16), (5000, 2), (20, 5), (4, 4), (9, 1)):
        coefficients = banded_coefficients(rounds, bands)
        assert coefficients.size == bands
        assert coefficients[0] == 1
        assert np.all(np.diff(coefficients) < 0)
        assert np.all(coefficients > 0)
    assert banded_coefficients(20, 5).tolist() == _square_root_coefficients(5).tolist()
    assert banded_coefficients(12, 4).tolist() == banded_coefficients(30, 4).tolist()
    for strategy in (strategy_matrix(TREE, 21), strategy_matrix(BANDED, 21, 8)):
        np.testing.assert_allclose(inverse(strategy) @ strategy, np.eye(21), atol=1e-12)
        assert np.all(np.diag(strategy) == 1)


@pytest.mark.parametrize(("kind", "separation"), [(TREE, 1), (BANDED, 1), (BANDED, 6)])
def test_the_event_has_the_distribution_of_the_releases(kind: StrategyMatrixKind, separation: int) -> None:
    """Log-odds of whitened releases of the worst unit against the event's Gaussian; false alarm rate 1e-4."""
    rounds = 12
    z = 2.0
    runs = 20_000
    rng = np.random.default_rng(8)
    event = correlated_event(z, strategy_matrix(kind, rounds, 4), separation, rounds)
    assert isinstance(event, GaussianRelease)
    assert (event.sigma, event.count) == (z, 1)
    strategy = strategy_matrix(kind, rounds, 4)
    contributed = np.zeros(rounds)
    contributed[::separation] = 1.0
    released = contributed + z * rng.standard_normal((runs, rounds)) @ inverse(strategy).T
    whitened = released @ strategy.T
    moved = strategy @ contributed
    log_odds = (whitened @ moved - moved @ moved / 2) / z**2
    mu = 1 / event.noise_multiplier
    assert kstest(log_odds, norm(mu**2 / 2, mu).cdf).pvalue > 1e-4
    profile = PrivacyProfile((event,), Adjacency.ADD_REMOVE_CLIENT)
    assert profile.gaussian_mu == pytest.approx(mu, rel=1e-15)


def test_refusals() -> None:
    assert_refused(r"^bands is 5: .* 1 to 4\b", strategy_matrix, BANDED, 4, 5)
    assert_refused(r"^rounds is 0", strategy_matrix, TREE, 0)
    assert_refused(r"^separation is 0", sensitivity, np.eye(3), 0, 1)
    tree = strategy_matrix(TREE, 200)
    assert sensitivity(tree, 3, 20) == _sensitivity_upper_bound(tree, 3, 20)
    assert_refused("square", sensitivity, np.ones((2, 3)), 1, 1)
    assert_refused("multiplier is 0", lambda: correlated_event(0.0, strategy_matrix(TREE, 4), 1, 4))
