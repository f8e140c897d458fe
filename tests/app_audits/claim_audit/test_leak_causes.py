"""A violated claim is explained by its cause, and honest noise by none."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_messages import refusal_words
from fl_audit.app_audits.claim_audit.claim_audit_results import TrialErrorShares
from fl_audit.app_audits.claim_audit.features import ROUNDED
from fl_audit.app_audits.claim_audit.leak_causes import cause_of
from fl_audit.app_audits.claim_audit.trial_results import ScenarioTexts, findings, strategy_result
from fl_audit.app_audits.page import write_strategy_page
from tests.app_audits.claim_audit.made_up_trials import Bits, gaussian, result_of, trials_of

_CLAIM = StatedClaim("add-remove-client", noise_multiplier=1.0)


def momentum(bits: Bits, random: np.random.Generator) -> NDArray[np.float64]:
    """Three rounds in which a client's update is added again with weight .9 before the noise."""
    steps = random.standard_normal((len(bits), 3, 3))
    steps[:, :, 0] += bits[:, None] * np.array([1.0, 1.9, 2.71])
    return steps


def fixed_seed(bits: Bits, _random: np.random.Generator) -> NDArray[np.float64]:
    steps = np.repeat(np.random.default_rng(0).standard_normal((1, 2, 3)), len(bits), axis=0)
    steps[:, :, 0] += bits[:, None]
    return steps


def fixed_seed_beside_a_still_array(bits: Bits, _random: np.random.Generator) -> NDArray[np.float64]:
    """The same noise in every trial; of the bias nothing is released."""
    steps = fixed_seed(bits, _random)
    steps[:, :, 2] = 0.0
    return steps


def changed_shape(bits: Bits, random: np.random.Generator) -> NDArray[np.float64]:
    """A bias of another shape under D, which is recorded as missing, beside honest noise."""
    steps = random.standard_normal((len(bits), 1, 3))
    steps[bits, :, 2] = np.nan
    return steps


def not_finite(bits: Bits, random: np.random.Generator) -> NDArray[np.float64]:
    return changed_shape(bits, random)


def repeated(bits: Bits, random: np.random.Generator) -> NDArray[np.float64]:
    steps = np.repeat(random.standard_normal((len(bits), 1, 3)), 2, axis=1)
    steps[:, 0, 0] += bits
    return steps


def decaying(bits: Bits, random: np.random.Generator) -> NDArray[np.float64]:
    steps = random.standard_normal((len(bits), 3, 3)) * np.array([1.0, 0.6, 0.36])[:, None]
    steps[:, :, 0] += bits[:, None]
    return steps


def larger_noise(bits: Bits, random: np.random.Generator) -> NDArray[np.float64]:
    return random.standard_normal((len(bits), 2, 3)) * np.where(bits, 1.5, 1.0)[:, None, None]


def bare_bias(bits: Bits, random: np.random.Generator) -> NDArray[np.float64]:
    steps = random.standard_normal((len(bits), 2, 3))
    steps[:, :, 2] = bits[:, None]
    return steps


_CAUSES = {
    momentum: "momentum",
    fixed_seed: r"in every trial: .* from a fixed seed",
    fixed_seed_beside_a_still_array: r"in every trial: .* from a fixed seed",
    repeated: "same noise",
    decaying: r"round to round: .* 2\.[5-9] times",
    larger_noise: r"who took part: .* 1\.[45][0-9] times",
    bare_bias: r" of bias .*no noise",
    changed_shape: r"form of .*\(bias\) .*who took part",
    not_finite: r" of bias are finite",
}


Make = Callable[[Bits, np.random.Generator], NDArray[np.float64]]


@pytest.mark.parametrize("make", _CAUSES)
def test_a_cause_is_named(make: Make) -> None:
    random = np.random.default_rng(0)
    bits = random.random(1000) < 0.5
    forms = {"form: bias float32 (4,)": np.where(bits, 1.0, np.nan)} if make is changed_shape else None
    cause_text = cause_of(trials_of(make(bits, random), forms), bits, "along").words
    assert re.search(_CAUSES[make], cause_text), cause_text


def test_a_round_without_a_release_is_a_cause() -> None:
    random = np.random.default_rng(0)
    bits = random.random(200) < 0.5
    steps = np.where(bits[:, None, None], random.standard_normal((200, 1, 3)), np.nan)
    trials = replace(trials_of(steps), has_release=bits)
    assert "released at all" in cause_of(trials, bits, "along").words


