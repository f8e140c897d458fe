"""The protocol of a kind of audit: every kind implements it, so that no caller has to ask which kind it is.

`AuditKind` is what clients and servers call while an audit is played: it is imported by every client, so that its
modules import neither tables nor the tests of the verdict. `AuditJudging` is what is called before and after.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from fl_audit.federation.target_membership import MembershipScheme, TargetMembership

if TYPE_CHECKING:
    from fl_audit.array_types import Flags, Floats, Integers
    from fl_audit.federation.federation import Federation
    from fl_audit.federation.finished_run import FinishedRun, RunFacts
    from fl_audit.federation.loaded_federation import LoadedFederation
    from fl_audit.federation.record_tensors import Examples
    from fl_audit.privacy.guarantee import Guarantee
    from fl_audit.verdict.noise_estimate import PlannedLimits
    from fl_audit.verdict.signal_limit import SignalLimit
    from fl_audit.verdict.verdict import Judgement


WITHOUT_INSIDER = "without the insider: accepted is one with [audit] insider = true"


class ReleaseQuery(StrEnum):
    """The question that insiders or an observer answer about every release."""

    NOTHING = "nothing"
    LOG_ODDS = "log-odds"  # log-odds of D against D', and what is measured of the noise
    SCORES = "scores"  # the same where no likelihood ratio is known
    TARGETS = "targets"  # log-odds of every target, with the coins of all others known
    CANDIDATES = "candidates"  # log-odds of every target, with none of their coins known
    CANARIES = "canaries"  # scores of every canary


class ClientRole(StrEnum):
    """The role of a client in a round, by the records or the canary that it contributes."""

    OWNER = "owner"  # with the records that are in every trial
    VICTIM = "victim"  # with the differing unit where it is in, with its stand-in elsewhere
    OWNER_OF_TARGETS = "owner-of-targets"  # with those of its targets that are in
    CANARY = "canary"  # with a canary and nothing else


class MemberLosses(Protocol):
    """The losses of the models of a trial batch, and the membership of its targets."""

    @property
    def membership(self) -> TargetMembership:
        """The membership of the targets."""

    @property
    def target_of_records(self) -> "Integers":
        """The target that each of the differing records belongs to."""

    @property
    def common_losses(self) -> "Floats":
        """Losses on the records that every trial has."""

    @property
    def differing_losses(self) -> "Floats":
        """Losses on the records in which D and D' differ."""

    @property
    def replacement_losses(self) -> "Floats":
        """Losses on the replacement of the differing unit; of no record where nothing replaces it."""


LossesOf = Callable[["Examples | None"], "Floats"]
"""A function that returns the losses (trials, records) on records; without records it returns no columns."""


@dataclass(frozen=True)
class ClaimedRun:
    """A planned run with a claim."""

    public: "Federation"
    guarantee: "Guarantee"  # the claim
    trials: int


class AuditJudging(Protocol):
    """The planning of a kind of audit before a run, and its judgement afterwards."""

    def judge(self, run: "FinishedRun") -> "Judgement | None":
        """Return the judgement of the guarantee by the tests of a finished run; None where there was nothing to judge.

        Parameters
        ----------
        run
            A finished run of this kind, with a guarantee.
        """

    def covers(self, facts: "RunFacts") -> str:
        """Return a sentence on the coverage of a verdict of this audit and its limits."""

    def not_compared(self, run: "FinishedRun") -> str:
        """Return why nothing was compared, in a sentence that begins with a space; empty where everything was."""
        return ""

    def require_playable(self, public: "Federation") -> None:
        """Refuse a federation that this audit does not support.

        Raises `InputError` with the accepted values if the federation is not supported.

        Parameters
        ----------
        public
            The federation, each part of which is what it can be.
        """

    def planned_noise(self, planned: ClaimedRun, parameters: int | None) -> "PlannedLimits | None":
        """Return the missing noise that a run would find; None where no insider measures it.

        Parameters
        ----------
        planned
            The run that is planned.
        parameters
            Number of parameters of the model; None where the noise in all of them cannot be measured.
        """

    def planned_signal(self, planned: ClaimedRun) -> "SignalLimit | None":
        """Return the limit of detection for a target that counts more than once; None without an exact LLR."""


