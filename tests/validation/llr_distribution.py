"""Distribution of the insider's innovations on real data, with the usual insider and with three faulty ones.

    python -m tests.validation llr_distribution [--data-dir DIR] [--trials N] [--wrong-trials N] [--only NAME]

The innovations of an honest run are independent standard normal draws, whatever the data, the model, the optimizer
and the sensitivity (see `fl_audit.audits.identifiability.sections_innovations`). Each wrong insider reads the same
releases, so the same check must fail for it: one believes in 5 % more noise, one takes D for D', one uses the weights
of the round before. The advantage is compared with its exact value within three standard errors where the final
distribution is exact (local sensitivity), and otherwise with that value as its upper limit.
"""

import math
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.audits.identifiability.identifiability_adversary import log_likelihood_ratio
from fl_audit.audits.identifiability.sections_innovations import LlrIncrementTest, check_scores
from fl_audit.experiments.studies.study_commands import exit_with, parser_of, table_of
from fl_audit.federation.contributions import RoundContext
from fl_audit.federation.hypotheses import sums_of
from fl_audit.federation.loaded_federation import LoadedFederation, load_federation
from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.likelihood_ratio import Hypotheses
from fl_audit.mechanisms.noises.central import CentralGaussian
from fl_audit.runs.config_file import load_config
from fl_audit.runs.engine_names import Engine
from fl_audit.runs.planning import plan_run
from fl_audit.runs.progress import Progress, no_progress, progress_bar
from fl_audit.runs.replay import stored_rounds
from fl_audit.runs.run import run_audit
from fl_audit.verdict.log_odds_innovations import innovations

SETTINGS = ("adult", "adult-global", "adult-model-view", "digits-adam", "mnist-cnn")
Weigh = Callable[[LoadedFederation, list[Hypotheses], Tensor], Floats]
"""A function that computes log-likelihood ratios of a release, (trials,), under the hypotheses of its round, which are
the last, after those of the round before.
"""


class LlrCheckResult(NamedTuple):
    """The check of one insider in one setting."""

    insider: str  # name of the insider
    check: LlrIncrementTest  # the check of its innovations
    advantage: float  # its advantage


def plan_of(setting: str, data_dir: Path | None, overrides: Iterable[str] = ()) -> RunPlan:
    """Return the plan of a setting that comes with the package.

    `overrides` are settings that differ, each `section.key=value`; without `data_dir` data sets lie in the default
    place.
    """
    with resources.as_file(resources.files("fl_audit.experiments") / "configs" / f"{setting}.toml") as path:
        return plan_run(load_config(path, list(overrides), str(data_dir) if data_dir else None))


def _weighed_with_more_noise(federation: LoadedFederation, hypotheses: list[Hypotheses], release: Tensor) -> Floats:
    noise = CentralGaussian(federation.public.mechanism.noise_multiplier * 1.05, federation.public.mechanism.scaling)
    mechanism = replace(federation.public.mechanism, noise=noise)
    return log_likelihood_ratio(
        replace(federation, public=replace(federation.public, mechanism=mechanism)), hypotheses[-1], release
    ).increment


WRONG_INSIDERS: dict[str, Weigh] = {
    "sigma 5 % too large": _weighed_with_more_noise,
    "D taken for D'": lambda federation, hypotheses, release: (
        -log_likelihood_ratio(federation, hypotheses[-1], release).increment
    ),
    "weights of the round before": lambda federation, hypotheses, release: (
        log_likelihood_ratio(federation, hypotheses[0], release).increment
    ),
}


def study(
    plan: RunPlan, directory: Path, progress: Progress = no_progress, wrong_trials: int | None = None
) -> list[LlrCheckResult]:
    """Run one setting and check the honest insider and the wrong ones.

    The wrong insiders read so many trials, whose releases are kept; None means all. The directory must be new.
    """
    kept_trials = min(plan.config.audit.trials, wrong_trials or plan.config.audit.trials)
    run_settings = plan.config.run.model_copy(update={"keep_releases": kept_trials})
    plan = replace(plan, config=plan.config.model_copy(update={"run": run_settings}))
    contents = run_audit(plan, directory, Engine.LOCAL, progress=progress, with_report=False)
    bits = contents.run.bits
    signal = contents.run.signal
    honest = check_scores(innovations(contents.run.increments, signal, bits), bits)
    results = [LlrCheckResult("as it is", honest, float(contents.summary["insider"]["advantage"]))]
    for name, increments in _increments_of_wrong_insiders(directory, load_federation(plan.federation)).items():
        check = check_scores(innovations(increments, signal[:kept_trials], bits[:kept_trials]), bits[:kept_trials])
        won = (increments.sum(axis=1) > 0) == bits[:kept_trials]
        results.append(LlrCheckResult(name, check, float(2 * won.mean() - 1)))
    return results


