"""What a combination of a release law's parts showed: against exact theory, or by scores where there is none."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtr, chdtrc
from scipy.stats import binom, kstest, norm

from fl_audit.adjacency import Adjacency, Relation
from fl_audit.audits.common.findings_released_model import ClientPromises
from fl_audit.audits.identifiability.expected import advantage_from_beliefs
from fl_audit.audits.identifiability.findings_empirical_epsilon import ScoreNumbers
from fl_audit.experiments.runs.plan import AuditPlan
from fl_audit.federation.finished_run import FinishedRun
from fl_audit.mechanisms.noise import effective_noise_multiplier
from fl_audit.privacy.accounting import PrivacyProfile
from fl_audit.privacy.events import GaussianRelease, ReleaseEvent, SampledGaussianRelease
from fl_audit.privacy.log_odds import Truth, log_odds_law
from fl_audit.report.finding import RunContents
from fl_audit.statistics.advantage import empirical_advantage
from fl_audit.verdict.noise_estimate import ratio_interval
from fl_audit.verdict.noise_scale import chi_square_quantile, record_squares, total_squares
from fl_audit.verdict.of_run import measured_in

_CONFIDENCE = 0.95
_SAME = 1e-4  # largest relative difference of sensitivities that count as the same
_LEAST_SHARE, _LARGEST_SHARE, _FROM_EPSILON = 0.8, 1.02, 0.5
"""Where a lower bound has to lie, over epsilon: one of 95 % confidence lies over it in 5 % of runs, by little."""
_SAME_EPSILON = 1e-9  # largest relative difference of two accountants that count the same
_GENERATOR_SEED = 5


@dataclass(frozen=True)
class _Shown:
    """What any combination shows."""

    # From beliefs, or, where there are only scores, of guessing by their sign, counted.
    advantage: float
    epsilon: float  # exact epsilon of the promise
    # Lower confidence bound on epsilon: from the measured noise, or from the scores, which assumes nothing of them.
    lower_bound: float
    worlds: int  # number of worlds

    @property
    def share(self) -> float:
        """Lower bound over the exact epsilon."""
        return self.lower_bound / self.epsilon


@dataclass(frozen=True)
class ShownLoss(_Shown):
    """What a combination showed whose log-odds are the exact likelihood ratio."""

    theory: str  # what it was held against, in words
    scores_p: float  # Kolmogorov-Smirnov p-value of the noise along the record's direction against N(0, 1)
    law_p: float | None  # that of the final log-odds against their law; None without a law
    advantage_error: float  # standard error of the advantage
    advantage_exact: float | None  # by theory; None without a law
    # Measured over promised noise with its interval, orthogonal to the record's direction or, where that cannot be
    # measured, along it.
    meter: tuple[float, float, float]
    meter_p: float  # two-sided p-value of the same

    @property
    def advantage_z(self) -> float | None:
        """The advantage's distance from theory in standard errors."""
        exact = self.advantage_exact
        return None if exact is None else (self.advantage - exact) / self.advantage_error

    def p_values(self) -> dict[str, float]:
        """Return the p-value of everything that was tested, by name."""
        of_z = None if self.advantage_z is None else 2 * float(norm.sf(abs(self.advantage_z)))
        found = {"scores": self.scores_p, "meter": self.meter_p, "law of the log-odds": self.law_p, "advantage": of_z}
        return {name: p for name, p in found.items() if p is not None}

    def problems(self) -> list[str]:
        """Return what no p-value says: a lower bound that is far under epsilon, or over it."""
        if self.epsilon <= _FROM_EPSILON or _LEAST_SHARE <= self.share <= _LARGEST_SHARE:
            return []
        return [f"the lower bound is {self.share:.0%} of epsilon {self.epsilon:.3g}"]


@dataclass(frozen=True)
class Scored(_Shown):
    """What a combination showed whose insider has scores, and no likelihood ratio."""

    # `advantage_low`, `advantage_high`: the interval of the advantage of guessing by the sign of the score.
    advantage_low: float
    advantage_high: float
    advantage_most: float  # the most that the promise allows anybody
    # Probability of winning as often or more often with the most that is allowed: exact, for bits are fair coins.
    advantage_p: float
    # `epsilon_rdp`, `epsilon_opacus`: what the clients promise, each its own records, by our accountant `rdp` and by
    # that of Opacus which they kept.
    epsilon_rdp: tuple[float, ...]
    epsilon_opacus: tuple[float, ...]
    epsilon_of_clients: float  # largest of what they promise by the accountant of the promise

    def p_values(self) -> dict[str, float]:
        """Return the p-value of everything that was tested, by name."""
        return {"advantage over the most that is promised": self.advantage_p}

    def problems(self) -> list[str]:
        """Return what no p-value says: a lower bound over epsilon, or accountants that do not count the same."""
        found = []
        if self.lower_bound > self.epsilon:
            found.append(f"the lower bound {self.lower_bound:.3g} is over epsilon {self.epsilon:.3g}")
        if not np.allclose(self.epsilon_rdp, self.epsilon_opacus, rtol=_SAME_EPSILON, atol=0):
            found.append(f"the clients' accountants say {self.epsilon_opacus}, and ours says {self.epsilon_rdp}")
        if not math.isclose(self.epsilon_of_clients, self.epsilon, rel_tol=_SAME_EPSILON):
            found.append(f"a client promises epsilon {self.epsilon_of_clients:.6g}, and the run {self.epsilon:.6g}")
        return found


Evidence = ShownLoss | Scored  # what a combination that is offered showed


def evidence_of(plan: AuditPlan, contents: RunContents) -> Evidence:
    """Return what a run showed.

    Parameters
    ----------
    plan, contents
        What was to be done, and the finished run.
    """
    return _found(plan, contents.run) if plan.public.law.weighs_exactly else _scored(plan, contents)


