"""Tests of local randomizers: draws and log-odds, compared with enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy import stats

from fl_audit.adjacency import Adjacency
from fl_audit.data.packed_graphs import pack_graph, packed_shape, unpack_graph
from fl_audit.data.randomizers import LaplacePixelation, RandomisedBits, RandomisedEdges, pure_epsilon
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.events import GaussianRelease, LaplaceRelease, RandomizedResponse
from fl_audit.privacy.identifiability_bounds import response_advantage, truth_probability
from fl_audit.privacy.log_odds_distribution import TrueHypothesis, log_odds_distribution
from fl_audit.randomness import Purpose, generator
from tests.builders.log_odds import uniforms
from tests.builders.refusals import assert_refused
from tests.few_examples import examples

PUBLISHED = {0.1: 0.525, 0.5: 0.622, 1.0: 0.731, 2.0: 0.881, 3.0: 0.953}
FALSE_ALARM = 1e-6
REPLACE = Adjacency.REPLACE_RECORD
EPSILON = st.floats(0.05, 4.0)
BITS = st.integers(1, 6)


def draws(trial: int = 0) -> np.random.Generator:
    return generator(7, Purpose.LOCAL_RANDOMIZER, trial=trial)


def all_bits(count: int) -> NDArray[np.float64]:
    return np.array(list(itertools.product((0.0, 1.0), repeat=count)))


def bit_probabilities(
    responses: NDArray[np.float64], record: NDArray[np.float64], epsilon: float
) -> NDArray[np.float64]:
    truth = truth_probability(epsilon)
    return np.where(responses == record, truth, 1 - truth).prod(axis=1)


@pytest.mark.parametrize(("epsilon", "published"), PUBLISHED.items())
def test_bits_are_kept_as_often_as_published(epsilon: float, published: float) -> None:
    assert truth_probability(epsilon) == pytest.approx(published, abs=5e-4)
    keep_probability = math.tanh(epsilon / 2)  # rho, with which the first coin keeps the bit
    # Eq. (1) of the paper: both coins together.
    assert keep_probability + (1 - keep_probability) / 2 == pytest.approx(truth_probability(epsilon), rel=1e-14)
    assert math.log((keep_probability + (1 - keep_probability) / 2) / ((1 - keep_probability) / 2)) == pytest.approx(
        epsilon, rel=1e-12
    )
    for bit in (0.0, 1.0):
        responses = RandomisedBits(epsilon).perturb(np.full((500, 400), bit), draws())
        agreeing = int(np.count_nonzero(responses == bit))
        assert stats.binomtest(agreeing, responses.size, truth_probability(epsilon)).pvalue > FALSE_ALARM


def test_coins_tell_nothing() -> None:
    coins = RandomisedBits(0.0)
    ones = np.ones(50)
    zeros = np.zeros(50)
    responses = coins.perturb(np.ones((1000, 50)), draws())
    assert stats.binomtest(int(responses.sum()), responses.size).pvalue > FALSE_ALARM
    assert not coins.log_odds(responses, ones, zeros).any()
    assert coins.pair_events(ones, zeros) == coins.counted_events((50,)) == ()
    assert response_advantage(0.0, 50) == 0


def test_draws_belong_to_a_record_and_a_trial() -> None:
    bits = np.ones((6, 3, 4))
    responses = RandomisedBits(1.0).perturb(bits, draws())
    assert np.array_equal(responses[:2], RandomisedBits(1.0).perturb(bits[:2], draws()))
    assert not np.array_equal(responses, RandomisedBits(1.0).perturb(bits, draws(trial=1)))
    images = LaplacePixelation(1.0, 1).perturb(bits, draws())
    assert np.array_equal(images[:2], LaplacePixelation(1.0, 1).perturb(bits[:2], draws()))
    bulk_responses = RandomisedBits(1.0).perturb(np.ones((3000, 400)), draws())
    assert np.array_equal(bulk_responses.ravel(), draws().random(bulk_responses.size) < truth_probability(1.0))


@given(EPSILON, BITS, st.data())
def test_log_odds_of_bits_are_the_ratio_of_probabilities(epsilon: float, count: int, data: st.DataObject) -> None:
    bits = arrays(np.float64, count, elements=st.sampled_from([0.0, 1.0]))
    first = data.draw(bits)
    second = data.draw(bits)
    responses = all_bits(count)
    ratio = bit_probabilities(responses, first, epsilon) / bit_probabilities(responses, second, epsilon)
    log_odds = RandomisedBits(epsilon).log_odds(responses, first, second)
    assert log_odds == pytest.approx(np.log(ratio), abs=1e-9)


@settings(max_examples=examples(25))
@given(EPSILON, BITS)
def test_advantage_equals_enumeration(epsilon: float, differing: int) -> None:
    responses = all_bits(differing)
    first = np.ones(differing)
    distribution = bit_probabilities(responses, first, epsilon)
    second_distribution = bit_probabilities(responses, 1 - first, epsilon)
    total_variation = float(np.abs(distribution - second_distribution).sum() / 2)
    assert response_advantage(epsilon, differing) == pytest.approx(total_variation, abs=1e-12)
    if differing <= 2:
        assert response_advantage(epsilon, differing) == pytest.approx(math.tanh(epsilon / 2), rel=1e-12)
    # The profile of k releases is that of a record of k differing bits.
    events = RandomisedBits(epsilon).pair_events(first, 1 - first)
    assert events == (RandomizedResponse(epsilon, differing),)
    profile = PrivacyProfile(events, REPLACE)
    log_odds = RandomisedBits(epsilon).log_odds(responses, first, 1 - first)
    assert profile.advantage() == pytest.approx(total_variation, abs=2e-4)
    for at in (0.3 * epsilon, 0.9 * epsilon * differing):
        # The exact delta(epsilon) of the enumerated pair: sum over outcomes of P (1 - e^(epsilon - L))+.
        exact = float(distribution @ np.maximum(0.0, -np.expm1(at - log_odds)))
        assert profile.delta(at) >= exact - 1e-9
        assert profile.delta(at + profile.error) <= exact + 1e-9


@pytest.mark.parametrize(("epsilon", "differing"), [(0.5, 1), (0.5, 2), (1.0, 7), (0.1, 100), (2.0, 1)])
def test_an_insider_wins_as_often_as_theory_says(epsilon: float, differing: int) -> None:
    """There is one randomised record in each of 40,000 trials, and a coin decides ties."""
    trials = 40_000
    draw = draws()
    bits = draw.integers(2, size=trials).astype(bool)
    first = np.ones(differing)
    responses = RandomisedBits(epsilon).perturb(np.where(bits[:, np.newaxis], first, 1 - first), draw)
    log_odds = RandomisedBits(epsilon).log_odds(responses, first, 1 - first)
    guessed = np.where(log_odds == 0, draw.integers(2, size=trials).astype(bool), log_odds > 0)
    expected = (1 + response_advantage(epsilon, differing)) / 2
    assert stats.binomtest(int((guessed == bits).sum()), trials, expected).pvalue > FALSE_ALARM


def test_the_epsilons_of_the_paper() -> None:
    """Table 2: 6,382 epsilon_i (Texas), 600 (Purchases), 62,500 (faces of 250 x 250 pixels)."""
    assert pure_epsilon(RandomisedBits(3.0).counted_events((600,))) == 1800
    assert pure_epsilon(RandomisedBits(0.1).counted_events((6382,))) == pytest.approx(638.2)
    faces = LaplacePixelation(epsilon=100.0, neighbourhood=250)
    assert pure_epsilon(faces.counted_events((1, 250, 250))) == pytest.approx(62_500 * 100)
    assert pure_epsilon(faces.events_of_opposite_records((1, 250, 250))) == pytest.approx(250 * 100)
    assert pure_epsilon(RandomisedEdges(2.0).counted_events((492, 492))) == 491 * 2
    named = r"Gaussian release .*: accepted are releases that are \(epsilon, 0\)-private"
    assert_refused(named, lambda: pure_epsilon([GaussianRelease(1.0, 1.0)]))


def graphs_of(nodes: int) -> list[NDArray[np.bool_]]:
    above = np.triu_indices(nodes, 1)
    matrices = []
    for bits in all_bits(above[0].size):
        matrix = np.zeros((nodes, nodes), dtype=bool)
        matrix[above] = bits.astype(bool)
        matrices.append(matrix | matrix.T)
    return matrices


def packed(matrix: NDArray[np.generic]) -> NDArray[np.float32]:
    return pack_graph(matrix.astype(bool), len(matrix))


def told_by(local_randomizer: RandomisedEdges, matrix: NDArray[np.generic]) -> NDArray[np.bool_]:
    return unpack_graph(local_randomizer.perturb(packed(matrix)[np.newaxis], draws())[0])


class Coins:
    """Generator for tests whose numbers make the chosen pairs lies."""

    def __init__(self, lies: NDArray[np.float64]) -> None:
        self.lies = lies

    def random(self, size: int) -> NDArray[np.float64]:
        assert size == self.lies.size
        return self.lies


@pytest.mark.parametrize(("nodes", "pairs"), [(2, [(0, 1)]), (3, [(0, 7), (1, 4)]), (4, [(0, 63), (9, 33), (5, 5)])])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_log_odds_of_graphs_equal_enumeration(nodes: int, pairs: list[tuple[int, int]], epsilon: float) -> None:
    """All randomised matrices are enumerated, with the matrix that each becomes once every node has an edge."""
    local_randomizer = RandomisedEdges(epsilon)
    graphs = graphs_of(nodes)
    truth = truth_probability(epsilon)
    for first, second in pairs:
        distributions: list[dict[bytes, float]] = []
        for record in (graphs[first], graphs[second]):
            distribution = dict[bytes, float]()
            for lies in all_bits(nodes * (nodes - 1) // 2):
                release = local_randomizer.perturb(packed(record)[np.newaxis], Coins(lies))  # type: ignore[arg-type]
                probability = float(np.where(lies == 1, 1 - truth, truth).prod())
                distribution[release.tobytes()] = distribution.get(release.tobytes(), 0.0) + probability
            distributions.append(distribution)
        assert distributions[0].keys() == distributions[1].keys()
        packed_outputs = np.array(
            [np.frombuffer(key, dtype=np.float32).reshape(packed_shape(nodes)) for key in distributions[0]]
        )
        assert all(unpack_graph(packed_graph).any(axis=-1).all() for packed_graph in packed_outputs)
        expected = np.log([distributions[0][key] / distributions[1][key] for key in distributions[0]])
        log_odds = local_randomizer.log_odds(packed_outputs, packed(graphs[first]), packed(graphs[second]))
        assert log_odds == pytest.approx(expected, abs=1e-9)


def test_randomised_graphs_are_graphs_with_an_edge_at_every_node() -> None:
    ring = np.roll(np.eye(60, dtype=bool), 1, axis=1)
    ring |= ring.T | np.eye(60, dtype=bool)
    for epsilon, published in PUBLISHED.items():
        response = told_by(RandomisedEdges(epsilon), ring)
        assert np.array_equal(response, response.T)
        assert response.any(axis=1).all()
        assert not np.diag(response).any()
        above = np.triu_indices(60, 1)
        agreeing = int(np.count_nonzero(response[above] == ring[above]))
        assert stats.binomtest(agreeing, above[0].size, published).pvalue > FALSE_ALARM
    empty = np.zeros((61, 61), dtype=bool)
    lonely = told_by(RandomisedEdges(20.0), empty)
    assert lonely.sum(axis=1).min() == 1
    assert lonely.sum() // 2 == 31


def test_graphs_differ_in_pairs_of_nodes() -> None:
    first = packed(graphs_of(4)[9])
    second = packed(graphs_of(4)[33])
    assert RandomisedEdges(1.5).pair_events(first, second) == (RandomizedResponse(1.5, 2),)
    assert RandomisedEdges(1.5).pair_events(first, first) == ()


@settings(max_examples=examples(30))
@given(st.floats(0.1, 20.0), st.integers(1, 9), st.sampled_from([1, 2, 3]), st.integers(0, 1000))
def test_log_odds_of_pixels_are_the_ratio_of_densities(epsilon: float, changed: int, block: int, seed: int) -> None:
    """Log-odds are density ratios inside (0, 1), and ratios of tails where a value was clipped."""
    pixelation = LaplacePixelation(epsilon, changed, block)
    draw = np.random.default_rng(seed)
    first, second = draw.random((2, 1, 6, 6)).astype(np.float32)
    observed = pixelation.perturb(np.repeat(first[np.newaxis], 20, axis=0), draws(seed))
    values = observed[..., ::block, ::block].astype(np.float64)
    assert np.array_equal(values.repeat(block, -2).repeat(block, -1), observed)

    def log_distribution(record: NDArray[np.float32]) -> NDArray[np.float64]:
        means = record.astype(np.float64).reshape(1, 6 // block, block, 6 // block, block).mean(axis=(2, 4))
        distribution = stats.laplace(means, changed / (block**2 * epsilon))
        log_likelihoods = np.where(
            values == 0,
            distribution.logcdf(0),
            np.where(values == 1, distribution.logsf(1), distribution.logpdf(values)),
        )
        return np.asarray(log_likelihoods.sum(axis=(1, 2, 3)))

    log_odds = pixelation.log_odds(observed, first, second)
    assert log_odds.shape == (20,)
    assert log_odds == pytest.approx(log_distribution(first) - log_distribution(second), abs=1e-6 * epsilon + 1e-9)
    assert np.abs(log_odds).max() <= pure_epsilon(pixelation.pair_events(first, second))


def test_changing_m_pixels_costs_epsilon() -> None:
    """Fan 2018: an image and the same image with m black pixels made white are exactly epsilon apart."""
    pixelation = LaplacePixelation(epsilon=0.7, neighbourhood=5, block=2)
    first = np.zeros((1, 4, 4), dtype=np.float32)
    for chosen in ([0, 1, 4, 5, 2], [0, 2, 8, 10, 15]):
        second = first.copy()
        second.reshape(-1)[chosen] = 1
        assert pure_epsilon(pixelation.pair_events(first, second)) == pytest.approx(0.7, rel=1e-9)
    assert pixelation.pair_events(first, first) == ()


@pytest.mark.parametrize("clip_often", [False, True])
def test_log_odds_of_pixels_follow_the_distribution_of_laplace_releases(clip_often: bool) -> None:
    """This holds even if most values are clipped, because clipping loses no evidence."""
    pixelation = LaplacePixelation(epsilon=4.0 if clip_often else 40.0, neighbourhood=8, block=2)
    first = np.linspace(0, 1, 16, dtype=np.float32).reshape(1, 4, 4)
    second = first[:, ::-1, ::-1].copy() if clip_often else np.clip(first + np.float32(0.05), 0, 1)
    events = pixelation.pair_events(first, second)
    draw = draws()
    assert all(isinstance(event, LaplaceRelease) for event in events)
    for record, truth in ((first, TrueHypothesis.PRESENT), (second, TrueHypothesis.ABSENT)):
        observed = pixelation.perturb(np.repeat(record[np.newaxis], 20_000, axis=0), draw)
        log_odds = pixelation.log_odds(observed, first, second)
        distribution = log_odds_distribution(events, REPLACE, truth)
        assert log_odds.mean() == pytest.approx(distribution.mean, abs=5 * log_odds.std() / math.sqrt(log_odds.size))
        assert stats.kstest(uniforms(distribution, log_odds, draw), "uniform").pvalue > FALSE_ALARM


def test_advantage_over_one_block_is_that_of_the_laplace_distribution() -> None:
    pixelation = LaplacePixelation(epsilon=1.5, neighbourhood=4, block=2)
    first = np.zeros((2, 2), dtype=np.float32)
    second = np.full((2, 2), 0.8, dtype=np.float32)
    profile = PrivacyProfile(pixelation.pair_events(first, second), REPLACE)
    assert profile.advantage() == pytest.approx(1 - math.exp(-0.8 / (2 * pixelation.scale)), abs=1e-4)


def lonely_odds(nodes: int, second_nodes: int) -> NDArray[np.float64]:
    first_graph, second_graph = (packed(np.zeros((size, size))) for size in (nodes, second_nodes))
    return RandomisedEdges(1.0).log_odds(first_graph[np.newaxis], first_graph, second_graph)
