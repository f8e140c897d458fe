"""Configuration names of the initial weights and of the insider's view."""

from enum import StrEnum


class InitialWeights(StrEnum):
    """Origin of the initial weights: drawn for each trial, or pretrained."""

    DRAWN = "drawn"
    PRETRAINED = "pretrained"


class InsiderView(StrEnum):
    """The view of an insider in a round: the noised sum, or only the resulting model.

    Only insiders and the observer of releases receive the sum, as if the server published it; honest clients receive
    models alone.
    """

    UPDATE = "update"
    MODEL = "model"
