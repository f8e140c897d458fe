"""The plan of a run, which engines, server, tests and reports read."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.federation.federation import Federation
from fl_audit.learning.metric_names import Metric
from fl_audit.mechanisms.mechanism import effective_noise_multiplier
from fl_audit.privacy.accounting import PrivacyProfile, account
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.privacy.log_odds_distribution import bound_in_other
from fl_audit.released_model.parametric_star import StarSettings

if TYPE_CHECKING:
    from fl_audit.runs.config import RunConfig


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run: its configuration, and the federation and the guarantee that follow from it.

    Parameters
    ----------
    config
        The user's configuration, with all defaults.
    federation
        The federation that is audited, which all parties know.
    guarantee
        The claimed guarantee; None if nothing is claimed, as by a mechanism without noise.
    """

    config: "RunConfig"
    federation: Federation
    guarantee: Guarantee | None

    def with_seed(self, seed: int) -> "RunPlan":
        """Return a copy of the plan with the challenger's seed of all secret draws, 0 to 2**64 - 1."""
        return replace(self, config=self.config.changed(run={"seed": seed}))

    @property
    def seed(self) -> int:
        """The challenger's seed; reading it raises `AssertionError` before a run directory was opened with the plan."""
        assert self.config.run.seed is not None, "a run directory that was opened names the seed"
        return self.config.run.seed

    @property
    def trials_per_batch(self) -> int:
        """Number of trials that are trained together."""
        assert self.config.run.trials_per_batch is not None, "a plan names the size of a batch"
        return self.config.run.trials_per_batch

    @property
    def prior(self) -> float:
        """The insider's belief in D before the first release, in (0, 1)."""
        return self.config.privacy.prior

    @property
    def confidence(self) -> float:
        """Confidence of the intervals, in (0, 1)."""
        return self.config.audit.confidence

    @property
    def star(self) -> StarSettings | None:
        """Settings of Epsilon*; None if it is turned off."""
        return StarSettings(self.config.privacy.delta) if self.config.audit.epsilon_star else None

    @property
    def evaluated_releases(self) -> tuple[int, ...]:
        """Numbers of the releases that are evaluated, ascending; 0 is the initial model, and the last is always one."""
        rounds = self.federation.rounds
        return (*range(0, rounds, self.config.audit.evaluate_every), rounds)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of the released models on test records, the headline first."""
        return self.config.training.metrics or (Metric.ACCURACY,)

    @property
    def headline(self) -> str:
        """The metric that stands for how good a model is: the first of the metrics."""
        return self.metrics[0]

    @property
    def is_ordinary_training(self) -> bool:
        """Whether the run is an ordinary training, and no audit: a single trial, or no insider who attacks."""
        return self.config.is_ordinary_training

    @property
    def has_guarantee(self) -> bool:
        """Whether the run claims a DP guarantee; a mechanism without noise claims none."""
        return self.guarantee is not None

    @property
    def stated_guarantee(self) -> Guarantee:
        """The claimed guarantee; reading it raises `AssertionError` if nothing is claimed (see `has_guarantee`)."""
        assert self.guarantee is not None, "what was not claimed is not measured"
        return self.guarantee

    def epsilon_after(self, rounds: int) -> float:
        """Return the epsilon of the first rounds of the training, at the delta and by the accountant of the guarantee.

        `rounds`: 0 to the number of rounds of the run.
        """
        claim = self.stated_guarantee.claim
        if rounds == 0:
            return 0.0
        events_of_claims = self.federation.mechanism.events_of_each(rounds, self.federation.threat_model)
        return max(
            account(PrivacyProfile(events, claim.adjacency), claim.accountant, claim.delta)
            for events in events_of_claims
        )

    @property
    def adjacency(self) -> Adjacency:
        """The adjacency relation of D and D'."""
        return self.federation.mechanism.adjacency

    @property
    def units(self) -> int:
        """Number of records, users or clients that the guarantee protects."""
        return self.federation.records if self.adjacency.unit is Unit.RECORD else self.federation.units

    @property
    def global_sensitivity(self) -> float:
        """Largest L2 distance between the sums of a round under neighbours D and D'; infinite without clipping."""
        return self.adjacency.sensitivity_of_sum(self.federation.mechanism.clipping_norm)

    @property
    def effective_noise_multiplier(self) -> float:
        """Noise multiplier of a round's sum, counting only noise that the adversary does not know; 0 without noise."""
        return effective_noise_multiplier(self.federation.mechanism.noise, self.federation.threat_model)

    @property
    def largest_difference(self) -> float:
        """Largest L2 difference between D and D' that one round's release can show the adversary.

        If the noise of the rounds is independent, it equals the global sensitivity. If the noise is correlated over
        rounds, it is larger. The adversary can then combine the releases in such a way that their noise becomes
        independent. A combined release contains the target's contributions to several rounds.
        """
        mechanism = self.federation.mechanism
        if not mechanism.adds_noise:
            return self.global_sensitivity
        round_multiplier = mechanism.round_multiplier(self.federation.threat_model)
        return self.global_sensitivity * (self.effective_noise_multiplier / round_multiplier)

    @property
    def is_sampled(self) -> bool:
        """Whether each round draws a random sample of the units."""
        return self.federation.mechanism.sampling_rate < 1

    @property
    def is_amplified(self) -> bool:
        """Whether the guarantee relies on amplification by sampling, of units in rounds or of records in DP-SGD."""
        return self.guarantee is not None and self.guarantee.sampling_rate < 1

    @property
    def belief_bounds(self) -> dict[int, float]:
        """Bounds on the adversary's belief in the training set that was used, keyed by secret bit.

        Key 1 holds the bound on the belief in D, key 0 that on the belief in D'. Empty without a guarantee.
        """
        if self.guarantee is None:
            return {}
        bound = self.guarantee.belief_bound
        return {1: bound, 0: bound_in_other(bound, self.prior)}

    @property
    def mu(self) -> float:
        """Claimed mu of Gaussian DP; infinite without a claim.

        If units are sampled, it is the mu against an adversary that sees which units participate.
        """
        return math.inf if self.guarantee is None else self.guarantee.mu
