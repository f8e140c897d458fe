"""Names that configurations use for optimizers, initial weights and the built-in text model."""

from enum import StrEnum
from typing import assert_never


class LocalOptimizer(StrEnum):
    """Optimizer of a client's local training: SGD or Adam."""

    SGD = "sgd"
    ADAM = "adam"


class ServerOptimizerKind(StrEnum):
    """Optimizer of the server: SGD, SGD with heavy-ball momentum, Adam, Yogi, or Adagrad."""

    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"
    YOGI = "yogi"
    ADAGRAD = "adagrad"

    @property
    def is_adaptive(self) -> bool:
        """Whether its steps have about the size of the learning rate, whatever the gradients are."""
        match self:
            case ServerOptimizerKind.SGD | ServerOptimizerKind.MOMENTUM:
                return False
            case ServerOptimizerKind.ADAM | ServerOptimizerKind.YOGI | ServerOptimizerKind.ADAGRAD:
                return True
            case _:
                assert_never(self)


class InitialWeightsSource(StrEnum):
    """Kinds of initial weights: drawn anew for each trial, or pretrained on public records."""

    DRAWN = "drawn"
    PRETRAINED = "pretrained"


MEAN_EMBEDDING = "mean-embedding"
"""Name of the built-in model of texts: a vector for each token, the mean of these vectors, and a dense layer."""
