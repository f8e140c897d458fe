"""Bounds from membership games on mechanisms whose epsilon is known: how often do they certify too much?

    python -m experiments.studies.membership_certificates [--quick]

Bounds of `evidence.membership` and `canaries` are asked in 2000 games of each mechanism: on scores that order coins as
well as the release allows, and on those of LiRA with shadow worlds of its own. A bound above the truth is a false
certificate, which at a confidence of 95 % has a probability of 5 % at most. The worst mechanisms are among those
played: randomised response, alone and telling outright with probability delta, reaches every point of its trade-off
curve. There one run errs in 4.80 % of games, by the binomial law of 200 guesses, and where nothing leaks in 3.84 %, so
that counts stray around 96 and 77 of 2000. The exit status is 1 where a count is larger than 5 % and chance explain.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import binom

from experiments.cli.main import guarded
from experiments.studies.membership_releases import (
    ATTACKS,
    Mechanism,
    gaussian_mean,
    leaky_response,
    randomised_response,
)
from fl_audit.canaries.guesses import Guesses, guesses_of_scores
from fl_audit.canaries.steinke import steinke_epsilon
from fl_audit.canaries.tradeoff import tradeoff_epsilon, tradeoff_mu
from fl_audit.evidence.bounds.methods import BoundMethod
from fl_audit.evidence.membership.one_target import epsilon_of_one_target
from fl_audit.game.membership import Membership
from fl_audit.privacy.gaussian import gdp_epsilon

GAMES, QUICK_GAMES = 2000, 200
CONFIDENCE = 0.95
ALARM = 1e-3
"""Probability, at most, with which the study may raise a false alarm over all lines."""

_SHADOWS, _WORLDS, _TARGETS = 40, 60, 20
_GUESSED_EACH_WAY = 100
_ATTACK = "LiRA, offline, shared spread"

Scores = NDArray[np.float64]
Bound = Callable[[Scores, Membership, np.random.Generator], float]
Game = Callable[[Mechanism, np.random.Generator], tuple[Scores, Membership]]


@dataclass(frozen=True)
class Setting:
    """A mechanism, its truth and the bounds that hold for it.

    Parameters
    ----------
    mechanism
        What is played.
    delta, epsilon
        Its exact epsilon at delta.
    mu
        Where its trade-off is a Gaussian's, that of the curve; otherwise None.
    """

    mechanism: Mechanism
    delta: float
    epsilon: float
    mu: float | None = None

    def bounds(self) -> dict[str, tuple[float, Bound]]:
        """Return the bounds that hold for the mechanism, with the truth that they must not exceed."""
        whole = {"one run": _one_run(self.delta), "one run, trade-off": _by_tradeoff(self.delta)}
        methods = [BoundMethod.CLOPPER_PEARSON, BoundMethod.ORDER_STATISTIC]
        found = {name: (self.epsilon, bound) for name, bound in whole.items()}
        if self.mu is not None:
            found["one run, mu"] = (self.mu, _mu)
            methods += [BoundMethod.GDP] if self.delta > 0 else []
        return found | {f"one target, {method}": (self.epsilon, _one_target(self.delta, method)) for method in methods}


SETTINGS = (
    Setting(gaussian_mean(0.0), 1e-5, 0.0, 0.0),
    Setting(gaussian_mean(1.0), 1e-5, gdp_epsilon(1e-5, 1.0), 1.0),
    Setting(gaussian_mean(1.0), 1e-3, gdp_epsilon(1e-3, 1.0), 1.0),
    Setting(randomised_response(1.0), 0.0, 1.0),
    Setting(leaky_response(1.0, 1e-3), 1e-3, 1.0),
)


@dataclass
class Line:
    """A bound on a mechanism.

    Parameters
    ----------
    mechanism, scores, bound
        Which.
    delta
        Epsilon is bounded at this delta.
    truth
        What the bound must not exceed: epsilon, or mu.
    found
        The bound in each game.
    """

    mechanism: str
    scores: str
    bound: str
    delta: float
    truth: float
    found: list[float] = field(default_factory=list)

    @property
    def false(self) -> int:
        """Number of false certificates; the last digits of a search are none."""
        return int((np.array(self.found) > self.truth + 1e-9).sum())

    def allowed(self, lines: int) -> int:
        """Return how many may be false, as one of so many lines: 5 % of the games, and what chance adds to them."""
        return int(binom.ppf(1 - ALARM / lines, len(self.found), 1 - CONFIDENCE))


def perfect(mechanism: Mechanism, draw: np.random.Generator) -> tuple[Scores, Membership]:
    """Return what the mechanism tells, which orders coins by their likelihood ratio, and the coins."""
    is_in = draw.random((_WORLDS, _TARGETS)) < 0.5
    return mechanism.tell(draw, is_in), Membership(is_in)


def attacked(mechanism: Mechanism, draw: np.random.Generator) -> tuple[Scores, Membership]:
    """Return the scores of an attack with shadow worlds that are left out here, and the coins of the others."""
    shadows = np.arange(_SHADOWS + _WORLDS) < _SHADOWS
    release = mechanism.release(draw, shadows.size, _TARGETS, shared=0.3)
    return ATTACKS[_ATTACK](release, shadows)[~shadows], Membership(release.membership.is_in[~shadows])


GAMES_PLAYED: dict[str, Game] = {"perfect": perfect, "LiRA": attacked}


def study(setting: Setting, game: str, games: int, seed: int) -> list[Line]:
    """Play games of one mechanism and ask every bound.

    Parameters
    ----------
    setting
        Mechanism and truth.
    game
        A name of `GAMES_PLAYED`.
    games
        How many.
    seed
        Of the games.
    """
    bounds = setting.bounds()
    lines = {
        name: Line(setting.mechanism.name, game, name, setting.delta, truth) for name, (truth, _) in bounds.items()
    }
    for number in range(games):
        draw = np.random.default_rng((seed, number))
        scores, membership = GAMES_PLAYED[game](setting.mechanism, draw)
        for name, (_, bound) in bounds.items():
            lines[name].found.append(bound(scores, membership, draw))
    return list(lines.values())


def _one_run(delta: float) -> Bound:
    return lambda scores, coins, draw: steinke_epsilon(_guesses(scores, coins), delta, 1 - CONFIDENCE)


def _by_tradeoff(delta: float) -> Bound:
    return lambda scores, coins, draw: tradeoff_epsilon(_guesses(scores, coins), delta, 1 - CONFIDENCE)


def _mu(scores: Scores, coins: Membership, draw: np.random.Generator) -> float:
    return tradeoff_mu(_guesses(scores, coins), 1 - CONFIDENCE)


def _one_target(delta: float, method: BoundMethod) -> Bound:
    return lambda scores, coins, draw: epsilon_of_one_target(scores, coins, delta, draw, CONFIDENCE, method).epsilon


def _guesses(scores: Scores, coins: Membership) -> Guesses:
    return guesses_of_scores(scores, coins.is_in, _GUESSED_EACH_WAY, _GUESSED_EACH_WAY)


def problems(lines: Sequence[Line]) -> list[str]:
    """Return what contradicts the claims."""
    return [
        f"{line.bound} on {line.mechanism}, {line.scores} scores: {line.false} of {len(line.found)} certificates are "
        f"false, {line.allowed(len(lines))} allowed"
        for line in lines
        if line.false > line.allowed(len(lines))
    ]


def certificates_table(lines: Sequence[Line]) -> Table:
    """Return the table of all bounds."""
    size = f"{_WORLDS} worlds of {_TARGETS} coins"
    table = Table(title=f"Lower bounds at {CONFIDENCE:.0%}, {size}, {2 * _GUESSED_EACH_WAY} of them guessed in one run")
    for column in (
        "mechanism",
        "scores",
        "bound",
        "delta",
        "truth",
        "mean bound",
        "games",
        "false",
        "share",
        "allowed",
    ):
        table.add_column(column, justify="left" if column in ("mechanism", "scores", "bound") else "right")
    for line in lines:
        games, share = len(line.found), f"{line.false / len(line.found):.1%}"
        numbers = (str(games), str(line.false), share, str(line.allowed(len(lines))))
        measures = (f"{line.delta:g}", f"{line.truth:.3f}", f"{np.mean(line.found):.3f}")
        table.add_row(line.mechanism, line.scores, line.bound, *measures, *numbers)
    return table


def study_all(games: int, console: Console | None = None) -> list[Line]:
    """Return the lines of all settings and games, showing how far it is on a console."""
    settings = [(one, game) for one in SETTINGS for game in GAMES_PLAYED]
    numbered = enumerate(settings) if console is None else enumerate(track(settings, "settings", console=console))
    return [line for number, (setting, game) in numbered for line in study(setting, game, games, seed=number)]


def main() -> None:
    """Print the table; the exit status is 1 where more certificates are false than may be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_GAMES} games of each mechanism, not {GAMES}")
    options = parser.parse_args()
    lines = study_all(QUICK_GAMES if options.quick else GAMES, Console(stderr=True))
    Console(width=160).print(certificates_table(lines))
    found = problems(lines)
    print("\n".join(found) or "nothing contradicts the claims")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    guarded(main)
