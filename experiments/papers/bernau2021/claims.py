"""Claims in the text of Bernau et al. 2021, each tested by a closed form or by an interval from our runs.

The insider is the adversary that guesses whether D or D' was used, and rho_beta is the claimed bound on its belief in
the true data set.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Floats
from fl_audit.data.data_setting_enums import RANKED
from fl_audit.experiments.papers import statistics
from fl_audit.experiments.papers.bernau2021.advantage_and_belief import identified
from fl_audit.experiments.papers.bernau2021.closed_forms import CLAIMS, closed_forms
from fl_audit.experiments.papers.bernau2021.epsilon_audit_figures import (
    BY_ADVANTAGE,
    BY_BELIEF,
    BY_SENSITIVITIES,
    audit_rows,
)
from fl_audit.experiments.papers.bernau2021.insider_runs import (
    ADJACENCIES,
    ADULT,
    CLIPPING_NORM,
    MNIST,
    audit_runs,
    floored_share,
    insider_run,
    is_local,
    main_runs,
    mu_of_trials,
    sensitivities,
)
from fl_audit.experiments.papers.bernau2021.sensitivities import outlier_share
from fl_audit.experiments.papers.claims import PaperClaim, difference, exact, untested
from fl_audit.experiments.papers.claims_table import claims_table
from fl_audit.experiments.papers.item_results import ItemResult
from fl_audit.experiments.papers.papers import PaperDataset, PaperRun, StoredPaperRun, StoredPaperRuns
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.identifiability_bounds import epsilon_from_belief, rho_alpha
from fl_audit.statistics.interval_estimates import IntervalEstimate

Runs = Mapping[PaperRun, StoredPaperRun]

LS = SensitivityKind.LOCAL
GS = SensitivityKind.GLOBAL
REPLACED = Adjacency.REPLACE_RECORD
REMOVED = Adjacency.ADD_REMOVE_RECORD


def _ratio(interval: IntervalEstimate, by: float) -> IntervalEstimate:
    return IntervalEstimate(interval.value / by, interval.low / by, interval.high / by)


def _resampled(paper_run: StoredPaperRun, values: Floats, statistic: Callable[[Floats], float]) -> IntervalEstimate:
    return statistics.bootstrap(values, statistic, statistics.reproducible_generator(f"claim {paper_run.run.name}"))


def _neighbours(dataset: PaperDataset, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claims of section 6.1: dissimilar neighbours have larger sensitivities and few outliers."""
    at = partial(insider_run, dataset, LS, REPLACED)
    run, least_run = (runs.get(at(neighbour=kind)) for kind in RANKED)
    if run is None or least_run is None:
        return
    estimate, other_estimate = (
        _resampled(finished, sensitivities(finished), np.median) for finished in (run, least_run)
    )
    yield CLAIMS["dissimilar-neighbour"].on(dataset.title, difference(estimate, other_estimate), least_run.repetitions)
    for name, finished in (("most", run), ("least", least_run)) if dataset.study == MNIST.study else ():
        share = _resampled(finished, sensitivities(finished), outlier_share)
        yield CLAIMS["outliers"].on(f"{dataset.title}, {name} dissimilar", share, finished.repetitions)


