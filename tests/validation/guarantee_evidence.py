"""Evidence on a combination of a mechanism's parts: against exact theory, or by scores where there is none."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtr, chdtrc, expit
from scipy.stats import binom, kstest, norm

from fl_audit.adjacency import Adjacency, Relation
from fl_audit.array_types import Floats
from fl_audit.audits.common.sections_client_guarantees import ClientGuarantees
from fl_audit.audits.identifiability.sections_roc import ScoreAucFinding
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.federation.run_plan import RunPlan
from fl_audit.mechanisms.mechanism import effective_noise_multiplier
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.events import GaussianRelease, ReleaseEvent, SampledGaussianRelease
from fl_audit.privacy.log_odds_distribution import TrueHypothesis, log_odds_distribution
from fl_audit.report.report_elements import ReportContents
from fl_audit.statistics.advantage import empirical_advantage, mean_interval
from fl_audit.verdict.noise_estimate import ratio_interval
from fl_audit.verdict.noise_scale import chi_square_quantile, record_squares, total_squares
from fl_audit.verdict.stored_measurements import measured_in
from tests.builders.log_odds import uniforms

_CONFIDENCE = 0.95
_SAME = 1e-4  # largest relative difference of sensitivities that count as the same
_LEAST_SHARE = 0.8
_LARGEST_SHARE = 1.02
_FROM_EPSILON = 0.5
"""Range of a lower bound over epsilon, and the epsilon from which it applies: a bound of 95 % confidence slightly
exceeds epsilon in 5 % of runs.
"""
_SAME_EPSILON = 1e-9  # largest relative difference of two accountants that count the same
_GENERATOR_SEED = 5


@dataclass(frozen=True)
class _Shown:
    """The evidence on any combination."""

    # From beliefs, or, where there are only scores, of guessing by their sign, counted.
    advantage: float
    epsilon: float  # exact epsilon of the guarantee
    # Lower confidence bound on epsilon: from the measured noise, or from the scores, which assumes nothing of them.
    lower_bound: float
    trials: int  # number of trials

    @property
    def share(self) -> float:
        """Lower bound over the exact epsilon."""
        return self.lower_bound / self.epsilon


@dataclass(frozen=True)
class ShownLoss(_Shown):
    """The evidence on a combination whose log-odds are the exact likelihood ratio."""

    theory: str  # the theory for comparison, in words
    scores_p: float  # Kolmogorov-Smirnov p-value of the noise along the record's direction against N(0, 1)
    distribution_p: float | None  # that of the final log-odds against their distribution; None without a distribution
    advantage_error: float  # standard error of the advantage
    advantage_exact: float | None  # by theory; None without a distribution
    # Measured over claimed noise with its interval, orthogonal to the record's direction or, where that cannot be
    # measured, along it.
    meter: tuple[float, float, float]
    noise_p: float  # two-sided p-value of the same

    @property
    def advantage_z(self) -> float | None:
        """The advantage's distance from theory in standard errors."""
        exact = self.advantage_exact
        return None if exact is None else (self.advantage - exact) / self.advantage_error

    def p_values(self) -> dict[str, float]:
        """Return the p-value of every test, by name."""
        of_z = None if self.advantage_z is None else 2 * float(norm.sf(abs(self.advantage_z)))
        p_by_test = {
            "scores": self.scores_p,
            "meter": self.noise_p,
            "distribution of the log-odds": self.distribution_p,
            "advantage": of_z,
        }
        return {name: p for name, p in p_by_test.items() if p is not None}

    def problems(self) -> list[str]:
        """Return problems without a p-value: a lower bound that is far under epsilon, or over it."""
        if self.epsilon <= _FROM_EPSILON or _LEAST_SHARE <= self.share <= _LARGEST_SHARE:
            return []
        return [f"the lower bound is {self.share:.0%} of epsilon {self.epsilon:.3g}"]


