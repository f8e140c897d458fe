"""Flower's wrappers that clip on the server and add noise there, by both of its interfaces."""

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
    """Return whether one of the wrappers is around a strategy."""
    return any(isinstance(layer, _WRAPPERS) for layer in layers_of(strategy))
