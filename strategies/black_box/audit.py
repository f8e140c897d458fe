"""The audit inside an app's own code: `Audit` wraps its strategy and clients, runs trials and gives the verdict."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.clientapp.typing import Mod

from fl_audit.strategies.black_box import lazy_imports
from fl_audit.strategies.black_box.audit_config import AuditConfig
from fl_audit.strategies.black_box.target_mod import held, insider

if TYPE_CHECKING:  # Clients import this module in a new process for every message, so server modules are imported late.
    from flwr.server.strategy import Strategy as OldStrategy
    from flwr.serverapp.strategy import Strategy

    from fl_audit.audits.black_box.claim_audit import ClaimAudit


@dataclass(frozen=True)
class Audit(AuditConfig):
    """The audit of a Flower app inside the app's own code; its settings are those of `AuditConfig`.

    Examples
    --------
    In a Flower app::

        audit = Audit(StatedClaim("add-remove-client", epsilon=4.0, delta=1e-5), trials=220)
        strategy = audit.watch(strategy)
        app = ClientApp(mods=[audit.insider()])
    """

    def watch(self, strategy: "Strategy | OldStrategy") -> "Strategy":
        """Return a strategy that trains as the given one, including all its wrappers, and then runs trials of the app.

        The given strategy may have Flower's old interface; the returned one has the new interface.
        """
        return lazy_imports.audited_strategy.AuditedStrategy(
            lazy_imports.legacy_adapter.adapted_strategy(strategy), self
        )

    def insider(self) -> Mod:
        """Return the mod for the client app; it must be the last in the list, after the mods of the mechanism."""
        return insider

    def held(self, *parts: Any) -> Any:
        """Return the records that a client holds in this trial; see the function `held`."""
        return held(*parts)

    def verdict(self) -> "ClaimAudit":
        """Return the result of the trials; raises `InputError` if not all of them have been run."""
        return lazy_imports.findings.finished_result(self)
