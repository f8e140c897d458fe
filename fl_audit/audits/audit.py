"""The protocol of a kind of audit: what each of them answers for itself, so that nobody has to ask which one it is.

`AuditKind` is what clients and servers call while an audit is played: it is imported by every client, so that its
modules import neither tables nor the tests of the verdict. `AuditJudging` is what is called before and after.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from fl_audit.federation.membership import Membership, MembershipScheme

if TYPE_CHECKING:
    from fl_audit.arrays import Flags, Floats, Integers
    from fl_audit.federation.examples import Examples
    from fl_audit.federation.federation import Federation
    from fl_audit.federation.finished_run import FinishedRun, RunFacts
    from fl_audit.federation.loaded_federation import LoadedFederation
    from fl_audit.privacy.guarantee import Guarantee
    from fl_audit.verdict.noise_estimate import PlannedLimits
    from fl_audit.verdict.signal_limit import SignalLimit
    from fl_audit.verdict.verdict import Judgement


WITHOUT_INSIDER = "without the insider: accepted is one with [audit] insider = true"


class ReleaseQuery(StrEnum):
    """What is asked about every release, of the insiders or of an observer."""

    NOTHING = "nothing"
    LOG_ODDS = "log-odds"  # log-odds of D against D', and what is measured of the noise
    SCORES = "scores"  # the same where no likelihood ratio is known
    TARGETS = "targets"  # log-odds of every target, with the coins of all others known
    CANDIDATES = "candidates"  # log-odds of every target, with none of their coins known
    CANARIES = "canaries"  # scores of every canary


class ClientRole(StrEnum):
    """How a client contributes to a round."""

    OWNER = "owner"  # with the records that are in every trial
    VICTIM = "victim"  # with the differing unit where it is in, with its stand-in elsewhere
    OWNER_OF_TARGETS = "owner-of-targets"  # with those of its targets that are in
    CANARY = "canary"  # with a canary and nothing else


class MemberLosses(Protocol):
    """Losses of the models of a batch, and who was in."""

    @property
    def membership(self) -> Membership:
        """Which targets were in."""

    @property
    def target_of_records(self) -> "Integers":
        """Which target each of the records in question belongs to."""

    @property
    def common_losses(self) -> "Floats":
        """Losses on what is in every trial."""

    @property
    def differing_losses(self) -> "Floats":
        """Losses on the records in question."""

    @property
    def replacement_losses(self) -> "Floats":
        """Losses on what stands in the place of the differing unit; of no record where nothing does."""


LossesOf = Callable[["Examples | None"], "Floats"]
"""Gives the losses (trials, records) on records; of none, no columns."""


@dataclass(frozen=True)
class ClaimedRun:
    """A run that claims something, before it is played."""

    public: "Federation"
    guarantee: "Guarantee"  # what is claimed
    trials: int


class AuditJudging(Protocol):
    """What a kind of audit says of a run before it is played, and what it finds in it afterwards."""

    def judge(self, run: "FinishedRun") -> "Judgement | None":
        """Return what the tests of a finished run say of its guarantee; None where there was nothing to judge.

        Parameters
        ----------
        run
            A finished run of this kind, with a guarantee.
        """

    def covers(self, facts: "RunFacts") -> str:
        """Return in a sentence what a verdict of this audit covers, and what not."""

    def not_compared(self, run: "FinishedRun") -> str:
        """Return why nothing was compared, in a sentence that begins with a space; empty where all was."""

    def require_playable(self, public: "Federation") -> None:
        """Refuse a federation that this audit cannot be played with.

        Raises `InputError` if there is such a thing, with what is accepted.

        Parameters
        ----------
        public
            The federation, each part of which is what it can be.
        """

    def planned_noise(self, planned: ClaimedRun, parameters: int | None) -> "PlannedLimits | None":
        """Return which missing noise a run would find; None where no insider measures it.

        Parameters
        ----------
        planned, parameters
            The run, and how many parameters its model has, where the noise in all of them could be measured.
        """

    def planned_signal(self, planned: ClaimedRun) -> "SignalLimit | None":
        """Return how often a target could count unseen; None where no insider weighs it exactly."""


class AuditKind(ABC):
    """One kind of audit."""

    sections_at: tuple[str, ...] = ()
    """Its own sections of the report, each `module:name`, beside those that runs of several kinds have."""

    own_settings: tuple[str, ...] = ()
    """Settings of [audit] that are refused with other kinds."""
    scheme: MembershipScheme = MembershipScheme.BY_COINS
    """Which targets are in a trial."""
    counted: str | None = None
    """The setting that says how many targets there are; None where there is one, that of the pair."""
    chooses_pair: bool = False
    """Whether the differing unit is chosen, and with it a pair of training sets."""

    def defaults(self, strategy: object, privacy: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what [audit] and [privacy] have where a configuration leaves it out.

        Parameters
        ----------
        strategy, privacy
            The strategy that is configured, and the section [privacy] as far as it is known.
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
    """Where planning and judging of this kind are, `module:class`: clients, which import every kind, need neither."""

    @property
    def judging(self) -> AuditJudging:
        """Planning and judging of this kind, which are imported when they are first asked for."""
        module, _, name = self.judged_by.partition(":")
        found: AuditJudging = getattr(import_module(module), name)()
        return found

    @abstractmethod
    def query(self, public: "Federation") -> ReleaseQuery:
        """Return what is asked about every release."""

    @abstractmethod
    def role(self, federation: "LoadedFederation", client: int) -> ClientRole:
        """Return how a client contributes to a round.

        Parameters
        ----------
        federation, client
            The federation, and the number of the client.
        """

    @abstractmethod
    def opened_target(self, federation: "LoadedFederation") -> int | None:
        """Return the unit whose part in secret samples is opened after a run; None of many targets."""

    @abstractmethod
    def members(self, losses: MemberLosses) -> "Iterator[tuple[Flags, Floats]]":
        """Yield trials (trials,), and their losses on the members of the data sets that they used.

        Parameters
        ----------
        losses
            The losses of all trials of a batch on what some or all of them used.
        """

    @abstractmethod
    def own_losses(
        self, federation: "LoadedFederation", client: int, membership: Membership, losses: "LossesOf"
    ) -> "list[tuple[Floats, Flags]]":
        """Return losses (trials, records) on what a client holds in some trials, each with in which (trials,).

        Parameters
        ----------
        federation, client, membership, losses
            The federation, the client, which of its own targets are in, and what gives the losses on records.
        """

    @abstractmethod
    def require_evaluable(self, federation: "LoadedFederation", epsilon_star: bool, membership: bool) -> None:
        """Refuse before the run what Epsilon* or the loss threshold attack could not be computed from.

        Raises `InputError` if there are fewer than two records.

        Parameters
        ----------
        federation, epsilon_star, membership
            The federation, whether Epsilon* of its models is computed, and whether they are attacked for membership.
        """

    @abstractmethod
    def not_weighed_again(self, public: "Federation") -> str:
        """Return why nobody who has the public part of a run can weigh its releases again; empty where anybody can.

        Parameters
        ----------
        public
            The public federation.
        """

    @abstractmethod
    def in_question(self, public: "Federation", chosen: str) -> str:
        """Return in words what the trials differ in.

        Parameters
        ----------
        public, chosen
            The public federation, and how the neighbour was chosen, as the configuration names it.
        """

    def knows_records(self, public: "Federation") -> bool:
        """Return whether the insiders know all records, so that they can weigh them or push their losses up."""
        return public.with_insider or public.ascent > 0

    def opens_secrets(self, public: "Federation") -> bool:
        """Return whether the challenger's secrets are kept, and opened after the run for the tests of the verdict."""
        return public.with_insider and public.mechanism.adds_noise

    def keeps_outputs(self, public: "Federation") -> bool:
        """Return whether the models' answers to all targets are kept, for attacks after the run."""
        return False

    def shows_part_of_target(self, public: "Federation") -> bool:
        """Return whether the samples that insiders are shown name the target of the pair too."""
        return False
