"""Membership attacks beside those of public packages, on the same trained models.

    python -m tests.validation attack_packages [--quick] [--data NAME] [--art PYTHON] [--mialibrary PYTHON]
                                                  [--privacy-tests PYTHON]

Models of half of the targets each are trained once; what they say goes to the packages in interpreters of their own.
Each is installed into an environment of its own, and those that are not named are skipped:

    --art             pip install adversarial-robustness-toolbox==1.20.1 scikit-learn packaging
    --mialibrary      pip install mialibrary==0.1.5
    --privacy-tests   pip install numpy scipy; pip install --no-deps tensorflow-empirical-privacy==0.1.0

LiRA and RMIA attack every trial with all others as shadows; Shokri's attack learns from half of the trials. An AUC is
the mean over trials, its standard error that over trials. The exit status is 1 where scores that must be equal are not,
or an AUC lies further from the package's than its standard error. Lines that name a reason may differ; for LiRA the
reason is proved, with scores that are worked out anew with the package's change and must equal the package's.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from fl_audit.array_types import Flags, Floats, Integers
from fl_audit.audits.membership.attacks.lira import lira_scores
from fl_audit.audits.membership.attacks.rmia import rmia_scores
from fl_audit.audits.membership.attacks.shadow import shadow_scores
from fl_audit.audits.membership.record_confidences import label_log_probability, log_probabilities, scaled_confidence
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.errors import require
from fl_audit.experiments.studies.study_commands import exit_with, parser_of, table_of
from fl_audit.experiments.studies.study_runs import arrays_of_script
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.learning.model_initialisation import initial_models
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.optimizers import OptimizerState, ServerOptimizer, ServerOptimizerKind, step
from fl_audit.learning.stacked_model import StackedModel
from tests.validation.attack_scripts import ART_SCRIPT, MIALIBRARY_SCRIPT, PRIVACY_TESTS_SCRIPT

MODEL = "dense-128"
_LEARNING_RATE = 0.01

_SAME = 1e-6  # largest relative difference of scores that count as equal


@dataclass(frozen=True)
class Trained:
    """The outputs of trained models, as inputs of the packages."""

    logits: Floats  # of the targets, shape (trials, targets, classes)
    labels: Integers  # of the targets, shape (targets,)
    is_in: Flags  # targets that each trial used, shape (trials, targets)
    shadows: Flags  # trials that Shokri's attack learns from, shape (trials,)
    confidences: Floats  # confidence in the label on the scale of log-odds, shape (trials, targets)
    log_p: Floats  # logarithm of the confidence in the label, shape (trials, targets)
    population_log_p: Floats  # logarithm of the confidence in the labels of as many records that no trial used

    @property
    def membership(self) -> TargetMembership:
        """The coins."""
        return TargetMembership(self.is_in)


def train(data: DataSpec, trials: int, targets: int, steps: int, seed: int = 0) -> Trained:
    """Train one model a trial on the targets that its coins chose, by Adam on all of them at once.

    The source needs at least twice as many records as there are targets, or `InputError` is raised.
    """
    pool, draw = load_source(data).pool, np.random.default_rng(seed)
    records, needed = len(pool.labels), 2 * targets
    require(needed <= records, f"there are {records} records: accepted are {needed} or more")
    chosen = draw.permutation(records)[:needed]
    features, labels = torch.from_numpy(pool.features[chosen]), torch.from_numpy(pool.labels[chosen])
    is_in = draw.random((trials, targets)) < 0.5
    spec = ModelSpec(MODEL, pool.shape, pool.classes)
    model, models, state = StackedModel.of(spec), initial_models(spec, seed, range(trials)), OptimizerState()
    rule, taking_part = ServerOptimizer(ServerOptimizerKind.ADAM, _LEARNING_RATE), torch.from_numpy(is_in)
    for _ in range(steps):
        sums = model.clipped_sum(models, features[:targets], labels[:targets], None, taking_part=taking_part)
        models, state = step(rule, models, sums, state, denominator=targets / 2)
    logits = model.logits(models, features).double().numpy()
    own, classes = logits[:, :targets], pool.labels[chosen]
    return Trained(
        logits=own,
        labels=classes[:targets],
        is_in=is_in,
        shadows=np.arange(trials) % 2 == 0,
        confidences=scaled_confidence(own, classes[:targets]),
        log_p=label_log_probability(own, classes[:targets]),
        population_log_p=label_log_probability(logits[:, targets:], classes[targets:]),
    )


Scores = Callable[[Trained], Floats]


@dataclass(frozen=True)
class PackageComparison:
    """An attack of ours and one of a package."""

    attack: str  # name for people
    key: str  # name of the package's scores
    scores: Scores  # ours
    reason: str | None = None  # why the two differ; None where they must not
    # Scores that must equal the package's: ours, or what the reason makes of them. None asks for no more than an AUC
    # within one standard error, or, with a reason, for nothing.
    equal: Scores | None = None


class Package(NamedTuple):
    """A public package: its option on the command line, its script, and its comparisons."""

    option: str
    title: str
    script: str
    comparisons: tuple[PackageComparison, ...]


def _lira(is_shared: bool) -> Scores:
    return lambda trained: lira_scores(trained.confidences, trained.membership, is_shared=is_shared)


def _rmia(trained: Trained) -> Floats:
    return rmia_scores(trained.log_p, trained.population_log_p, trained.membership, slope=1.0)


def _shadow(trained: Trained) -> Floats:
    return shadow_scores(log_probabilities(trained.logits), trained.labels, trained.membership, trained.shadows)


def _changed_lira(median: bool = False, shared: bool = False) -> Scores:
    """Return scores of LiRA as in packages, by loops: medians for means, and pooled squares."""
    middle = np.median if median else np.mean

    def scores(trained: Trained) -> Floats:
        phi, is_in, found = trained.confidences, trained.is_in, np.zeros(trained.is_in.shape)
        for trial in range(len(phi)):
            others = np.arange(len(phi)) != trial
            for side, sign in ((is_in, 1.0), (~is_in, -1.0)):
                groups = [phi[others & side[:, target], target] for target in range(phi.shape[1])]
                middles = np.array([middle(group) for group in groups])
                away = np.concatenate([group - one for group, one in zip(groups, middles, strict=True)])
                spread = away.std() if shared else np.array([group.std() for group in groups])
                found[trial] += sign * norm.logpdf(phi[trial], middles, spread)
        return found

    return scores


def _must_equal(attack: str, key: str, scores: Scores) -> PackageComparison:
    return PackageComparison(attack, key, scores, equal=scores)


_ONLINE, _SHARED = _lira(is_shared=False), _lira(is_shared=True)
_NAME, _NAME_SHARED = "LiRA, online", "LiRA, online, shared spread"
_MEAN = (
    _must_equal(_NAME, "lira mean each", _ONLINE),
    PackageComparison(
        _NAME_SHARED, "lira mean shared", _SHARED,
        "theirs divides the pooled squares by the number of values, ours by that less one for each fitted mean",
        _changed_lira(shared=True),
    ),
    PackageComparison(
        _NAME, "lira median each", _ONLINE, "theirs takes medians for means", _changed_lira(median=True)
    ),
)  # fmt: skip

PACKAGES = (
    Package("mialibrary", "mialibrary", MIALIBRARY_SCRIPT, (
        *_MEAN,
        PackageComparison(
            _NAME_SHARED, "lira median shared", _SHARED, "theirs takes medians for means, and the divisor is another",
            _changed_lira(median=True, shared=True),
        ),
        _must_equal("RMIA, a = 1", "rmia offline", _rmia),
    )),
    Package("privacy-tests", "TensorFlow Privacy", PRIVACY_TESTS_SCRIPT, (
        *_MEAN,
    )),
    Package("art", "Adversarial Robustness Toolbox", ART_SCRIPT, (
        PackageComparison("shadow", "network each class", _shadow),
    )),
)  # fmt: skip


@dataclass(frozen=True)
class AttackRow:
    """Two attacks on the same models."""

    package: str  # package of the other one
    comparison: PackageComparison  # the comparison
    ours: float  # AUC of our attack, mean over attacked trials
    theirs: float  # AUC of the package's attack, mean over attacked trials
    error: float  # standard error of our AUC over trials
    # Largest difference of scores that must be equal, relative to 1 + the larger of both; None where none must.
    apart: float | None

    @property
    def problem(self) -> str | None:
        """The contradiction to the claims, if there is one."""
        name = f"{self.comparison.attack} beside {self.package}, {self.comparison.key}"
        if self.apart is not None and self.apart > _SAME:
            return f"{name}: scores differ by {self.apart:.2g}"
        if self.comparison.reason is None and abs(self.ours - self.theirs) > self.error:
            return f"{name}: AUC {self.ours:.4f} and {self.theirs:.4f}, standard error {self.error:.4f}"
        return None


def compared(package: str, comparison: PackageComparison, trained: Trained, theirs: Floats) -> AttackRow:
    """Return a line of the table from the package's scores."""
    ours = comparison.scores(trained)
    attacked = ~np.isnan(ours).any(axis=1)
    ours, other, is_in = ours[attacked], theirs[attacked], trained.is_in[attacked]
    apart = None
    if comparison.equal is not None:
        equal = comparison.equal(trained)[attacked]
        apart = float((np.abs(equal - other) / (1 + np.maximum(np.abs(equal), np.abs(other)))).max())
    areas = np.array([[roc_auc_score(coins, one[w]) for one in (ours, other)] for w, coins in enumerate(is_in)])
    return AttackRow(
        package,
        comparison,
        ours=float(areas[:, 0].mean()),
        theirs=float(areas[:, 1].mean()),
        error=float(areas[:, 0].std(ddof=1) / np.sqrt(len(areas))),
        apart=apart,
    )


