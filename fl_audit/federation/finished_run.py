"""A finished run with its result tables, claim and settings, from which findings and verdict are computed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from fl_audit.adjacency import Adjacency, Unit
from fl_audit.array_types import Flags, Floats
from fl_audit.federation.crafted_records import CraftedMeasures
from fl_audit.federation.federation import Federation
from fl_audit.federation.findings import Findings, Numbers
from fl_audit.federation.group_sizes import GroupSizes
from fl_audit.federation.randomised_records import RecordGuaranteeEvents
from fl_audit.federation.run_tables import NonPrivateAccuracy, Provenance, RunTables, Timing
from fl_audit.mechanisms.effective_noise import effective_noise_multiplier
from fl_audit.privacy.guarantee import Guarantee
from fl_audit.privacy.log_odds import (
    LogOddsDistribution,
    TrueHypothesis,
    bound_in_other,
    increments_of,
    log_odds_distribution,
)
from fl_audit.released_model.epsilon_star import StarSettings

Made = TypeVar("Made")

_ROUNDING = 1e-5  # relative gap between a sensitivity and the largest one that float32 explains


@dataclass(frozen=True)
class RunFacts:
    """The claim, the federation and the settings of a run; reports read the mechanism only through this class."""

    federation: Federation  # public description of the federation
    guarantee: Guarantee | None  # the claimed guarantee; None if nothing was claimed
    prior: float  # the insider's belief in D before the first release, above 0 and below 1
    confidence: float  # confidence of the intervals, above 0 and below 1
    neighbour: str  # pair of training sets that was audited, as the configuration names it
    star: StarSettings | None  # settings of Epsilon*; None where it was turned off
    configuration: Mapping[str, Any]  # the resolved configuration, nested by section, without the challenger's seed
    record_claim: RecordGuaranteeEvents | None = None  # guarantee of randomised records; None if none is randomised
    crafted: CraftedMeasures | None = None  # the crafted record; None where a record of the data, or a client, differs
    commonest: float | None = None  # share of the most frequent class among the test records; None where it is unknown
    # Findings that an audit of one kind has of the run beside its tables, by type.
    of_audit: Findings = field(default_factory=lambda: Findings({}))
    # After how many trials this run was judged, rising, this time the last; empty where that was not noted.
    looks: tuple[int, ...] = ()
    look_at: tuple[str, ...] = ()  # effects of the data on the meaning of the numbers, a line each
    most_records: int = 1  # records that one person has at most, as far as columns tell
    group_sizes: GroupSizes | None = None  # largest groups of records and users; None where not noted

    @property
    def has_guarantee(self) -> bool:
        """Whether a guarantee is claimed; without noise there is none."""
        return self.guarantee is not None

    @property
    def stated_guarantee(self) -> Guarantee:
        """The claimed guarantee, for callers that have checked that there is one."""
        assert self.guarantee is not None, "what was not claimed is not measured"
        return self.guarantee

    def find(self, kind: type[Numbers]) -> Numbers | None:
        """Return the finding of a type that the audit adds to the tables of the run; None if there is none."""
        return self.of_audit.find(kind)

    @property
    def relation(self) -> Adjacency:
        """The adjacency relation of D and D'."""
        return self.federation.mechanism.adjacency

    @property
    def units(self) -> int:
        """Number of records, users or clients that the guarantee protects."""
        return self.federation.records if self.relation.unit is Unit.RECORD else self.federation.units

    @property
    def global_sensitivity(self) -> float:
        """Largest L2 distance of one round's clipped sums under neighbours D and D'; infinite without clipping."""
        return self.relation.sensitivity_of_sum(self.federation.mechanism.clipping_norm)

    @property
    def effective_noise_multiplier(self) -> float:
        """Effective noise multiplier of a round's sum, without the noise that the insider knows; 0 without noise."""
        return effective_noise_multiplier(self.federation.mechanism.noise, self.federation.threat_model)

    @property
    def largest_difference(self) -> float:
        """Largest difference of D and D' that the insider can see in a round.

        With correlated noise it is above the sensitivity: such noise is whitened, and the whitened release of a round
        also contains contributions of earlier rounds.
        """
        if not (mechanism := self.federation.mechanism).adds_noise:
            return self.global_sensitivity
        return self.global_sensitivity * (
            self.effective_noise_multiplier / mechanism.round_multiplier(self.federation.threat_model)
        )

    @property
    def is_sampled(self) -> bool:
        """Whether each round uses a random sample of the units."""
        return self.federation.mechanism.sampling_rate < 1

    @property
    def is_amplified(self) -> bool:
        """Whether the guarantee uses amplification by sampling, in rounds or in the clients' DP-SGD steps."""
        return self.guarantee is not None and self.guarantee.sampling_rate < 1

    @property
    def belief_bounds(self) -> dict[int, float]:
        """The bounds on the belief in the truth by secret bit: in D for 1, in D' for 0; empty without a guarantee."""
        if self.guarantee is None:
            return {}
        bound = self.guarantee.belief_bound
        return {1: bound, 0: bound_in_other(bound, self.prior)}

    @property
    def mu(self) -> float:
        """Claimed mu of Gaussian DP; infinite without a claim.

        With sampling it is the mu against an insider who sees which units participate.
        """
        return math.inf if self.guarantee is None else self.guarantee.mu


