"""What a configuration says of the game, by name: where training begins, and what clients see."""

from enum import StrEnum


class InitialWeights(StrEnum):
    """Where training begins."""

    DRAWN = "drawn"
    PRETRAINED = "pretrained"


class View(StrEnum):
    """What clients see of a round: the noised sum, or only the model that follows from it."""

    UPDATE = "update"
    MODEL = "model"