def test_honest_noise_has_no_cause() -> None:
    """Twenty times 1000 trials of three rounds: a threshold of five standard errors is passed by chance in none."""
    for seed in range(20):
        random = np.random.default_rng(seed)
        bits = random.random(1000) < 0.5
        assert cause_of(gaussian(1.0, rounds=3)(bits, random), bits, "along") is None
    assert "last bits" in cause_of(gaussian(1.0)(bits, random), bits, ROUNDED).words


def test_a_longer_part_of_the_difference_is_no_cause() -> None:
    """The weight has thirty times the bias's part of the difference, under the same noise: it shows there, as it must.

    Where the noise of the weight is a tenth, it shows in the weight above all, in whichever units.
    """
    for noise, expected in ((1.0, ""), (0.1, "It shows in weight")):
        random = np.random.default_rng(1)
        bits = random.random(2000) < 0.5
        steps = random.standard_normal((2000, 1, 3)) * np.array([noise, noise, 1.0])
        difference = np.array([3.0, 0.0, 0.1])
        steps += bits[:, None, None] * difference
        trials = replace(trials_of(steps), direction=np.broadcast_to(difference, steps.shape))
        cause = cause_of(trials, bits, "along")
        assert (cause is None) is (expected == "")
        assert cause is None or cause.words.startswith(expected)


@pytest.mark.parametrize(("make", "fix"), [(repeated, "new noise"), (bare_bias, "to every array")])
def test_what_fixes_follows_from_the_cause(make: Make, fix: str) -> None:
    """Noise that repeats is not fixed by more of it: the fix of the scenario stands where no cause is known."""
    claim = replace(_CLAIM, noise_multiplier=5.0, rounds=2)
    result = result_of(claim, lambda bits, random: trials_of(make(bits, random)))
    finding = findings(result, {"kind": ScenarioTexts("words", "Calibrate the noise.")})[0]
    assert finding.test.is_broken
    assert fix in finding.fix.partition(".")[0]
    # More noise is advised besides where it is too little by itself.
    assert ("Calibrate" in finding.fix) is ("too little noise" in finding.cause)
    honest = result_of(_CLAIM, gaussian(3.2))
    assert findings(honest, {"kind": ScenarioTexts("words", "Calibrate the noise.")})[0].fix == "Calibrate the noise."


def test_the_same_exception_is_told_once() -> None:
    refusals = [
        TrialErrorShares(f"kind {index}", "KeyError: 'x'", 1.0, index / 10, is_allowed=False) for index in range(5)
    ]
    messages = refusal_words([*refusals, TrialErrorShares("other", "ValueError: y", 0.5, 0.5, is_allowed=True)])
    assert len(messages) == 2
    assert re.match(r"kind 0, kind 1, kind 2 and 2 more: .*ordinary .*100% .* D\b.* 0% to 40% .*D'", messages[0])
    assert re.match(r"other: .*50% .*D\b.* 50% .*D', as it may \(ValueError: y\)", messages[1])


def test_too_little_noise_is_said_in_times_and_the_page_distinguishers_with_it(tmp_path: Path) -> None:
    result = result_of(_CLAIM, gaussian(3.2))
    audit_findings = findings(result, {"kind": ScenarioTexts("words", "fix")})
    expected_cause = r" 3\.\d times .*noise .*mu 3\.\d\d, claimed 1\.00"
    assert re.search(expected_cause, audit_findings[0].cause)
    page = write_strategy_page(
        strategy_result("mine", result, audit_findings), result, audit_findings, tmp_path
    ).read_text()
    assert page.index("too little noise") < page.index("<table")
    assert "0.00 at delta" not in page
    assert "claimed 0.00" not in audit_findings[0].sentence


def test_another_type_of_an_array_is_a_matter_of_its_form() -> None:
    """Values of half precision are as finite as others: the recorded form alone shows them."""
    random = np.random.default_rng(0)
    bits = random.random(200) < 0.5
    group = "form: bias float16 (1,)"
    trials = trials_of(random.standard_normal((200, 1, 3)), {group: np.where(bits, 1.0, np.nan)})
    assert cause_of(trials, bits, group).words.startswith("The form of the released arrays follows")
