"""The interface of a kind of audit, which every kind implements, so that no caller has to ask which kind it is.

`AuditKind` has the methods that clients and servers call during a run. Every client imports it, so its modules must not
import pandas or the tests of the verdict. `AuditJudging` has the methods that are called before and after a run.
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
    from fl_audit.verdict.noise_estimate import PlannedDetectionLimits
    from fl_audit.verdict.signal_detection_limit import SignalDetectionLimit
    from fl_audit.verdict.verdict import Judgement


WITHOUT_INSIDER = "without the insider: accepted is one with [audit] insider = true"


class ReleaseQuery(StrEnum):
    """The quantity that insiders or the observer compute from every release."""

    NOTHING = "nothing"
    LOG_ODDS = "log-odds"  # log-odds of D against D', and what is measured of the noise
    SCORES = "scores"  # the same where no likelihood ratio is known
    TARGETS = "targets"  # log-odds of every target, with the coins of all others known
    CANDIDATES = "candidates"  # log-odds of every target, with none of their coins known
    CANARIES = "canaries"  # scores of every canary


class ClientRole(StrEnum):
    """The role of a client in a round, which determines the records or the canary that it contributes."""

    OWNER = "owner"  # with the records that are in every trial
    VICTIM = "victim"  # with the differing unit where it is in, with its stand-in elsewhere
    OWNER_OF_TARGETS = "owner-of-targets"  # with those of its targets that are in
    CANARY = "canary"  # with a canary and nothing else


class MemberLosses(Protocol):
    """The losses of the models of a batch of trials, and the membership of the targets in these trials."""

    @property
    def membership(self) -> TargetMembership:
        """The membership of the targets in each trial."""

    @property
    def target_of_records(self) -> "Integers":
        """The target to which each of the differing records belongs."""

    @property
    def common_losses(self) -> "Floats":
        """Losses on the records that are in the training set of every trial."""

    @property
    def differing_losses(self) -> "Floats":
        """Losses on the records in which D and D' differ."""

    @property
    def replacement_losses(self) -> "Floats":
        """Losses on the records that replace the differing unit; without columns if it is removed instead."""


LossesOf = Callable[["Examples | None"], "Floats"]
"""A function that returns the losses (trials, records) on records; without records it returns no columns."""


@dataclass(frozen=True)
class ClaimedRun:
    """A planned run that claims a guarantee."""

    public: "Federation"
    guarantee: "Guarantee"  # the claim
    trials: int


class AuditJudging(Protocol):
    """The part of a kind of audit that plans a run beforehand and judges its guarantee afterwards."""

    def judge(self, run: "FinishedRun") -> "Judgement | None":
        """Return the judgement of the guarantee by the tests of a finished run, or None if nothing could be tested.

        Parameters
        ----------
        run
            A finished run of this kind, with a guarantee.
        """

    def covers(self, facts: "RunFacts") -> str:
        """Return a sentence on what a verdict of this audit covers and what it does not."""

    def not_compared(self, run: "FinishedRun") -> str:
        """Return why nothing was compared, in a sentence that begins with a space; empty where everything was."""
        return ""

    def require_playable(self, public: "Federation") -> None:
        """Raise `InputError`, which names the accepted values, if this audit does not support the federation.

        Parameters
        ----------
        public
            The public facts of the federation. They are valid by themselves, and only their combination with this audit
            is checked.
        """

    def planned_noise(self, planned: ClaimedRun, parameters: int | None) -> "PlannedDetectionLimits | None":
        """Return the limit of detection for missing noise in a planned run; None if no insider measures the noise.

        Parameters
        ----------
        planned
            The run that is planned.
        parameters
            Number of parameters of the model; None if the noise cannot be measured in all of them.
        """

    def planned_signal(self, planned: ClaimedRun) -> "SignalDetectionLimit | None":
        """Return the limit of detection for a target that counts more than once; None if insiders have no exact LLR."""


class AuditKind(ABC):
    """Base class of the kinds of audit, with everything that differs between kinds."""

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
        """Return the defaults of this kind for settings of [audit] and [privacy] that a configuration does not set.

        Parameters
        ----------
        strategy
            The configured strategy.
        privacy
            The settings of [privacy] that are known so far.
        """
        return {}, {}

    def column_of_candidates(self, attribute: str | int | None) -> str | None:
        """Return the column whose possible values are the targets; None if the targets are units.

        Parameters
        ----------
        attribute
            The setting `attribute` of [audit].
        """
        return None

    judged_by: str
    """Location of planning and judging of this kind, `module:class`: clients import every kind and need neither."""

    @property
    def judging(self) -> AuditJudging:
        """The planning and judging of this kind; its module is imported at the first use."""
        module, _, name = self.judged_by.partition(":")
        found: AuditJudging = getattr(import_module(module), name)()
        return found

    @abstractmethod
    def query(self, public: "Federation") -> ReleaseQuery:
        """Return the quantity that insiders or the observer compute from every release."""

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
        """Return the unit whose secret sampling is disclosed after a run; None if there are many targets."""

    @abstractmethod
    def members(self, losses: MemberLosses) -> "Iterator[tuple[Flags, Floats]]":
        """Yield pairs of a mask of trials, (trials,), and the losses of each of these trials on its own training set.

        There is one pair for each size of the training set, so that the losses of a pair form an array.

        Parameters
        ----------
        losses
            The losses of all trials of a batch of trials on the records that some or all of them used.
        """

    @abstractmethod
    def own_losses(
        self, federation: "LoadedFederation", client: int, membership: TargetMembership, losses: "LossesOf"
    ) -> "list[tuple[Floats, Flags]]":
        """Return losses (trials, records) on a client's own records, with masks of the trials that trained on them.

        Each mask has shape (trials,).

        Parameters
        ----------
        federation
            The federation.
        client
            Number of the client.
        membership
            Membership of this client's targets.
        losses
            Function that returns the losses on given records.
        """

    @abstractmethod
    def require_evaluable(self, federation: "LoadedFederation", epsilon_star: bool, membership: bool) -> None:
        """Raise `InputError` before the run if there are too few records for Epsilon* or the loss threshold attack.

        Two records are needed of each set whose losses are compared.

        Parameters
        ----------
        federation
            The federation.
        epsilon_star
            Whether Epsilon* of the federation's models is to be computed.
        membership
            Whether membership attacks on the federation's models are to be evaluated.
        """

    @abstractmethod
    def not_weighed_again(self, public: "Federation") -> str:
        """Return the reason why the LLRs cannot be recomputed from the public part of a run; empty if they can.

        Parameters
        ----------
        public
            The public facts of the federation.
        """

    @abstractmethod
    def in_question(self, public: "Federation", chosen: str) -> str:
        """Return a description of the difference between the trials with D and with D'.

        Parameters
        ----------
        public
            The public facts of the federation.
        chosen
            The rule by which the neighbour was chosen, as named in the configuration.
        """

    def knows_records(self, public: "Federation") -> bool:
        """Return whether the insiders know all records, so that they can compute likelihoods or raise losses."""
        return public.with_insider or public.ascent > 0

    def opens_secrets(self, public: "Federation") -> bool:
        """Return whether the challenger's secrets are kept, and opened after the run for the tests of the verdict."""
        return public.with_insider and public.mechanism.adds_noise

    def keeps_outputs(self, public: "Federation") -> bool:
        """Return whether the models' outputs on all targets are stored, for attacks after the run."""
        return False

    def shows_part_of_target(self, public: "Federation") -> bool:
        """Return whether insiders learn in which samples their own target takes part."""
        return False
