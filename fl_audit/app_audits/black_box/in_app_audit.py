"""`Audit`, the audit of a Flower app within its own code: its settings, and its hooks in the app."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.clientapp.typing import Mod
from numpy.typing import NDArray

from fl_audit.adjacency import Relation, Unit
from fl_audit.app_audits.black_box.target_mod import held, insider
from fl_audit.app_audits.black_box.trial_messages import AbsentTargetMetrics, Observer, TargetAction, UpdateFormat
from fl_audit.app_audits.claim_audit.claim import LESSONS, StatedClaim
from fl_audit.errors import InputError, require
from fl_audit.value_checks import as_directory, choice, require_number, require_switch
from fl_audit.words import name_list

if TYPE_CHECKING:  # Clients import this module in a new process for every message, so server modules are imported late.
    from flwr.server.strategy import Strategy as OldStrategy
    from flwr.serverapp.strategy import Strategy

    from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit

UPDATE_KINDS = (TargetAction.OWN, TargetAction.CRAFTED, TargetAction.OWN_WHOLE)
"""The updates that the target's client may send in a trial with the target (under D).

OWN is the update that the client learned. CRAFTED is a fixed public update, much longer than any clipping norm. It is
the strongest attack if updates are clipped after they leave the client. It is unfair if clients clip in their own
training code, because a crafted update bypasses this clipping. OWN_WHOLE is the learned update with crafted values in
its integer and boolean tensors, which are usually not clipped.
"""
_OPPOSITES = {
    TargetAction.OWN: TargetAction.OWN_OPPOSITE,
    TargetAction.CRAFTED: TargetAction.CRAFTED_OPPOSITE,
    TargetAction.OWN_WHOLE: TargetAction.OWN_WHOLE_OPPOSITE,
}


@dataclass(frozen=True)
class Audit:
    """The audit of a Flower app from within its own code: it wraps strategy and clients, runs trials and tests a claim.

    A trial is a short run of the same app, either with the target (D) or without it (D'). The target is a client or a
    record.

    Raises
    ------
    InputError
        If a setting is out of its range, or a crafted (fixed public) update is combined with a claim about records.

    Examples
    --------
    In a Flower app::

        audit = Audit(StatedClaim("add-remove-client", epsilon=4.0, delta=1e-5), trials=220)
        strategy = audit.watch(strategy)
        app = ClientApp(mods=[audit.insider()])
    """

    claim: StatedClaim  # the privacy claim to test, for a run of as many rounds as one trial has
    trials: int = 220  # number of trials
    # Folder in which trials are stored, in one subfolder for each app, version of its code and settings. The next run
    # of the app continues with the trials that are still missing.
    directory: Path = Path("fl-audit-trials")
    # The update that the target's client sends under D. With None, the first trials alternate between OWN and a second
    # kind: CRAFTED if a Flower wrapper clips on the server, or else OWN_WHOLE if the model has integers or booleans
    # besides floats. All later trials use the kind that told D from D' better. If neither second kind applies, all use
    # OWN.
    contribution: TargetAction | None = None
    # Metrics of the target's client if it contributes nothing.
    numbers: AbsentTargetMetrics = AbsentTargetMetrics.KEPT
    replies: UpdateFormat = UpdateFormat.MODELS  # whether clients reply with models or with updates
    # The observer: another client, who sees releases, or the server, who sees the reply of the target's client.
    observer: Observer = Observer.CLIENT
    # Whether the claim also covers an observer who knows the replies of all clients except the target's. If False, such
    # an observer is assumed only if certainly the server alone adds noise. If each client adds a share of the noise,
    # such an observer knows every share except the target's, and a claim about the total noise does not cover this.
    knows_others: bool = False
    target: int = 0  # partition ID of the target's client
    length: float = 1000.0  # L2 norm of a crafted update, above 0 and below 1e9
    trials_per_run: int | None = None  # largest number of trials in one run of the app; None for all
    confidence: float = 0.95  # probability that a true claim is not reported as violated, above 0.5 and below 1
    seed: int | None = None  # seed of the random draws of all trials; None draws a secret seed

    def __post_init__(self) -> None:
        require_number("trials are", self.trials, f"whole numbers from {LESSONS + 1}")
        require_number("confidence is", self.confidence, "numbers above 0.5, below 1")
        require_number("length is", self.length, "numbers above 0 and below 1000000000")
        # Whether two contributions are tried depends on the strategy, which is not known yet.
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
            is_known = self.contribution in UPDATE_KINDS
            require(is_known, f"contribution is {self.contribution!r}: accepted are {name_list(UPDATE_KINDS)}")
            object.__setattr__(self, "contribution", TargetAction(self.contribution))
        object.__setattr__(self, "directory", as_directory(self.directory))
        crafted = self.is_about_records and self.contribution not in (None, TargetAction.OWN)
        require(not crafted, f"contribution is {self.contribution}, and the claim is about records: accepted is own")

    @property
    def is_about_records(self) -> bool:
        """Whether the claim protects a record, or a user with one record; False if it protects a client."""
        return self.claim.neighbours.unit is not Unit.CLIENT

    def require_records(self, records: int | None, fault: str = "") -> None:
        """Raise `InputError` if the target's client has too few records for the claim: two to replace one, else one."""
        if fault:
            raise InputError(f"the claim is about records, and {fault}")
        if records is None:
            raise InputError(
                "the claim is about records, and the client app did not ask which it holds: accepted is an app that "
                "calls held(records) where it loads them"
            )
        fewest = 2 if self.claim.neighbours.relation is Relation.REPLACE else 1
        require(
            records >= fewest,
            f"the client of partition {self.target} holds {records} record{'s' * (records != 1)}: accepted for "
            f"{self.claim.adjacency} is one with {fewest} at least, of which one is "
            f"{'replaced by another' if fewest == 2 else 'left out'}; target names another client",
        )

    def contributions(self, strategy: "Strategy", model: Mapping[str, NDArray[np.generic]]) -> tuple[TargetAction, ...]:
        """Return the one or two kinds of update of the target's client between which the first trials alternate.

        There are two kinds only under three conditions: the setting `contribution` is None, the claim is about clients,
        and either the server clips, or the model has integers or booleans besides floats.
        """
        if self.contribution is not None:
            return (self.contribution,)
        if self.is_about_records:
            return (TargetAction.OWN,)
        # Otherwise the clients' own code may clip, and then a crafted update could not occur.
        # Imported here because clients import this module, and do not need Flower's strategies.
        from fl_audit.app_audits.black_box.legacy_adapter import clips_and_adds_noise  # noqa: PLC0415

        if clips_and_adds_noise(strategy):
            return (TargetAction.CRAFTED, TargetAction.OWN)
        kinds = {value.dtype.kind for value in model.values()}
        # A model of integers alone is not a vector but, for example, the bytes of a tree model.
        return (
            (TargetAction.OWN, TargetAction.OWN_WHOLE) if "f" in kinds and kinds & set("iub") else (TargetAction.OWN,)
        )

    def action(self, present: bool, update_kind: TargetAction, bears_zero: bool = True) -> TargetAction:
        """Return the action that the target's client takes in a trial.

        An absent client sends an update of exactly zero, or a negligible one if the app does not bear zero
        (`bears_zero`). A negligible update is no absence if updates are normalised.
        """
        is_replaced = self.claim.neighbours.relation is Relation.REPLACE
        if present:
            return update_kind
        if self.is_about_records:
            return TargetAction.OTHER_RECORD if is_replaced else TargetAction.WITHOUT_RECORD
        if is_replaced:
            return _OPPOSITES[update_kind]
        return TargetAction.NOTHING if bears_zero else TargetAction.ALMOST_NOTHING

    def watch(self, strategy: "Strategy | OldStrategy") -> "Strategy":
        """Return a strategy that first trains exactly as the given strategy does, and then runs the trials of the app.

        The given strategy may have Flower's old or new interface and may be wrapped; the returned one has the new
        interface.
        """
        from fl_audit.app_audits.black_box.legacy_adapter import adapted_strategy  # noqa: PLC0415
        from fl_audit.app_audits.black_box.trials_after_training import TrialsAfterTrainingStrategy  # noqa: PLC0415

        return TrialsAfterTrainingStrategy(adapted_strategy(strategy), self)

    def insider(self) -> Mod:
        """Return the Flower mod that lets the client app take part in the trials.

        The mod must be the last of the client app's mods, after those that clip or add noise.
        """
        return insider

    def held(self, *elements: Any) -> Any:
        """Return the given records of a client; in some trials the target's record is missing or replaced.

        A client app calls this method where it loads its records.

        `*parts`: The result has the type of the argument, or is a tuple for several arguments.
        """
        return held(*elements)

    def verdict(self) -> "ClaimAudit":
        """Return the result of all trials, with the verdict that says whether the trials contradict the claim.

        Raises `InputError` if some trials have not been run yet.
        """
        from fl_audit.app_audits.black_box.in_app_verdict import finished_result  # noqa: PLC0415

        return finished_result(self)
