"""A violated claim is explained by its cause, and honest noise by none."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from laboratory.made_up_games import Bits, games_of, gaussian, trial_of
from numpy.typing import NDArray

from experiments.trials.page import write_trial
from fl_audit.laboratory.causes import Cause, cause_of
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.features import ROUNDED
from fl_audit.laboratory.findings import findings

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
    momentum: "stays in the sum for several rounds, as with momentum",
    fixed_seed: "the same in every game",
    repeated: "The same noise is used in several rounds",
    decaying: "in the first it is 2.[5-9] times that of the last",
    larger_noise: "one way it is 1.[45][0-9] times the other",
    bare_bias: "released of bias is the same in every game",
}


@pytest.mark.parametrize("make", _CAUSES)
def test_a_cause_is_named(make: Callable[[Bits, np.random.Generator], NDArray[np.float64]]) -> None:
    random = np.random.default_rng(0)
    bits = random.random(1000) < 0.5
    said = cause_of(games_of(make(bits, random)), bits, "along").words
    assert re.search(_CAUSES[make], said), said


def test_honest_noise_has_no_cause() -> None:
    """Twenty times 1000 games of three rounds: a threshold of five standard errors is passed by chance in none."""
    for seed in range(20):
        random = np.random.default_rng(seed)
        bits = random.random(1000) < 0.5
        assert cause_of(gaussian(1.0, rounds=3)(bits, random), bits, "along") == Cause()
    assert "last bits" in cause_of(gaussian(1.0)(bits, random), bits, ROUNDED).words


def test_too_little_noise_is_said_in_times_and_the_page_leads_with_it(tmp_path: Path) -> None:
    trial = trial_of(_CLAIM, gaussian(3.2))
    found = findings(trial, {"kind": "words"}, {"kind": "mend"})
    said = r"There is 3\.\d times too little noise .*mu 3\.\d\d, claimed 1\.00"
    assert re.search(said, found[0].cause)
    page = write_trial(trial, found, "mine", tmp_path).read_text()
    assert page.index("times too little noise") < page.index("<table")
    assert "0.00 at delta" not in page
    assert "claimed 0.00" not in found[0].sentence
