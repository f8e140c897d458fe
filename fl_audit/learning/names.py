"""Configuration names of client and server optimizers and of the built-in text model."""

from enum import StrEnum


class LocalOptimizer(StrEnum):
    """Optimizers of a client's local training."""

    SGD = "sgd"
    ADAM = "adam"


class OptimizerKind(StrEnum):
    """Optimizers of the server."""

    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"


MEAN_EMBEDDING = "mean-embedding"
"""The built-in model of texts: a vector for each token, their mean, and a dense layer."""
