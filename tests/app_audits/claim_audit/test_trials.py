import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from fl_audit.app_audits.claim_audit.claim import EpsilonDeltaLimit, StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import TOO_FEW, not_tried, opening_sentences, trials_words
from fl_audit.app_audits.claim_audit.claim_audit_procedure import audit_claim
from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit, OutOfTimeError, TrialBudget
from fl_audit.app_audits.claim_audit.distinguishers import METHODS, find_distinguishers, least_shift
from fl_audit.app_audits.claim_audit.features import COARSE, FINEST
from fl_audit.app_audits.claim_audit.transcript import Transcripts
from fl_audit.app_audits.claim_audit.trial_results import result_json, strategy_result
from fl_audit.statistics.lower_bounds import epsilon_lower_bound
from fl_audit.verdict.verdict import Verdict
from tests.app_audits.claim_audit.made_up_trials import Bits, gaussian, result_of, trials_of

_CLAIM = StatedClaim("add-remove-client", noise_multiplier=1.0)


def test_a_shift_twice_as_large_as_claimed_is_found_and_its_lines_are_shown() -> None:
    result = result_of(_CLAIM, gaussian(2.0), budget=TrialBudget(200, (600,), (1.0,), 1, 1, 1))
    assert result.verdict is Verdict.VIOLATED
    assert result.worst is not None
    assert result.worst.bound > result.worst.distinguisher.limit.epsilon
    # The best rule is right with probability Phi(1) = 0.841: five standard errors of 600 trials are 0.075.
    assert result.worst.right / result.worst.trials == pytest.approx(0.841, abs=0.075)
    assert any(line.startswith("round 1, ") and "weight[0]:" in line for line in result.worst.lines)


def test_the_whole_shift_over_rounds_counts() -> None:
    claim = StatedClaim("add-remove-client", noise_multiplier=2.0, rounds=4)
    assert result_of(claim, gaussian(0.7, rounds=4)).verdict is Verdict.CONSISTENT
    assert result_of(claim, gaussian(3.0, rounds=4)).verdict is Verdict.VIOLATED


@pytest.mark.long
def test_claims_that_hold_are_seldom_called_violated() -> None:
    # At the very edge of the claim. Of 40 trials at level .05 more than 6 are violated with probability .004.
    verdicts = [result_of(_CLAIM, gaussian(1.0), seed).verdict for seed in range(40)]
    assert verdicts.count(Verdict.VIOLATED) <= int(binom.ppf(0.995, 40, 0.05)) == 6
    assert Verdict.INCONCLUSIVE not in verdicts


def test_a_claim_that_no_number_of_right_guesses_could_refute_is_left_open() -> None:
    claim = StatedClaim("add-remove-client", epsilon=20.0, delta=0.0)
    assert result_of(claim, gaussian(9.0)).verdict is Verdict.INCONCLUSIVE


def test_a_number_beside_the_model_is_found_by_name() -> None:
    def make(bits: Bits, random: np.random.Generator) -> Transcripts:
        return trials_of(random.standard_normal((len(bits), 1, 3)), {"metrics: loss": np.where(bits, 1.5, 1.0)})

    result = result_of(_CLAIM, make)
    assert result.verdict is Verdict.VIOLATED
    assert result.worst is not None
    assert result.worst.distinguisher.group == "metrics: loss"
    assert result.worst.lines[0].startswith("metrics: loss: 1.5 under D, 1 under D'")


def test_noise_that_repeats_is_found() -> None:
    def make(bits: Bits, random: np.random.Generator) -> Transcripts:
        steps = np.repeat(random.standard_normal((len(bits), 1, 3)), 2, axis=1)
        steps[:, 0, 0] += 0.01 * bits
        return trials_of(steps)

    assert result_of(_CLAIM, make).verdict is Verdict.VIOLATED


