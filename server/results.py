"""What a finished batch of worlds leaves behind, and how it is stored: whole or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, logit
from torch import Tensor

from fl_audit.worlds import WorldBatch
from server.evaluator import MembershipFindings


@dataclass(frozen=True)
class InsiderFindings:
    """What the insider said of a batch.

    Parameters
    ----------
    log_odds
        Cumulative log-odds of D against D' after each round (worlds, rounds).
    local_sensitivity
        As the insider computed it (worlds, rounds).
    """

    log_odds: NDArray[np.float64]
    local_sensitivity: NDArray[np.float64]


@dataclass(frozen=True)
class BatchResult:
    """Everything that is known after the last round of a batch.

    Parameters
    ----------
    batch
        The worlds.
    bits
        The secret bits (worlds,).
    insider
        What the insider said; None where there was none.
    sigma
        Standard deviation of the noise, as the law says (worlds, rounds).
    evaluated
        Numbers of the releases that were evaluated, 0 being the initial models.
    accuracy, epsilon_star
        Of each evaluated release (worlds, evaluated); `epsilon_star` is None where it was left out.
    client_epsilon_star
        Of each client's shard at each evaluated release (worlds, evaluated, clients); None where clients keep it.
    membership
        What the membership adversary found in the final models; None where it was left out.
    auroc
        Area under the ROC of the final models on the test records (worlds,); None with more than two classes.
    final_models
        Models after the last round (worlds, parameters).
    kept
        What clients saw of the kept worlds, by name; empty if the batch has none.
    """

    batch: WorldBatch
    bits: NDArray[np.bool_]
    insider: InsiderFindings | None
    sigma: NDArray[np.float64]
    evaluated: tuple[int, ...]
    accuracy: NDArray[np.float64]
    epsilon_star: NDArray[np.float64] | None
    client_epsilon_star: NDArray[np.float64] | None
    membership: MembershipFindings | None
    auroc: NDArray[np.float64] | None
    final_models: Tensor
    kept: Mapping[str, Tensor]

    def frames(self, prior: float) -> dict[str, pd.DataFrame]:
        """Return the tables of the batch by name, those that it has."""
        found = {
            "worlds": self.worlds_frame(prior),
            "rounds": self.rounds_frame(),
            "releases": self.releases_frame(),
            "clients": self.clients_frame(),
        }
        return {name: frame for name, frame in found.items() if frame is not None}

    def worlds_frame(self, prior: float) -> pd.DataFrame:
        """Return one row a world. The insider names the data set it believes in rather, so the prior moves wins too."""
        none, found = np.full(self.batch.count, np.nan), self.membership
        final = none if self.insider is None else self.insider.log_odds[:, -1]
        belief = expit(np.where(self.bits, 1.0, -1.0) * (final + logit(prior)))
        return pd.DataFrame(
            {
                "world": np.array(self.batch.worlds),
                "bit": self.bits.astype(np.int8),
                "log_odds": final,
                "belief": belief,
                "won": none if self.insider is None else belief > 0.5,
                "test_accuracy": self.accuracy[:, -1],
                "epsilon_star": none if self.epsilon_star is None else self.epsilon_star[:, -1],
                "membership_advantage": none if found is None else found.advantage,
                "record_membership_guess": none if found is None else found.record_guess.astype(np.float64),
                "test_auroc": none if self.auroc is None else self.auroc,
            }
        )

    def rounds_frame(self) -> pd.DataFrame:
        """Return one row a world and round, rounds from 1."""
        none, found = np.full_like(self.sigma, np.nan), self.insider
        columns = {
            "sigma": self.sigma,
            "local_sensitivity": none if found is None else found.local_sensitivity,
            "log_odds": none if found is None else found.log_odds,
        }
        return self._long(columns, tuple(range(1, self.sigma.shape[1] + 1)))

    def releases_frame(self) -> pd.DataFrame:
        """Return one row a world and evaluated release, release 0 being the initial model."""
        star = np.full_like(self.accuracy, np.nan) if self.epsilon_star is None else self.epsilon_star
        return self._long({"test_accuracy": self.accuracy, "epsilon_star": star}, self.evaluated)

    def clients_frame(self) -> pd.DataFrame | None:
        """Return one row a world, evaluated release and client; None where clients keep their Epsilon*."""
        if self.client_epsilon_star is None:
            return None
        worlds, evaluated, clients = self.client_epsilon_star.shape
        return pd.DataFrame(
            {
                "world": np.repeat(np.array(self.batch.worlds), evaluated * clients),
                "round": np.tile(np.repeat(np.array(self.evaluated), clients), worlds),
                "client": np.tile(np.arange(clients), worlds * evaluated),
                "epsilon_star": self.client_epsilon_star.reshape(-1),
            }
        )

    def _long(self, columns: Mapping[str, NDArray[np.float64]], rounds: tuple[int, ...]) -> pd.DataFrame:
        index = {
            "world": np.repeat(np.array(self.batch.worlds), len(rounds)),
            "round": np.tile(np.array(rounds), self.batch.count),
        }
        return pd.DataFrame(index | {name: values.reshape(-1) for name, values in columns.items()})


class ResultSink(Protocol):
    """Who takes finished batches."""

    def finish(self, result: BatchResult) -> None:
        """Store a batch for good."""
