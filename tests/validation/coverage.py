"""Coverage of every printed confidence: nominal beside measured coverage, of every interval and bound.

    python -m tests.validation coverage [--quick] [--only TEXT] [--jobs N] [--out FILE.csv|FILE.json]

For every interval and every bound of the report, the console, the summary, the reproduction pages and the Python API,
runs are simulated whose truth is known. First 100 runs of each setting of a grid, and 400 more of the six worst, search
for the settings with the worst coverage; then the two worst are played 2,000 times each, with draws of their own. A
line falls short where it covers less than the printed confidence by more than three standard errors, in these runs and
in 20,000 others. Where no confidence is printed (`nominal` is "none") the coverage is measured all the same. The exit
status is 1 where a printed confidence falls short. The command takes about ten minutes of one core.
"""

import math
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track

from fl_audit.atomic_files import atomic_file
from fl_audit.audits.canaries.one_run_methods import OneRunMethod
from fl_audit.experiments.studies.study_commands import parser_of, table_of
from fl_audit.released_model.star_methods import StarMethod
from fl_audit.statistics.lower_bound_methods import BoundMethod
from tests.validation import coverage_distributions as distributions
from tests.validation import coverage_scores as scores
from tests.validation.coverage_distributions import CONFIDENCE, Play, Plays

RUNS, SEARCH_RUNS = 2000, 100
_ANEW = 10  # factor of repetitions of a line that falls short, with other draws, before it is reported
QUICK_RUNS, QUICK_SEARCH_RUNS = 40, 2
_LIKELY, _WORST = 6, 2
_ERRORS = 3.0
_LAST_DIGITS = 1e-9  # a bound is the result of a search, and may be off by this much

_AUDITS = "fl_audit.audits."
_BOUNDS = "fl_audit.statistics."
_VERDICT = "fl_audit.verdict."
_BELIEFS = f"{_AUDITS}identifiability."
_MEMBERS = f"{_AUDITS}membership."
_STAR, _PAPERS = "fl_audit.released_model.", "fl_audit.experiments.papers."
_CANARIES, _TRIALS = "fl_audit.audits.canaries.", "fl_audit.app_audits.claim_audit."


@dataclass(frozen=True)
class Statement:
    """An interval or a bound as it is printed."""

    name: str  # name of the quantity
    plays: Callable[[], Plays]  # returns its simulated runs, by the name of the setting
    # The functions that work it out, or pass numbers of their own into one that does, as `module.function`.
    functions: tuple[str, ...] = ()
    is_claimed: bool = True  # whether a confidence is printed with it
    share: float = 1.0  # of the runs that is played: less than all where one takes long


def _of_bound(method: BoundMethod) -> Statement:
    functions: tuple[str, ...] = (
        f"{_BOUNDS}lower_bounds.epsilon_lower_bound",
        f"{_BOUNDS}lower_bounds._bound",
        f"{_BOUNDS}lower_bounds.bound_limit",
    )
    if method is BoundMethod.GAUSSIAN_SHIFT:
        functions += ("fl_audit.statistics.shift_bound.gaussian_shift",)
    name = f"epsilon at least, {method}"
    return Statement(name, partial(scores.lower_bounds, method), functions)


