"""The optimizers of clients and of the server, and the built-in model of texts, by name."""

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


MEAN_EMBEDDING = "mean-embedding"
"""The built-in model of texts: a vector for each token, their mean, and a dense layer."""
