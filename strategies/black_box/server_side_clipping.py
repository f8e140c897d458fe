"""Flower's wrappers that clip and add noise on the server, in both interfaces."""

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
    """Return whether a strategy has one of the wrappers."""
    return any(isinstance(layer, _WRAPPERS) for layer in layers_of(strategy))