STATEMENTS = (
    Statement(
        "share of trials",
        distributions.shares,
        (
            f"{_BOUNDS}advantage.clopper_pearson",
            "fl_audit.audits.identifiability.sections_insider._exceedance_row",
            f"{_AUDITS}reconstruction.sections_reconstruction.measure_reconstruction",
            f"{_PAPERS}bernau2021.noisy_query._belief_row",
            f"{_PAPERS}bernau2021.noisy_query._rows_of_errors",
            f"{_PAPERS}bernau2021.noisy_query._rows_of_the_boundary",
            f"{_PAPERS}bernau2021.advantage_and_belief.identified",
        ),
    ),
    Statement(
        "advantage, trials counted",
        distributions.won_trials,
        (f"{_BOUNDS}advantage.empirical_advantage", f"{_BOUNDS}advantage.advantage_ends"),
    ),
    Statement(
        "epsilon from advantage, Eq. (6)",
        distributions.epsilon_of_trials,
        (f"{_BELIEFS}bernau_empirical_epsilons.advantage_interval",),
    ),
    Statement("mean advantage over trials", distributions.mean_rates, (f"{_BOUNDS}advantage.mean_advantage",)),
    Statement(
        "mean of bounded numbers",
        distributions.bounded_means,
        (f"{_BOUNDS}advantage.mean_interval", f"{_BOUNDS}advantage.MeanBettingTest.of"),
    ),
    Statement(
        "largest belief, distribution known",
        partial(distributions.largest_belief, is_mu_known=[True]),
        (f"{_BELIEFS}bernau_empirical_epsilons.belief_interval",),
    ),
    Statement("largest belief, its median at least", partial(distributions.largest_belief, is_mu_known=[False])),
    Statement(
        "real over claimed noise",
        distributions.noise_ratios,
        (
            f"{_VERDICT}noise_estimate.ratio_interval",
            f"{_VERDICT}noise_estimate.estimate_noise",
            f"{_VERDICT}noise_estimate._with_interval",
        ),
    ),
    Statement("real over claimed noise, along a target that is sampled in secret", distributions.sampled_noise),
    Statement(
        "epsilon at least, from the noise",
        distributions.epsilon_of_noise,
        (f"{_VERDICT}noise_estimate.epsilon_lower_bound_from_noise",),
    ),
    *map(_of_bound, BoundMethod),
    Statement("area under the curve of scores", scores.areas, (f"{_BOUNDS}roc.area_under_curve",)),
    Statement("insider's trade-off, a point of the band", scores.tradeoffs, (f"{_BOUNDS}roc.tradeoff_band",)),
    Statement(
        "advantage on one randomised record",
        scores.randomised_records,
        (f"{_AUDITS}common.sections_record_guarantee.measured_advantage",),
    ),
    *(
        Statement(f"one run, {kind} by {by}", partial(scores.single_runs, method, kind), functions)
        for kind, by, method, functions in (
            (
                "epsilon",
                "Steinke et al.",
                OneRunMethod.STEINKE,
                (f"{_CANARIES}bounds.one_run_bound", f"{_CANARIES}bounds.bound_of_guesses"),
            ),
            ("epsilon", "the trade-off", OneRunMethod.TRADE_OFF, ()),
            ("mu", "the trade-off", OneRunMethod.TRADE_OFF, ()),
            ("mu", "the shift", OneRunMethod.SHIFT, (f"{_CANARIES}bounds._by_shift",)),
        )
    ),
    Statement(
        "one run, epsilon by cosines",
        scores.cosines,
        (f"{_CANARIES}bounds._by_cosines", f"{_CANARIES}epsilon_from_cosines.from_final_model"),
    ),
    Statement("canaries of one training, mu", scores.slopes, ("fl_audit.statistics.shift_bound.gaussian_slope",)),
    Statement(
        "reconstruction, epsilon at least",
        scores.first_guesses,
        ("fl_audit.audits.reconstruction.candidate_hits.epsilon_of_hits",),
    ),
    Statement("one target of every trial", scores.single_targets, (f"{_MEMBERS}attack_results.epsilon_of_one_target",)),
    Statement(
        "AUC of a membership attack, bootstrap",
        scores.rates_of_members,
        (f"{_MEMBERS}roc_metrics.membership_rates", f"{_MEMBERS}findings_attacks.rate_ends"),
        is_claimed=False,
    ),
    Statement(
        "AUC of a membership attack, nothing leaks", partial(scores.rates_without_leak, is_all=[False]), share=0.1
    ),
    Statement(
        "all four figures of a membership attack, nothing leaks",
        partial(scores.rates_without_leak, is_all=[True]),
        is_claimed=False,
        share=0.05,
    ),
    Statement(
        "AUC of insiders, jackknife",
        scores.rates_of_insiders,
        (f"{_MEMBERS}roc_metrics._areas_between_trials",),
        is_claimed=False,
    ),
    Statement(
        "Epsilon*, empirical",
        partial(scores.stars, size=(20, 100, 1000), method=[StarMethod.EMPIRICAL]),
        (f"{_STAR}star_intervals.empirical_interval",),
    ),
    *(
        Statement(
            f"Epsilon*, {method}, bootstrap",
            partial(scores.stars, method=[method]),
            (f"{_STAR}star_estimate.estimate_epsilon_star", f"{_STAR}star_intervals.hull_interval"),
            is_claimed=False,
            share=share,
        )
        for method, share in ((StarMethod.PARAMETRIC, 0.1), (StarMethod.MIXTURE, 0.01))
    ),
    Statement(
        "epsilon at least, from losses of models", scores.mechanisms, (f"{_STAR}mechanism_star.mechanism_lower_bound",)
    ),
    Statement(
        "a foreign strategy: guessed trials",
        distributions.epsilon_of_guesses,
        (f"{_TRIALS}online_guessing.guessed_epsilon", f"{_TRIALS}online_guessing.fewest_trials"),
    ),
    Statement(
        "a foreign strategy: reading of the noise",
        scores.readings_of_noise,
        (f"{_TRIALS}gaussian_mu_estimate.estimate_gaussian_mu", f"{_TRIALS}gaussian_mu_estimate.strength"),
    ),
    Statement("papers: share", distributions.repeated_shares, (f"{_PAPERS}statistics.share_interval",)),
    *(
        Statement(
            f"papers: {kind} interval",
            partial(distributions.repetitions, kind=[kind]),
            tuple(f"{_PAPERS}{function_name}" for function_name in functions),
            is_claimed=False,
        )
        for kind, functions in (
            (
                "t",
                [
                    "statistics.t_interval",
                    "negoescu2023.privacy_utility._largest",
                    "bernau2019.claim_premises.confidence_of_each",
                    "bernau2021.attack_cost_scaling.exponent",
                ],
            ),
            (
                "Welch",
                [
                    "statistics.welch_interval",
                    "bernau2019.claims.accuracy_on_skewed",
                    "bernau2019.claims.confidence_on_skewed",
                    "bernau2019.claims._confidence_difference",
                    "bernau2019.tradeoffs.gain",
                ],
            ),
            (
                "bootstrap",
                [
                    "statistics.bootstrap",
                    "bernau2019.tradeoffs.AucAndAccuracyResamples.interval",
                    "bernau2019.phi_claims.phi_above_one",
                ],
            ),
        )
    ),
)
"""Everything that is printed with an interval or a bound; a test compares it with the source."""


