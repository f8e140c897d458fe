"""Study of reconstruction: how often the right one of 100 candidates is identified, and images from gradients.

    python -m fl_audit.experiments.studies.reconstruction [--data-dir DIR] [--out DIR] [--quick]
        [--only rates|pictures|quality] [--reference PYTHON DIR]

`rates`: the rate of identifying the right candidate, by epsilon, next to its bound. The rate is given for the optimal
attack on worst-case candidates, which are as far apart as possible; for trials on handwritten digits; and for the same
trials with half of the noise, to which the bound does not apply. `pictures`: digits, and their reconstructions without
noise and at epsilon 100, 10 and 1. `quality`: similarity of reconstructions for batches of 1, 4 and 16 images, from one
gradient and from local training; with `--reference` compared with the authors' code
(github.com/JonasGeiping/invertinggradients), cloned to DIR, in a Python that has torch and torchvision.

The exit status is 1 in any of these cases: the verdict on an honest mechanism is `violated` (level 0.001); half of the
noise is not detected, or its rate is nowhere above the bound; or the authors' code is better by more than 1 dB.
"""

import math
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from torch import Tensor

from fl_audit.array_types import Floats
from fl_audit.atomic_files import write_bytes
from fl_audit.audits.membership.insider_increments import increments
from fl_audit.audits.reconstruction.candidate_hits import ranks_of_truth
from fl_audit.audits.reconstruction.image_attacks import DescentSettings
from fl_audit.audits.reconstruction.sections_reconstruction import CandidateRanksFinding, TopGuessRate, draw_pictures
from fl_audit.data.data_files import data_directory
from fl_audit.experiments.studies.inversion_without_privacy import COMPARED, SETTINGS, beside_reference, quality
from fl_audit.experiments.studies.study_commands import exit_with, parser_of, table_of
from fl_audit.experiments.studies.study_runs import results_of_run
from fl_audit.federation.run_plan import RunPlan
from fl_audit.privacy.reconstruction_bounds import simplex_success
from fl_audit.randomness import Purpose, generator
from fl_audit.report.figure_style import INK, MUTED, add_legend, finish_axes, new_figure, to_png
from fl_audit.runs.config import parse_config
from fl_audit.runs.expected_errors import guarded
from fl_audit.runs.image_reconstruction import DRAWING_STEPS, reconstruct_images
from fl_audit.runs.planning import plan_run
from fl_audit.runs.progress import progress_bar, steps_bar
from fl_audit.runs.run import HONEST, ClientAppAndStrategy
from fl_audit.strategies.trial_batch_strategy import TrialBatchStrategy
from fl_audit.trial_batches import TrialBatch
from fl_audit.verdict.declared_tests import TestName
from fl_audit.verdict.findings_verdict import VerdictFinding
from fl_audit.verdict.verdict import Verdict

CANDIDATES = 100
DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
TRIALS = 2000
QUICK_TRIALS = 200
PICTURES = 32
ITERATIONS = 1000
QUICK_ITERATIONS = 60


class _HalfNoiseStrategy(TrialBatchStrategy):
    """A faulty strategy that adds half of the noise that it claims."""

    def noise(self, batch: TrialBatch, server_round: int, total: Tensor, sigma: Floats) -> Tensor:
        return super().noise(batch, server_round, total, 0.5 * sigma)


class _TrialOutcome(NamedTuple):
    first_guess_rate: TopGuessRate  # how often the right candidate is named, in the first guess
    verdict: Verdict  # by these rates and by the noise
    is_passed: bool  # whether the rates by themselves pass the bound, at their level


class _RatePoint(NamedTuple):
    """Rates at which the attack's first guess is the right candidate, at one epsilon."""

    epsilon: float
    bound: float  # the largest share that the guarantee allows
    best: float  # success of the best attack on candidates that lie as far apart as they can
    simulated: float  # success of that attack, in as many simulated trials as the trials have
    honest: _TrialOutcome  # trial on digits with the claimed noise
    halved: _TrialOutcome  # trial on digits with half of the noise


def _trial(plan: RunPlan, parties: ClientAppAndStrategy) -> _TrialOutcome:
    contents = results_of_run(plan, parties, progress_bar)
    numbers = contents.find(CandidateRanksFinding)
    verdict = contents.find(VerdictFinding)
    assert numbers is not None, "the reconstruction audit has its numbers"
    assert verdict is not None
    assert verdict.judgement is not None, "a guarantee is judged"
    is_passed = any(test.name is TestName.CANDIDATES for test in verdict.judgement.broken)
    return _TrialOutcome(numbers.first, verdict.verdict, is_passed)


