"""Interfaces of every kind of audit: `BaseAudit` for a run, `GuaranteeTests` for the tests of its guarantee.

`BaseAudit` has the methods that clients and servers call during a run. Every client imports this module, so it must not
import pandas or the statistical tests of the verdict at run time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from fl_audit.federation.target_membership import MembershipScheme, TargetMembership

if TYPE_CHECKING:
    from fl_audit.array_types import Flags, Floats, Integers
    from fl_audit.audits.canaries.canary_detection_limit import CanaryDetectionLimit
    from fl_audit.federation.federation import Federation
    from fl_audit.federation.finished_run import FinishedRun
    from fl_audit.federation.loaded_federation import LoadedFederation
    from fl_audit.federation.record_tensors import Examples
    from fl_audit.federation.run_plan import RunPlan
    from fl_audit.privacy.guarantee import Guarantee
    from fl_audit.report.report_elements import Section
    from fl_audit.verdict.noise_estimate import NoiseDetectionLimit
    from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit
    from fl_audit.verdict.verdict import VerdictDetails


WITHOUT_INSIDER = "without the insider: accepted is one with [audit] insider = true"


class ReleaseQueryKind(StrEnum):
    """The quantity that an adversary is asked to compute from each release, which depends on the kind of audit."""

    NOTHING = "nothing"
    LOG_ODDS = "log-odds"  # log-odds of D against D', and measurements of the noise
    SCORES = "scores"  # scores for D against D' where no likelihood ratio is known
    TARGETS = "targets"  # log-odds that each target is a member, given the membership of all other targets
    CANDIDATES = "candidates"  # log-odds of each target, with the membership of no target known
    CANARIES = "canaries"  # score of each canary


class ClientRole(StrEnum):
    """The role of a client in a round, which determines what the client contributes."""

    OWNER = "owner"  # contributes its records, which are in every trial
    VICTIM = "victim"  # contributes the differing unit in trials with D, and its replacement in trials with D'
    OWNER_OF_TARGETS = "owner-of-targets"  # contributes those of its targets that are members in the trial
    CANARY = "canary"  # contributes a canary and nothing else


class LossesAndMembership(Protocol):
    """Losses of many trained models on single records, and the membership of targets in their training sets.

    Every array of losses has one row for each trial and one column for each record.
    """

    @property
    def membership(self) -> TargetMembership:
        """The secret of each trial: which targets are in the training set."""

    @property
    def target_of_records(self) -> "Integers":
        """Index of the target to which the record in each column of `differing_losses` belongs, (records,)."""

    @property
    def common_losses(self) -> "Floats":
        """Losses on the records that are in the training set of every trial, shape (trials, common records)."""

    @property
    def differing_losses(self) -> "Floats":
        """Losses on the records of targets, which are in the training set of only some trials.

        Shape (trials, differing records).
        """

    @property
    def replacement_losses(self) -> "Floats":
        """Losses on the records that are only in D', in place of the unit that is only in D; shape (trials, records).

        The array has no columns if the unit is removed in D' and nothing replaces it.
        """


LossesOf = Callable[["Examples | None"], "Floats"]
"""A function from records to losses of shape (trials, records); given None, it returns an array without columns."""


@dataclass(frozen=True)
class GuaranteeTests:
    """The statistical tests of the guarantee in one kind of audit, as functions.

    Before a run, they say whether they support it and what they would detect. After the run, they give a judgement.
    """

    # Raises `InputError` if this audit does not support the federation; only their combination is checked.
    require_supported: Callable[["Federation"], None]
    # Returns the judgement of a finished run's guarantee by statistical tests; None if nothing could be tested.
    judge: Callable[["FinishedRun"], "VerdictDetails | None"]
    # Returns a sentence that says what a verdict of this audit covers and what it does not cover.
    covers: Callable[["RunPlan"], str]
    # Returns a sentence, with a leading space, on why nothing was measured in the run; empty if something was.
    why_not_compared: Callable[["FinishedRun"], str] = lambda run: ""
    # Returns how much too small the noise must be for a planned run to detect it; None if the run has no insider. Its
    # second argument is the number of parameters of the model if the noise is measured at all of them, else None.
    planned_noise: Callable[["RunPlan", int | None], "NoiseDetectionLimit | None"] = lambda plan, parameters: None
    # Returns the smallest weight of the target that a planned run would detect as too large; None if the audit does not
    # test the weight, which is the number of times that a sum contains the target's contribution. The claim allows 1.
    # The test needs insiders who can compute exact log-likelihood ratios.
    planned_signal: Callable[["RunPlan"], "SignalDetectionLimit | None"] = lambda plan: None
    # Returns the limit of detection of a planned run with a number of trials; None without canaries, or if it is not
    # known.
    planned_canaries: Callable[["LoadedFederation", "Guarantee", int], "CanaryDetectionLimit | None"] = (
        lambda federation, guarantee, trials: None
    )


class BaseAudit(ABC):
    """Base class of the kinds of audit: it has a method or an attribute for everything that differs between kinds."""

    own_settings: tuple[str, ...] = ()
    """Names of the settings of [audit] that only this kind accepts."""
    scheme: MembershipScheme = MembershipScheme.BY_COINS
    """The rule that decides which targets are members in a trial."""
    counted: str | None = None
    """Name of the setting that holds the number of targets; None if there is a single target."""
    chooses_pair: bool = False
    """Whether a pair of training sets D and D' is chosen, which differ in one unit."""

    def defaults(self, strategy: object, privacy: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return this kind's default values for [audit] and for [privacy], as two dicts keyed by setting."""
        return {}, {}

    def column_of_candidates(self, attribute: str | int | None) -> str | None:
        """Return the name of the table column whose possible values are the candidates; None if there is none.

        Without a column the candidates are records, users or clients.
        """
        return None

    @property
    @abstractmethod
    def guarantee_tests(self) -> GuaranteeTests:
        """The tests of the guarantee of this kind; clients do not need their module, so it is imported here."""

    def sections(self) -> "tuple[Section[Any], ...]":
        """Return the report sections that only this kind has; clients do not need their modules."""
        return ()

    @abstractmethod
    def query(self, federation: "Federation") -> ReleaseQueryKind:
        """Return the quantity that an adversary is asked to compute from each release of a run of this kind."""

    @abstractmethod
    def role(self, federation: "LoadedFederation", client: int) -> ClientRole:
        """Return the role of a client in every round."""

    @abstractmethod
    def opened_target(self, federation: "LoadedFederation") -> int | None:
        """Return the number of the unit whose participation in each round is revealed after a run.

        None reveals the participation of all targets.
        """

    @abstractmethod
    def member_losses(self, losses: LossesAndMembership) -> "Iterator[tuple[Flags, Floats]]":
        """Yield the losses of models on their own training sets, as pairs of a mask of trials and an array of losses.

        The mask, shape (trials,), selects trials whose training sets have the same size. The array has the shape
        (selected trials, records), one column for each record of the training set. Each trial is in exactly one pair.
        """

    @abstractmethod
    def own_losses(
        self, federation: "LoadedFederation", client: int, membership: TargetMembership, losses: "LossesOf"
    ) -> "list[tuple[Floats, Flags]]":
        """Return the losses on those records of a client that only some trials trained on, as pairs (losses, mask).

        Losses have the shape (trials, records). The mask, shape (trials,), is true for the trials that trained on these
        records.
        """

    @abstractmethod
    def require_evaluable(self, federation: "LoadedFederation", epsilon_star: bool, membership: bool) -> None:
        """Raise `InputError` if the federation has too few records to compute Epsilon* or to attack membership.

        Each set of records whose losses are compared needs at least two records.
        """

    @abstractmethod
    def why_not_recomputed(self, federation: "Federation") -> str:
        """Return why a run's log-likelihood ratios cannot be recomputed from its public facts; empty if they can."""

    @abstractmethod
    def in_question(self, federation: "Federation", chosen: str) -> str:
        """Return a phrase that describes how trials with D differ from trials with D'."""

    def knows_records(self, federation: "Federation") -> bool:
        """Return whether the adversary knows all records, as needed to compute likelihoods or for gradient ascent."""
        return federation.with_insider or federation.ascent > 0

    def opens_secrets(self, federation: "Federation") -> bool:
        """Return whether the challenger's secrets are stored, and disclosed after the run for the verdict's tests."""
        return federation.with_insider and federation.mechanism.adds_noise

    def keeps_outputs(self, federation: "Federation") -> bool:
        """Return whether the outputs of the models on all targets are stored, for attacks after the run."""
        return False

    def shows_part_of_target(self, federation: "Federation") -> bool:
        """Return whether each insider learns the rounds in which its own target is in the sample."""
        return False
