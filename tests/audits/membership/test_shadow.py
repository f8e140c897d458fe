"""The shadow attack: it finds what leaks, and no trial is attacked by a model that saw its coins."""

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from fl_audit.audits.membership.attacks.shadow import shadow_scores
from fl_audit.audits.membership.record_confidences import log_probabilities
from fl_audit.federation.target_membership import TargetMembership
from tests.builders.refusals import assert_refused

Array = NDArray[np.float64]


def federation(
    seed: int, leak: float, trials: int = 12, targets: int = 60
) -> tuple[Array, NDArray[np.int64], TargetMembership]:
    """Logits of three classes; a member's label gains `leak`."""
    draw = np.random.default_rng(seed)
    is_in = draw.random((trials, targets)) < 0.5
    labels = draw.integers(0, 3, targets)
    logits = draw.normal(size=(trials, targets, 3))
    logits[:, np.arange(targets), labels] += leak * is_in
    return log_probabilities(logits), labels, TargetMembership(is_in)


def test_it_finds_what_leaks() -> None:
    """The best attack, on the margin of the label, has an AUC of about 0.89 here."""
    values, labels, membership = federation(1, leak=2.0)
    scores = shadow_scores(values, labels, membership)
    assert roc_auc_score(membership.is_in.ravel(), scores.ravel()) > 0.8


def test_a_trials_own_coins_move_none_of_its_scores() -> None:
    values, labels, membership = federation(2, leak=1.0)
    before = shadow_scores(values, labels, membership)
    flipped = membership.is_in.copy()
    flipped[4] ^= True
    after = shadow_scores(values, labels, TargetMembership(flipped))
    same_fold = np.arange(12) % 2 == 4 % 2
    assert (before[same_fold] == after[same_fold]).all()
    assert not (before[~same_fold] == after[~same_fold]).any()


def test_named_shadow_trials_are_learnt_from_and_not_attacked() -> None:
    values, labels, membership = federation(3, leak=2.0)
    shadows = np.arange(12) < 7
    scores = shadow_scores(values, labels, membership, shadows)
    assert np.isnan(scores[shadows]).all()
    assert np.isfinite(scores[~shadows]).all()
    alone = np.r_[0:7, 9]
    again = shadow_scores(values[alone], labels, TargetMembership(membership.is_in[alone]), shadows[alone])
    assert scores[9] == pytest.approx(again[7])


def test_a_class_too_rare_to_be_learnt_is_attacked_by_what_all_classes_teach() -> None:
    """Targets of class 2 are in all trials that are learnt from; where the label is not put first, the AUC is 0.73."""
    values, labels, membership = federation(5, leak=2.0, trials=40)
    shadows = np.arange(40) < 20
    rare = labels == 2
    is_in = membership.is_in.copy()
    is_in[np.ix_(shadows, rare)] = True
    scores = shadow_scores(values, labels, TargetMembership(is_in), shadows)
    assert roc_auc_score(is_in[np.ix_(~shadows, rare)].ravel(), scores[np.ix_(~shadows, rare)].ravel()) > 0.78
    without = shadow_scores(values[:, ~rare], labels[~rare], TargetMembership(is_in[:, ~rare]), shadows)
    assert (scores[np.ix_(~shadows, ~rare)] == without[~shadows]).all()


def test_wrong_input_is_named() -> None:
    values, labels, membership = federation(4, leak=0.0, trials=4)
    everybody = TargetMembership(np.ones_like(membership.is_in))
    assert_refused(r"members and 0 others", shadow_scores, values, labels, everybody)
    named = "there are 1 trials: accepted are 2"
    assert_refused(named, lambda: shadow_scores(values[:1], labels, TargetMembership(membership.is_in[:1])))
    assert_refused("labels are", shadow_scores, values, labels[:3], membership)