def _scored(plan: AuditPlan, contents: RunContents) -> Scored:
    assert plan.guarantee is not None, "every combination promises something"
    scores, kept, run = contents.find(ScoreNumbers), contents.find(ClientPromises), contents.run
    assert scores is not None, "the worlds are enough that some are with the record and some without"
    assert kept is not None, "clients that train privately keep accountants"
    assert run.insider_scores is not None, "whoever has no log-odds has scores"
    claim = plan.guarantee.claim
    won = empirical_advantage((run.insider_scores > 0) == run.bits, _CONFIDENCE)
    most = claim.profile.advantage()
    return Scored(
        advantage=won.advantage,
        advantage_low=won.low,
        advantage_high=won.high,
        advantage_most=most,
        advantage_p=float(binom.sf(won.wins - 1, won.worlds, (1 + most) / 2)),
        epsilon=claim.profile.epsilon(claim.delta),
        lower_bound=scores.bound.epsilon,
        epsilon_rdp=tuple(client.epsilon_rdp for client in kept.clients),
        epsilon_opacus=tuple(client.epsilon_opacus for client in kept.clients),
        epsilon_of_clients=max(client.epsilon for client in kept.clients),
        worlds=run.worlds,
    )


def _found(plan: AuditPlan, run: FinishedRun) -> ShownLoss:
    assert plan.guarantee is not None, "every combination promises something"
    measured, (events, theory) = measured_in(run), _theory_of(plan, run)
    advantage = advantage_from_beliefs(run.log_odds, _CONFIDENCE)
    adjacency, claim = plan.public.law.adjacency, plan.guarantee.claim
    along, across = record_squares(measured), total_squares(measured)
    assert along is not None, "the sensitivities are large in every round"
    meter = across or along
    tails = chdtr(meter.freedom, meter.value), chdtrc(meter.freedom, meter.value)
    # The score of a mixture is no multiple of its noise: there the bound comes from the noise in all other directions.
    is_mixture = plan.public.law.is_sampled and not plan.public.standpoint.sees_participation
    lowest = meter if is_mixture else along
    highest_ratio = math.sqrt(lowest.value / chi_square_quantile(1 - _CONFIDENCE, lowest.freedom))
    return ShownLoss(
        theory=theory,
        scores_p=float(kstest(measured.used_innovations, "norm").pvalue),
        law_p=None if events is None else _law_p(run, events, adjacency),
        advantage=advantage.mean,
        advantage_error=advantage.standard_error,
        advantage_exact=None if events is None else PrivacyProfile(events, adjacency).advantage(),
        meter=(meter.ratio, *ratio_interval(meter, _CONFIDENCE)),
        meter_p=min(1.0, 2 * float(min(tails))),
        epsilon=claim.profile.epsilon(claim.delta),
        lower_bound=claim.with_noise(highest_ratio).profile.epsilon(claim.delta),
        worlds=run.worlds,
    )


def _theory_of(plan: AuditPlan, run: FinishedRun) -> tuple[tuple[ReleaseEvent, ...] | None, str]:
    """Return what the log-odds of a run are to be held against, from the sensitivities that it really had.

    These are releases whose log-odds have a law that is known exactly, None where only the scores of single rounds do,
    and which they are, in words.
    """
    assert plan.guarantee is not None, "every combination promises something"
    law, standpoint, events = plan.public.law, plan.public.standpoint, plan.guarantee.claim.events
    z, signal = effective_noise_multiplier(law.noise, standpoint), run.signal
    # A twin's update is as long as the update that it replaces, so that the bits of an adaptive norm say nothing of it.
    equal_bits = law.is_adaptive and law.adjacency.relation is Relation.REPLACE
    if law.is_sampled:
        used = signal[signal > 0] if standpoint.sees_participation else signal
        if not np.allclose(used * z, 1.0, rtol=0, atol=_SAME):
            return None, "scores alone: the sensitivities are not the largest"
        if not equal_bits:
            return events, "the promise's law"
        if standpoint.sees_participation:
            seen = SampledGaussianRelease(z, law.sampling_rate, plan.public.rounds, seen=True)
            return (seen,), "the law of the sums, both bits being equal"
        return None, "scores alone: equal bits tell who takes part"
    mu = np.sqrt(np.square(signal).sum(axis=1))
    promised = PrivacyProfile(events, law.adjacency).gaussian_mu
    assert promised is not None, "releases without sampling are Gaussian"
    if law.is_adaptive and not equal_bits:
        # Every update is longer than the norm, so in each round in which the sums differ the bits do, by 1/2.
        mu = np.hypot(mu, np.sqrt((signal > 0).sum(axis=1)) * law.bit_sensitivity / law.bit_sigma)
    if np.ptp(mu) > _SAME * mu.mean():
        return None, "scores alone: the sensitivities differ from world to world"
    if abs(mu.mean() / promised - 1) < _SAME:
        return events, "the promise's law"
    share = float(mu.mean() / promised)
    return (GaussianRelease(1.0, 1 / float(mu.mean())),), f"the law at {share:.3f} of the promised mu"


def _law_p(run: FinishedRun, events: tuple[ReleaseEvent, ...], adjacency: Adjacency) -> float:
    """Return the Kolmogorov-Smirnov p-value of the log-odds under both truths, brought to one uniform law."""
    draw = np.random.default_rng(_GENERATOR_SEED)
    parts = [
        log_odds_law(events, adjacency, truth).uniforms(run.log_odds[given], draw)
        for truth, given in ((Truth.PRESENT, run.bits), (Truth.ABSENT, ~run.bits))
    ]
    return float(kstest(np.concatenate(parts), "uniform").pvalue)
