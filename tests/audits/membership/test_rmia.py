"""The robust membership inference attack against loops over trials, targets and population records."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fl_audit.audits.membership.attacks.rmia import rmia_scores
from fl_audit.federation.target_membership import TargetMembership
from tests.builders.refusals import assert_refused

Array = NDArray[np.float64]


def federation(
    seed: int, trials: int = 8, targets: int = 5, records: int = 30
) -> tuple[Array, Array, NDArray[np.bool_]]:
    draw = np.random.default_rng(seed)
    is_in = np.argsort(draw.random((trials, targets)), axis=0) < trials // 2
    logits = draw.normal(size=(trials, targets)) + is_in
    return -np.logaddexp(0, -logits), -np.logaddexp(0, -draw.normal(size=(trials, records))), is_in


def by_loops(target_log_probs: Array, population_log_probs: Array, is_in: NDArray[np.bool_]) -> Array:
    """The authors' code: probability ratios of x and of z, and the share of z that x outdoes."""
    trials, targets = target_log_probs.shape
    p = np.exp(target_log_probs)
    z = np.exp(population_log_probs)
    a = 0.3
    scores = np.zeros_like(target_log_probs)
    for w in range(trials):
        other_trials = np.arange(trials) != w
        common = z[other_trials].mean(axis=0)
        ratio_z = z[w] / ((1 + a) / 2 * common + (1 - a) / 2)
        for t in range(targets):
            out = p[other_trials & ~is_in[:, t], t].mean()
            ratio_x = p[w, t] / ((1 + a) / 2 * out + (1 - a) / 2)
            scores[w, t] = np.mean(ratio_x / ratio_z >= 1)
    return scores


def test_it_is_the_authors_computation() -> None:
    target_log_probs, population_log_probs, is_in = federation(1)
    found = rmia_scores(target_log_probs, population_log_probs, TargetMembership(is_in))
    assert found == pytest.approx(by_loops(target_log_probs, population_log_probs, is_in))


@given(seed=st.integers(0, 10**6), trial=st.integers(0, 7))
def test_a_trials_own_coins_move_none_of_its_scores(seed: int, trial: int) -> None:
    target_log_probs, population_log_probs, is_in = federation(seed)
    flipped = is_in.copy()
    flipped[trial] ^= True
    before, after = (
        rmia_scores(target_log_probs, population_log_probs, TargetMembership(m))[trial] for m in (is_in, flipped)
    )
    assert before.tolist() == pytest.approx(after.tolist())


def test_named_reference_trials_are_the_only_ones_used() -> None:
    target_log_probs, population_log_probs, is_in = federation(5)
    shadows = np.arange(8) < 6
    scores = rmia_scores(target_log_probs, population_log_probs, TargetMembership(is_in), shadows=shadows)[7]
    trial_indices = np.r_[0:6, 7]
    assert (
        scores.tolist()
        == rmia_scores(
            target_log_probs[trial_indices], population_log_probs[trial_indices], TargetMembership(is_in[trial_indices])
        )[6].tolist()
    )


def test_hopeless_confidences_stay_numbers() -> None:
    target_log_probs, population_log_probs, is_in = federation(6)
    assert np.isfinite(rmia_scores(target_log_probs - 2000, population_log_probs - 2000, TargetMembership(is_in))).all()


def test_wrong_input_is_named() -> None:
    target_log_probs, population_log_probs, is_in = federation(7)
    membership = TargetMembership(is_in)
    named = r"log-probabilities reach 1: .*up to 0"
    assert_refused(named, rmia_scores, np.ones_like(target_log_probs), population_log_probs, membership)
    named = r"population .*\(3, 30\): .*\(8, records\)"
    assert_refused(named, rmia_scores, target_log_probs, population_log_probs[:3], membership)
    everybody = TargetMembership(np.ones_like(is_in))
    named = r"0 shadow trials .*target 0 out"
    assert_refused(named, rmia_scores, target_log_probs, population_log_probs, everybody)
