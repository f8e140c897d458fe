"""The law of the insider's innovations on real data, with the insider as it is and with three insiders that are wrong.

    python -m experiments.studies.law [--data-dir DIR] [--worlds N] [--wrong-worlds N] [--only NAME]

The innovations of an honest run are independent standard normal draws, whatever the data, the model, the optimizer
and the sensitivity (see `fl_audit.evidence.belief.innovations`). Each wrong insider reads the same releases, so the
same check must fail for it: one believes in 5 % more noise, one takes D for D', one uses the weights of the round
before.
"""

import argparse
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file
from torch import Tensor

from experiments.cli.main import guarded
from experiments.runs.config_file import load_config
from experiments.runs.engines import Engine
from experiments.runs.plan import AuditPlan, resolve
from experiments.runs.progress import Progress, no_progress, progress_bar
from experiments.runs.replay import stored_rounds
from experiments.runs.run import run_audit
from fl_audit.adversaries.identifiability import Observation, weigh
from fl_audit.arrays import Floats
from fl_audit.evidence.belief.innovations import InnovationCheck, InnovationGroup, check_innovations
from fl_audit.game.contributing import Moment
from fl_audit.game.game import Game, load_game
from fl_audit.game.hypotheses import sums_of
from fl_audit.mechanisms.noise import CentralGaussian
from fl_audit.mechanisms.weighing import Hypotheses

SETTINGS = ("adult", "adult-global", "adult-model-view", "digits-adam", "mnist-cnn")
Weigh = Callable[[Game, list[Hypotheses], Tensor], Observation]
"""Weighs a release under the hypotheses of its round, which stand last, after those of the round before."""


@dataclass(frozen=True)
class LawResult:
    """What the check said of one insider in one setting."""

    insider: str  # which insider
    check: InnovationCheck  # the check of its innovations
    advantage: float  # its advantage


def plan_of(setting: str, data_dir: Path | None, overrides: Iterable[str] = ()) -> AuditPlan:
    """Return the plan of a setting that comes with the package.

    Parameters
    ----------
    setting
        Name of the setting.
    data_dir
        Where data sets lie; None is the default place.
    overrides
        Settings that differ, each `section.key=value`.
    """
    with resources.as_file(resources.files("experiments") / "configs" / f"{setting}.toml") as path:
        return resolve(load_config(path, list(overrides), str(data_dir) if data_dir else None))


def _weigh_with_more_noise(game: Game, hypotheses: list[Hypotheses], release: Tensor) -> Observation:
    """Weigh with a sigma that is 5 % too large."""
    noise = CentralGaussian(game.public.law.noise_multiplier * 1.05, game.public.law.scaling)
    law = replace(game.public.law, noise=noise)
    return weigh(replace(game, public=replace(game.public, law=law)), hypotheses[-1], release)


def _weigh_with_sets_exchanged(game: Game, hypotheses: list[Hypotheses], release: Tensor) -> Observation:
    """Weigh D' against D."""
    found = weigh(game, hypotheses[-1], release)
    return replace(found, increment=-found.increment)


def _weigh_with_stale_weights(game: Game, hypotheses: list[Hypotheses], release: Tensor) -> Observation:
    """Weigh with the weights of the round before."""
    return weigh(game, hypotheses[-2] if len(hypotheses) > 1 else hypotheses[-1], release)


WRONG_INSIDERS: dict[str, Weigh] = {
    "sigma 5 % too large": _weigh_with_more_noise,
    "D taken for D'": _weigh_with_sets_exchanged,
    "weights of the round before": _weigh_with_stale_weights,
}


def study(
    plan: AuditPlan, directory: Path, progress: Progress = no_progress, wrong_worlds: int | None = None
) -> list[LawResult]:
    """Run one setting and check the honest insider and the wrong ones.

    Parameters
    ----------
    plan
        The setting; its releases are kept for the worlds that the wrong insiders read.
    directory
        Where the run goes; must be new.
    progress
        Shows how far the run is.
    wrong_worlds
        How many worlds the wrong insiders read; None means all.
    """
    kept = min(plan.config.audit.worlds, wrong_worlds or plan.config.audit.worlds)
    run_settings = plan.config.run.model_copy(update={"keep_releases": kept})
    plan = replace(plan, config=plan.config.model_copy(update={"run": run_settings}))
    contents = run_audit(plan, directory, Engine.LOCAL, progress=progress, with_report=False)
    bits, signal = contents.run.bits, contents.run.signal
    honest = check_innovations(contents.run.increments, signal, bits)
    results = [LawResult("as it is", honest, float(contents.summary["insider"]["advantage"]))]
    for name, increments in _reweigh(directory, load_game(plan.public), WRONG_INSIDERS).items():
        check = check_innovations(increments, signal[:kept], bits[:kept])
        won = (increments.sum(axis=1) > 0) == bits[:kept]
        results.append(LawResult(name, check, float(2 * won.mean() - 1)))
    return results


