"""Synthetic releases whose exact trade-off is known, and every attack of the membership audit on them.

A release tells of each target of each trial one number, which stands for the model's confidence in the record. Nothing
is trained, so that thousands of trials take seconds, and what an attacker can reach at most is known in closed form.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr, ndtri

from fl_audit.array_types import Flags, Floats
from fl_audit.audits.membership.attacks.lira import lira_scores
from fl_audit.audits.membership.attacks.rmia import rmia_scores
from fl_audit.audits.membership.attacks.shadow import shadow_scores
from fl_audit.audits.membership.attribute_inference import attribute_guesses, sampled_distribution
from fl_audit.audits.membership.roc_metrics import RocSummary, membership_rates
from fl_audit.audits.membership.white_box import known_halves, white_box_scores
from fl_audit.audits.membership.white_box_features import WhiteBoxFeatures
from fl_audit.audits.membership.yeom_attack import active_scores, loss_scores
from fl_audit.errors import InputError
from fl_audit.federation.target_membership import TargetMembership

_PLACES = 1.5  # spread of what is known of a record before the trial: how hard it is to learn
_POPULATION = 100
_STEPS = 50  # steps in which a white-box attack learns: fewer than by default, for it is played often
_LOSSES_LEARNT = 300  # losses of members that are enough to learn their distribution from


@dataclass(frozen=True)
class CoinAnswers:
    """The outputs of the models of all trials."""

    confidences: Floats  # on the scale of log-odds: of the targets, shape (trials, targets)
    wrong: Floats  # of the targets with a wrong value of an attribute, which no coin moves; same shape
    population: Floats  # of records that no trial used, shape (trials, records)
    membership: TargetMembership  # the coins

    @property
    def losses(self) -> Floats:
        """Losses of the targets, shape (trials, targets)."""
        return np.logaddexp(0, -self.confidences)

    @property
    def log_p(self) -> Floats:
        """Log-probabilities of the targets' own class and of the other one, shape (trials, targets, 2)."""
        return np.stack([-self.losses, -np.logaddexp(0, self.confidences)], axis=-1)


@dataclass(frozen=True)
class CoinMechanism:
    """A mechanism that releases each coin separately."""

    name: str  # for people
    tell: Callable[[np.random.Generator, Flags], Floats]  # draws what is told of the coins (trials, targets)
    tpr: Callable[[Floats], Floats]  # the exact trade-off curve: the largest TPR at each FPR, both from 0 to 1
    auc: float  # the area under it

    def release(self, draw: np.random.Generator, trials: int, targets: int, shared: float = 0.0) -> CoinAnswers:
        """Return the release, moved by a place of each record's own.

        `shared` is the standard deviation of a shift of all of a trial's confidences together: it makes records of one
        trial depend on each other and tells nothing of any coin.
        """
        is_in = draw.random((trials, targets)) < 0.5
        record_shifts = draw.normal(0, _PLACES, (2, targets))
        shift = shared * draw.normal(size=(trials, 1))
        right_answers = record_shifts[0] + self.tell(draw, is_in) + shift
        wrong = record_shifts[1] + draw.normal(size=is_in.shape) + shift
        population = draw.normal(0, _PLACES, _POPULATION) + draw.normal(size=(trials, _POPULATION)) + shift
        return CoinAnswers(right_answers, wrong, population, TargetMembership(is_in))


def gaussian_mean(mu: float) -> CoinMechanism:
    """Return a mechanism that releases N(mu coin, 1), with a Gaussian trade-off (Dong, Roth & Su 2022, section 2.2).

    At mu = 0 nothing depends on the coins.
    """
    return CoinMechanism(
        f"Gaussian mean, mu = {mu:g}",
        lambda draw, is_in: mu * is_in + draw.normal(size=is_in.shape),
        lambda fpr: np.asarray(ndtr(ndtri(fpr) + mu), dtype=np.float64),
        float(ndtr(mu / np.sqrt(2))),
    )


def randomised_response(epsilon: float) -> CoinMechanism:
    """Return a mechanism that reports coins rightly with probability e^epsilon / (1 + e^epsilon), the worst one."""
    up = np.exp(epsilon)
    return CoinMechanism(
        f"randomised response, epsilon = {epsilon:g}",
        lambda draw, is_in: (is_in ^ (draw.random(is_in.shape) >= expit(epsilon))).astype(np.float64),
        lambda fpr: np.minimum(up * fpr, 1 - (1 - fpr) / up),
        float(expit(epsilon)),
    )


def leaky_response(epsilon: float, delta: float) -> CoinMechanism:
    """Return randomised response that reveals a coin, and says so, with probability delta.

    No other mechanism with (epsilon, delta)-DP has a larger TPR at any FPR (Kairouz, Oh & Viswanath 2017, section 3).
    """
    up = np.exp(epsilon)

    def tell(draw: np.random.Generator, is_in: Flags) -> Floats:
        responses = is_in ^ (draw.random(is_in.shape) >= expit(epsilon))
        outright = draw.random(is_in.shape) < delta
        return np.where(outright, np.where(is_in, 2.0, -1.0), responses.astype(np.float64))

    return CoinMechanism(
        f"randomised response, epsilon = {epsilon:g}, delta = {delta:g}",
        tell,
        lambda fpr: np.minimum(1.0, np.minimum(delta + up * fpr, 1 - (1 - delta - fpr) / up)),
        float(delta + (1 - delta) * (delta + (1 - delta) * expit(epsilon))),
    )


