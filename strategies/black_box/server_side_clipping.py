"""Detection of Flower's strategy wrappers, of its old or new interface, that clip and add noise on the server."""

import flwr.server.strategy as old
import flwr.serverapp.strategy as new

from fl_audit.strategies.black_box.legacy_adapter import layers_of

_WRAPPERS = (
    new.DifferentialPrivacyServerSideFixedClipping,
    new.DifferentialPrivacyServerSideAdaptiveClipping,
    old.DifferentialPrivacyServerSideFixedClipping,
    old.DifferentialPrivacyServerSideAdaptiveClipping,
)


def clips_and_adds_noise(strategy: new.Strategy) -> bool:
    """Return True if a strategy is, or wraps, one of Flower's wrappers that clip and add noise on the server."""
    return any(isinstance(layer, _WRAPPERS) for layer in layers_of(strategy))
