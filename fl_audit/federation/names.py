"""What a configuration says of the federation, by name: where training begins, and what clients see."""

from enum import StrEnum


class InitialWeights(StrEnum):
    """Where training begins."""

    DRAWN = "drawn"
    PRETRAINED = "pretrained"


class View(StrEnum):
    """What an insider sees of a round: the noised sum, or only the model that follows from it.

    The sum is handed to insiders and to the observer of releases, as if the server published it: honest clients train
    on models, and are sent these alone.
    """

    UPDATE = "update"
    MODEL = "model"
