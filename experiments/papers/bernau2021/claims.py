"""Claims in the text of Bernau et al. 2021, each tested by a closed form or by an interval from our runs.

The insider is the adversary that guesses whether D or D' was used, and rho_beta is the claimed bound on its belief in
the true data set.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf

import numpy as np

from fl_audit.adjacency import Adjacency
from fl_audit.array_types import Floats
from fl_audit.experiments.papers import statistics
from fl_audit.experiments.papers.bernau2021 import settings
from fl_audit.experiments.papers.bernau2021.advantage_and_belief import identified
from fl_audit.experiments.papers.bernau2021.closed_form_claims import (
    CLOSE,
    IS_RHO_ALPHA,
    NO_MORE_THAN_DELTA,
    closed_forms,
)
from fl_audit.experiments.papers.bernau2021.discrepancies import SECOND_LOOKS
from fl_audit.experiments.papers.bernau2021.epsilon_audit_figures import ADVANTAGE, BELIEF, SENSITIVITIES, audit_rows
from fl_audit.experiments.papers.bernau2021.runs import InsiderResultsBySetting, InsiderRunResults
from fl_audit.experiments.papers.bernau2021.sensitivities import outlier_share
from fl_audit.experiments.papers.bernau2021.settings import InsiderDatasetName, InsiderDatasetRecipe, InsiderSetting
from fl_audit.experiments.papers.claims import PaperClaim, difference, exact, untested
from fl_audit.experiments.papers.claims_table import claims_table
from fl_audit.experiments.papers.item_results import ItemResult
from fl_audit.privacy.accounting_enums import SensitivityKind
from fl_audit.privacy.identifiability_bounds import epsilon_from_belief, rho_alpha
from fl_audit.statistics.interval_estimates import IntervalEstimate

Runs = Mapping[InsiderSetting, InsiderRunResults]

LS, GS = SensitivityKind.LOCAL, SensitivityKind.GLOBAL
REPLACED, REMOVED = Adjacency.REPLACE_RECORD, Adjacency.ADD_REMOVE_RECORD
SLIGHTLY = 0.6
"""The largest mean belief that counts as "only slightly above 0.5"; the paper states no number."""
NEAR = 0.9
"""The share of C from which a sensitivity counts as close to it; the paper states no number."""
ROUNDED = 1 + 1e-6
"""The clipping norm in units of itself, up to the rounding of sums in single precision."""
EXACT_ADVANTAGE = "exact advantage"
FEW_OUTLIERS = 0.016
"""The smallest share of outliers that section 6.1 mentions; a share up to this counts as none."""


def _ratio(interval: IntervalEstimate, by: float) -> IntervalEstimate:
    return IntervalEstimate(interval.value / by, interval.low / by, interval.high / by)


def _resampled(found: InsiderRunResults, values: Floats, statistic: Callable[[Floats], float]) -> IntervalEstimate:
    return statistics.bootstrap(values, statistic, statistics.reproducible_generator(f"claim {found.setting.name}"))


def _neighbours(data: InsiderDatasetRecipe, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claims of section 6.1: dissimilar neighbours have larger sensitivities and few outliers."""
    at = partial(InsiderSetting, data, LS, REPLACED)
    most, least = (runs.get(at(neighbour=kind)) for kind in ("most-dissimilar", "least-dissimilar"))
    if most is None or least is None:
        return
    one, other = (_resampled(found, found.sensitivities, np.median) for found in (most, least))
    yield PaperClaim("6.1", "the most dissimilar neighbour has a larger sensitivity than the least", data.title,
                     "median local sensitivity, most less least dissimilar", difference(one, other), 0.0,
                     trials=least.repetitions)  # fmt: skip
    for name, found in (("most", most), ("least", least)) if data.study is InsiderDatasetName.MNIST else ():
        share = _resampled(found, found.sensitivities, outlier_share)
        yield PaperClaim("6.1", "the sensitivities of both extremes have no far outliers",
                         f"{data.title}, {name} dissimilar", "share of outliers", share, highest=FEW_OUTLIERS,
                         trials=found.repetitions)  # fmt: skip