def test_a_release_that_is_missing_is_found() -> None:
    def make(bits: Bits, random: np.random.Generator) -> Transcripts:
        steps = random.standard_normal((len(bits), 1, 3))
        steps[~bits] = np.nan
        return trials_of(steps)

    assert result_of(_CLAIM, make).verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    ("played", "expected_verdict"),
    [(0.0, Verdict.INCONCLUSIVE), (0.05, Verdict.INCONCLUSIVE), (0.7, Verdict.CONSISTENT)],
)
@pytest.mark.parametrize("condition", ["a model was released", "what differs arrived"])
def test_only_trials_that_were_trials_carry_a_verdict(condition: str, played: float, expected_verdict: Verdict) -> None:
    """Whether a trial is one follows from no coin: in none of them, in about 20 of 400, or as honest sampling has
    it.
    """

    def make(bits: Bits, random: np.random.Generator) -> Transcripts:
        trials = gaussian(0.5)(bits, random)
        is_trial = random.random(len(bits)) < played
        if condition == "what differs arrived":
            return replace(trials, contributed=is_trial)
        return replace(trials, steps=np.where(is_trial[:, None, None], trials.steps, np.nan), has_release=is_trial)

    result = result_of(_CLAIM, make)
    assert result.verdict is expected_verdict
    assert result.silent == (() if played else ("kind",))
    assert ("what differs" in opening_sentences(result)) is (expected_verdict is Verdict.INCONCLUSIVE)
    assert len(result.tests) == (played > 0)


def test_a_release_in_one_case_alone_is_said_as_such_beside_right_guesses() -> None:
    """No share of trials is named that would contradict the guesses, all of which are right."""

    def make(bits: Bits, random: np.random.Generator) -> Transcripts:
        trials = gaussian(0.5)(bits, random)
        return replace(trials, steps=np.where(bits[:, None, None], trials.steps, np.nan), has_release=bits)

    result = result_of(_CLAIM, make)
    assert result.verdict is Verdict.VIOLATED
    assert result.worst is not None
    assert result.worst.right == result.worst.trials
    assert "none of the" in trials_words(result.worst)
    assert "%" not in trials_words(result.worst)


_EVERYWHERE = np.full(3, 3**-0.5)


def _released(add: Callable[[Any, Any], Any]) -> ClaimAudit:
    """Return a trial of noise as large as the norm, with the contribution in all three parameters."""

    def make(bits: Bits, random: np.random.Generator) -> Transcripts:
        trials = trials_of(add(bits[:, None, None] * _EVERYWHERE, random.standard_normal((len(bits), 1, 3))))
        return replace(trials, direction=np.broadcast_to(_EVERYWHERE, trials.steps.shape))

    return result_of(_CLAIM, make, budget=TrialBudget(200, (2000,), (1.0,), 1, 1, 1))


def test_low_bits_of_a_sum_in_floating_point_are_said_and_do_not_count_in_the_verdict() -> None:
    result = _released(lambda mean, noise: (mean.astype(np.float32) + noise.astype(np.float32)).astype(np.float64))
    assert result.verdict is Verdict.CONSISTENT
    assert result.floating is not None
    assert result.floating.is_broken
    assert result.floating.distinguisher.group == FINEST
    assert "Floating-point leak" in opening_sentences(result)
    assert "Floating-point leak" in result_json(result, ())["floating_point"]


def test_noise_on_a_grid_far_finer_than_itself_is_a_matter_of_rounding() -> None:
    result = _released(lambda mean, noise: mean + np.rint(noise * 2.0**14) / 2.0**14)
    assert result.verdict is Verdict.CONSISTENT
    assert result.floating is not None
    assert result.floating.right == result.floating.trials


def test_a_release_that_is_rounded_to_a_grid_has_no_low_bits() -> None:
    result = _released(lambda mean, noise: np.rint((mean + noise) * 4096) / 4096)
    assert result.verdict is Verdict.CONSISTENT
    assert result.floating is None or not result.floating.is_broken
    assert result_json(result, ())["floating_point"] is None


@pytest.mark.long
@pytest.mark.parametrize("grid", [0.25, 2.0**-8])
def test_noise_on_a_coarse_grid_is_more_than_a_matter_of_rounding(grid: float) -> None:
    """A 256th of the noise and more: what lies between its steps has no noise at all."""
    result = _released(lambda mean, noise: mean + np.rint(noise / grid) * grid)
    assert result.verdict is Verdict.VIOLATED
    assert result.worst is not None
    assert result.worst.distinguisher.group == COARSE


