"""Every guarantee that a federation can promise, held against exact theory; and what more knowledge is worth.

    python -m experiments.studies.guarantees [--quick] [--worlds N] [--only TEXT]

One table has every combination of adjacency, clipping, participation and noise. Those that are refused are there with
the reason. Those that are offered are played, and the log-odds, the advantage, the measured noise and the lower bound
on epsilon are held against what exact theory says of them (`guarantee_settings` says why it applies). All p-values
together are corrected by Holm's method; the exit status is 1 where one is under .01 after that, or where a lower bound
falls short.

A second table compares adversaries who know more with those who know less, on the same worlds (`knowledge`).
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.special import chdtr, chdtrc
from scipy.stats import kstest, norm

from experiments.cli.main import guarded
from experiments.runs.engines import Engine
from experiments.runs.plan import AuditPlan
from experiments.runs.run import run_audit
from experiments.studies.guarantee_settings import Combination, combinations, plan_of, write_records
from experiments.studies.knowledge import compare, comparisons, knowledge_table
from fl_audit.adjacency import Adjacency, Relation
from fl_audit.errors import InputError
from fl_audit.evidence.belief.expected import advantage_from_beliefs
from fl_audit.evidence.belief.noise_estimate import ratio_interval
from fl_audit.evidence.belief.noise_scale import SquareSum, chi_square_quantile, record_squares, total_squares
from fl_audit.mechanisms.noise import faced
from fl_audit.privacy.events import GaussianRelease, ReleaseEvent, SampledGaussianRelease
from fl_audit.privacy.log_odds import Truth, log_odds_law
from fl_audit.privacy.profile import PrivacyProfile
from fl_audit.report.finished_run import FinishedRun

ALARM = 0.01
"""Level of all tests together, after correction."""

PROMISED = {"epsilon": 2.0}
_CONFIDENCE = 0.95
_LEAST_SHARE, _FROM_EPSILON = 0.8, 0.5
_SAME = 1e-4
"""Largest relative difference of sensitivities that count as the same."""
_GENERATOR_SEED = 5

QUICK = (
    Combination(Adjacency.ADD_REMOVE_RECORD, "sampled in secret"),
    Combination(Adjacency.REPLACE_RECORD, "everybody", "local, at the server"),
    Combination(Adjacency.REPLACE_RECORD, "everybody", "tree"),
    Combination(Adjacency.ADD_REMOVE_CLIENT, "sampled, seen"),
    Combination(Adjacency.ADD_REMOVE_CLIENT, "sampled in secret", "central", "adaptive"),
    Combination(Adjacency.ADD_REMOVE_CLIENT, "cohort", "banded"),
    Combination(Adjacency.REPLACE_CLIENT, "everybody", "distributed, 2 collude"),
    Combination(Adjacency.REPLACE_CLIENT, "sampled in secret"),
    Combination(Adjacency.REPLACE_CLIENT, "everybody", "central", "adaptive"),
)
"""A few combinations in which every part occurs."""


@dataclass(frozen=True)
class Theory:
    """What the log-odds are held against.

    Parameters
    ----------
    events
        Releases whose log-odds have a law that is known exactly; None where only the scores of single rounds do.
    said
        Which these are, in words.
    """

    events: tuple[ReleaseEvent, ...] | None
    said: str


@dataclass(frozen=True)
class Found:
    """What a combination that is offered showed.

    Parameters
    ----------
    theory
        What it was held against.
    scores_p
        Kolmogorov-Smirnov p-value of the noise along the record's direction against N(0, 1).
    law_p
        That of the final log-odds against their law; None without a law.
    advantage, advantage_error, advantage_exact
        From beliefs, with its standard error; and by theory, None without a law.
    meter
        Measured over promised noise with its interval, orthogonal to the record's direction or, where that cannot be
        measured, along it.
    meter_p
        Two-sided p-value of the same.
    epsilon, lower_bound
        Exact epsilon of the promise, and the lower confidence bound from the measured noise.
    seconds
        How long it took.
    """

    theory: Theory
    scores_p: float
    law_p: float | None
    advantage: float
    advantage_error: float
    advantage_exact: float | None
    meter: tuple[float, float, float]
    meter_p: float
    epsilon: float
    lower_bound: float
    seconds: float

    @property
    def advantage_z(self) -> float | None:
        """The advantage's distance from theory in standard errors."""
        if self.advantage_exact is None:
            return None
        return (self.advantage - self.advantage_exact) / self.advantage_error

    @property
    def share(self) -> float:
        """Lower bound over the exact epsilon."""
        return self.lower_bound / self.epsilon

    def p_values(self) -> dict[str, float]:
        """Return the p-value of everything that was tested, by name."""
        z = self.advantage_z
        found = {"scores": self.scores_p, "meter": self.meter_p}
        found |= {} if self.law_p is None else {"law of the log-odds": self.law_p}
        return found | ({} if z is None else {"advantage": 2 * float(norm.sf(abs(z)))})