Attack = Callable[[CoinAnswers, Flags | None], Floats]
"""A function that returns scores (trials, targets) from a release and the trials that may serve as shadows: all others,
if None.
"""


def _lira(is_shared: bool) -> Attack:
    return lambda release, shadows: lira_scores(release.confidences, release.membership, shadows, is_shared)


def _rmia(release: CoinAnswers, shadows: Flags | None) -> Floats:
    return rmia_scores(-release.losses, -np.logaddexp(0, -release.population), release.membership, shadows)


def _shadow(release: CoinAnswers, shadows: Flags | None) -> Floats:
    coins = release.membership
    return shadow_scores(release.log_p, np.zeros(coins.targets, np.int64), coins, shadows)


def _white_box(release: CoinAnswers, shadows: Flags | None) -> Floats:
    """Return scores from gradients of two classes, with activations that no coin moves; known halves are fixed."""
    coins = release.membership
    log_probabilities = release.log_p[:, :, np.newaxis]
    hidden = np.stack([release.wrong, np.ones_like(release.wrong)], axis=-1)[:, :, np.newaxis]
    features = WhiteBoxFeatures(
        signals=(np.exp(log_probabilities) - [1.0, 0.0]).astype(np.float32),
        inputs=hidden.astype(np.float32),
        log_probabilities=log_probabilities.astype(np.float32),
        losses=-log_probabilities[..., 0].astype(np.float32),
        labels=np.zeros(coins.targets, dtype=np.int64),
    )
    halves = known_halves(coins.trials, coins.targets, np.random.default_rng(0))
    return white_box_scores(features, coins, halves, _STEPS)


def _attribute_by_distribution(release: CoinAnswers, shadows: Flags | None) -> Floats:
    """Score 1 where a binary attribute is guessed right, by the distribution of members' losses in shadow trials.

    Where it is guessed wrong, the score is 0. The shadow trials are those named, or another half of all.
    """
    trials = np.arange(release.membership.trials)
    shadow_splits = (
        [(shadows, ~shadows)] if shadows is not None else [(trials % 2 == p, trials % 2 != p) for p in (0, 1)]
    )
    scores = np.full(release.confidences.shape, np.nan)
    for learnt_from, attacked in shadow_splits:
        distribution = sampled_distribution(
            release.losses[learnt_from][release.membership.is_in[learnt_from]][:_LOSSES_LEARNT]
        )
        scores[attacked] = _guessed_right(release, distribution)[attacked]
    return scores


def _guessed_right(release: CoinAnswers, distribution: Callable[[Floats], Floats] | None) -> Flags:
    losses = np.stack([release.losses, np.logaddexp(0, -release.wrong)], axis=-1)
    return attribute_guesses(losses, np.zeros(release.membership.targets, np.int64), [0.5, 0.5], distribution).right


ATTACKS: dict[str, Attack] = {
    "loss": lambda release, shadows: loss_scores(release.losses),
    "LiRA": _lira(is_shared=False),
    "LiRA, shared variance": _lira(is_shared=True),
    "RMIA": _rmia,
    "shadow": _shadow,
    "white-box": _white_box,
    # By losses under two releases, the second of which has told nothing of the coins.
    "active": lambda release, shadows: active_scores(np.stack([release.losses, np.logaddexp(0, -release.wrong)])),
    # 1 where a binary attribute is guessed right and 0 where it is not, the distribution of losses being unknown.
    "attribute": lambda release, shadows: _guessed_right(release, None).astype(np.float64),
    "attribute, distribution of losses": _attribute_by_distribution,
}
"""Every attack that computes scores from a release."""

_WITHOUT_SHADOWS = ("loss", "white-box", "active", "attribute")  # attacks on a trial that look at no other trial

YES_OR_NO = ("attribute", "attribute, distribution of losses")  # attacks whose scores are 0 and 1

SLOW = ("shadow", "white-box")  # attacks that train a large attack model for each trial

MADE_UP_AUDITS = tuple(
    (name, apart) for name in ATTACKS for apart in (True, False) if apart or name not in _WITHOUT_SHADOWS
)
"""Attacks, and whether the trials that they attack have others as shadows, or are each other's."""


def rates_without_leak(
    attack: str, apart: bool, targets: int, confidence: float, draw: np.random.Generator
) -> RocSummary:
    """Return the rates of an attack on 24 trials whose releases do not depend on coins, and are far from independent.

    `attack` is one of `MADE_UP_AUDITS`. With `apart` some trials are kept apart from the shadows; if a target then has
    too few shadows for the attack, another trial is played. An attack that learns from half of the targets gets at
    least 40. `confidence` is that of all intervals together.
    """
    targets = max(targets, 40) if attack == "white-box" else targets
    shadows = np.arange(48) >= 24 if apart else None
    while True:
        release = gaussian_mean(0.0).release(draw, 48 if apart else 24, targets, 1.0)
        try:
            scores = ATTACKS[attack](release, shadows)[:24]
        except InputError:
            continue
        each_other = not apart and attack not in _WITHOUT_SHADOWS
        return membership_rates(
            scores, TargetMembership(release.membership.is_in[:24]), draw, confidence, 400, each_other
        )