class AuditKind(ABC):
    """One kind of audit, with everything by which it differs from the others."""

    sections_at: tuple[str, ...] = ()
    """The kind's own sections of the report, each `module:name`, besides those that several kinds share."""

    own_settings: tuple[str, ...] = ()
    """Settings of [audit] that other kinds refuse."""
    scheme: MembershipScheme = MembershipScheme.BY_COINS
    """The rule by which targets are members in a trial."""
    counted: str | None = None
    """The setting that holds the number of targets; None where the pair has a single one."""
    chooses_pair: bool = False
    """Whether the differing unit is chosen, and with it a pair of training sets."""

    def defaults(self, strategy: object, privacy: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the defaults of [audit] and [privacy] for settings that a configuration leaves out.

        Parameters
        ----------
        strategy
            The configured strategy.
        privacy
            The settings of the section [privacy] that are known so far.
        """
        return {}, {}

    def column_of_candidates(self, attribute: str | int | None) -> str | None:
        """Return the column whose values are the targets; None where targets are units.

        Parameters
        ----------
        attribute
            The setting `attribute`.
        """
        return None

    judged_by: str
    """Location of planning and judging of this kind, `module:class`: clients import every kind and need neither."""

    @property
    def judging(self) -> AuditJudging:
        """Planning and judging of this kind, imported at first use."""
        module, _, name = self.judged_by.partition(":")
        found: AuditJudging = getattr(import_module(module), name)()
        return found

    @abstractmethod
    def query(self, public: "Federation") -> ReleaseQuery:
        """Return the question about every release."""

    @abstractmethod
    def role(self, federation: "LoadedFederation", client: int) -> ClientRole:
        """Return the role of a client in a round.

        Parameters
        ----------
        federation
            The federation.
        client
            Number of the client.
        """

    @abstractmethod
    def opened_target(self, federation: "LoadedFederation") -> int | None:
        """Return the unit whose participation in secret samples is opened after a run; None with many targets."""

    @abstractmethod
    def members(self, losses: MemberLosses) -> "Iterator[tuple[Flags, Floats]]":
        """Yield sets of trials (trials,) with their losses on the members of the data sets that they used.

        Parameters
        ----------
        losses
            The losses of all trials of a batch on what some or all of them used.
        """

    @abstractmethod
    def own_losses(
        self, federation: "LoadedFederation", client: int, membership: TargetMembership, losses: "LossesOf"
    ) -> "list[tuple[Floats, Flags]]":
        """Return losses (trials, records) on a client's records in some trials, with masks of the trials (trials,).

        Parameters
        ----------
        federation
            The federation.
        client
            Number of the client.
        membership
            Membership of the client's own targets.
        losses
            Function that returns the losses on given records.
        """

    @abstractmethod
    def require_evaluable(self, federation: "LoadedFederation", epsilon_star: bool, membership: bool) -> None:
        """Refuse before the run an Epsilon* or loss threshold attack that could not be computed.

        Raises `InputError` if there are fewer than two records.

        Parameters
        ----------
        federation
            The federation.
        epsilon_star
            Whether Epsilon* of the federation's models is to be computed.
        membership
            Whether the federation's models are to be attacked for membership.
        """

    @abstractmethod
    def not_weighed_again(self, public: "Federation") -> str:
        """Return why log-likelihood ratios cannot be recomputed from the public part of a run; empty where they can.

        Parameters
        ----------
        public
            The public federation.
        """

    @abstractmethod
    def in_question(self, public: "Federation", chosen: str) -> str:
        """Return in words the difference between the trials.

        Parameters
        ----------
        public
            The public facts of the federation.
        chosen
            Way in which the neighbour was chosen, as the configuration names it.
        """

    def knows_records(self, public: "Federation") -> bool:
        """Return whether the insiders know all records, so that they can compute likelihoods or raise losses."""
        return public.with_insider or public.ascent > 0

    def opens_secrets(self, public: "Federation") -> bool:
        """Return whether the challenger's secrets are kept, and opened after the run for the tests of the verdict."""
        return public.with_insider and public.mechanism.adds_noise

    def keeps_outputs(self, public: "Federation") -> bool:
        """Return whether the models' answers to all targets are kept, for attacks after the run."""
        return False

    def shows_part_of_target(self, public: "Federation") -> bool:
        """Return True if insiders see in which samples the target of the pair takes part, else False."""
        return False
