"""The configuration of an audit inside an app's own code: the claim, and the number and kind of trials."""

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

if TYPE_CHECKING:  # Clients import this module in a new process for every message, so server modules are imported late.
    from flwr.serverapp.strategy import Strategy


class Contribution(StrEnum):
    """The contribution of the target's client under D.

    OWN is its learned update. CRAFTED is an update along a public direction, far longer than any clipping norm. It is
    the strongest attack if the mechanism clips the updates that leave clients, but not a fair one if clients clip in
    their own code. WHOLE is the learned update with crafted values of integer and boolean tensors, which are usually
    not clipped.
    """

    OWN = "own"
    CRAFTED = "crafted"
    WHOLE = "own, with crafted whole numbers"


@dataclass(frozen=True)
class AuditConfig:
    """The configuration of an audit inside a Flower app's own code; `Audit` executes it.

    Raises
    ------
    InputError
        If a number is out of its range, or a crafted update is combined with a claim about records. The error is raised
        at construction, before the app trains.
    """

    claim: StatedClaim  # the claim of the app for a trial, with the number of rounds of a trial
    trials: int = 220  # number of trials
    # Parent of the directories of trials, one for every app, version of its code and settings. A run of the app
    # continues with the trials that are missing there.
    directory: Path = Path("fl-audit-trials")
    # The contribution of the target's client. With None the first trials alternate between OWN and another one: CRAFTED
    # under Flower's wrappers that clip on the server, else WHOLE if the model has integers or booleans besides floats.
    # All later trials use the one that separated D from D' better. Without another one, all use OWN.
    contribution: Contribution | None = None
    numbers: AbsentTargetMetrics = AbsentTargetMetrics.KEPT  # whether the claim covers the metrics that clients report
    replies: UpdateFormat = UpdateFormat.MODELS  # meaning of the arrays in replies
    # The observer: another client, who sees releases, or the server, who sees the reply of the target's client.
    observer: Observer = Observer.CLIENT
    # Whether the claim covers an observer who knows the replies of all other clients, whoever adds the noise. If False,
    # such an observer is considered only if it is certain that the server alone adds noise. If clients add shares of
    # the noise, this observer knows all shares but one, which no claim about the whole noise covers.
    knows_others: bool = False
    target: int = 0  # the partition of the target's client
    length: float = 1000.0  # L2 norm of a crafted update, above 0
    trials_per_run: int | None = None  # largest number of trials in one run of the app; None for all
    confidence: float = 0.95  # probability with which a claim that holds is not called violated, above 0.5 and below 1
    seed: int | None = None  # seed of the trials; None draws a secret one

    def __post_init__(self) -> None:
        require_number("trials are", self.trials, f"whole numbers from {LESSONS + 1}")
        require_number("confidence is", self.confidence, "numbers above 0.5, below 1")
        require_number("length is", self.length, "numbers above 0 and below 1000000000")
        # The strategy, which decides whether two contributions are tried, is not known yet.
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
        """Whether the unit of the claim is the record, or a user of one record, instead of the client."""
        return self.claim.neighbours.unit is not Unit.CLIENT

    def require_records(self, records: int | None, fault: str = "") -> None:
        """Raise `InputError` if the shard of the target's client has too few records for a neighbour of the claim.

        Parameters
        ----------
        records
            Number of records in the shard; None if the app did not call `held`.
        fault
            Reason why the object that the app passed to `held` is no data set; empty if it is one.

        Raises
        ------
        InputError
            If `fault` is not empty, the number of records is unknown, or there are too few.
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
        """Return the contributions between which the first trials alternate, given the app's strategy and model.

        Parameters
        ----------
        strategy
            The strategy of the app.
        model
            The tensors of the app's model, by name.
        """
        if self.contribution is not None:
            return (self.contribution,)
        if self.is_about_records:
            return (Contribution.OWN,)
        # Otherwise the clients' own code may clip, and then a crafted update could not occur.
        if is_private_on_the_server(strategy):
            return (Contribution.CRAFTED, Contribution.OWN)
        kinds = {value.dtype.kind for value in model.values()}
        # A model of integers alone is not a vector but, for example, the bytes of a tree model.
        return (Contribution.OWN, Contribution.WHOLE) if "f" in kinds and kinds & set("iub") else (Contribution.OWN,)

    def action(self, present: bool, contribution: Contribution) -> TargetAction:
        """Return the action of the target's client under D or D'.

        Parameters
        ----------
        present
            Whether the trial uses D, instead of D'.
        contribution
            Contribution of the client under D.
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
    # Imported here because clients import this module, and do not need Flower's strategies.
    from fl_audit.strategies.black_box.server_side_clipping import clips_and_adds_noise

    return clips_and_adds_noise(strategy)


_ACTIONS = {
    Contribution.OWN: (TargetAction.OWN, TargetAction.OWN_OPPOSITE),
    Contribution.CRAFTED: (TargetAction.CRAFTED, TargetAction.CRAFTED_OPPOSITE),
    Contribution.WHOLE: (TargetAction.OWN_WHOLE, TargetAction.OWN_WHOLE_OPPOSITE),
}
"""Action of the target's client under D for each contribution, and the opposite action."""