@dataclass(frozen=True)
class CoverageLine:
    """The measured coverage of a statement in one of its settings."""

    statement: str  # name of the statement
    setting: str  # setting with the worst coverage
    settings: int  # number of settings that were searched
    nominal: float | None  # the confidence that is printed; None where none is
    runs: int  # number of runs
    covered: int  # number of runs in which the interval covered the truth

    @property
    def coverage(self) -> float:
        """Share of the runs that covered."""
        return self.covered / self.runs

    @property
    def falls_short(self) -> bool:
        """Whether it covers less than is printed, by more than three standard errors."""
        if self.nominal is None:
            return False
        error = math.sqrt(self.nominal * (1 - self.nominal) / self.runs)
        return self.coverage < self.nominal - _ERRORS * error


def _covers(play: Play, draw: np.random.Generator) -> bool:
    """Return whether one simulated run covers the truth, up to the last digits of a search."""
    low, high, truth = play(draw)
    return low - _LAST_DIGITS <= truth <= high + _LAST_DIGITS


def measured(statement: Statement, runs: int, search_runs: int) -> list[CoverageLine]:
    """Return the lines of the settings with the worst coverage of a statement, found with draws that are not counted.

    Every setting of the search has `search_runs`, those with the worst coverage have `runs`.
    """
    plays = statement.plays()
    key = list(statement.name.encode())
    numbered = dict(enumerate(plays))
    runs, search_runs = (max(1, round(statement.share * number)) for number in (runs, search_runs))

    def count(number: int, times: int, stage: int) -> int:
        draws = (np.random.default_rng([*key, number, stage, run]) for run in range(times))
        return sum(_covers(plays[numbered[number]], draw) for draw in draws)

    covered_counts = {number: count(number, search_runs, 0) for number in numbered}
    likely = sorted(numbered, key=lambda number: covered_counts[number])[:_LIKELY]
    again = {number: covered_counts[number] + count(number, 4 * search_runs, 1) for number in likely}
    worst = sorted(likely, key=lambda number: again[number])[:_WORST]
    nominal = CONFIDENCE if statement.is_claimed else None

    def line(number: int, times: int, stage: int) -> CoverageLine:
        covered = count(number, times, stage)
        return CoverageLine(statement.name, numbered[number], len(plays), nominal, times, covered)

    first_lines = ((number, line(number, runs, 2)) for number in worst)
    # Of so many lines one lies three standard errors too low by chance in every tenth study: it is played anew.
    return [line(number, _ANEW * runs, 3) if first.falls_short else first for number, first in first_lines]