def _increments_of_wrong_insiders(directory: Path, federation: LoadedFederation) -> dict[str, Floats]:
    """Return the increments (trials, rounds) that faulty insiders compute from the stored releases."""
    torch.set_num_threads(federation.public.threads)
    batches = []
    for path in sorted((directory / "public").glob("releases-*")):
        hypotheses = list[Hypotheses]()
        rounds = []
        for server_round in stored_rounds(federation, load_file(path)):
            hypotheses = [
                *hypotheses[-1:],
                sums_of(federation, server_round.models[-2], RoundContext(server_round.number), server_round.side),
            ]
            rounds.append([read(federation, hypotheses, server_round.release) for read in WRONG_INSIDERS.values()])
        batches.append(np.stack(rounds, axis=-1))
    return dict(zip(WRONG_INSIDERS, np.concatenate(batches, axis=1), strict=True))


def _shown(setting: str, plan: RunPlan, results: list[LlrCheckResult], console: Console) -> list[str]:
    """Print the table of a setting, and return the contradictions to the distribution."""
    assert plan.guarantee is not None, "every setting of the study makes a guarantee"
    trials = plan.config.audit.trials
    bound = plan.guarantee.advantage_bound_exact
    error = math.sqrt((1 - bound**2) / trials)
    is_limit = plan.federation.mechanism.is_private_release
    expected = f"{'at most ' if is_limit else ''}{bound:.4f}"
    title = f"{setting}: {trials} trials, advantage expected {expected}, one s.e. {error:.3f}"
    columns = ("insider", "distribution", "innovations given b = 1", "given b = 0", "advantage")
    table = table_of(columns, title, columns)
    for result in results:
        group_texts = [
            f"p {group.ks_p_value:.3g}, z of mean {group.mean_z:+.1f}, variance {group.variance_z:+.1f}, "
            f"serial {group.serial_correlation_z:+.1f}"
            for group in (result.check.members, result.check.nonmembers)
        ]
        table.add_row(
            result.insider, "holds" if result.check.holds else "FAILS", *group_texts, f"{result.advantage:+.3f}"
        )
    console.print(table)
    honest, *wrong = results
    contradictions = (
        [] if honest.check.holds else ["the innovations of the honest insider do not follow their distribution"]
    )
    contradictions += [f"the check does not find out: {result.insider}" for result in wrong if result.check.holds]
    if not (-1.0 if is_limit else bound - 3 * error) <= honest.advantage <= bound + 3 * error:
        contradictions.append(f"the advantage is {honest.advantage:.4f}, {bound:.4f} +- {3 * error:.4f} expected")
    return [f"{setting}: {problem}" for problem in contradictions]


def main() -> None:
    """Print one table a setting; the exit status is 1 where something contradicts the distribution."""
    parser = parser_of(__doc__)
    parser.add_argument("--data-dir", type=Path, help="data directory (default: FL_AUDIT_DATA)")
    parser.add_argument("--trials", type=int, default=1000, help="trials a setting (default: 1000)")
    parser.add_argument("--wrong-trials", type=int, help="trials that the wrong insiders read (default: all)")
    parser.add_argument("--only", choices=SETTINGS, help="one setting instead of all")
    options = parser.parse_args()
    contradictions = list[str]()
    for setting in [options.only] if options.only else SETTINGS:
        plan = plan_of(setting, options.data_dir, [f"audit.trials={options.trials}"])
        with tempfile.TemporaryDirectory() as directory:
            results = study(plan, Path(directory) / "run", progress_bar, options.wrong_trials)
        contradictions += _shown(setting, plan, results, Console(width=160))
    exit_with(contradictions, "nothing contradicts the distribution")