@dataclass(frozen=True)
class Scored(_Shown):
    """The evidence on a combination whose insider has scores, and no likelihood ratio."""

    advantage_low: float  # lower end of the interval of the advantage of guessing by the sign of the score
    advantage_high: float  # upper end of the same interval
    advantage_most: float  # the most that the guarantee allows anybody
    # Probability of winning as often or more often with the most that is allowed: exact, for bits are fair coins.
    advantage_p: float
    epsilon_rdp: tuple[float, ...]  # epsilon that each client guarantees to its own records, by our accountant `rdp`
    # Epsilon that each client guarantees to its own records, by the accountant of Opacus that it kept.
    epsilon_opacus: tuple[float, ...]
    epsilon_of_clients: float  # largest epsilon of the clients by the accountant of the guarantee

    def p_values(self) -> dict[str, float]:
        """Return the p-value of every test, by name."""
        return {"advantage over the most that is claimed": self.advantage_p}

    def problems(self) -> list[str]:
        """Return problems without a p-value: a lower bound over epsilon, or accountants that do not agree."""
        contradictions = []
        if self.lower_bound > self.epsilon:
            contradictions.append(f"the lower bound {self.lower_bound:.3g} is over epsilon {self.epsilon:.3g}")
        if not np.allclose(self.epsilon_rdp, self.epsilon_opacus, rtol=_SAME_EPSILON, atol=0):
            contradictions.append(
                f"the clients' accountants say {self.epsilon_opacus}, and ours says {self.epsilon_rdp}"
            )
        if not math.isclose(self.epsilon_of_clients, self.epsilon, rel_tol=_SAME_EPSILON):
            contradictions.append(
                f"a client guarantees epsilon {self.epsilon_of_clients:.6g}, and the run {self.epsilon:.6g}"
            )
        return contradictions


Evidence = ShownLoss | Scored  # the evidence on a combination that is offered


def chance_of_being_right(log_odds: Floats) -> Floats:
    """Return the posterior probability that the guess of an insider with an even prior is right, for each trial.

    It varies less than the share of wins. Shapes: `log_odds` (trials,).
    """
    return np.asarray(expit(np.abs(log_odds)), dtype=np.float64)


def evidence_of(plan: RunPlan, contents: ReportContents) -> Evidence:
    """Return the evidence of a run."""
    return _found(plan, contents.run) if plan.federation.mechanism.knows_llr else _scored(plan, contents)


def _scored(plan: RunPlan, contents: ReportContents) -> Scored:
    assert plan.guarantee is not None, "every combination guarantees something"
    scores = contents.find(ScoreAucFinding)
    client_guarantees = contents.find(ClientGuarantees)
    run = contents.run
    assert scores is not None, "the trials are enough that some are with the record and some without"
    assert client_guarantees is not None, "clients that train privately keep accountants"
    assert run.insider_scores is not None, "whoever has no log-odds has scores"
    claim = plan.guarantee.claim
    won = empirical_advantage((run.insider_scores > 0) == run.bits, _CONFIDENCE)
    advantage_bound = claim.profile.advantage()
    return Scored(
        advantage=won.advantage,
        advantage_low=won.low,
        advantage_high=won.high,
        advantage_most=advantage_bound,
        advantage_p=float(binom.sf(won.wins - 1, won.trials, (1 + advantage_bound) / 2)),
        epsilon=claim.profile.epsilon(claim.delta),
        lower_bound=scores.bound.epsilon,
        epsilon_rdp=tuple(client.epsilon_rdp for client in client_guarantees.clients),
        epsilon_opacus=tuple(client.epsilon_opacus for client in client_guarantees.clients),
        epsilon_of_clients=max(client.epsilon for client in client_guarantees.clients),
        trials=run.trials,
    )


