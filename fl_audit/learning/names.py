"""The optimizers of clients and of the server, by name."""

from enum import StrEnum


class LocalOptimizer(StrEnum):
    """Rules by which a client moves its model."""

    SGD = "sgd"
    ADAM = "adam"


class OptimizerKind(StrEnum):
    """Rules by which the server moves the model."""

    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"