def _sensitivities(dataset: PaperDataset, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claims that compare local sensitivities with the global one (section 6.2, Figure 5).

    The paper says for each data set and adjacency whether local sensitivities are smaller than the global sensitivity
    or close to it.
    """
    replaced, removed = (runs[insider_run(dataset, LS, adjacency)] for adjacency in ADJACENCIES)
    replaced_ratio = _ratio(_resampled(replaced, sensitivities(replaced), np.median), 2 * CLIPPING_NORM)
    yield CLAIMS["replaced-below-2c"].on(dataset.title, replaced_ratio, replaced.repetitions)
    removed_ratio = _ratio(_resampled(removed, sensitivities(removed), np.median), CLIPPING_NORM)
    key = "removed-below-c" if dataset.study == ADULT.study else "removed-close-to-c"
    yield CLAIMS[key].on(dataset.title, removed_ratio, removed.repetitions)


def _beliefs(dataset: PaperDataset, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claims of section 6.2 on the mean belief, and on the share of beliefs above rho_beta."""
    for run in main_runs(dataset):
        finished = runs[run]
        mean = _resampled(finished, finished.trials["belief"].to_numpy(dtype=np.float64), np.mean)
        yield CLAIMS["mean-belief"].on(run.label, mean, finished.repetitions)
        yield exceedance(run.label, identified(finished)[1].interval, run["privacy.delta"], finished.repetitions)


def exceedance(where: str, estimate: IntervalEstimate, delta: float, trials: int) -> PaperClaim:
    """Return the claim that the insider's belief exceeds rho_beta in at most a fraction delta of the trials.

    Rho_beta is the paper's bound on the posterior belief.
    """
    narrows = 0.5 if estimate.value else 1.0
    quantity = "share of beliefs above rho_beta"
    claim = CLAIMS["beliefs-within-delta"]
    return claim.on(where, estimate, trials, quantity=quantity, highest=delta, narrows=narrows)


def _insider_advantage(paper_run: StoredPaperRun) -> IntervalEstimate:
    """Return the insider's advantage with an interval.

    The advantage is computed exactly from mu if the noise is scaled to the local sensitivity and no round has floored
    noise. Otherwise it is measured as the mean of |2b - 1| over the beliefs b. Since beliefs are calibrated, this mean
    has the same expectation as the advantage from counted wins, and a smaller variance.
    """
    if is_local(paper_run.run) and floored_share(paper_run) == 0:
        return exact(statistics.predicted_advantage(mu_of_trials(paper_run)))
    return statistics.t_interval(np.abs(2 * paper_run.trials["belief"].to_numpy(dtype=np.float64) - 1))


def _advantages(dataset: PaperDataset, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claims of section 6.2 on the advantage under local and global noise scaling."""
    of = {
        (run["privacy.sensitivity"], run["privacy.adjacency"]): _insider_advantage(runs[run])
        for run in main_runs(dataset)
    }
    trials = runs[main_runs(dataset)[0]].repetitions
    for adjacency in ADJACENCIES:
        insider_run_stored = runs[insider_run(dataset, LS, adjacency)]
        yield counted_advantage(
            insider_run_stored.run, identified(insider_run_stored)[0].interval, insider_run_stored.repetitions
        )
    loss_of_advantage = difference(of[LS, REPLACED], of[GS, REPLACED])
    names = {adjacency: advantage_name(runs[insider_run(dataset, LS, adjacency)]) for adjacency in ADJACENCIES}
    quantity = f"{names[REPLACED]} LS B less measured GS B"
    yield CLAIMS["replaced-global-lowers-advantage"].on(dataset.title, loss_of_advantage, trials, quantity=quantity)
    key = "removed-global-lowers-advantage" if dataset.study == ADULT.study else "removed-global-keeps-advantage"
    loss_of_advantage = difference(of[LS, REMOVED], of[GS, REMOVED])
    quantity = f"{names[REMOVED]} LS U less measured GS U"
    yield CLAIMS[key].on(dataset.title, loss_of_advantage, trials, quantity=quantity)


def advantage_name(paper_run: StoredPaperRun) -> str:
    """Return the name of a run's advantage: "exact advantage", or "measured advantage" if it is only measured.

    It is exact if noise is scaled to the local sensitivity and the sensitivity was never replaced by its lower limit.
    """
    return "exact advantage" if is_local(paper_run.run) and floored_share(paper_run) == 0 else "measured advantage"


def counted_advantage(run: PaperRun, estimate: IntervalEstimate, trials: int) -> PaperClaim:
    """Return the claim that the advantage, estimated from the number of won trials, equals its bound rho_alpha."""
    bound = rho_alpha(epsilon_from_belief(run["privacy.belief"]), run["privacy.delta"])
    off = IntervalEstimate(estimate.value - bound, estimate.low - bound, estimate.high - bound)
    quantity = "advantage by counted trials less rho_alpha"
    return CLAIMS["advantage-is-rho-alpha"].on(run.label, off, trials, quantity=quantity)


def _accuracy(dataset: PaperDataset, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claim that too large a global sensitivity costs test accuracy (section 6.2, Figure 6d)."""
    pair = [runs[insider_run(dataset, sensitivity, REPLACED)] for sensitivity in (LS, GS)]
    estimate, other_estimate = (
        _resampled(run, run.trials["test_accuracy"].to_numpy(dtype=np.float64), np.mean) for run in pair
    )
    yield CLAIMS["global-costs-accuracy"].on(dataset.title, difference(estimate, other_estimate), pair[0].repetitions)


def _audits(dataset: PaperDataset, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claims of section 6.3 on how far the empirical epsilons are from the claimed one."""
    rows = {run: audit_rows(runs[run]) for run in audit_runs(dataset)}
    local_runs, global_runs = ([run for run in rows if run["privacy.sensitivity"] is kind] for kind in (LS, GS))
    trials = min(runs[run].repetitions for run in rows)
    distances = {
        name: statistics.end_by_end(
            np.mean,
            [_distance(rows[run][name].interval, epsilon_from_belief(run["privacy.belief"])) for run in local_runs],
        )
        for name in (BY_SENSITIVITIES, BY_BELIEF, BY_ADVANTAGE)
    }
    exceeded = max(
        abs(rows[run][BY_SENSITIVITIES].measured / rows[run][BY_SENSITIVITIES].theory - 1) for run in local_runs
    )
    yield CLAIMS["local-epsilon"].on(dataset.title, exact(exceeded), trials)
    for key, nearer, farther in (
        ("sensitivities-nearer-than-belief", BY_SENSITIVITIES, BY_BELIEF),
        ("belief-nearer-than-advantage", BY_BELIEF, BY_ADVANTAGE),
    ):
        estimate = distances[farther]
        other_estimate = distances[nearer]
        excess = IntervalEstimate(
            estimate.value - other_estimate.value,
            estimate.low - other_estimate.high,
            estimate.high - other_estimate.low,
        )
        yield CLAIMS[key].on(dataset.title, excess, trials)
    ratios = [
        _ratio(rows[run][BY_SENSITIVITIES].interval, epsilon_from_belief(run["privacy.belief"])) for run in global_runs
    ]
    largest = max(ratios, key=lambda estimate: estimate.high)
    yield CLAIMS["global-epsilon-too-small"].on(dataset.title, largest, trials)


def _distance(interval: IntervalEstimate, truth: float) -> IntervalEstimate:
    """Return the absolute difference between a number and `truth`, and the interval that follows for the difference."""
    ends = abs(interval.low - truth), abs(interval.high - truth)
    covers = interval.low <= truth <= interval.high
    return IntervalEstimate(abs(interval.value - truth), 0.0 if covers else min(ends), max(ends))


def _adversaries(dataset: PaperDataset, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claims of section 6.3: the insider learns more than Yeom's adversary, whose bound is loose."""
    for run in audit_runs(dataset):
        finished = runs[run]
        trials = runs[run].repetitions
        advantages = finished.trials["membership_advantage"].to_numpy(dtype=np.float64)
        insider = _insider_advantage(finished)
        member = statistics.t_interval(advantages)
        quantity = f"{advantage_name(finished)} of the insider less that of Yeom's adversary"
        yield CLAIMS["insider-above-membership"].on(run.label, difference(insider, member), trials, quantity=quantity)
        bound = float((finished.summary.get("membership") or {}).get("yeom_bound") or np.nan)
        excess = IntervalEstimate(bound - member.value, bound - member.high, bound - member.low)
        yield CLAIMS["membership-bound-is-loose"].on(run.label, excess, trials)


TESTS: tuple[Callable[[PaperDataset, Runs], Iterator[PaperClaim]], ...] = (
    _neighbours,
    _sensitivities,
    _beliefs,
    _advantages,
    _accuracy,
    _audits,
    _adversaries,
)


def claims_item(paper_runs: StoredPaperRuns) -> ItemResult:
    """Return the table of all claims: tested by closed forms, tested on runs, and untestable ones with reasons."""
    tested = [claim for test in TESTS for data in paper_runs.data for claim in test(data, paper_runs.runs)]

    close = CLAIMS["advantage-is-rho-alpha"].highest
    slightly = CLAIMS["mean-belief"].highest
    return claims_table(
        [*closed_forms(), *tested, *untested(CLAIMS)],
        (
            f"Where the paper states no number: an advantage is the same within {close:g}, a mean belief is slightly "
            f"above .5 up to {slightly:g}, and a sensitivity is close to C from "
            f"{CLAIMS['removed-close-to-c'].lowest:g} C on.",
            "Three advantages: the exact one follows from the distribution of the log-odds, which is known under "
            "local sensitivity, and has no interval; the measured one is the mean over trials of what beliefs say; "
            "that by counted trials is in Table 2.",
        ),
        [data.title for data in paper_runs.data],
    )