def _simulated(mu: float, trials: int) -> float:
    """Return the share of simulated trials in which the true one of several equidistant candidates is identified.

    `mu` is the Gaussian-DP parameter of the noise.
    """
    draw = generator(0, Purpose.DRAWING, round=2)
    length = mu * math.sqrt(CANDIDATES / (CANDIDATES - 1))
    truth = draw.integers(CANDIDATES, size=trials)
    products = draw.normal(size=(trials, CANDIDATES)) * length
    products[np.arange(trials), truth] += length**2
    nobody = np.zeros(products.shape, dtype=np.bool_)
    weighed = increments(products, np.full_like(products, length), None, np.ones(trials), nobody)
    return float(np.mean(ranks_of_truth(weighed, truth) == 1))


def _rates(epsilon: float, trials: int) -> _RatePoint:
    """Carry out `trials` trials with the claimed noise and `trials` with half of it, and return the success rates."""
    values = {
        "data": {"name": "digits", "records": 200, "clients": 4, "test-records": 100},
        "model": {"name": "logistic"},
        "training": {"rounds": 4, "learning-rate": 1.0},
        "privacy": {"epsilon": epsilon, "delta": DELTA, "clipping-norm": 1.0, "adjacency": "add-remove-record"},
        "audit": {"kind": "reconstruction", "candidates": CANDIDATES, "trials": trials, "epsilon-star": False},
        "run": {"trials-per-batch": 250, "seed": 0},
    }
    plan = plan_run(parse_config(values))
    guarantee = plan.guarantee
    assert guarantee is not None, "an epsilon is claimed"
    bound = guarantee.reconstruction_bound(1 / CANDIDATES)
    assert bound is not None, "noise is scaled to everybody"
    honest, halved = (
        _trial(plan, strategy) for strategy in (HONEST, ClientAppAndStrategy(strategy=_HalfNoiseStrategy))
    )
    best = simplex_success(guarantee.mu, CANDIDATES)
    simulated = _simulated(guarantee.mu, trials)
    return _RatePoint(epsilon, bound, best, simulated, honest, halved)


def _draw_rates(points: Sequence[_RatePoint]) -> Figure:
    """Return a figure of identification rates and their bound against epsilon; it can be read without colours."""
    figure = new_figure(4.6)
    axes = figure.add_subplot()
    epsilon = [point.epsilon for point in points]
    axes.plot(epsilon, [point.bound for point in points], "--", color=INK, label="the guarantee allows")
    axes.plot(epsilon, [point.best for point in points], "-", color=INK, label="best attack, candidates far apart")
    axes.plot(epsilon, [point.simulated for point in points], "D", color=INK, mfc="white", label="the same, simulated")
    for name, marker, fill, successes in (
        ("named in trials on digits", "o", INK, [point.honest.first_guess_rate for point in points]),
        ("the same with half of the noise", "v", "white", [point.halved.first_guess_rate for point in points]),
    ):
        shares = [success.share for success in successes]
        off = [
            [success.share - success.low for success in successes],
            [success.high - success.share for success in successes],
        ]
        axes.errorbar(epsilon, shares, off, fmt=marker, color=INK, mfc=fill, capsize=2, label=name)
    axes.axhline(1 / CANDIDATES, ls=":", color=MUTED, label="by chance")
    axes.set_xscale("log")
    axes.set_xticks(epsilon, [f"{epsilon_value:g}" for epsilon_value in epsilon])
    axes.minorticks_off()
    axes.set_ylim(0, 1.02)
    finish_axes(axes, f"Naming the right one of {CANDIDATES} candidates", f"epsilon at delta {DELTA:g}", "Share")
    add_legend(axes, columns=2)
    return figure


def _print_rates(points: Sequence[_RatePoint], console: Console) -> list[str]:
    """Print a table of the rates, and return a sentence on each failure of the audit.

    The audit fails at an epsilon if trials with the claimed noise exceed the bound. It also fails if trials with half
    of this noise are not judged as a violation.
    """
    columns = ("epsilon", "allowed", "best attack", "simulated", "digits", "half of the noise", "above", "verdicts")
    table = table_of(columns, words=columns)
    for point in points:
        trials = (point.honest, point.halved)
        shares = (point.bound, point.best, point.simulated)
        rate_texts = (f"{rate.share:.4f} ({rate.low:.4f} to {rate.high:.4f})" for rate, _, _ in trials)
        passed = ("yes" if trial.is_passed else "no" for trial in trials)
        verdicts = (trial.verdict for trial in trials)
        texts = (", ".join(passed), ", ".join(verdicts))
        table.add_row(f"{point.epsilon:g}", *(f"{share:.4f}" for share in shares), *rate_texts, *texts)
    console.print(table)
    violated = [point for point in points if point.honest.verdict is Verdict.VIOLATED]
    missed = [point for point in points if point.halved.verdict is not Verdict.VIOLATED]
    problems = [f"the bound is passed at epsilon {rate_point.epsilon:g}" for rate_point in violated]
    problems += [
        f"half of the noise is {rate_point.halved.verdict} at epsilon {rate_point.epsilon:g}" for rate_point in missed
    ]
    if not any(point.halved.is_passed for point in points):
        problems.append("half of the noise is named beyond the bound at no epsilon")
    return problems