def _sensitivities(data: InsiderDatasetRecipe, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claims that compare local sensitivities with the global one (section 6.2, Figure 5).

    The paper says for each data set and adjacency whether local sensitivities are smaller than the global sensitivity
    or close to it.
    """
    replaced, removed = (runs[InsiderSetting(data, LS, relation)] for relation in (REPLACED, REMOVED))
    half = _ratio(_resampled(replaced, replaced.sensitivities, np.median), 2 * settings.CLIPPING_NORM)
    yield PaperClaim("6.2", "where a record is replaced the local sensitivity lies below 2C", data.title,
                     "median local sensitivity over 2C", half, highest=0.99, trials=replaced.repetitions)  # fmt: skip
    whole = _ratio(_resampled(removed, removed.sensitivities, np.median), settings.CLIPPING_NORM)
    near = data.study is not InsiderDatasetName.ADULT
    said = "is close to C" if near else "lies below C"
    yield PaperClaim("6.2", f"where a record is removed the local sensitivity {said}", data.title,
                     "median local sensitivity over C", whole, NEAR if near else -inf, ROUNDED if near else 0.99,
                     trials=removed.repetitions)  # fmt: skip


def _beliefs(data: InsiderDatasetRecipe, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claims of section 6.2 on the mean belief, and on the share of beliefs above rho_beta."""
    for setting in settings.main_settings([data]):
        found, claim = runs[setting], partial(PaperClaim, "6.2", where=setting.label, trials=runs[setting].repetitions)
        mean = _resampled(found, found.trials["belief"].to_numpy(dtype=np.float64), np.mean)
        yield claim("the mean belief is only slightly above 0.5", quantity="mean belief in the truth", found=mean,
                    lowest=0.5, highest=SLIGHTLY)  # fmt: skip
        yield exceedance(setting.label, identified(found)[1].found, data.delta, found.repetitions)


def exceedance(where: str, counted: IntervalEstimate, delta: float, trials: int) -> PaperClaim:
    """Return the claim that the insider's belief exceeds rho_beta in at most a fraction delta of the trials.

    Rho_beta is the paper's bound on the posterior belief.
    """
    return PaperClaim("6.2", NO_MORE_THAN_DELTA, where, "share of beliefs above rho_beta", counted, highest=delta,
                      trials=trials, narrows=0.5 if counted.value else 1.0)  # fmt: skip


def _insider_advantage(found: InsiderRunResults) -> IntervalEstimate:
    """Return the insider's advantage with an interval.

    The advantage is computed exactly from mu if the noise is scaled to the local sensitivity and no round has floored
    noise. Otherwise it is measured as the mean of |2b - 1| over the beliefs b. Since beliefs are calibrated, this mean
    has the same expectation as the advantage from counted wins, and a smaller variance.
    """
    if found.setting.is_local and found.floored_share == 0:
        return exact(statistics.predicted_advantage(found.mu_of_trials))
    return statistics.t_interval(np.abs(2 * found.trials["belief"].to_numpy(dtype=np.float64) - 1))


def _advantages(data: InsiderDatasetRecipe, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claims of section 6.2 on the advantage under local and global noise scaling."""
    of = {(one.scaling, one.relation): _insider_advantage(runs[one]) for one in settings.main_settings([data])}
    claim = partial(PaperClaim, trials=runs[settings.main_settings([data])[0]].repetitions)
    for relation in settings.RELATION_LETTERS:
        counted = runs[InsiderSetting(data, LS, relation)]
        yield counted_advantage(counted.setting, identified(counted)[0].found, counted.repetitions)
    apart = difference(of[LS, REPLACED], of[GS, REPLACED])
    known = {relation: advantage_name(runs[InsiderSetting(data, LS, relation)]) for relation in (REPLACED, REMOVED)}
    yield claim("6.2", "where a record is replaced global sensitivity lowers the advantage", data.title,
                f"{known[REPLACED]} LS B less measured GS B", apart, 0.0)  # fmt: skip
    adult = data.study is InsiderDatasetName.ADULT
    said = (
        "where a record is removed, too, on Adult" if adult else "where a record is removed it does not, but on Adult"
    )
    yield claim("6.2", said, data.title, f"{known[REMOVED]} LS U less measured GS U",
                difference(of[LS, REMOVED], of[GS, REMOVED]), 0.0 if adult else -CLOSE,
                inf if adult else CLOSE)  # fmt: skip


def advantage_name(found: InsiderRunResults) -> str:
    """Return the name of a run's advantage: "exact advantage", or "measured advantage" if it is only measured.

    It is exact if noise is scaled to the local sensitivity and the sensitivity was never replaced by its lower limit.
    """
    return EXACT_ADVANTAGE if found.setting.is_local and found.floored_share == 0 else "measured advantage"


def counted_advantage(setting: InsiderSetting, counted: IntervalEstimate, trials: int) -> PaperClaim:
    """Return the claim that the advantage, estimated from the number of won trials, equals its bound rho_alpha."""
    bound = rho_alpha(epsilon_from_belief(setting.belief), setting.data.delta)
    off = IntervalEstimate(counted.value - bound, counted.low - bound, counted.high - bound)
    return PaperClaim("6", IS_RHO_ALPHA, setting.label, "advantage by counted trials less rho_alpha", off, -CLOSE,
        CLOSE,
                      trials=trials)  # fmt: skip


def _accuracy(data: InsiderDatasetRecipe, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claim that too large a global sensitivity costs test accuracy (section 6.2, Figure 6d)."""
    pair = [runs[InsiderSetting(data, scaling, REPLACED)] for scaling in (LS, GS)]
    one, other = (_resampled(run, run.trials["test_accuracy"].to_numpy(dtype=np.float64), np.mean) for run in pair)
    yield PaperClaim("6.2", "a global sensitivity that is too large costs accuracy", data.title,
                     "test accuracy LS B less GS B", difference(one, other), 0.0,
                     trials=pair[0].repetitions)  # fmt: skip


def _audits(data: InsiderDatasetRecipe, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claims of section 6.3 on how far the empirical epsilons are from the claimed one."""
    rows = {one: audit_rows(runs[one]) for one in settings.audit_settings([data])}
    local, whole = ([one for one in rows if one.scaling is scaling] for scaling in (LS, GS))
    claim = partial(PaperClaim, "6.3", trials=min(runs[one].repetitions for one in rows))
    apart = {
        name: statistics.end_by_end(
            np.mean, [_distance(rows[one][name].found, epsilon_from_belief(one.belief)) for one in local]
        )
        for name in (SENSITIVITIES, BELIEF, ADVANTAGE)
    }
    exceeded = max(abs(rows[one][SENSITIVITIES].measured / rows[one][SENSITIVITIES].theory - 1) for one in local)
    yield claim("under local sensitivity epsilon' from sensitivities is epsilon", data.title,
                "largest relative distance of both, bookkeeping", exact(exceeded), highest=0.01)  # fmt: skip
    for nearer, farther in ((SENSITIVITIES, BELIEF), (BELIEF, ADVANTAGE)):
        one, other = apart[farther], apart[nearer]
        yield claim(
            f"{nearer} is nearer to epsilon than that {farther.partition(' ')[2]}",
            data.title,
            f"mean distance from epsilon, {farther.rpartition(' ')[2]} less {nearer.rpartition(' ')[2]}",
            IntervalEstimate(one.value - other.value, one.low - other.high, one.high - other.low),
            0.0,
        )
    under = [_ratio(rows[one][SENSITIVITIES].found, epsilon_from_belief(one.belief)) for one in whole]
    largest = max(under, key=lambda one: one.high)
    yield claim("under global sensitivity epsilon' is too small", data.title,
                "largest epsilon' from sensitivities over epsilon", largest, highest=1.0)  # fmt: skip


def _distance(found: IntervalEstimate, truth: float) -> IntervalEstimate:
    """Return the absolute difference between a number and `truth`, and the interval that follows for the difference."""
    ends = abs(found.low - truth), abs(found.high - truth)
    covers = found.low <= truth <= found.high
    return IntervalEstimate(abs(found.value - truth), 0.0 if covers else min(ends), max(ends))


def _adversaries(data: InsiderDatasetRecipe, runs: Runs) -> Iterator[PaperClaim]:
    """Yield the claims of section 6.3: the insider learns more than Yeom's adversary, whose bound is loose."""
    for setting in settings.audit_settings([data]):
        found, trials = runs[setting], runs[setting].repetitions
        each = found.trials["membership_advantage"].to_numpy(dtype=np.float64)
        insider, member = _insider_advantage(found), statistics.t_interval(each)
        yield PaperClaim("6.3", "the insider has a larger advantage than the membership adversary", setting.label,
                         f"{advantage_name(found)} of the insider less that of Yeom's adversary",
                         difference(insider, member), 0.0, trials=trials)  # fmt: skip
        bound = float((found.summary.get("membership") or {}).get("yeom_bound") or np.nan)
        yield PaperClaim("6.3", "the bound of membership inference is loose", setting.label,
                         "bound e^epsilon - 1 less the advantage of Yeom's adversary",
                         IntervalEstimate(bound - member.value, bound - member.high, bound - member.low), CLOSE,
                         trials=trials)  # fmt: skip


TESTS: tuple[Callable[[InsiderDatasetRecipe, Runs], Iterator[PaperClaim]], ...] = (
    _neighbours, _sensitivities, _beliefs, _advantages, _accuracy, _audits, _adversaries,
)  # fmt: skip

UNTESTED = (
    untested("1", "bounds on membership attacks in terms of epsilon are not tight",
             "said of the work of others; section 6.3 repeats it of Yeom's bound, which is tested"),
    untested("3", "who wins the membership audit can win the insider's", "a proposition with a proof"),
    untested("6", "thirty rounds led to converging models", "no measure of convergence is stated"),
    untested("6.1", "SSIM, Hamming and Manhattan distances suit best", "neither numbers nor a rule are stated"),
    untested("6.2", "other clipping norms behave alike", "an expectation of the paper, without an experiment"),
    untested("7", "another C, or one that adapts, gives more utility and a nearer epsilon'",
             "an expectation of the paper, without an experiment"),
)  # fmt: skip
"""Statements that cannot be tested, with the reasons."""


def claims_item(played: InsiderResultsBySetting) -> ItemResult:
    """Return the table of all claims: tested by closed forms, tested on runs, and untestable ones with reasons."""
    tested = [claim for test in TESTS for one in played.data for claim in test(one, played.runs)]
    return table_of_text_claims(tested, [one.title for one in played.data])


def table_of_text_claims(tested: Sequence[PaperClaim], titles: Sequence[str]) -> ItemResult:
    """Return a table and a figure of all claims of the paper's text.

    They include the claims that were tested on runs, claims that formulas alone decide, and claims that cannot be
    tested.
    """
    return claims_table(
        [*closed_forms(), *tested, *UNTESTED],
        SECOND_LOOKS,
        (
            f"Where the paper states no number: an advantage is the same within {CLOSE:g}, a mean belief is slightly "
            f"above .5 up to {SLIGHTLY:g}, and a sensitivity is close to C from {NEAR:g} C on.",
            "Where noise follows the local sensitivity the distribution of the log-odds is known: an exact advantage "
            "is that of the distribution, with an interval of no width, and no measurement. A measured one is the "
            "mean of what beliefs say of each trial, since the log-odds are the exact likelihood ratio; one by "
            "counted trials is that of Table 2. Of Yeom's adversary it is the mean over trials with its t interval: "
            "what other records would change is no part of it. How often a belief exceeds rho_beta is counted, and "
            "bounded by the noise in a row of its own.",
            "Differences of runs have square-and-add intervals; distances from epsilon have all that their intervals "
            "allow, so that they decide late. Epsilon' from the largest belief is an extreme value, whose distance "
            "does not go to 0 with more trials.",
        ),
        titles,
    )
