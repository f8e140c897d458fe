"""The walk-through of local differential privacy: its numbers are those of theory, within their errors."""

import math
import sys

import numpy as np
import pytest
from scipy import stats

from experiments.studies.local_privacy_walkthrough import (
    DELTA,
    EPSILONS,
    SHARE,
    STEPS,
    TWO_COINS,
    infer,
    main,
    repeated_gaussian,
    repeated_laplace,
    secrets,
    survey,
    ward,
)
from fl_audit.errors import InputError
from fl_audit.privacy.gaussian import gdp_epsilon

FALSE_ALARM = 1e-6
PEOPLE = 20_000


@pytest.mark.parametrize("epsilon", [TWO_COINS, *EPSILONS])
def test_the_survey_finds_the_share(epsilon: float) -> None:
    found = survey(secrets(PEOPLE, 1), epsilon, seed=1)
    assert abs(found.estimate - found.true_share) < 5 * found.standard_error
    if epsilon == TWO_COINS:
        assert found.estimate == pytest.approx(2 * (found.told_share - 0.25), rel=1e-12)


def test_the_standard_error_of_the_survey_is_right() -> None:
    secret = secrets(400, 0)
    estimates = [survey(secret, 1.0, seed).estimate for seed in range(500)]
    claimed = survey(secret, 1.0, 0).standard_error
    assert np.std(estimates) == pytest.approx(claimed, rel=5 / math.sqrt(2 * 500))
    assert np.mean(estimates) == pytest.approx(secret.mean(), abs=5 * claimed / math.sqrt(500))


def test_exact_answers_tell_what_noisy_ones_hide() -> None:
    found = ward(0.5, seed=2)
    assert found.exact_difference == found.cigarettes
    assert found.scale == 80
    # A difference of two Laplace variables has variance 4 scale^2.
    noise = found.noisy_differences - found.cigarettes
    assert noise.std() == pytest.approx(2 * found.scale, rel=0.05)
    assert abs(noise.mean()) < 5 * 2 * found.scale / math.sqrt(noise.size)


@pytest.mark.parametrize("steps", STEPS)
def test_the_accountant_never_finds_more_than_the_sum(steps: int) -> None:
    laplace, gaussian = repeated_laplace(0.1, steps), repeated_gaussian(10.0, steps)
    assert laplace.added == pytest.approx(0.1 * steps)
    assert laplace.accounted <= laplace.added + 1e-9
    assert gaussian.accounted == pytest.approx(gdp_epsilon(DELTA, math.sqrt(steps) / 10), rel=1e-12)
    if steps == 1:
        assert laplace.advantage == pytest.approx(-math.expm1(-0.05), abs=1e-5)
        assert laplace.averaged_error == pytest.approx(math.sqrt(2) / 0.1)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_stranger_guesses_as_often_as_bayes_says(epsilon: float) -> None:
    found = infer(secrets(PEOPLE, 3), epsilon, SHARE, seed=3)
    right = round(found.success * PEOPLE)
    assert stats.binomtest(right, PEOPLE, found.expected_success).pvalue > FALSE_ALARM
    odds = [belief / (1 - belief) for belief in (found.belief_after_yes, found.belief_after_no)]
    assert odds == pytest.approx([SHARE / (1 - SHARE) * math.exp(sign * epsilon) for sign in (1, -1)], rel=1e-12)
    even = infer(secrets(PEOPLE, 3), epsilon, 0.5, seed=3)
    assert even.advantage == pytest.approx(math.tanh(epsilon / 2), abs=5 * math.sqrt(0.5 / (SHARE * PEOPLE)))


def test_it_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["walkthrough", "--people", "1000"])
    main()
    printed = capsys.readouterr().out
    for title in ("1. Coins", "2. Laplace", "3. What an accountant", "4. Guessing"):
        assert f"\n{title}" in f"\n{printed}"
    assert "epsilon = ln 3 = 1.0986" in printed
    assert max(map(len, printed.split("\n"))) <= 120
    monkeypatch.setattr(sys, "argv", ["walkthrough", "--people", "3"])
    with pytest.raises(InputError, match="--people 3: accepted are whole numbers from 100"):
        main()