def compare(
    trained: Trained, interpreters: Mapping[str, str | None], packages: Sequence[Package] = PACKAGES
) -> list[AttackRow]:
    """Return the lines of all packages with an interpreter.

    `interpreters` has a path for each package, keyed by the package's option; None skips it.
    """
    rows = list[AttackRow]()
    for package in packages:
        python = interpreters.get(package.option)
        if python is not None:
            theirs = arrays_of_script(python, package.script, asdict(trained), "the packages' attacks")
            rows += [compared(package.title, one, trained, theirs[one.key]) for one in package.comparisons]
    return rows


def main() -> None:
    """Print the table; the exit status is 1 where attacks differ without a reason."""
    parser = parser_of(__doc__, "16 trials of 200 targets")
    for package in PACKAGES:
        parser.add_argument(f"--{package.option}", metavar="PYTHON", help=f"interpreter that has {package.title}")
    parser.add_argument("--data", default="digits", help="name of the data set (default: digits)")
    parser.add_argument("--data-dir", help="data directory (default: FL_AUDIT_DATA)")
    parser.add_argument("--trials", type=int, help="trials (default: 64, quick: 16)")
    parser.add_argument("--targets", type=int, help="targets (default: 600, quick: 200)")
    parser.add_argument("--steps", type=int, help="steps of training (default: 200, quick: 50)")
    options = parser.parse_args()
    sizes = (16, 200, 50) if options.quick else (64, 600, 200)
    trials, targets, steps = options.trials or sizes[0], options.targets or sizes[1], options.steps or sizes[2]
    interpreters = {one.option: getattr(options, one.option.replace("-", "_")) for one in PACKAGES}
    skipped = [one for one in PACKAGES if interpreters[one.option] is None]
    for package in skipped:
        print(f"{package.title} is skipped: --{package.option} names no interpreter", file=sys.stderr)
    if len(skipped) == len(PACKAGES):
        return
    trained = train(DataSpec(options.data, options.data_dir), trials, targets, steps)
    rows = compare(trained, interpreters)
    title = f"{options.data}, {MODEL}, {trials} trials, {targets} targets, {steps} steps"
    columns = ("ours", "package", "its attack", "AUC ours", "theirs", "difference", "s.e.", "scores apart", "must be")
    table = table_of(columns, title, (*columns[:3], columns[-1]))
    for row in rows:
        one = row.comparison
        must = one.reason or ("within 1 s.e." if one.equal is None else "equal scores")
        numbers = (f"{row.ours:.4f}", f"{row.theirs:.4f}", f"{row.ours - row.theirs:+.4f}", f"{row.error:.4f}")
        table.add_row(one.attack, row.package, one.key, *numbers, "" if row.apart is None else f"{row.apart:.1g}", must)
    Console(width=200).print(table)
    exit_with([row.problem for row in rows if row.problem is not None], "no attack differs without a reason")
