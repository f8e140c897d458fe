from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from laboratory.made_up_games import Bits, games_of, gaussian, trial_of
from scipy.stats import binom

from fl_audit.audits.black_box.claim import Limit, StatedClaim
from fl_audit.audits.black_box.features import COARSE, FINEST
from fl_audit.audits.black_box.findings import evidence_words, not_tried, opening, trial_json
from fl_audit.audits.black_box.leads import METHODS, least_shift
from fl_audit.audits.black_box.seen import Games
from fl_audit.audits.black_box.trial import Budget, OutOfTimeError, Trial, put_on_trial
from fl_audit.errors import InputError
from fl_audit.statistics.lower_bounds import epsilon_lower_bound
from fl_audit.verdict.verdict import Verdict

_CLAIM = StatedClaim("add-remove-client", noise_multiplier=1.0)


def test_a_shift_twice_as_large_as_claimed_is_found_and_its_lines_are_shown() -> None:
    trial = trial_of(_CLAIM, gaussian(2.0), budget=Budget(200, (600,), (1.0,), 1, 1, 1))
    assert trial.verdict is Verdict.VIOLATED
    assert trial.worst is not None
    assert trial.worst.bound > trial.worst.lead.limit.epsilon
    # The best rule is right with probability Phi(1) = 0.841: five standard errors of 600 games are 0.075.
    assert trial.worst.right / trial.worst.games == pytest.approx(0.841, abs=0.075)
    assert any("round 1, step of weight[0]" in line for line in trial.worst.lines)


def test_the_whole_shift_over_rounds_counts() -> None:
    claim = StatedClaim("add-remove-client", noise_multiplier=2.0, rounds=4)
    assert trial_of(claim, gaussian(0.7, rounds=4)).verdict is Verdict.CONSISTENT
    assert trial_of(claim, gaussian(3.0, rounds=4)).verdict is Verdict.VIOLATED


@pytest.mark.long
def test_claims_that_hold_are_seldom_called_violated() -> None:
    # At the very edge of the claim. Of 40 trials at level .05 more than 6 are violated with probability .004.
    verdicts = [trial_of(_CLAIM, gaussian(1.0), seed).verdict for seed in range(40)]
    assert verdicts.count(Verdict.VIOLATED) <= int(binom.ppf(0.995, 40, 0.05)) == 6
    assert Verdict.INCONCLUSIVE not in verdicts


def test_a_claim_that_no_number_of_right_guesses_could_refute_is_left_open() -> None:
    claim = StatedClaim("add-remove-client", epsilon=20.0, delta=0.0)
    assert trial_of(claim, gaussian(9.0)).verdict is Verdict.INCONCLUSIVE


def test_a_number_beside_the_model_is_found_by_name() -> None:
    def make(bits: Bits, random: np.random.Generator) -> Games:
        return games_of(random.standard_normal((len(bits), 1, 3)), {"metrics: loss": np.where(bits, 1.5, 1.0)})

    trial = trial_of(_CLAIM, make)
    assert trial.verdict is Verdict.VIOLATED
    assert trial.worst is not None
    assert trial.worst.lead.group == "metrics: loss"
    assert trial.worst.lines[0].startswith("metrics: loss: 1.5 under D, 1 under D'")


def test_noise_that_repeats_is_found() -> None:
    def make(bits: Bits, random: np.random.Generator) -> Games:
        steps = np.repeat(random.standard_normal((len(bits), 1, 3)), 2, axis=1)
        steps[:, 0, 0] += 0.01 * bits
        return games_of(steps)

    assert trial_of(_CLAIM, make).verdict is Verdict.VIOLATED


def test_a_release_that_is_missing_is_found() -> None:
    def make(bits: Bits, random: np.random.Generator) -> Games:
        steps = random.standard_normal((len(bits), 1, 3))
        steps[~bits] = np.nan
        return games_of(steps)

    assert trial_of(_CLAIM, make).verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    ("played", "said"), [(0.0, Verdict.INCONCLUSIVE), (0.05, Verdict.INCONCLUSIVE), (0.7, Verdict.CONSISTENT)]
)
@pytest.mark.parametrize("what", ["a model was released", "what differs arrived"])
def test_only_games_that_were_games_carry_a_verdict(what: str, played: float, said: Verdict) -> None:
    """Whether a game is one follows from no coin: in none of them, in about 20 of 400, or as honest sampling has it."""

    def make(bits: Bits, random: np.random.Generator) -> Games:
        games, is_game = gaussian(0.5)(bits, random), random.random(len(bits)) < played
        if what == "what differs arrived":
            return replace(games, contributed=is_game)
        return replace(games, steps=np.where(is_game[:, None, None], games.steps, np.nan), has_release=is_game)

    trial = trial_of(_CLAIM, make)
    assert trial.verdict is said
    assert trial.silent == (() if played else ("kind",))
    assert ("what differs" in opening(trial)) is (said is Verdict.INCONCLUSIVE)
    assert len(trial.attempts) == (played > 0)


