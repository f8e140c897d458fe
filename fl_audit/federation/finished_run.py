"""Finished runs: result tables, claim and settings, from which findings and the verdict are computed."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from fl_audit.array_types import Flags, Floats
from fl_audit.federation.crafted_records import CraftedMeasures
from fl_audit.federation.federation_records import split_of
from fl_audit.federation.findings import Findings, Numbers
from fl_audit.federation.loaded_federation import LoadedFederation
from fl_audit.federation.locally_randomised_records import LocalRandomizerGuarantee
from fl_audit.federation.run_plan import RunPlan
from fl_audit.federation.run_tables import NonPrivateAccuracy, Provenance, RunTables, Timing
from fl_audit.privacy.log_odds_distribution import (
    LogOddsDistribution,
    TrueHypothesis,
    increments_of,
    log_odds_distribution,
)

_ROUNDING = 1e-5  # relative difference between two sensitivities that float32 rounding explains


@dataclass(frozen=True)
class GroupSizes:
    """Sizes of the largest groups in D, e.g. the largest number of records that one client has.

    Sizes that concern users are None if no column identifies users.
    """

    records_of_client: int
    records_of_user: int | None = None
    users_of_client: int | None = None
    clients_of_user: int | None = None
    # Number of users in the population sample, with whom users in D are compared; None if it has no users.
    users_outside: int | None = None


def group_sizes(federation: LoadedFederation) -> GroupSizes:
    """Return the largest number of records per client, records per user, users per client, and clients per user."""
    outside = federation.population_records.user
    user = split_of(federation.public).inside.user
    records = max(len(shard) for shard in federation.shards)
    if user is None:
        return GroupSizes(records)
    users_held = [np.unique(user[shard[shard < len(user)]]) for shard in federation.shards]
    _, clients = np.unique(np.concatenate(users_held), return_counts=True)
    users_outside = None if outside is None else len(np.unique(outside))
    of_user = int(np.unique(user, return_counts=True)[1].max())
    return GroupSizes(records, of_user, max(map(len, users_held)), int(clients.max()), users_outside)


Made = TypeVar("Made")


@dataclass(frozen=True)
class FinishedRun:
    """Result tables of a finished run with its plan, and methods that return table columns as arrays.

    All arrays list the trials in the order of the table of trials, and the rounds ascending.
    """

    plan: RunPlan  # configuration, federation and guarantee of the run
    tables: RunTables  # tables of results
    timing: Timing = field(default_factory=Timing)  # duration of the run
    provenance: Provenance | None = None  # provenance of the run; None if not recorded
    # Results of the same training without privacy; None if no such run was named.
    unprotected: NonPrivateAccuracy | None = None
    record_claim: LocalRandomizerGuarantee | None = None  # guarantee of local randomization; None without it
    crafted: CraftedMeasures | None = None  # the crafted record; None if the differing unit was not crafted
    commonest: float | None = None  # share of the most frequent class among test records; None if unknown
    # Findings that the audit made beside the result tables, by type.
    of_audit: Findings = field(default_factory=lambda: Findings({}))
    # Numbers of trials after which a verdict on this run was computed, ascending, the present one last; empty if not
    # recorded.
    looks: tuple[int, ...] = ()
    look_at: tuple[str, ...] = ()  # remarks on how the data affect the meaning of the numbers, a line each
    most_records: int = 1  # largest number of records of one person, as far as columns tell
    group_sizes: GroupSizes | None = None  # largest groups of records and users; None if not recorded
    _made: dict[Callable[..., Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def find(self, kind: type[Numbers]) -> Numbers | None:
        """Return the finding of type `kind` that the audit made in addition to the tables; None if there is none."""
        return self.of_audit.find(kind)

    def cached(self, make: "Callable[[FinishedRun], Made]") -> Made:
        """Return `make(self)`; the result is stored, so that later calls with the same function return it again."""
        if make not in self._made:
            self._made[make] = make(self)
        return cast(Made, self._made[make])

    @property
    def trials(self) -> int:
        """Number of trials of the run."""
        return len(self.tables.trials)

    @property
    def chosen_releases(self) -> tuple[int, int] | None:
        """Smallest and largest number, over all trials, of the release that early stopping chose.

        None without early stopping.
        """
        if "chosen_release" not in (table := self.tables.trials):
            return None
        return int(table["chosen_release"].min()), int(table["chosen_release"].max())

    @cached_property
    def bits(self) -> Flags:
        """Secret bit of each trial, bool (trials,): True if the model was trained on D, False if on D'."""
        bits: Flags = self.tables.trials["bit"].to_numpy() == 1
        return bits

    @property
    def has_both_bits(self) -> bool:
        """Whether some trials used D and some used D'."""
        return bool(self.bits.any() and not self.bits.all())

    @cached_property
    def log_odds(self) -> Floats:
        """Log-likelihood ratio of D against D' after the last round, float64 (trials,); NaN without an insider."""
        return self.tables.trials["log_odds"].to_numpy(dtype=np.float64)

    @cached_property
    def llr_of_used_set(self) -> Floats:
        """Final log-likelihood ratio of the training set that was used against the other one, float64 (trials,)."""
        return np.where(self.bits, self.log_odds, -self.log_odds)

    @property
    def has_insider(self) -> bool:
        """Whether an insider computed log-likelihood ratios from the releases."""
        return bool(np.any(~np.isnan(self.log_odds)))

    @cached_property
    def insider_scores(self) -> Floats | None:
        """The score of each trial by which the insider guesses D or D', float64 (trials,).

        None if the insider computed log-likelihood ratios instead.
        """
        table = self.tables.trials
        return table["score"].to_numpy(dtype=np.float64) if "score" in table else None

    @cached_property
    def signal(self) -> Floats:
        """Signal-to-noise ratio mu_i = Delta_i / sigma_i of each round i, float64 (trials, rounds).

        Delta_i is the local sensitivity, and sigma_i the scale of the noise. The ratio is 0 where Delta_i
        is 0.
        """
        sensitivity = self.by_trial("local_sensitivity")
        sigma = self.by_trial("sigma")
        return np.divide(sensitivity, sigma, out=np.zeros_like(sensitivity), where=sensitivity > 0)

    @cached_property
    def increments(self) -> Floats:
        """Log-likelihood ratio of D against D' that each single round adds, shape (trials, rounds)."""
        if "increment" in self.tables.rounds:
            return self.by_trial("increment")
        return increments_of(self.by_trial("log_odds"))  # runs of an older version kept cumulated log-odds only

    @property
    def scores(self) -> Floats | None:
        """Noise of each round along f(D) - f(D'), divided by its standard deviation, shape (trials, rounds).

        None if the run did not store the scores. A run with an insider stores them if units are sampled or clipping is
        adaptive. In other runs they can be computed from `increments` and the sensitivities of the rounds.
        """
        if "score_present" not in self.tables.rounds:
            return None
        return np.where(self.bits[:, None], self.by_trial("score_present"), self.by_trial("score_absent"))

    def by_trial(self, column: str) -> Floats:
        """Return the values in a column of the table of rounds, float64 (trials, rounds)."""
        table = self.tables.rounds.pivot(index="trial", columns="round", values=column)
        return table.loc[self.tables.trials["trial"]].to_numpy(dtype=np.float64)

    @cached_property
    def accounted_signal(self) -> Floats:
        """Signal-to-noise ratio of all that a round releases, float64 (trials, rounds).

        With adaptive clipping it covers the quantile bits too, which tell how many units were within the clipping norm.
        Otherwise it equals `signal`.
        """
        mechanism = self.plan.federation.mechanism
        threat_model = self.plan.federation.threat_model
        if not mechanism.is_adaptive:
            return self.signal
        multiplier_both = 1 / mechanism.claimed_multiplier(threat_model)
        alone = 1 / mechanism.round_multiplier(threat_model)
        return np.where(self.signal > 0, np.sqrt(self.signal**2 + multiplier_both**2 - alone**2), 0.0)

    @cached_property
    def has_exact_final_distribution(self) -> bool:
        """Whether the final log-likelihood ratios of all trials follow the distribution of the claim's worst case.

        They do if the contributions under D and D' differ by as much as the claim allows, in every trial and round.
        With noise scaled to the local sensitivity, the lower limit of the noise must never have been applied. With
        noise scaled to the global sensitivity, the differing record's gradient must have been clipped in every round.
        False without a claim or an insider, and with adaptive clipping.
        """
        mechanism = self.plan.federation.mechanism
        threat_model = self.plan.federation.threat_model
        # The bits behind an adaptive norm differ in some rounds only, and nothing here says in which.
        if not self.plan.has_guarantee or not self.has_insider or not mechanism.knows_llr or mechanism.is_adaptive:
            return False
        # Of other noise, only a difference in a single coordinate would have the distribution of the worst case.
        if not mechanism.noise.has_gaussian_llr:
            return False
        if not mechanism.is_sampled:
            return bool(np.all(np.linalg.norm(self.signal, axis=1) >= (1 - _ROUNDING) * self.plan.mu))
        largest = self.signal * mechanism.round_multiplier(threat_model) >= 1 - _ROUNDING
        return bool(np.all(largest | (threat_model.sees_participation & (self.signal == 0))))

    @property
    def has_normal_final_distribution(self) -> bool:
        """Whether the final log-likelihood ratios of all trials have the normal distribution of the claim's worst case.

        True if `has_exact_final_distribution` holds and units are not sampled. The distribution is N(mu^2/2, mu^2) in
        trials with D, and N(-mu^2/2, mu^2) in trials with D'.
        """
        return self.has_exact_final_distribution and not self.plan.is_sampled

    @cached_property
    def has_even_rounds(self) -> bool:
        """Whether all rounds contribute equally to a normally distributed final log-likelihood ratio.

        True if `has_normal_final_distribution` holds, and the signal-to-noise ratio of every round and trial is mu /
        sqrt(rounds).
        """
        even = self.plan.mu / math.sqrt(self.plan.federation.rounds)
        return self.has_normal_final_distribution and bool(np.all(np.abs(self.signal - even) <= _ROUNDING * even))

    @cached_property
    def largest_distributions(self) -> dict[int, LogOddsDistribution]:
        """Worst-case distributions of the final log-likelihood ratio of D against D' under the claim, by secret bit.

        They apply if D and D' differ by as much as the claim allows. Key 1 holds the distribution if D was used, key 0
        if D' was used. Empty without a claim or an exact log-likelihood ratio.
        """
        if (guarantee := self.plan.guarantee) is None or not self.plan.federation.mechanism.knows_llr:
            return {}
        truths = {1: TrueHypothesis.PRESENT, 0: TrueHypothesis.ABSENT}
        events = guarantee.claim.events
        adjacency = guarantee.adjacency
        return {bit: log_odds_distribution(events, adjacency, truth, fine=False) for bit, truth in truths.items()}