@dataclass(frozen=True)
class Row:
    """A combination with what it showed, or why it is refused."""

    combination: Combination
    found: Found | None
    reason: str = ""


def study(combination: Combination, records: Path, worlds: int, seed: int) -> Row:
    """Play a combination, or find out why it is refused.

    Parameters
    ----------
    combination
        Which.
    records
        The data, as `write_records` writes it.
    worlds
        Number of worlds.
    seed
        The challenger's.
    """
    try:
        plan = plan_of(combination, records, worlds, seed, PROMISED)
    except InputError as error:
        return Row(combination, None, str(error))
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        run = run_audit(plan, Path(directory) / "run", Engine.LOCAL, with_report=False).run
    return Row(combination, _found(plan, run, began))


def _found(plan: AuditPlan, run: FinishedRun, began: float) -> Found:
    assert plan.guarantee is not None, "every combination promises something"
    measured, theory = run.measured, theory_of(plan, run)
    advantage = advantage_from_beliefs(run.log_odds, _CONFIDENCE)
    adjacency, claim = plan.public.law.adjacency, plan.guarantee.claim
    along, across = record_squares(measured), total_squares(measured)
    assert along is not None, "the sensitivities are large in every round"
    meter = across or along
    # The score of a mixture is no multiple of its noise: there the bound comes from the noise in all other directions.
    is_mixture = plan.public.law.is_sampled and not plan.public.standpoint.sees_participation
    lowest = meter if is_mixture else along
    highest_ratio = math.sqrt(lowest.value / chi_square_quantile(1 - _CONFIDENCE, lowest.freedom))
    exact = None if theory.events is None else PrivacyProfile(theory.events, adjacency).advantage()
    return Found(
        theory=theory,
        scores_p=float(kstest(measured.used_innovations, "norm").pvalue),
        law_p=None if theory.events is None else _law_p(run, theory.events, adjacency),
        advantage=advantage.mean,
        advantage_error=advantage.standard_error,
        advantage_exact=exact,
        meter=(meter.ratio, *ratio_interval(meter, _CONFIDENCE)),
        meter_p=_two_sided(meter),
        epsilon=claim.profile.epsilon(claim.delta),
        lower_bound=claim.with_noise(highest_ratio).profile.epsilon(claim.delta),
        seconds=time.monotonic() - began,
    )


def theory_of(plan: AuditPlan, run: FinishedRun) -> Theory:
    """Return what the log-odds of a run are to be held against, from the sensitivities that it really had."""
    assert plan.guarantee is not None, "every combination promises something"
    law, standpoint, events = plan.public.law, plan.public.standpoint, plan.guarantee.claim.events
    z, signal = faced(law.noise, standpoint), run.signal
    # A twin's update is as long as the update that it replaces, so that the bits of an adaptive norm say nothing of it.
    equal_bits = law.is_adaptive and law.adjacency.relation is Relation.REPLACE
    if law.is_sampled:
        used = signal[signal > 0] if standpoint.sees_participation else signal
        if not np.allclose(used * z, 1.0, rtol=0, atol=_SAME):
            return Theory(None, "scores alone: the sensitivities are not the largest")
        if not equal_bits:
            return Theory(events, "the promise's law")
        if standpoint.sees_participation:
            seen = SampledGaussianRelease(z, law.sampling_rate, plan.public.rounds, seen=True)
            return Theory((seen,), "the law of the sums, both bits being equal")
        return Theory(None, "scores alone: equal bits tell who takes part")
    mu = np.sqrt(np.square(signal).sum(axis=1))
    promised = PrivacyProfile(events, law.adjacency).gaussian_mu
    assert promised is not None, "releases without sampling are Gaussian"
    if law.is_adaptive and not equal_bits:
        # Every update is longer than the norm, so in each round in which the sums differ the bits do, by 1/2.
        mu = np.hypot(mu, np.sqrt((signal > 0).sum(axis=1)) * law.bit_sensitivity / law.bit_sigma)
    if np.ptp(mu) > _SAME * mu.mean():
        return Theory(None, "scores alone: the sensitivities differ from world to world")
    if abs(mu.mean() / promised - 1) < _SAME:
        return Theory(events, "the promise's law")
    share = float(mu.mean() / promised)
    return Theory((GaussianRelease(1.0, 1 / float(mu.mean())),), f"the law at {share:.3f} of the promised mu")


def _law_p(run: FinishedRun, events: tuple[ReleaseEvent, ...], adjacency: Adjacency) -> float:
    """Return the Kolmogorov-Smirnov p-value of the log-odds under both truths, brought to one uniform law."""
    draw = np.random.default_rng(_GENERATOR_SEED)
    parts = [
        log_odds_law(events, adjacency, truth).uniforms(run.log_odds[given], draw)
        for truth, given in ((Truth.PRESENT, run.bits), (Truth.ABSENT, ~run.bits))
    ]
    return float(kstest(np.concatenate(parts), "uniform").pvalue)


