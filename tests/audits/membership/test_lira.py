"""The likelihood ratio attack against loops over trials and targets, and what its scores may not depend on."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

from fl_audit.audits.membership.attacks.lira import lira_scores
from fl_audit.audits.membership.record_confidences import label_log_probability, log_probabilities, scaled_confidence
from fl_audit.audits.membership.shadow_sums import require_shadows_of_all
from fl_audit.federation.target_membership import TargetMembership
from tests.builders.refusals import assert_refused

Array = NDArray[np.float64]


def federation(seed: int, trials: int, targets: int) -> tuple[Array, NDArray[np.bool_]]:
    """Coins, and confidences that rise where a target is in, with places and spreads of their own."""
    draw = np.random.default_rng(seed)
    is_in = np.argsort(draw.random((trials, targets)), axis=0) < trials // 2
    spread = draw.uniform(0.2, 3, targets)
    noise = draw.normal(size=(trials, targets)) * spread
    return draw.normal(0, 4, targets) + noise + is_in, is_in


def by_loops(phi: Array, is_in: NDArray[np.bool_], shared: bool, shadows: NDArray[np.bool_]) -> Array:
    """Algorithm 1 of Carlini et al. 2022, trial by trial and target by target."""
    trials, targets = phi.shape
    scores = np.zeros((trials, targets))
    for w in range(trials):
        use = shadows & (np.arange(trials) != w)
        inside = [phi[use & is_in[:, t], t] for t in range(targets)]
        out = [phi[use & ~is_in[:, t], t] for t in range(targets)]
        pooled = [
            math.sqrt(sum(((x - x.mean()) ** 2).sum() for x in side) / sum(x.size - 1 for x in side))
            for side in (inside, out)
        ]
        for t in range(targets):
            sd_in, sd_out = pooled if shared else (inside[t].std(), out[t].std())
            densities = norm(inside[t].mean(), sd_in), norm(out[t].mean(), sd_out)
            scores[w, t] = densities[0].logpdf(phi[w, t]) - densities[1].logpdf(phi[w, t])
    return scores


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("names_shadows", [False, True])
def test_it_is_the_algorithm_of_the_paper(shared: bool, names_shadows: bool) -> None:
    phi, is_in = federation(2, 16, 5)
    shadows = np.arange(16) < 12 if names_shadows else np.ones(16, dtype=np.bool_)
    scores = lira_scores(phi, TargetMembership(is_in), shadows if names_shadows else None, shared)
    expected = by_loops(phi, is_in, shared, shadows)
    assert scores == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_the_medians_of_the_authors_code_make_little_difference() -> None:
    """The reference takes medians for means; with 32 shadows either side the same cells come out on top."""
    phi, is_in = federation(3, 64, 20)
    scores = lira_scores(phi, TargetMembership(is_in))
    theirs = np.zeros_like(scores)
    for w in range(64):
        other_trials = np.arange(64) != w
        for t in range(20):
            inside = phi[other_trials & is_in[:, t], t]
            out = phi[other_trials & ~is_in[:, t], t]
            z_in, z_out = ((phi[w, t] - np.median(x)) / x.std() for x in (inside, out))
            theirs[w, t] = (z_out**2 - z_in**2) / 2 - np.log(inside.std() / out.std())
    assert np.corrcoef(scores.ravel(), theirs.ravel())[0, 1] > 0.97


@given(seed=st.integers(0, 10**6), trial=st.integers(0, 8))
def test_a_trials_own_coins_move_none_of_its_scores(seed: int, trial: int) -> None:
    draw = np.random.default_rng(seed)
    is_in = np.argsort(draw.random((9, 4)), axis=0) < 4
    other_coins = is_in.copy()
    other_coins[trial] ^= draw.random(4) < 0.5
    phi = draw.normal(size=(9, 4))
    before, after = (lira_scores(phi, TargetMembership(coins))[trial] for coins in (is_in, other_coins))
    assert before == pytest.approx(after, rel=1e-8, abs=1e-8)


@given(seed=st.integers(0, 10**6), scale=st.floats(0.01, 100), shift=st.floats(-100, 100))
def test_increasing_affine_maps_of_confidences_change_nothing(seed: int, scale: float, shift: float) -> None:
    phi, is_in = federation(seed, 12, 3)
    for shared in (False, True):
        scores = [
            lira_scores(values, TargetMembership(is_in), is_shared=shared) for values in (phi, scale * phi + shift)
        ]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5, abs=1e-5)


def test_equal_confidences_tell_nothing_not_even_by_rounding() -> None:
    is_in = federation(4, 10, 6)[1]
    assert np.ptp(lira_scores(np.full((10, 6), 0.1), TargetMembership(is_in))) == 0


def test_too_few_shadow_trials_are_refused_with_their_number() -> None:
    membership = TargetMembership(np.array([[True, True], [True, False], [False, False], [False, True]]))
    zeros = np.zeros((4, 2))
    assert_refused(r"trial 1 has 1 .*target 1 out: .*2 or more", lira_scores, zeros, membership)
    assert_refused(r"target .*out in 2\b", lira_scores, zeros, membership, is_shared=True)
    coins = TargetMembership(np.array([[True], [False], [True]]))
    only = np.array([False, True, True])
    assert_refused(r"trial 1 has 0 .*target 0 out: .* 1\b", lira_scores, np.zeros((3, 1)), coins, only, is_shared=True)
    assert_refused("confidences contain NaN", lira_scores, np.full((4, 2), np.nan), membership)
    assert_refused(r"bool \(4,\)", lira_scores, zeros, membership, shadows=np.ones(3, dtype=np.bool_))


def test_coins_that_leave_a_target_without_shadows_are_refused_before_anything_is_trained() -> None:
    is_in = np.array([[True, True], [True, False], [False, False], [False, True]])
    require_shadows_of_all(TargetMembership(is_in))
    is_in[3, 1] = False
    assert_refused(r"target 1 .*1 of 4 trials: .*2 or more", lambda: require_shadows_of_all(TargetMembership(is_in)))
    named = r"target 0 is no member.* 0 of 4 trials"
    assert_refused(named, lambda: require_shadows_of_all(TargetMembership(~is_in | np.array([[True, False]]))))
    assert_refused("target 1 in", lambda: lira_scores(np.zeros((4, 2)), TargetMembership(is_in), is_shared=True))


@given(st.lists(st.floats(-30, 30), min_size=2, max_size=4), st.floats(-1000, 1000))
def test_the_confidence_is_the_log_odds_of_the_label(logits: list[float], shift: float) -> None:
    phi = [float(scaled_confidence(np.array(logits) + shift, label)) for label in range(len(logits))]
    for label, confidence in enumerate(phi):
        other_mass = math.fsum(math.exp(x) for k, x in enumerate(logits) if k != label)
        assert confidence == pytest.approx(logits[label] - math.log(other_mass), abs=1e-6)
        from_logs = scaled_confidence(log_probabilities(logits), label)
        assert float(from_logs) == pytest.approx(confidence, abs=1e-6)
        assert float(label_log_probability(logits, label)) == pytest.approx(-np.logaddexp(0, -confidence), abs=1e-6)


def test_a_saturated_confidence_stays_a_number() -> None:
    assert scaled_confidence([[800.0, 0.0, 1.0]], [0])[0] == pytest.approx(800 - math.log(1 + math.e))
    assert_refused(r"labels .*0 to 1", scaled_confidence, [[0.0, 1.0]], [2])
