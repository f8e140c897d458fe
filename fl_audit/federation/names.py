"""Names that a configuration uses for the federation: initial weights, and the view of clients."""

from enum import StrEnum


class InitialWeights(StrEnum):
    """The origin of the initial weights: drawn for each trial, or pretrained."""

    DRAWN = "drawn"
    PRETRAINED = "pretrained"


class InsiderView(StrEnum):
    """View of an insider of a round: the noised sum, or only the model that follows from it.

    The sum is handed to insiders and to the observer of releases, as if the server published it: honest clients train
    on models, and are sent these alone.
    """

    UPDATE = "update"
    MODEL = "model"
