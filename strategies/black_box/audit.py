"""The audit in an app's own code: its claim, the playing of its trials, and their result."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr.clientapp.typing import Mod

from fl_audit.strategies.black_box import lazy_imports
from fl_audit.strategies.black_box.audit_config import AuditConfig
from fl_audit.strategies.black_box.target_mod import held, insider

if TYPE_CHECKING:  # Clients have this too, a process of theirs for every message: what the server needs waits for it.
    from flwr.server.strategy import Strategy as OldStrategy
    from flwr.serverapp.strategy import Strategy

    from fl_audit.audits.black_box.claim_audit import ClaimAudit


@dataclass(frozen=True)
class Audit(AuditConfig):
    """The audit of a Flower app, in place; its settings are those of `AuditConfig`.

    Examples
    --------
    In a Flower app::

        audit = Audit(StatedClaim("add-remove-client", epsilon=4.0, delta=1e-5), trials=220)
        strategy = audit.watch(strategy)
        app = ClientApp(mods=[audit.insider()])
    """

    def watch(self, strategy: "Strategy | OldStrategy") -> "Strategy":
        """Return a strategy that trains as the app's, with all its wrappers, and then plays trials of the app.

        A strategy of Flower's old interface is started by the returned strategy.
        """
        return lazy_imports.audited_strategy.AuditedStrategy(
            lazy_imports.legacy_adapter.adapted_strategy(strategy), self
        )

    def insider(self) -> Mod:
        """Return the mod for the client app; it must be the last one, after those that belong to the mechanism."""
        return insider

    def held(self, *parts: Any) -> Any:
        """Return the records that a client holds; see `held`."""
        return held(*parts)

    def verdict(self) -> "ClaimAudit":
        """Return the result of the trials; `InputError` if some are missing."""
        return lazy_imports.findings.finished_result(self)
