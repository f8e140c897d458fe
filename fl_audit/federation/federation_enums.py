"""Names of the kinds of initial weights, and of an insider's views of a round, as written in the configuration."""

from enum import StrEnum


class InitialWeightsSource(StrEnum):
    """Kinds of initial weights: drawn anew for each trial, or pretrained on public records."""

    DRAWN = "drawn"
    PRETRAINED = "pretrained"


class InsiderView(StrEnum):
    """Views that an insider, an attacking client, may have of a round.

    UPDATE shows the noised sum, as if the server published it, so that outside observers see it, too. MODEL shows only
    the resulting model. Clients that do not attack receive only models.
    """

    UPDATE = "update"
    MODEL = "model"


class EpsilonStarLocation(StrEnum):
    """Place where the losses for Epsilon* are collected.

    POOLED: one server collects all of them. FEDERATED: each client evaluates the losses of its own records.
    """

    POOLED = "pooled"
    FEDERATED = "federated"
