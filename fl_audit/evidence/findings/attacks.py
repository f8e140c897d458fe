"""The game of membership: what attacks find of many targets, beside what insiders get and promises allow."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from fl_audit.adversaries.membership.names import Attack, has_shadows
from fl_audit.arrays import Floats
from fl_audit.evidence.bounds.lower_bounds import bound_json
from fl_audit.evidence.findings.found import Findings, finite
from fl_audit.evidence.finished_run import FinishedRun
from fl_audit.evidence.membership.achieved import Achieved, AskedOfScores, achieved_by_attack, achieved_by_insiders
from fl_audit.evidence.membership.limits import largest_auc, largest_order, largest_tpr
from fl_audit.game.membership import Membership
from fl_audit.privacy.guarantee import Guarantee

SCORE, APART = "score_", "apart_"
"""Before the name of an attack, the columns of its scores: with all other worlds as shadows, and with some apart."""


INSIDER = "insider"


_WORLDS_OF_PAIRS = 100
"""In so many worlds the theory of the insiders goes through all pairs; more would change no digit that is shown."""


@dataclass(frozen=True)
class AttackNumbers:
    """What everybody achieved."""

    achieved: dict[str, Achieved]  # by name, the attacks in the order of the configuration, the insider last
    # `worlds`, `targets`: their numbers.
    worlds: int
    targets: int
    # AUC that the insiders' signal-to-noise ratios lead to, were these fixed; None without insider, or where rounds are
    # sampled in secret.
    insider_auc: float | None
    # `largest_auc`, `largest_order`: AUC that the promise allows to an insider, who is compared over worlds, and to an
    # attacker who is shown a member and another of the same world; None without a promise.
    largest_auc: float | None
    largest_order: float | None
    # The largest TPR at 0.1 % and at 1 % false alarms, and the largest balanced accuracy, that the promise allows.
    largest_rates: tuple[float | None, float | None, float | None]

    @property
    def outsiders(self) -> dict[str, Achieved]:
        """The attacks that see models alone."""
        return {name: found for name, found in self.achieved.items() if name != INSIDER}

    def largest_auc_of(self, name: str) -> float | None:
        """Return the AUC that the promise allows to an attacker; None without a promise."""
        return self.largest_auc if name == INSIDER else self.largest_order

    def to_json(self) -> dict[str, Any]:
        """Return the entry `attacks`."""
        return {
            "attacks": {
                "worlds": self.worlds,
                "targets": self.targets,
                "largest_auc": self.largest_auc,
                "largest_auc_within_worlds": self.largest_order,
                "insider_auc_from_signal": self.insider_auc,
                "by_name": {name: _json(found) for name, found in self.achieved.items()},
            }
        }


def _json(found: Achieved) -> dict[str, Any]:
    rates, one_run = found.rates, found.one_run
    named = ("auc", "tpr_at_fpr_0001", "tpr_at_fpr_001", "balanced_accuracy")
    told: dict[str, Any] = {name: asdict(getattr(rates, name)) for name in named}
    told |= {"confidence": rates.confidence, "lower_bound": None if found.bound is None else bound_json(found.bound)}
    if one_run is None or found.by_tradeoff is None:
        return told | {"one_run": None}
    guesses = one_run.guesses
    counted = {"coins": guesses.coins, "guessed": guesses.guessed, "right": guesses.right}
    bounds = {"epsilon": finite(one_run.epsilon), "ceiling": finite(one_run.limit_of_detection)}
    return told | {"one_run": bounds | {"epsilon_by_tradeoff": finite(found.by_tradeoff.epsilon)} | counted}


def measure_attacks(run: FinishedRun, _: Findings) -> AttackNumbers | None:
    """Return what every attacker achieved; None outside the game of membership, and where nothing can be compared."""
    table, promise = run.tables.targets, run.facts.guarantee
    if table is None or run.facts.game.exactly_one or not run.can_compare_targets:
        return None
    worlds = table["world"].nunique()

    def column(name: str) -> Floats:
        return table[name].to_numpy(dtype=np.float64).reshape(worlds, -1)

    membership = Membership(column("is_in").astype(np.bool_))
    delta = float(run.facts.configuration["privacy"]["delta"])
    asked, achieved = AskedOfScores(delta, run.facts.confidence), dict[str, Achieved]()
    for name in (str(named)[len(SCORE) :] for named in table.columns if str(named).startswith(SCORE)):
        scores = column(SCORE + name)
        apart = column(APART + name) if APART + name in table else None
        sees_weights = name in list(Attack) and Attack(name).sees_weights
        kept = apart if has_shadows(Attack(name) if name in list(Attack) else name) else scores
        achieved[name] = achieved_by_attack(scores, kept, membership, asked, sees_weights)
    known = None
    if "log_odds" in table:
        achieved[INSIDER] = achieved_by_insiders(column("log_odds"), membership, asked)
        is_secret = run.facts.is_sampled and not run.facts.game.standpoint.sees_participation
        known = None if is_secret else _auc_of_signals(column("mu"), membership)
    if not achieved:
        return None
    profile = None if promise is None else promise.claim.profile
    auc, order = (None, None) if profile is None else (largest_auc(profile), largest_order(profile))
    return AttackNumbers(achieved, worlds, membership.targets, known, auc, order, _largest_rates(promise))


def _largest_rates(promise: Guarantee | None) -> tuple[float | None, float | None, float | None]:
    if promise is None:
        return None, None, None
    at_0001, at_001 = largest_tpr(promise.claim.profile, np.array([1e-3, 1e-2]))
    return float(at_0001), float(at_001), (1 + promise.advantage_bound_exact) / 2


def _auc_of_signals(mu: Floats, membership: Membership) -> float | None:
    """Return the AUC of log-odds N(+-mu^2/2, mu^2) of targets that differ in mu, over all pairs of some worlds, if any.

    Of a member with mu_1 and another with mu_0 the difference of log-odds is N(s^2/2, s^2), s^2 = mu_1^2 + mu_0^2.
    """
    right, pairs = 0.0, 0
    for squares, is_in in zip(np.square(mu[:_WORLDS_OF_PAIRS]), membership.is_in[:_WORLDS_OF_PAIRS], strict=True):
        spread = np.sqrt(squares[is_in, np.newaxis] + squares[~is_in])
        right, pairs = right + float(ndtr(spread / 2).sum()), pairs + spread.size
    return right / pairs if pairs else None