def _two_sided(found: SquareSum) -> float:
    lower, upper = chdtr(found.freedom, found.value), chdtrc(found.freedom, found.value)
    return min(1.0, 2 * float(min(lower, upper)))


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p-values corrected for their number by Holm's method.

    Examples
    --------
    >>> holm(np.array([0.01, 0.5, 0.02])).tolist()
    [0.03, 0.5, 0.04]
    """
    order = np.argsort(p_values)
    steps = np.maximum.accumulate(p_values[order] * np.arange(p_values.size, 0, -1))
    corrected = np.empty_like(p_values)
    corrected[order] = np.minimum(1.0, steps)
    return corrected


def problems(rows: Sequence[Row]) -> list[str]:
    """Return what contradicts theory, all tests together at level `ALARM`."""
    offered = [(row.combination, row.found) for row in rows if row.found is not None]
    named = [(f"{one}: {name}", p) for one, found in offered for name, p in found.p_values().items()]
    corrected = holm(np.array([p for _, p in named])) if named else np.empty(0)
    found_wrong = [
        f"{name} contradicts theory, p {p:.2g}, corrected {after:.2g}"
        for (name, p), after in zip(named, corrected, strict=True)
        if after <= ALARM
    ]
    found_wrong += [
        f"{one}: the lower bound is {found.share:.0%} of epsilon {found.epsilon:.3g}"
        for one, found in offered
        if found.epsilon > _FROM_EPSILON and not _LEAST_SHARE <= found.share <= 1.02
    ]
    return found_wrong


def guarantee_table(rows: Sequence[Row], worlds: int) -> Table:
    """Return the table of all combinations; reasons of refusals stand under it by number, see `reasons`."""
    table = Table(title=f"Every combination of the parts of a release law, {worlds} worlds each")
    columns = ("adjacency", "clipping", "participation", "noise", "log-odds held against", "scores p", "law p")
    for column in (*columns, "advantage", "theory", "z", "noise meter", "epsilon", "lower bound", "s"):
        table.add_column(column)
    numbers = {reason: number for number, reason in enumerate(reasons(rows), start=1)}
    for row in rows:
        one = row.combination
        table.add_row(one.adjacency, one.clipping, one.participation, one.noise, *_cells(row, numbers))
    return table


def _cells(row: Row, numbers: dict[str, int]) -> list[str]:
    found = row.found
    if found is None:
        return [f"refused ({numbers[row.reason]})"]
    exact, z, (ratio, low, high) = found.advantage_exact, found.advantage_z, found.meter
    return [
        found.theory.said,
        f"{found.scores_p:.3f}",
        "" if found.law_p is None else f"{found.law_p:.3f}",
        f"{found.advantage:.4f}",
        "" if exact is None else f"{exact:.4f}",
        "" if z is None else f"{z:+.1f}",
        f"{ratio:.4f} ({low:.4f} to {high:.4f})",
        f"{found.epsilon:.3f}",
        f"{found.lower_bound:.3f} ({found.share:.0%})",
        f"{found.seconds:.0f}",
    ]


def reasons(rows: Sequence[Row]) -> list[str]:
    """Return why combinations are refused, each reason once."""
    return list(dict.fromkeys(row.reason for row in rows if row.found is None))


def study_all(console: Console, chosen: Iterable[Combination], worlds: int) -> list[Row]:
    """Study combinations one after the other, saying which."""
    rows, numbers = list[Row](), {one: number for number, one in enumerate(combinations())}
    with tempfile.TemporaryDirectory() as directory:
        records = Path(directory) / "records.npz"
        write_records(records)
        for combination in chosen:
            number = numbers[combination]
            row = study(combination, records, worlds, seed=1000 + number)
            rows.append(row)
            if row.found is not None:
                console.print(f"{number + 1} of {len(numbers)}: {combination}, {row.found.seconds:.0f} s")
    return rows


def main() -> None:
    """Print both tables; the exit status is 1 where something contradicts theory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few combinations in 400 worlds")
    parser.add_argument("--worlds", type=int, help="worlds a combination (default: 2000, with --quick 400)")
    parser.add_argument("--only", help="combinations whose name contains this text; no second table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    console, progress = Console(width=220), Console(stderr=True, width=120)
    worlds = options.worlds or (400 if options.quick else 2000)
    chosen = [one for one in (QUICK if options.quick else combinations()) if (options.only or "") in str(one)]
    rows = study_all(progress, chosen, worlds)
    console.print(guarantee_table(rows, worlds))
    for number, reason in enumerate(reasons(rows), start=1):
        console.print(f"({number}) {reason}", highlight=False, markup=False)
    found = problems(rows)
    if options.only is None:
        known = [compare(one, worlds) for one in comparisons(options.quick)]
        console.print(knowledge_table(known, worlds))
        found += [problem for one in known for problem in one.problems()]
    print("\n".join(found) or "nothing contradicts theory")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    guarded(main)