def _measured_by_name(name: str, runs: int, search_runs: int) -> list[CoverageLine]:
    return measured(next(statement for statement in STATEMENTS if statement.name == name), runs, search_runs)


def main() -> None:
    """Print the table; the exit status is 1 where a printed confidence is not true."""
    parser = parser_of(__doc__, f"{QUICK_RUNS} runs of the worst settings, not {RUNS}")
    parser.add_argument("--only", metavar="TEXT", default="", help="statements whose name contains this")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1); the numbers are the same")
    parser.add_argument("--out", type=Path, help="write the table as CSV or JSON, too")
    options = parser.parse_args()
    chosen = [item.name for item in STATEMENTS if options.only in item.name]
    if not chosen or options.jobs < 1:
        parser.error(f"--only {options.only!r}, --jobs {options.jobs}: accepted is part of a name, and 1 or more")
    runs, search_runs = (QUICK_RUNS, QUICK_SEARCH_RUNS) if options.quick else (RUNS, SEARCH_RUNS)
    work = partial(_measured_by_name, runs=runs, search_runs=search_runs)
    spawn: AbstractContextManager[ProcessPoolExecutor | None] = nullcontext()
    if options.jobs > 1:
        spawn = ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn"))
    with spawn as pool:
        line_lists = pool.map(work, chosen) if pool else map(work, chosen)
        tracked_lists = track(line_lists, "statements", len(chosen), console=Console(stderr=True))
        lines = [line for item in tracked_lists for line in item]
    columns = ("what", "worst settings", "searched", "nominal", "covered", "runs")
    title = "Coverage of what is printed with a confidence, in the settings that were found worst"
    table = table_of(columns, title, columns[:2])
    last = ""
    for line in lines:
        nominal = "none" if line.nominal is None else f"{line.nominal:.0%}"
        covered = f"{line.coverage:.2%}" + (" FALLS SHORT" if line.falls_short else "")
        name = "" if line.statement == last else line.statement
        last = line.statement
        table.add_row(name, line.setting, str(line.settings), nominal, covered, str(line.runs))
    Console(width=160).print(table)
    if options.out:
        rows = pd.DataFrame(
            [asdict(item) | {"coverage": item.coverage, "falls_short": item.falls_short} for item in lines]
        )
        with atomic_file(options.out) as unfinished:
            if options.out.suffix == ".json":
                rows.to_json(unfinished, orient="records", indent=1)
            else:
                rows.to_csv(unfinished, index=False)
    if short := [line for line in lines if line.falls_short]:
        sys.exit("less is covered than is printed: " + "; ".join(f"{item.statement}, {item.setting}" for item in short))