def _found(plan: RunPlan, run: FinishedRun) -> ShownLoss:
    assert plan.guarantee is not None, "every combination guarantees something"
    measured, (events, theory) = measured_in(run), _theory_of(plan, run)
    advantages = 2 * chance_of_being_right(run.log_odds) - 1
    adjacency = plan.federation.mechanism.adjacency
    claim = plan.guarantee.claim
    along = record_squares(measured)
    across = total_squares(measured)
    assert along is not None, "the sensitivities are large in every round"
    meter = across or along
    tails = chdtr(meter.freedom, meter.value), chdtrc(meter.freedom, meter.value)
    # The score of a mixture is no multiple of its noise: there the bound comes from the noise in all other directions.
    is_mixture = plan.federation.mechanism.is_sampled and not plan.federation.threat_model.sees_participation
    lowest = meter if is_mixture else along
    highest_ratio = math.sqrt(lowest.value / chi_square_quantile(1 - _CONFIDENCE, lowest.freedom))
    return ShownLoss(
        theory=theory,
        scores_p=float(kstest(measured.used_innovations, "norm").pvalue),
        distribution_p=None if events is None else _distribution_p(run, events, adjacency),
        advantage=mean_interval(advantages, _CONFIDENCE).value,
        advantage_error=float(advantages.std(ddof=1)) / math.sqrt(advantages.size),
        advantage_exact=None if events is None else PrivacyProfile(events, adjacency).advantage(),
        meter=(meter.ratio, *ratio_interval(meter, _CONFIDENCE)),
        noise_p=min(1.0, 2 * float(min(tails))),
        epsilon=claim.profile.epsilon(claim.delta),
        lower_bound=claim.with_noise(highest_ratio).profile.epsilon(claim.delta),
        trials=run.trials,
    )


def _theory_of(plan: RunPlan, run: FinishedRun) -> tuple[tuple[ReleaseEvent, ...] | None, str]:
    """Return the theory for the log-odds of a run, from the sensitivities that it really had.

    The first part is releases whose log-odds have an exactly known distribution, None where only the scores of single
    rounds do; the second describes them in words.
    """
    assert plan.guarantee is not None, "every combination guarantees something"
    mechanism = plan.federation.mechanism
    threat_model = plan.federation.threat_model
    events = plan.guarantee.claim.events
    z = effective_noise_multiplier(mechanism.noise, threat_model)
    signal = run.signal
    # A twin's update is as long as the update that it replaces, so that the bits of an adaptive norm say nothing of it.
    equal_bits = mechanism.is_adaptive and mechanism.adjacency.relation is Relation.REPLACE
    if mechanism.is_sampled:
        turns = [plan.federation.eligible_units(number) for number in range(1, plan.federation.rounds + 1)]
        eligible_signal = signal[:, [turn is None or plan.federation.pair.index in turn for turn in turns]]
        used = eligible_signal[eligible_signal > 0] if threat_model.sees_participation else eligible_signal
        if not np.allclose(used * z, 1.0, rtol=0, atol=_SAME):
            return None, "scores alone: the sensitivities are not the largest"
        if not equal_bits:
            return events, "the guarantee's distribution"
        if threat_model.sees_participation:
            seen_release = SampledGaussianRelease(z, mechanism.sampling_rate, eligible_signal.shape[1], seen=True)
            return (seen_release,), "the distribution of the sums, both bits being equal"
        return None, "scores alone: equal bits tell who takes part"
    mu = np.sqrt(np.square(signal).sum(axis=1))
    claimed = PrivacyProfile(events, mechanism.adjacency).gaussian_mu
    assert claimed is not None, "releases without sampling are Gaussian"
    if mechanism.is_adaptive and not equal_bits:
        # Every update is longer than the norm, so in each round in which the sums differ the bits do, by 1/2.
        mu = np.hypot(mu, np.sqrt((signal > 0).sum(axis=1)) * mechanism.bit_sensitivity / mechanism.bit_sigma)
    if np.ptp(mu) > _SAME * mu.mean():
        return None, "scores alone: the sensitivities differ from trial to trial"
    if abs(mu.mean() / claimed - 1) < _SAME:
        return events, "the guarantee's distribution"
    share = float(mu.mean() / claimed)
    return (GaussianRelease(1.0, 1 / float(mu.mean())),), f"the distribution at {share:.3f} of the claimed mu"


def _distribution_p(run: FinishedRun, events: tuple[ReleaseEvent, ...], adjacency: Adjacency) -> float:
    """Return the Kolmogorov-Smirnov p-value of the log-odds under both truths, on one uniform scale."""
    draw = np.random.default_rng(_GENERATOR_SEED)
    parts = [
        uniforms(log_odds_distribution(events, adjacency, truth), run.log_odds[trial_mask], draw)
        for truth, trial_mask in ((TrueHypothesis.PRESENT, run.bits), (TrueHypothesis.ABSENT, ~run.bits))
    ]
    return float(kstest(np.concatenate(parts), "uniform").pvalue)