_EVERYWHERE = np.full(3, 3**-0.5)


def _released(add: Callable[[Any, Any], Any]) -> Trial:
    """Return a trial of noise as large as the norm, with the contribution in all three parameters."""

    def make(bits: Bits, random: np.random.Generator) -> Games:
        games = games_of(add(bits[:, None, None] * _EVERYWHERE, random.standard_normal((len(bits), 1, 3))))
        return replace(games, direction=np.broadcast_to(_EVERYWHERE, games.steps.shape))

    return trial_of(_CLAIM, make, budget=Budget(200, (2000,), (1.0,), 1, 1, 1))


def test_low_bits_of_a_sum_in_floating_point_are_said_and_do_not_count_in_the_verdict() -> None:
    trial = _released(lambda mean, noise: (mean.astype(np.float32) + noise.astype(np.float32)).astype(np.float64))
    assert trial.verdict is Verdict.CONSISTENT
    assert trial.floating is not None
    assert trial.floating.is_broken
    assert trial.floating.lead.group == FINEST
    assert "Floating-point leak" in opening(trial)
    assert "Floating-point leak" in trial_json(trial, ())["floating_point"]


def test_noise_on_a_grid_far_finer_than_itself_is_a_matter_of_rounding() -> None:
    trial = _released(lambda mean, noise: mean + np.rint(noise * 2.0**14) / 2.0**14)
    assert trial.verdict is Verdict.CONSISTENT
    assert trial.floating is not None
    assert trial.floating.right == trial.floating.games


def test_a_release_that_is_rounded_to_a_grid_has_no_low_bits() -> None:
    trial = _released(lambda mean, noise: np.rint((mean + noise) * 4096) / 4096)
    assert trial.verdict is Verdict.CONSISTENT
    assert trial.floating is None or not trial.floating.is_broken
    assert trial_json(trial, ())["floating_point"] is None


@pytest.mark.parametrize("grid", [0.25, 2.0**-8])
def test_noise_on_a_coarse_grid_is_more_than_a_matter_of_rounding(grid: float) -> None:
    """A 256th of the noise and more: what lies between its steps has no noise at all."""
    trial = _released(lambda mean, noise: mean + np.rint(noise / grid) * grid)
    assert trial.verdict is Verdict.VIOLATED
    assert trial.worst is not None
    assert trial.worst.lead.group == COARSE


def test_refusing_what_is_malformed_is_no_leak_and_refusing_an_ordinary_update_is() -> None:
    def make(bits: Bits, random: np.random.Generator) -> Games:
        return games_of(random.standard_normal((len(bits), 1, 3)), {"refused": np.where(bits, np.nan, 1.0)}, ~bits)

    allowed = trial_of(_CLAIM, make, malformed=frozenset(["kind"]))
    assert allowed.verdict is not Verdict.VIOLATED
    assert allowed.attempts == ()
    assert allowed.refusals[0].share_absent == 1
    refused = trial_of(_CLAIM, make)
    assert refused.verdict is Verdict.VIOLATED
    assert refused.refusals[0].said == "it refused"


def test_a_trial_may_end_with_the_first_lead_that_breaks_the_claim() -> None:
    random = np.random.default_rng(0)

    def play(_kind: str, _first: int, count: int) -> tuple[Games, Bits]:
        bits = random.random(count) < 0.5
        return gaussian(6.0)(bits, random), bits

    def attempts(until_broken: bool) -> int:
        budget = Budget(40, (400,), (1.0,), 3, 3, 1, until_broken)
        return len(put_on_trial(_CLAIM, ["a", "b", "c"], play, frozenset(), str, budget).attempts)

    assert (attempts(True), attempts(False)) == (1, 3)
    fewer = put_on_trial(_CLAIM, ["a", "b", "c"], play, frozenset(), str, Budget(40, (400,), (1.0,), 1, 2, 1))
    assert {*fewer.passed_over, *(attempt.lead.kind for attempt in fewer.attempts)} == {"a", "b", "c"}
    assert (len(fewer.passed_over), fewer.untried) == (1, ())