def test_refusing_what_is_malformed_is_no_leak_and_refusing_an_ordinary_update_is() -> None:
    def make(bits: Bits, random: np.random.Generator) -> Transcripts:
        return trials_of(random.standard_normal((len(bits), 1, 3)), {"refused": np.where(bits, np.nan, 1.0)}, ~bits)

    allowed = result_of(_CLAIM, make, malformed=frozenset(["kind"]))
    assert allowed.verdict is not Verdict.VIOLATED
    assert allowed.tests == ()
    assert allowed.refusals[0].share_absent == 1
    refused = result_of(_CLAIM, make)
    assert refused.verdict is Verdict.VIOLATED
    assert refused.refusals[0].error == "it refused"


@pytest.mark.long
def test_a_trial_may_end_with_the_first_distinguisher_that_breaks_the_claim() -> None:
    random = np.random.default_rng(0)

    def play(_kind: str, _first: int, count: int) -> tuple[Transcripts, Bits]:
        bits = random.random(count) < 0.5
        return gaussian(6.0)(bits, random), bits

    def tests(until_broken: bool) -> int:
        budget = TrialBudget(40, (400,), (1.0,), 3, 3, 1, until_broken)
        return len(audit_claim(_CLAIM, ["a", "b", "c"], play, frozenset(), str, budget).tests)

    assert (tests(True), tests(False)) == (1, 3)
    fewer = audit_claim(_CLAIM, ["a", "b", "c"], play, frozenset(), str, TrialBudget(40, (400,), (1.0,), 1, 2, 1))
    assert {*fewer.passed_over, *(test.distinguisher.kind for test in fewer.tests)} == {"a", "b", "c"}
    assert (len(fewer.passed_over), fewer.untried) == (1, ())


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("seed", range(3))
def test_of_equally_sure_distinguishers_the_plainest_are_tried_whatever_the_luck(seed: int) -> None:
    random = np.random.default_rng(seed)

    def play(_kind: str, _first: int, count: int) -> tuple[Transcripts, Bits]:
        bits = random.random(count) < 0.5
        return gaussian(8.0)(bits, random), bits

    budget = TrialBudget(60, (400,), (1.0,), 2, 2, 1, plainest=True)
    result = audit_claim(_CLAIM, [*"abcdefgh"], play, frozenset(), str, budget)
    assert {test.distinguisher.kind for test in result.tests} == {"a", "b"}


@pytest.mark.long
def test_kinds_are_scouted_and_the_best_are_looked_at_closely() -> None:
    """Of twenty kinds, one of which leaks: all are played a little, five of them and the floating-point one more."""
    random = np.random.default_rng(0)
    requests = list[tuple[str, int, int]]()

    def play(kind: str, first: int, count: int) -> tuple[Transcripts, Bits]:
        requests.append((kind, first, count))
        bits = random.random(count) < 0.5
        return gaussian(3.0 if kind == "leak" else 0.2)(bits, random), bits

    kinds = [*(f"kind {index}" for index in range(19)), "leak"]
    budget = TrialBudget(200, (400, 800), (0.5, 0.5), 2, 2, 1, scout=60, passing_scenarios=5)
    result = audit_claim(_CLAIM, kinds, play, frozenset(), str, budget)
    assert result.verdict is Verdict.VIOLATED
    assert [kind for kind, _, count in requests if count == 60] == kinds
    closely = {kind for kind, first, count in requests if (first, count) == (0, 200)}
    assert "leak" in closely
    assert 5 <= len(closely) <= 6
    assert result.pilots == 20 * 60 + len(closely) * 140
    # Fresh trials begin where those that looked for distinguishers end, and those of the second stage after the first.
    assert {(first, count) for _, first, count in requests if count not in (60,)} == {(0, 200), (200, 400), (600, 800)}
    assert sum(count == 800 for _, _, count in requests) == 1


