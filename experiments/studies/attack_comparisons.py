"""Which attacks of ours are held against which of public packages, and why some differ."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from experiments.studies.attack_scripts import ART_SCRIPT, MIALIBRARY_SCRIPT, PRIVACY_TESTS_SCRIPT
from experiments.studies.trained_worlds import Trained
from fl_audit.adversaries.membership.confidence import log_probabilities
from fl_audit.adversaries.membership.lira import LiraForm, LiraSpread, lira_scores
from fl_audit.adversaries.membership.rmia import RmiaForm, RmiaRule, rmia_scores
from fl_audit.adversaries.membership.shadow import AttackModel, ShadowRule, shadow_scores
from fl_audit.arrays import Floats


@dataclass(frozen=True)
class PackageComparison:
    """An attack of ours and one of a package."""

    attack: str  # name for people
    key: str  # name of the package's scores
    scores: Callable[[Trained], Floats]  # ours
    reason: str | None = None  # why the two differ; None where they must not
    # Scores that must equal the package's: ours, or what the reason makes of them. None asks for no more than an AUC
    # within one standard error, or, with a reason, for nothing.
    equal: Callable[[Trained], Floats] | None = None


@dataclass(frozen=True)
class Package:
    """A public package: its option on the command line, its script, and what is compared."""

    option: str
    title: str
    script: str
    comparisons: tuple[PackageComparison, ...]


def _lira(form: LiraForm = LiraForm.ONLINE, spread: LiraSpread = LiraSpread.EACH) -> Callable[[Trained], Floats]:
    return lambda trained: lira_scores(trained.confidences, trained.membership, form, spread)


def _rmia(rule: RmiaRule) -> Callable[[Trained], Floats]:
    return lambda trained: rmia_scores(trained.log_p, trained.population_log_p, trained.membership, rule)


def _shadow(model: AttackModel) -> Callable[[Trained], Floats]:
    def scores(trained: Trained) -> Floats:
        answers, rule = log_probabilities(trained.logits), ShadowRule(model)
        return shadow_scores(answers, trained.labels, trained.membership, rule, trained.shadows)

    return scores


def _changed_lira(median: bool = False, shared: bool = False, density: bool = False) -> Callable[[Trained], Floats]:
    """LiRA as packages have it, by loops: medians for means, pooled squares over all values, the density of `out`."""
    middle = np.median if median else np.mean

    def scores(trained: Trained) -> Floats:
        phi, is_in, found = trained.confidences, trained.is_in, np.zeros(trained.is_in.shape)
        for world in range(len(phi)):
            others = np.arange(len(phi)) != world
            for side, sign in ((is_in, 0.0 if density else 1.0), (~is_in, -1.0)):
                groups = [phi[others & side[:, target], target] for target in range(phi.shape[1])]
                middles = np.array([middle(group) for group in groups])
                away = np.concatenate([group - one for group, one in zip(groups, middles, strict=True)])
                spread = away.std() if shared else np.array([group.std() for group in groups])
                found[world] += sign * norm.logpdf(phi[world], middles, spread)
        return found

    return scores


_ONLINE, _SHARED = _lira(), _lira(spread=LiraSpread.SHARED)
_RMIA_ONLINE, _RMIA_OFFLINE = _rmia(RmiaRule(RmiaForm.ONLINE)), _rmia(RmiaRule(slope=1.0))
_DIVISOR = "theirs divides the pooled squares by the number of values, ours by that less one for each fitted mean"
_MEDIAN = "theirs takes medians for means"
_BOTH = "theirs takes medians for means, and the divisor is another"

PACKAGES = (
    Package(
        "mialibrary",
        "mialibrary",
        MIALIBRARY_SCRIPT,
        (
            PackageComparison("LiRA, online", "lira mean each", _ONLINE, equal=_ONLINE),
            PackageComparison(
                "LiRA, online, shared spread", "lira mean shared", _SHARED, _DIVISOR, _changed_lira(shared=True)
            ),
            PackageComparison("LiRA, online", "lira median each", _ONLINE, _MEDIAN, _changed_lira(median=True)),
            PackageComparison(
                "LiRA, online, shared spread",
                "lira median shared",
                _SHARED,
                _BOTH,
                _changed_lira(median=True, shared=True),
            ),
            PackageComparison("RMIA, online", "rmia online", _RMIA_ONLINE, equal=_RMIA_ONLINE),
            PackageComparison("RMIA, offline, a = 1", "rmia offline", _RMIA_OFFLINE, equal=_RMIA_OFFLINE),
        ),
    ),
    Package(
        "privacy-tests",
        "TensorFlow Privacy",
        PRIVACY_TESTS_SCRIPT,
        (
            PackageComparison("LiRA, online", "lira mean each", _ONLINE, equal=_ONLINE),
            PackageComparison(
                "LiRA, online, shared spread", "lira mean shared", _SHARED, _DIVISOR, _changed_lira(shared=True)
            ),
            PackageComparison("LiRA, online", "lira median each", _ONLINE, _MEDIAN, _changed_lira(median=True)),
            PackageComparison(
                "LiRA, offline",
                "lira density of out",
                _lira(LiraForm.OFFLINE),
                "theirs is the density of the value among others, where the paper has a one-sided test",
                _changed_lira(density=True),
            ),
        ),
    ),
    Package(
        "art",
        "Adversarial Robustness Toolbox",
        ART_SCRIPT,
        (
            PackageComparison("shadow, logistic", "logistic each class", _shadow(AttackModel.LOGISTIC)),
            PackageComparison("shadow, network", "network each class", _shadow(AttackModel.NETWORK)),
            PackageComparison(
                "shadow, logistic",
                "logistic all classes",
                _shadow(AttackModel.LOGISTIC),
                "theirs has one linear model for all classes",
            ),
            PackageComparison(
                "shadow, trees", "boosting all classes", _shadow(AttackModel.TREES), "theirs has other trees"
            ),
        ),
    ),
)