@pytest.mark.few_cases(1)
@pytest.mark.parametrize("seed", range(3))
def test_of_equally_sure_leads_the_plainest_are_tried_whatever_the_luck(seed: int) -> None:
    random = np.random.default_rng(seed)

    def play(_kind: str, _first: int, count: int) -> tuple[Games, Bits]:
        bits = random.random(count) < 0.5
        return gaussian(8.0)(bits, random), bits

    budget = Budget(60, (400,), (1.0,), 2, 2, 1, plainest=True)
    trial = put_on_trial(_CLAIM, [*"abcdefgh"], play, frozenset(), str, budget)
    assert {attempt.lead.kind for attempt in trial.attempts} == {"a", "b"}


@pytest.mark.long
def test_kinds_are_scouted_and_the_best_are_looked_at_closely() -> None:
    """Of twenty kinds, one of which leaks: all are played a little, five of them and the floating-point one more."""
    random, asked = np.random.default_rng(0), list[tuple[str, int, int]]()

    def play(kind: str, first: int, count: int) -> tuple[Games, Bits]:
        asked.append((kind, first, count))
        bits = random.random(count) < 0.5
        return gaussian(3.0 if kind == "leak" else 0.2)(bits, random), bits

    kinds = [*(f"kind {place}" for place in range(19)), "leak"]
    budget = Budget(200, (400, 800), (0.5, 0.5), 2, 2, 1, scout=60, kept=5)
    trial = put_on_trial(_CLAIM, kinds, play, frozenset(), str, budget)
    assert trial.verdict is Verdict.VIOLATED
    assert [kind for kind, _, count in asked if count == 60] == kinds
    closely = {kind for kind, first, count in asked if (first, count) == (0, 200)}
    assert "leak" in closely
    assert 5 <= len(closely) <= 6
    assert trial.pilots == 20 * 60 + len(closely) * 140
    # Fresh games begin where those that looked for leads end, and those of the second stage after the first.
    assert {(first, count) for _, first, count in asked if count not in (60,)} == {(0, 200), (200, 400), (600, 800)}
    assert sum(count == 800 for _, _, count in asked) == 1


@pytest.mark.few_cases(1)
@pytest.mark.parametrize(("noise_multiplier", "games", "level"), [(1.0, 1000, 0.005), (0.5, 1000, 0.005)])
def test_what_could_have_been_found_is_found_nine_times_in_ten(
    noise_multiplier: float, games: int, level: float
) -> None:
    """30 audits of normal scores at the stated shift; at a power of .9, fewer than 21 have a probability of 1e-3."""
    random = np.random.default_rng(0)
    for limit in StatedClaim("add-remove-client", noise_multiplier=noise_multiplier).limits[2:]:
        mu = least_shift(limit, games, level)
        if mu == float("inf"):
            continue
        powers = []
        for method in METHODS:
            found = 0
            for _ in range(30):
                bits = random.random(games) < 0.5
                scores = random.standard_normal(games) + mu * bits
                bound = epsilon_lower_bound(scores[bits], scores[~bits], limit.delta, 1 - level, method)
                found += bound.epsilon > limit.epsilon
            powers.append(found)
        assert max(powers) >= 21
        assert least_shift(limit, 8 * games, level) < mu
    assert least_shift(Limit(9.0, 0.0), 400, 0.05) == float("inf")


def test_a_consistent_claim_says_what_could_have_been_found() -> None:
    trial = trial_of(_CLAIM, gaussian(0.5))
    assert "Nine of ten such audits find noise that is" in opening(trial)
    assert 1 < trial_json(trial, ())["could_find_times_too_little_noise"] < 5


