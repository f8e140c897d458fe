"""Few trials: guesses that follow from earlier trials alone, and sketches that keep what a known difference tells."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from fl_audit.app_audits.black_box.target_mod import applying_action, held
from fl_audit.app_audits.black_box.trial_messages import TargetAction, contribution, crafted, flat
from fl_audit.app_audits.claim_audit import features
from fl_audit.app_audits.claim_audit.claim import LESSONS, StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import claim_words
from fl_audit.app_audits.claim_audit.claim_audit_results import broken_estimates
from fl_audit.app_audits.claim_audit.online_guessing import audit_online, fewest_trials, guessed_epsilon
from fl_audit.app_audits.claim_audit.transcript import Transcripts, linear_sketch_of
from fl_audit.report.template_files import template_lines
from fl_audit.verdict.verdict import Verdict


def trials_of(columns: np.ndarray) -> Transcripts:
    """Trials whose released steps are some columns (trials, columns); the first lies along the difference."""
    steps = columns[:, None, :]
    nothing = np.zeros_like(steps)
    direction = nothing.copy()
    direction[:, :, 0] = 1.0
    return Transcripts(
        steps=steps,
        released=steps,
        direction=direction,
        others=nothing,
        own=nothing,
        contributed=np.ones(len(steps), dtype=bool),
        has_release=np.ones(len(steps), dtype=bool),
        numbers=np.zeros((len(steps), 0)),
        names=(),
        refused=np.zeros(len(steps), dtype=bool),
        tensors=(("weight", slice(0, columns.shape[1])),),
    )


@pytest.mark.long
def test_a_claim_that_just_holds_is_seldom_called_violated() -> None:
    """Randomised response at the claimed epsilon, beside columns of noise that a rule could learn by heart.

    30 audits at a level of 5 %: more than 6 alarms have a probability below 0.1 %.
    """
    claim = StatedClaim("add-remove-client", epsilon=1.0, delta=0.0)
    alarms = 0
    for seed in range(30):
        draws = np.random.default_rng(seed)
        present = draws.random(40) < 0.5
        responses = np.where(draws.random(40) < claim.success, present, ~present)
        along = responses[:, None] + 1e-6 * draws.normal(size=(40, 1))
        columns = np.concatenate([along, draws.normal(size=(40, 60))], axis=1)
        alarms += audit_online(claim, "toy", trials_of(columns), present).verdict is Verdict.VIOLATED
    assert binom.sf(6, 30, 0.05) < 0.001
    assert alarms <= 6


def test_a_leak_outside_the_difference_is_found() -> None:
    draws = np.random.default_rng(0)
    present = draws.random(100) < 0.5
    columns = draws.normal(size=(100, 3))
    columns[:, 2] = np.where(present, 3.0, -3.0) + draws.normal(size=100)
    result = audit_online(StatedClaim("add-remove-client", epsilon=1.0), "toy", trials_of(columns), present)
    assert result.verdict is Verdict.VIOLATED
    assert result.tests[0].distinguisher.group != features._ALONG


@pytest.mark.parametrize(
    ("last", "expected_verdict"), [(100, Verdict.CONSISTENT), (40, Verdict.INCONCLUSIVE), (0, Verdict.INCONCLUSIVE)]
)
def test_trials_in_which_nothing_arrived_do_not_count(last: int, expected_verdict: Verdict) -> None:
    """Of 80 trials that count 20 remain in the second case, where `fewest_trials` asks for 30 at least."""
    draws = np.random.default_rng(3)
    claim = StatedClaim("add-remove-client", epsilon=2.0)
    present = np.tile([True, False], 50)
    trials = replace(trials_of(draws.normal(size=(100, 3))), contributed=np.arange(100) < last)
    result = audit_online(claim, "toy", trials, present)
    assert last - LESSONS < fewest_trials(claim) - LESSONS <= 100 - LESSONS or last == 100
    assert result.verdict is expected_verdict


def test_too_little_noise_is_not_consistent_where_too_few_guesses_are_right() -> None:
    """Epsilon 1 at delta 1e-5 allows mu .27: a shift of 1.3 shows too little noise, and 80 guesses do not prove it."""
    draws = np.random.default_rng(6)
    claim = StatedClaim("add-remove-client", epsilon=1.0)
    present = draws.random(100) < 0.5
    columns = draws.normal(size=(100, 3))
    columns[:, 0] += 1.3 * present
    result = audit_online(claim, "toy", trials_of(columns), present)
    assert not result.tests[0].is_broken
    assert broken_estimates(result.tests)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "two readings disagree" in claim_words(result)


@pytest.mark.long
@pytest.mark.parametrize(
    ("shift", "noise", "expected_verdict"),
    [(1.0, 1.0, Verdict.INCONCLUSIVE), (1.0, 0.0, Verdict.INCONCLUSIVE), (5.0, 1.0, Verdict.VIOLATED)],
)
def test_what_only_the_replies_of_others_tell_refutes_no_claim_that_does_not_cover_them(
    shift: float, noise: float, expected_verdict: Verdict
) -> None:
    """Noise 1 in three shares, two of them seen; noise 1 of the others alone; and too little for anybody."""
    draws = np.random.default_rng(4)
    present = draws.random(700) < 0.5
    other_replies = np.sqrt(2 / 3 if noise else 1.0) * draws.normal(size=(700, 1, 1))
    own_noise = noise * np.sqrt(1 / 3) * draws.normal(size=700)
    trials = trials_of((shift * present + other_replies[:, 0, 0] + own_noise)[:, None])
    claim = StatedClaim("add-remove-client", noise_multiplier=1.0)
    result = audit_online(claim, "toy", replace(trials, others=other_replies), present)
    assert result.verdict is expected_verdict
    assert (result.knowing is not None) is (expected_verdict is Verdict.INCONCLUSIVE)
    covered = audit_online(claim, "toy", replace(trials, others=other_replies), present, knows_others=True)
    assert (covered.verdict, covered.knowing) == (Verdict.VIOLATED, None)
    # Nothing seen of others: an honest claim stays as it is.
    if noise and shift == 1:
        assert audit_online(claim, "toy", trials, present).verdict is Verdict.CONSISTENT


def test_the_fewest_trials_just_refute_a_claim() -> None:
    claim = StatedClaim("add-remove-client", epsilon=4.0, delta=1e-5)
    trial_count = fewest_trials(claim) - LESSONS
    assert (
        guessed_epsilon(trial_count - 1, trial_count - 1, claim.delta, 0.95)
        <= 4.0
        < guessed_epsilon(trial_count, trial_count, 1e-5, 0.95)
    )


def test_a_sketch_keeps_products_with_the_difference() -> None:
    draws = np.random.default_rng(0)
    shapes = {f"tensor {index:02d}": (index + 1, 3) for index in range(30)}
    size = sum(3 * (index + 1) for index in range(30))
    vectors, difference = draws.normal(size=(2, 2, size))
    sketch = linear_sketch_of(shapes)
    small = sketch.of_vectors(vectors, difference)
    along = sketch.of_difference(difference)
    assert small.shape == along.shape == (2, sketch.columns[-1][1].stop)
    assert small.shape[1] == 40
    np.testing.assert_allclose(np.sum(small * along, axis=1), np.sum(vectors * difference, axis=1))
    np.testing.assert_allclose(np.linalg.norm(along, axis=1), np.linalg.norm(difference, axis=1))


def test_every_action_is_what_it_says() -> None:
    base = {"b": np.array([1, 2], np.int64), "a": np.array([0.5, -0.5, 0.0], np.float32), "c": np.zeros((), np.float16)}
    own_model = {
        "b": np.array([5, 5], np.int64),
        "a": np.array([1.5, 0.5, 1.0], np.float32),
        "c": np.ones((), np.float16),
    }
    moved = {action: flat(contribution(action, own_model, base, 100.0)) - flat(base) for action in TargetAction}
    np.testing.assert_array_equal(moved[TargetAction.OWN], flat(own_model) - flat(base))
    # A counter of whole numbers has no opposite.
    np.testing.assert_array_equal(moved[TargetAction.OWN_OPPOSITE], [-1, -1, -1, 0, 0, -1])
    floats = [0, 1, 2, 5]
    whole = [3, 4]
    assert np.linalg.norm(moved[TargetAction.CRAFTED][floats]) == pytest.approx(100, rel=1e-3)
    # Whole numbers carry a canary too, of at least 1 however short the update is.
    assert np.all(moved[TargetAction.CRAFTED][whole] >= 1)
    assert crafted({"b": base["b"], "a": base["a"]}, 1e-3)["b"].tolist() == [1, 1]
    assert contribution(TargetAction.CRAFTED, base, {"mask": np.array([False, True])}, 1.0)["mask"].tolist() == [
        True,
        True,
    ]
    np.testing.assert_allclose(moved[TargetAction.CRAFTED_OPPOSITE], -moved[TargetAction.CRAFTED])
    assert not np.any(moved[TargetAction.NOTHING])
    assert 0 < np.abs(moved[TargetAction.ALMOST_NOTHING]).max() < 1e-5
    assert np.count_nonzero(moved[TargetAction.ALMOST_NOTHING]) == 1
    np.testing.assert_allclose(flat(crafted(base, 100.0)), moved[TargetAction.CRAFTED], rtol=1e-3)


def test_records_are_held_as_the_trial_wants() -> None:
    inputs = np.arange(6).reshape(3, 2)
    labels = ["x", "y", "z"]
    assert held(labels) is labels
    with applying_action(TargetAction.WITHOUT_RECORD) as shard:
        fewer, names = held(inputs, labels)
        assert fewer.tolist() == [[2, 3], [4, 5]]
        assert list(names) == ["y", "z"]
        assert len(names) == 2
    assert shard.records == 3
    with applying_action(TargetAction.OTHER_RECORD):
        assert held(inputs).tolist() == [[4, 5], [2, 3], [4, 5]]
    with applying_action(
        TargetAction.OWN
    ):  # taken out as under D', so that whatever an app makes of that, it makes of both
        same = held(inputs)
        assert same is not inputs
        assert same.tolist() == inputs.tolist()


@pytest.mark.parametrize(
    ("rounds", "expected_note"),
    [(12, "1 of the 12 .* the last 11 were not .*rounds=12"), (2, "the last one was not"), (1, ""), (None, "")],
)
def test_rounds_of_the_training_that_no_trial_plays_are_said(rounds: int | None, expected_note: str) -> None:
    facts: dict[str, Any] = {"trials": 220, "needed": 0, "contributions": (), "ignores_numbers": False}
    facts |= {"is_of_client": False, "is_still": False, "rounds": rounds, "played_rounds": 1}
    notes = template_lines("in_app_notes.md", **facts)
    assert bool(notes) is bool(expected_note)
    assert re.search(expected_note, " ".join(notes))