def _draw_pictures(directory: str) -> Figure:
    """Return a figure of MNIST records and their reconstructions; `directory` holds the data sets."""
    data = {"name": "mnist", "data-dir": directory, "records": 200, "clients": 4}
    values = {
        "data": data | {"test-records": 1000, "population-records": 1000},
        "model": {"name": "dense-128"},
        "training": {"rounds": 30, "learning-rate": 0.1},
        "privacy": {"epsilon": 10.0, "delta": DELTA, "clipping-norm": 1.0, "adjacency": "add-remove-record"},
        "audit": {"trials": 1, "reconstruct-samples": 100},
    }
    with steps_bar("drawing the pictures", DRAWING_STEPS) as on_step:
        images = reconstruct_images(plan_run(parse_config(values)), on_step)
    figure = new_figure(6.2)
    draw_pictures(
        figure, images.true, [drawing for index, drawing in enumerate(images.drawings) if index != images.own]
    )
    return figure


def _print_quality(directory: str | None, descent: DescentSettings, only: str, console: Console) -> None:
    columns = ("Inverted", "PSNR, dB", "best 1 %", "SSIM", "best 1 % ", "named among 1,000")
    table = table_of(columns, words=columns)
    for setting in (setting for setting in SETTINGS if only in str(setting)):
        measured_quality = quality(setting, directory, PICTURES, descent)
        psnr = np.minimum(measured_quality.psnr, 99.0)  # of drawings that are equal it is infinite
        decibels = (f"{psnr.mean():.1f}", f"{measured_quality.worst(psnr):.1f}")
        ssim = (f"{measured_quality.ssim.mean():.2f}", f"{measured_quality.worst(measured_quality.ssim):.2f}")
        table.add_row(str(setting), *decibels, *ssim, f"{measured_quality.named.mean():.0%}")
    console.print(table)


def _compared(
    options: Namespace, directory: str | None, pictures: int, descent: DescentSettings, console: Console
) -> list[str]:
    """Print how well our and the authors' code reconstruct images, and return a message for each setting that we lose.

    We lose a setting if our mean PSNR is more than 1 dB below theirs.
    """
    interpreter, reference = options.reference
    columns = ("Inverted", "ours, dB", "the reference, dB", "difference, dB")
    table = table_of(columns, words=columns)
    problems = list[str]()
    for setting in (setting for setting in COMPARED if options.setting in str(setting)):
        ours, theirs = beside_reference(setting, directory, pictures, descent, interpreter, Path(reference))
        difference = float(ours.mean() - theirs.mean())
        table.add_row(str(setting), f"{ours.mean():.2f}", f"{theirs.mean():.2f}", f"{difference:+.2f}")
        if difference < -1:
            problems.append(f"the reference draws {setting} better by {-difference:.2f} dB")
    console.print(table)
    return problems


def main() -> None:
    parser = parser_of(__doc__)
    where = "where mnist/ and lfw/ lie; left out, FL_AUDIT_DATA, and without it `rates` alone"
    parser.add_argument("--data-dir", help=where)
    parser.add_argument("--out", type=Path, default=Path("reconstruction"), help="where figures go (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a look: few trials and few steps of the search")
    parser.add_argument("--only", choices=("rates", "pictures", "quality"), help="one part alone")
    parser.add_argument("--setting", default="", metavar="TEXT", help="only settings of `quality` that hold TEXT")
    parser.add_argument("--trials", type=int, default=TRIALS, help="trials at each epsilon (%(default)s)")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="steps of the search (%(default)s)")
    parser.add_argument("--reference", nargs=2, metavar=("PYTHON", "DIR"), help="the authors' code, see above")
    options = parser.parse_args()
    path = data_directory(options.data_dir)
    directory = None if path is None else str(path)
    studies = (options.only,) if options.only else () if options.reference else ("rates", "pictures", "quality")
    console = Console(width=150)
    problems = list[str]()
    figures = dict[str, Figure]()
    if "rates" in studies:
        points = [_rates(epsilon, QUICK_TRIALS if options.quick else options.trials) for epsilon in EPSILONS]
        problems += _print_rates(points, console)
        figures["rates"] = _draw_rates(points)
    if "pictures" in studies and directory is not None:
        figures["pictures"] = _draw_pictures(directory)
    descent = DescentSettings(QUICK_ITERATIONS if options.quick else options.iterations)
    if "quality" in studies and directory is not None:
        _print_quality(directory, descent, options.setting, console)
    if options.reference:
        problems += _compared(options, directory, 5 if options.quick else 100, descent, console)
    for name, figure in figures.items():
        options.out.mkdir(parents=True, exist_ok=True)
        write_bytes(options.out / f"{name}.png", to_png(figure))
    exit_with(problems, "as it should be")


if __name__ == "__main__":
    guarded(main)