@pytest.mark.long
@pytest.mark.parametrize(("noise_multiplier", "trials", "level"), [(1.0, 1000, 0.005), (0.5, 1000, 0.005)])
def test_what_could_have_been_found_is_found_nine_times_in_ten(
    noise_multiplier: float, trials: int, level: float
) -> None:
    """30 audits of normal scores at the stated shift; at a power of .9, fewer than 21 have a probability of 1e-3."""
    random = np.random.default_rng(0)
    for limit in StatedClaim("add-remove-client", noise_multiplier=noise_multiplier).limits[2:]:
        mu = least_shift(limit, trials, level)
        if mu == float("inf"):
            continue
        powers = []
        for method in METHODS:
            detections = 0
            for _ in range(30):
                bits = random.random(trials) < 0.5
                scores = random.standard_normal(trials) + mu * bits
                bound = epsilon_lower_bound(scores[bits], scores[~bits], limit.delta, 1 - level, method)
                detections += bound.epsilon > limit.epsilon
            powers.append(detections)
        assert max(powers) >= 21
        assert least_shift(limit, 8 * trials, level) < mu
    assert least_shift(EpsilonDeltaLimit(9.0, 0.0), 400, 0.05) == float("inf")


def test_a_consistent_claim_says_what_could_have_been_found() -> None:
    result = result_of(_CLAIM, gaussian(0.5))
    noise_ratio = result_json(result, ())["could_find_times_too_little_noise"]
    assert 1 < noise_ratio < 5
    assert f" {noise_ratio:.2g} times " in opening_sentences(result)


def test_what_was_not_tried_stands_in_the_headline() -> None:
    """Of six honest kinds two refuse, one is silent, and there is no time for the last."""
    random = np.random.default_rng(1)

    def play(kind: str, first: int, count: int) -> tuple[Transcripts, Bits]:
        bits = random.random(count) < 0.5
        trials = gaussian(0.2)(bits, random)
        match kind:
            case "late":
                raise OutOfTimeError
            case "refused" | "malformed":
                trials = replace(trials, refused=np.ones(count, dtype=bool))
            case "silent":
                trials = replace(trials, has_release=np.zeros(count, dtype=bool))
            case _:
                pass
        return trials, bits

    kinds = ["kind", "refused", "malformed", "silent", "late"]
    budget = TrialBudget(40, (1000,), (1.0,), 1, 1, 1)
    result = audit_claim(_CLAIM, kinds, play, frozenset({"malformed"}), lambda _: "it refused", budget)
    assert result.verdict is Verdict.CONSISTENT
    assert opening_sentences(result).startswith("Consistent: as far")
    assert all(f"'{kind}' (" in opening_sentences(result) for kind in ("late", "silent", "refused"))
    assert "malformed" not in opening_sentences(result)
    assert [*not_tried(result).values()] == [("late",), ("silent",), ("refused",)]
    everything = replace(result, unplayed=(), silent=(), refused=())
    assert opening_sentences(everything).startswith("Consistent: ")
    assert "as far" not in opening_sentences(everything)
    assert "Not tried" not in opening_sentences(everything)
    weak = replace(
        result.tests[0], distinguisher=replace(result.tests[0].distinguisher, limit=EpsilonDeltaLimit(50.0, 1e-5))
    )
    assert not_tried(replace(everything, tests=(*result.tests, weak))) == {TOO_FEW: ("kind",)}
    partial_audit = replace(everything, passed_over=tuple("abcde"))
    assert "'a', 'b', 'c' and 2 more (" in opening_sentences(partial_audit)
    within = replace(partial_audit, passed_over_within=tuple("cde"))
    assert [*not_tried(within).values()] == [("a", "b"), ("c", "d", "e")]
    assert "within" in [*not_tried(within)][1]


@pytest.mark.parametrize(("noise", "exceeds"), [(0.25, False), (1.0, True), (2.0, True)])
def test_a_scenario_seems_to_tell_only_if_its_trials_exceed_the_claim(noise: float, exceeds: bool) -> None:
    """All of 50 trials are told, where multiplier 0.25 allows 97.7 %, 1 allows 69.1 % and 2 allows 59.9 %."""
    random = np.random.default_rng(0)
    bits = np.arange(100) % 2 == 0
    claim = StatedClaim("add-remove-client", noise_multiplier=noise)
    best = find_distinguishers("a", gaussian(40.0)(bits, random), bits, claim.limits, 4000)[0]
    assert best.margin > 0
    assert best.seems_to_refute is exceeds