def test_what_was_not_tried_stands_in_the_headline() -> None:
    """Of six honest kinds two refuse, one is silent, and there is no time for the last."""
    random = np.random.default_rng(1)

    def play(kind: str, first: int, count: int) -> tuple[Games, Bits]:
        bits = random.random(count) < 0.5
        games = gaussian(0.2)(bits, random)
        match kind:
            case "late":
                raise OutOfTimeError
            case "refused" | "malformed":
                games = replace(games, refused=np.ones(count, dtype=bool))
            case "silent":
                games = replace(games, has_release=np.zeros(count, dtype=bool))
            case _:
                pass
        return games, bits

    kinds, budget = ["kind", "refused", "malformed", "silent", "late"], Budget(40, (1000,), (1.0,), 1, 1, 1)
    trial = put_on_trial(_CLAIM, kinds, play, frozenset({"malformed"}), lambda _: "it refused", budget)
    assert trial.verdict is Verdict.CONSISTENT
    assert opening(trial).startswith("Consistent: as far as tried, no game told more")
    assert "Not tried: 'late' (the time ran out" in opening(trial)
    assert "'silent' (no model was released, or what differs never arrived); 'refused' (every" in opening(trial)
    assert "malformed" not in opening(trial)
    assert [*not_tried(trial).values()] == [("late",), ("silent",), ("refused",)]
    everything = replace(trial, unplayed=(), silent=(), refused=())
    assert opening(everything).startswith("Consistent: no game told more")
    assert "Not tried" not in opening(everything)
    weak = replace(trial.attempts[0], lead=replace(trial.attempts[0].lead, limit=Limit(50.0, 1e-5)))
    assert not_tried(replace(everything, attempts=(*trial.attempts, weak))) == {
        "too few games to refute the claim": ("kind",)
    }
    many = replace(everything, passed_over=tuple("abcde"))
    assert "Not tried: 'a', 'b', 'c' and 2 more (they seemed to tell" in opening(many)


@pytest.mark.parametrize("wrong", [{"pilot": 30}, {"stages": (20,), "shares": (1.0,)}, {"shares": (0.5, 0.5, 0.5)}])
def test_bad_budgets_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Budget(**wrong)  # type: ignore[arg-type]


def test_a_trial_in_which_nothing_could_be_played_says_so() -> None:
    assert "no kind of game could be played" in opening(Trial(_CLAIM, Verdict.INCONCLUSIVE, (), (), 0))


@pytest.mark.few_cases(2)
@pytest.mark.parametrize(
    ("last_scouted", "tries", "said"),
    [(2, 9, Verdict.VIOLATED), (9, 1, Verdict.VIOLATED), (9, 0, Verdict.INCONCLUSIVE), (0, 9, Verdict.INCONCLUSIVE)],
)
def test_a_trial_that_runs_out_of_time_says_what_it_has(last_scouted: int, tries: int, said: Verdict) -> None:
    """Of three kinds that all leak: two are scouted, or all are and one lead is tried, or none, or no kind is."""
    random, counts = np.random.default_rng(0), {"looked": 0, "tried": 0}

    def play(_kind: str, first: int, count: int) -> tuple[Games, Bits]:
        what, most = ("tried", tries) if first else ("looked", last_scouted)
        counts[what] += 1
        if counts[what] > most:
            raise OutOfTimeError
        bits = random.random(count) < 0.5
        return gaussian(6.0)(bits, random), bits

    trial = put_on_trial(_CLAIM, ["a", "b", "c"], play, frozenset(), str, Budget(40, (400,), (1.0,), 3, 3, 1))
    assert trial.verdict is said
    assert trial.unplayed == ("a", "b", "c")[last_scouted:]
    # Where no fresh games tried a lead, half of the games that looked for leads try what the other half has found.
    assert len(trial.attempts) == (min(3, last_scouted) if tries == 0 else min(tries, last_scouted, 3))
    assert len(trial.attempts) + len(trial.untried) == min(3, last_scouted)
    if tries == 0:
        assert all(attempt.games <= 20 for attempt in trial.attempts)
        assert len(evidence_words(trial)) > 0 or not trial.attempts
    assert ("time ran out" in opening(trial)) is (bool(trial.unplayed) or bool(trial.untried))


def test_what_is_inconclusive_begins_with_the_strongest_evidence() -> None:
    """So few games refute no epsilon of 8, even without an error: the first line says how little noise there is."""
    claim = StatedClaim("add-remove-client", epsilon=8.0, delta=1e-5)
    trial = trial_of(claim, gaussian(1000.0), budget=Budget(100, (200,), (1.0,), 1, 1, 1))
    assert trial.verdict is Verdict.INCONCLUSIVE
    first = opening(trial).splitlines()[0]
    attempt = trial.attempts[0]
    assert f"{attempt.right} of {attempt.games} games of the kind 'kind' were guessed right" in first
    assert float(first.split("mu is ")[1].split(",")[0]) == pytest.approx(1000.0, rel=0.2)
    assert evidence_words(replace(trial, verdict=Verdict.CONSISTENT)) == ""
    assert evidence_words(replace(trial, attempts=())) == ""