@dataclass(frozen=True)
class FinishedRun:
    """A finished run, with methods that return columns of its tables as arrays in one order of trials and rounds."""

    facts: RunFacts  # facts on claim and federation
    tables: RunTables  # tables of results
    timing: Timing = field(default_factory=Timing)  # duration of the run
    provenance: Provenance | None = None  # provenance of the run; None if it was not noted
    # Results of the same training without privacy; None where no such run was named.
    unprotected: NonPrivateAccuracy | None = None
    _made: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, make: "Callable[[FinishedRun], Made]") -> Made:
        """Return the result of a function of this run; it is called once and its result is cached."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(Made, self._made[make])

    @property
    def trials(self) -> int:
        """Number of trials."""
        return len(self.tables.trials)

    @property
    def chosen_releases(self) -> tuple[int, int] | None:
        """Smallest and largest number of the releases that early stopping chose; None without early stopping."""
        if "chosen_release" not in (table := self.tables.trials):
            return None
        return int(table["chosen_release"].min()), int(table["chosen_release"].max())

    @cached_property
    def bits(self) -> Flags:
        """The secret bit of each trial, bool (trials,): whether D was used, and not D'."""
        bits: Flags = self.tables.trials["bit"].to_numpy() == 1
        return bits

    @property
    def has_both_bits(self) -> bool:
        """Whether D was used in some trials, and D' in others."""
        return bool(self.bits.any() and not self.bits.all())

    @cached_property
    def log_odds(self) -> Floats:
        """Log-likelihood ratio of D against D' after the last round, shape (trials,); NaN without an insider."""
        return self.tables.trials["log_odds"].to_numpy(dtype=np.float64)

    @cached_property
    def towards_truth(self) -> Floats:
        """Final log-likelihood ratio of the training set that was used against the other one, shape (trials,)."""
        return np.where(self.bits, self.log_odds, -self.log_odds)

    @property
    def has_insider(self) -> bool:
        """Whether the insider evaluated the releases."""
        return bool(np.any(~np.isnan(self.log_odds)))

    @cached_property
    def insider_scores(self) -> Floats | None:
        """Scores of the insider, shape (trials,), if it has scores instead of log-odds; otherwise None."""
        table = self.tables.trials
        return table["score"].to_numpy(dtype=np.float64) if "score" in table else None

    @cached_property
    def signal(self) -> Floats:
        """mu_i = Delta_i / sigma_i, shape (trials, rounds); 0 where the differing record changes nothing."""
        sensitivity, sigma = self.by_trial("local_sensitivity"), self.by_trial("sigma")
        return np.divide(sensitivity, sigma, out=np.zeros_like(sensitivity), where=sensitivity > 0)

    @cached_property
    def increments(self) -> Floats:
        """Log-likelihood ratio of D against D' of each single round, shape (trials, rounds)."""
        if "increment" in self.tables.rounds:
            return self.by_trial("increment")
        return increments_of(self.by_trial("log_odds"))  # runs of an older version kept cumulated log-odds only

    @property
    def scores(self) -> Floats | None:
        """The noise along the difference of D and D', which is standard normal under the truth, shape (trials, rounds).

        None if it follows from the increments, because these are Gaussian.
        """
        if "score_present" not in self.tables.rounds:
            return None
        return np.where(self.bits[:, None], self.by_trial("score_present"), self.by_trial("score_absent"))

    def by_trial(self, column: str) -> Floats:
        """Return a column of the table of rounds as an array (trials, rounds), in the order of the table of trials."""
        table = self.tables.rounds.pivot(index="trial", columns="round", values=column)
        return table.loc[self.tables.trials["trial"]].to_numpy(dtype=np.float64)

    @cached_property
    def accounted_signal(self) -> Floats:
        """mu_i of all that a round releases, including the quantile bits of adaptive clipping, (trials, rounds)."""
        mechanism, threat_model = self.facts.federation.mechanism, self.facts.federation.threat_model
        if not mechanism.is_adaptive:
            return self.signal
        both, alone = 1 / mechanism.claimed_multiplier(threat_model), 1 / mechanism.round_multiplier(threat_model)
        return np.where(self.signal > 0, np.sqrt(self.signal**2 + both**2 - alone**2), 0.0)

    @cached_property
    def has_exact_final_distribution(self) -> bool:
        """Whether the final log-odds of all trials follow the distribution of the claim's worst case.

        They do if the difference of D and D' has the full size that the claim assumes, in every trial and round. With
        noise scaled to the local sensitivity this holds if the smallest noise was never applied. With global
        sensitivity it holds only for a target record whose gradient is clipped in every round.
        """
        mechanism, threat_model = self.facts.federation.mechanism, self.facts.federation.threat_model
        # The bits behind an adaptive norm differ in some rounds only, and nothing here says in which.
        if not self.facts.has_guarantee or not self.has_insider or not mechanism.has_exact_llr or mechanism.is_adaptive:
            return False
        if not mechanism.is_sampled:
            return bool(np.all(np.linalg.norm(self.signal, axis=1) >= (1 - _ROUNDING) * self.facts.mu))
        largest = self.signal * mechanism.round_multiplier(threat_model) >= 1 - _ROUNDING
        return bool(np.all(largest | (threat_model.sees_participation & (self.signal == 0))))

    @property
    def has_normal_final_distribution(self) -> bool:
        """Whether the final log-odds follow the claim's worst case and this is normal, N(+-mu^2/2, mu^2)."""
        return self.has_exact_final_distribution and not self.facts.is_sampled

    @cached_property
    def has_even_rounds(self) -> bool:
        """Whether the final log-odds are normal as claimed and every round adds the same share of mu^2."""
        even = self.facts.mu / math.sqrt(self.facts.federation.rounds)
        return self.has_normal_final_distribution and bool(np.all(np.abs(self.signal - even) <= _ROUNDING * even))

    @cached_property
    def largest_distributions(self) -> dict[int, LogOddsDistribution]:
        """The worst-case distribution of the final log-odds of D against D' under the claim, by secret bit.

        It holds if the difference of D and D' is as large as the claim allows. Empty if there is no claim, or the
        mechanism has no exact log-likelihood ratio.
        """
        if (guarantee := self.facts.guarantee) is None or not self.facts.federation.mechanism.has_exact_llr:
            return {}
        truths = {1: TrueHypothesis.PRESENT, 0: TrueHypothesis.ABSENT}
        events, adjacency = guarantee.claim.events, guarantee.adjacency
        return {bit: log_odds_distribution(events, adjacency, truth, fine=False) for bit, truth in truths.items()}
