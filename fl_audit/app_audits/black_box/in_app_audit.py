"""`Audit`, the audit of a Flower app within its own code: it wraps the app's strategy and clients and runs trials."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.clientapp.typing import Mod

from fl_audit.app_audits.black_box.audit_config import AuditConfig
from fl_audit.app_audits.black_box.target_mod import held, insider

if TYPE_CHECKING:  # Clients import this module in a new process for every message, so server modules are imported late.
    from flwr.server.strategy import Strategy as OldStrategy
    from flwr.serverapp.strategy import Strategy

    from fl_audit.app_audits.claim_audit.claim_audit_results import ClaimAudit


@dataclass(frozen=True)
class Audit(AuditConfig):
    """The audit of a Flower app from within its own code: it wraps strategy and clients, runs trials and tests a claim.

    A trial is a short run of the same app with or without the target, which is the client or record in question. The
    constructor takes the fields of `AuditConfig`.

    Examples
    --------
    In a Flower app::

        audit = Audit(StatedClaim("add-remove-client", epsilon=4.0, delta=1e-5), trials=220)
        strategy = audit.watch(strategy)
        app = ClientApp(mods=[audit.insider()])
    """

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