def test_a_trial_in_which_nothing_could_be_played_says_so() -> None:
    assert "Inconclusive: no scenario" in opening_sentences(ClaimAudit(_CLAIM, Verdict.INCONCLUSIVE, (), (), 0))


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    ("last_scouted", "tries", "expected_verdict"),
    [(2, 9, Verdict.VIOLATED), (9, 1, Verdict.VIOLATED), (9, 0, Verdict.INCONCLUSIVE), (0, 9, Verdict.INCONCLUSIVE)],
)
def test_a_trial_that_runs_out_of_time_says_what_it_has(
    last_scouted: int, tries: int, expected_verdict: Verdict
) -> None:
    """Of three kinds that all leak: two are scouted, or all are and one distinguisher is tried, or none, or no kind
    is.
    """
    random = np.random.default_rng(0)
    counts = {"looked": 0, "tried": 0}

    def play(_kind: str, first: int, count: int) -> tuple[Transcripts, Bits]:
        stage, limit = ("tried", tries) if first else ("looked", last_scouted)
        counts[stage] += 1
        if counts[stage] > limit:
            raise OutOfTimeError
        bits = random.random(count) < 0.5
        return gaussian(6.0)(bits, random), bits

    result = audit_claim(_CLAIM, ["a", "b", "c"], play, frozenset(), str, TrialBudget(40, (400,), (1.0,), 3, 3, 1))
    assert result.verdict is expected_verdict
    assert result.unplayed == ("a", "b", "c")[last_scouted:]
    # Where no fresh trials tried a distinguisher, half of the trials that looked for distinguishers try what the other
    # half has found.
    assert len(result.tests) == (min(3, last_scouted) if tries == 0 else min(tries, last_scouted, 3))
    assert len(result.tests) + len(result.untried) == min(3, last_scouted)
    if tries == 0:
        assert all(test.trials <= 20 for test in result.tests)
    assert ("time ran out" in opening_sentences(result)) is (bool(result.unplayed) or bool(result.untried))


def test_what_is_inconclusive_begins_with_the_strongest_evidence() -> None:
    """So few trials refute no epsilon of 8, even without an error: the first line says how little noise there is."""
    claim = StatedClaim("add-remove-client", epsilon=8.0, delta=1e-5)
    result = result_of(claim, gaussian(1000.0), budget=TrialBudget(100, (200,), (1.0,), 1, 1, 1))
    assert result.verdict is Verdict.INCONCLUSIVE
    first = opening_sentences(result).splitlines()[0]
    test = result.tests[0]
    assert re.search(rf"\b{test.right} of {test.trials} trials .*'kind'", first)
    assert float(first.split("mu is ")[1].split(",")[0]) == pytest.approx(1000.0, rel=0.2)


def test_a_number_beside_the_model_leaves_the_noise_tested() -> None:
    """A metric that tells every trial refutes the claim, and the release is tested beside it: its noise is honest."""

    def make(bits: Bits, random: np.random.Generator) -> Transcripts:
        return trials_of(gaussian(0.9)(bits, random).steps, {"metrics: loss": np.where(bits, 1.5, 1.0)})

    result = result_of(_CLAIM, make)
    assert result.verdict is Verdict.VIOLATED
    assert [(test.is_beside_model, test.is_broken) for test in result.tests] == [(True, True), (False, False)]
    assert result.untried == ()


def test_a_number_is_tested_once_however_many_scenarios_show_it() -> None:
    random = np.random.default_rng(0)

    def play(_kind: str, _first: int, count: int) -> tuple[Transcripts, Bits]:
        bits = random.random(count) < 0.5
        return trials_of(gaussian(0.5)(bits, random).steps, {"metrics: loss": np.where(bits, 1.5, 1.0)}), bits

    budget = TrialBudget(60, (400,), (1.0,), 2, 4, 1)
    result = audit_claim(_CLAIM, ["a", "b", "c"], play, frozenset(), str, budget)
    assert sum(test.is_beside_model for test in result.tests) == 1
    assert sum(not test.is_beside_model for test in result.tests) == 2


@pytest.mark.parametrize(("rounds", "is_named"), [(1, True), (2, False)])
def test_a_claim_about_one_round_names_what_is_carried_from_round_to_round(rounds: int, is_named: bool) -> None:
    result = result_of(replace(_CLAIM, rounds=rounds), gaussian(0.5, rounds))
    page_result = strategy_result("mine", result, ())
    assert any("round to round" in text for _, text in page_result.lines) is is_named
    assert any("round to round" in text for text in page_result.scope.unseen) is is_named
