"""The configuration of an app's audit: its claim, and the playing of its trials."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fl_audit.adjacency import Relation, Unit
from fl_audit.audits.black_box.claim import LESSONS, StatedClaim
from fl_audit.errors import InputError, as_path, choice, require, require_number, require_switch
from fl_audit.strategies.black_box.message_tags import AbsentTargetMetrics, Observer, TargetAction, UpdateFormat

if TYPE_CHECKING:  # Clients have this too, a process of theirs for every message: what the server needs waits for it.
    from flwr.serverapp.strategy import Strategy


class Contribution(StrEnum):
    """The contribution of the target's client where it takes part.

    OWN is what it has learned. CRAFTED is an update along a public direction that is far longer than any clipping norm:
    the strongest one where the mechanism clips what leaves the client, and unfair where clients clip by themselves.
    WHOLE is what it has learned, but for whole numbers and switches, which are crafted: nobody clips these by a norm.
    """

    OWN = "own"
    CRAFTED = "crafted"
    WHOLE = "own, with crafted whole numbers"


@dataclass(frozen=True)
class AuditConfig:
    """The configuration of the audit of a Flower app in place; `Audit` plays it.

    Raises
    ------
    InputError
        If a number is out of its range, or an update is crafted where the claim is about records: when it is made,
        since nothing has been trained then.
    """

    claim: StatedClaim  # the claim of the app; its rounds are those of a trial, whatever the app's own training has
    trials: int = 220  # number of trials
    # Parent of the directories of trials, with one for every app, every version of its code and all settings: a run
    # that finds some trials there plays the others.
    directory: Path = Path("fl-audit-trials")
    # The contribution of the target's client. None is OWN; the first trials try it in turn with CRAFTED under Flower's
    # wrappers that clip on the server, else with WHOLE where the model has whole numbers or booleans beside others, and
    # all others play the one that told more.
    contribution: Contribution | None = None
    numbers: AbsentTargetMetrics = AbsentTargetMetrics.KEPT  # whether the claim covers the numbers that clients report
    replies: UpdateFormat = UpdateFormat.MODELS  # meaning of the arrays in replies
    # The observer: another client, who sees releases, or the server, who sees the reply of the target's client.
    observer: Observer = Observer.CLIENT
    # Whether the claim covers an observer who knows what all others sent, whoever adds the noise. If not, more trials
    # with the others held still decide that where it is certain that the server alone adds noise. Where clients add
    # shares of it, such a one knows all shares but one: no claim about the whole noise covers that.
    knows_others: bool = False
    target: int = 0  # the partition of the target's client
    length: float = 1000.0  # length of a crafted update, above 0
    trials_per_run: int | None = None  # most trials that one run of the app plays; None for all
    confidence: float = 0.95  # probability with which a claim that holds is not called violated, above 0.5 and below 1
    seed: int | None = None  # of the trials; None draws a secret one

    def __post_init__(self) -> None:
        require_number("trials are", self.trials, f"whole numbers from {LESSONS + 1}")
        require_number("confidence is", self.confidence, "numbers above 0.5, below 1")
        require_number("length is", self.length, "numbers above 0 and below 1000000000")
        # The app's strategy decides which contributions are tried: here nothing of it has been trained yet.
        is_one = self.contribution is not None or self.is_about_records
        turns = f"since the first {2 * LESSONS} may try two contributions in turn; or from {LESSONS + 1} with"
        wrong = (
            f"trials are {self.trials}: accepted are whole numbers from {2 * LESSONS + 1}, {turns} contribution='own'"
        )
        require(is_one or self.trials > 2 * LESSONS, wrong)
        if self.trials_per_run is not None:
            require_number("trials_per_run is", self.trials_per_run, "whole numbers from 1, or None")
        require_number("target is", self.target, "whole numbers from 0")
        require_switch("knows_others", self.knows_others)
        for name, kinds in (("numbers", AbsentTargetMetrics), ("replies", UpdateFormat), ("observer", Observer)):
            object.__setattr__(self, name, choice(kinds, name, getattr(self, name)))
        if self.contribution is not None:
            object.__setattr__(self, "contribution", choice(Contribution, "contribution", self.contribution))
        object.__setattr__(self, "directory", as_path("directory", self.directory))
        crafted = self.is_about_records and self.contribution not in (None, Contribution.OWN)
        require(not crafted, f"contribution is {self.contribution}, and the claim is about records: accepted is own")

    @property
    def is_about_records(self) -> bool:
        """Whether the claim is about records, or about users of one record each, and not about clients."""
        return self.claim.neighbours.unit is not Unit.CLIENT

    def require_records(self, records: int | None, fault: str = "") -> None:
        """Refuse a shard without a neighbour of the claim's kind.

        Parameters
        ----------
        records
            Number of records in the shard; None if the app did not ask for records.
        fault
            Reason why the object from the app is no data set; empty if it is one.

        Raises
        ------
        InputError
            If the shard has no such neighbour.
        """
        if fault:
            raise InputError(f"the claim is about records, and {fault}")
        if records is None:
            raise InputError(
                "the claim is about records, and the client app did not ask which it holds: accepted is an app that "
                "calls held(records) where it loads them"
            )
        least = 2 if self.claim.neighbours.relation is Relation.REPLACE else 1
        require(
            records >= least,
            f"the client of partition {self.target} holds {records} record{'s' * (records != 1)}: accepted for "
            f"{self.claim.adjacency} is one with {least} at least, of which one is "
            f"{'replaced by another' if least == 2 else 'left out'}; target names another client",
        )

    def contributions(self, strategy: "Strategy", model: Mapping[str, NDArray[np.generic]]) -> tuple[Contribution, ...]:
        """Return the possible contributions of the target's client under the app's strategy, for the first trials.

        Parameters
        ----------
        strategy
            The strategy of the app.
        model
            The model of the app.
        """
        if self.contribution is not None:
            return (self.contribution,)
        if self.is_about_records:
            return (Contribution.OWN,)
        # Elsewhere the app's clients may clip by themselves: a crafted update of others would be no fair one.
        if is_private_on_the_server(strategy):
            return (Contribution.CRAFTED, Contribution.OWN)
        kinds = {value.dtype.kind for value in model.values()}
        # A model of whole numbers alone is bytes of trees, say, and no vector.
        return (Contribution.OWN, Contribution.WHOLE) if "f" in kinds and kinds & set("iub") else (Contribution.OWN,)

    def action(self, present: bool, contribution: Contribution) -> TargetAction:
        """Return the action of the target's client under D or D'.

        Parameters
        ----------
        present
            Whether the trial uses D, instead of D'.
        contribution
            Contribution of the client in trials with D.
        """
        with_it, opposite = _ACTIONS[contribution]
        is_replaced = self.claim.neighbours.relation is Relation.REPLACE
        if present:
            return with_it
        if self.is_about_records:
            return TargetAction.OTHER_RECORD if is_replaced else TargetAction.WITHOUT_RECORD
        return opposite if is_replaced else TargetAction.ALMOST_NOTHING


def is_private_on_the_server(strategy: "Strategy") -> bool:
    """Return whether a strategy has one of Flower's wrappers that clip and add noise on the server."""
    # Clients import this module, and never the strategies of the server.
    from fl_audit.strategies.black_box.server_side_clipping import clips_and_adds_noise

    return clips_and_adds_noise(strategy)


_ACTIONS = {
    Contribution.OWN: (TargetAction.OWN, TargetAction.OWN_OPPOSITE),
    Contribution.CRAFTED: (TargetAction.CRAFTED, TargetAction.CRAFTED_OPPOSITE),
    Contribution.WHOLE: (TargetAction.OWN_WHOLE, TargetAction.OWN_WHOLE_OPPOSITE),
}
"""Actions of the target's client where it takes part, and their opposites."""