def _reweigh(directory: Path, game: Game, reads: Mapping[str, Weigh]) -> dict[str, Floats]:
    """Return the increments (worlds, rounds) of insiders who read the stored releases in ways of their own."""
    torch.set_num_threads(game.public.threads)
    parts = [_reweigh_batch(game, load_file(path), reads) for path in sorted((directory / "public").glob("releases-*"))]
    return {name: np.concatenate([part[name] for part in parts]) for name in reads}


def _reweigh_batch(game: Game, stored: dict[str, Tensor], reads: Mapping[str, Weigh]) -> dict[str, Floats]:
    increments: dict[str, list[Floats]] = {name: [] for name in reads}
    hypotheses: list[Hypotheses] = []
    for made in stored_rounds(game, stored):
        hypotheses = [*hypotheses[-1:], sums_of(game, made.models[-2], Moment(made.number), made.around)]
        for name, read in reads.items():
            increments[name].append(read(game, hypotheses, made.release).increment)
    return {name: np.stack(found, axis=1) for name, found in increments.items()}


def _row(result: LawResult) -> list[str]:
    def said(group: InnovationGroup) -> str:
        return (
            f"p {group.ks_p_value:.3g}, z of mean {group.mean_z:+.1f}, variance {group.variance_z:+.1f}, "
            f"serial {group.serial_correlation_z:+.1f}"
        )

    holds = "holds" if result.check.holds else "FAILS"
    return [
        result.insider,
        holds,
        said(result.check.members),
        said(result.check.nonmembers),
        f"{result.advantage:+.3f}",
    ]


def problems(plan: AuditPlan, results: list[LawResult]) -> list[str]:
    """Return what contradicts the law: an honest check that fails, a wrong one that holds, a wrong advantage.

    The advantage is compared with its exact value within three standard errors where the final law is exact (local
    sensitivity), and otherwise with that value as its upper limit.

    Parameters
    ----------
    plan
        What was played.
    results
        What was found.
    """
    honest, *wrong = results
    found = [] if honest.check.holds else ["the innovations of the honest insider do not follow their law"]
    found += [f"the check does not find out: {result.insider}" for result in wrong if result.check.holds]
    bound = _advantage_bound(plan)
    three_errors = 3 * math.sqrt((1 - bound**2) / plan.config.audit.worlds)
    below = bound - three_errors if not plan.public.law.is_private_release else -1.0
    if not below <= honest.advantage <= bound + three_errors:
        found.append(f"the advantage is {honest.advantage:.4f}, {bound:.4f} +- {three_errors:.4f} expected")
    return found


def _advantage_bound(plan: AuditPlan) -> float:
    assert plan.guarantee is not None, "every setting of the study makes a promise"
    return plan.guarantee.advantage_bound_exact


def main() -> None:
    """Print one table a setting; the exit status is 1 where something contradicts the law."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="data directory (default: FL_AUDIT_DATA)")
    parser.add_argument("--worlds", type=int, default=1000, help="worlds a setting (default: 1000)")
    parser.add_argument("--wrong-worlds", type=int, help="worlds that the wrong insiders read (default: all)")
    parser.add_argument("--only", choices=SETTINGS, help="one setting instead of all")
    options = parser.parse_args()
    found: list[str] = []
    for setting in [options.only] if options.only else SETTINGS:
        plan = plan_of(setting, options.data_dir, [f"audit.worlds={options.worlds}"])
        with tempfile.TemporaryDirectory() as directory:
            results = study(plan, Path(directory) / "run", progress_bar, options.wrong_worlds)
        Console(width=160).print(_table(setting, plan, results))
        found += [f"{setting}: {problem}" for problem in problems(plan, results)]
    print("\n".join(found) or "nothing contradicts the law")
    sys.exit(1 if found else 0)


def _table(setting: str, plan: AuditPlan, results: list[LawResult]) -> Table:
    worlds, bound = plan.config.audit.worlds, _advantage_bound(plan)
    expected = f"{'at most ' if plan.public.law.is_private_release else ''}{bound:.4f}"
    error = math.sqrt((1 - bound**2) / worlds)
    table = Table(title=f"{setting}: {worlds} worlds, advantage expected {expected}, one s.e. {error:.3f}")
    for column in ("insider", "law", "innovations given b = 1", "given b = 0", "advantage"):
        table.add_column(column)
    for result in results:
        table.add_row(*_row(result))
    return table


if __name__ == "__main__":
    guarded(main)
