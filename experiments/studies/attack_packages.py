"""Membership attacks beside those of public packages, on the same trained models.

    python -m experiments.studies.attack_packages [--quick] [--data NAME] [--art PYTHON] [--mialibrary PYTHON]
                                                  [--privacy-tests PYTHON]

Models of half of the targets each are trained once; what they say goes to the packages in interpreters of their own.
Each is installed into an environment of its own, and those that are not named are skipped:

    --art             pip install adversarial-robustness-toolbox==1.20.1 scikit-learn packaging
    --mialibrary      pip install mialibrary==0.1.5
    --privacy-tests   pip install numpy scipy; pip install --no-deps tensorflow-empirical-privacy==0.1.0

LiRA and RMIA attack every world with all others as shadows; Shokri's attack learns from half of the worlds. An AUC is
the mean over worlds, its standard error that over worlds. The exit status is 1 where scores that must be equal are not,
or an AUC lies further from the package's than its standard error. Lines that name a reason may differ; for LiRA the
reason is proved, with scores that are worked out anew with the package's change and must equal the package's.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from sklearn.metrics import roc_auc_score

from experiments.cli.main import guarded
from experiments.studies.attack_comparisons import MODEL, PACKAGES, Package, PackageComparison, Trained, train
from experiments.studies.chores import asked, end, parser_of, table_of
from fl_audit.arrays import Floats
from fl_audit.data.catalogue import DataSpec

_SAME = 1e-6  # largest relative difference of scores that count as equal


@dataclass(frozen=True)
class AttackRow:
    """Two attacks on the same models."""

    package: str  # whose the other one is
    comparison: PackageComparison  # which
    # `ours`, `theirs`: AUC, mean over attacked worlds.
    ours: float
    theirs: float
    error: float  # standard error of our AUC over worlds
    # Largest difference of scores that must be equal, relative to 1 + the larger of both; None where none must.
    apart: float | None

    @property
    def problem(self) -> str | None:
        """What contradicts the claims, if anything does."""
        name = f"{self.comparison.attack} beside {self.package}, {self.comparison.key}"
        if self.apart is not None and self.apart > _SAME:
            return f"{name}: scores differ by {self.apart:.2g}"
        if self.comparison.reason is None and abs(self.ours - self.theirs) > self.error:
            return f"{name}: AUC {self.ours:.4f} and {self.theirs:.4f}, standard error {self.error:.4f}"
        return None


def compared(package: str, comparison: PackageComparison, trained: Trained, theirs: Floats) -> AttackRow:
    """Return a line of the table from the package's scores.

    Parameters
    ----------
    package, comparison, trained, theirs
        Its name, what it is compared in, the models and targets that both attack, and its scores.
    """
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
    """Return the lines of all packages that there is an interpreter for.

    Parameters
    ----------
    trained, interpreters, packages
        What the models say, interpreters by the package's option, None skips it, and which packages.
    """
    rows = list[AttackRow]()
    for package in packages:
        python = interpreters.get(package.option)
        if python is not None:
            theirs = asked(python, package.script, asdict(trained), "the packages' attacks")
            rows += [compared(package.title, one, trained, theirs[one.key]) for one in package.comparisons]
    return rows


def main() -> None:
    """Print the table; the exit status is 1 where attacks differ without a reason."""
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="16 worlds of 200 targets")
    for package in PACKAGES:
        parser.add_argument(f"--{package.option}", metavar="PYTHON", help=f"interpreter that has {package.title}")
    parser.add_argument("--data", default="digits", help="name of the data set (default: digits)")
    parser.add_argument("--data-dir", help="data directory (default: FL_AUDIT_DATA)")
    parser.add_argument("--worlds", type=int, help="worlds (default: 64, quick: 16)")
    parser.add_argument("--targets", type=int, help="targets (default: 600, quick: 200)")
    parser.add_argument("--steps", type=int, help="steps of training (default: 200, quick: 50)")
    options = parser.parse_args()
    sizes = (16, 200, 50) if options.quick else (64, 600, 200)
    worlds, targets, steps = options.worlds or sizes[0], options.targets or sizes[1], options.steps or sizes[2]
    interpreters = {one.option: getattr(options, one.option.replace("-", "_")) for one in PACKAGES}
    skipped = [one for one in PACKAGES if interpreters[one.option] is None]
    for package in skipped:
        print(f"{package.title} is skipped: --{package.option} names no interpreter", file=sys.stderr)
    if len(skipped) == len(PACKAGES):
        return
    trained = train(DataSpec(options.data, options.data_dir), worlds, targets, steps)
    rows = compare(trained, interpreters)
    title = f"{options.data}, {MODEL}, {worlds} worlds, {targets} targets, {steps} steps"
    columns = ("ours", "package", "its attack", "AUC ours", "theirs", "difference", "s.e.", "scores apart", "must be")
    table = table_of(columns, title, (*columns[:3], columns[-1]))
    for row in rows:
        one = row.comparison
        must = one.reason or ("within 1 s.e." if one.equal is None else "equal scores")
        numbers = (f"{row.ours:.4f}", f"{row.theirs:.4f}", f"{row.ours - row.theirs:+.4f}", f"{row.error:.4f}")
        table.add_row(one.attack, row.package, one.key, *numbers, "" if row.apart is None else f"{row.apart:.1g}", must)
    Console(width=200).print(table)
    end([row.problem for row in rows if row.problem is not None], "no attack differs without a reason")


if __name__ == "__main__":
    guarded(main)
