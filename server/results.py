"""What a finished batch of worlds leaves behind."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pandas as pd
from scipy.special import expit, logit
from torch import Tensor

from fl_audit.arrays import Flags, Floats
from fl_audit.game.columns import Columns, Table, nan_columns
from fl_audit.game.membership import Membership
from fl_audit.worlds import WorldBatch

WORLD_FINDINGS = (
    "test_accuracy",
    "epsilon_star",
    "membership_advantage",
    "record_membership_guess",
    "record_score",
    "test_auroc",
)
ROUND_FINDINGS = ("sigma", "local_sensitivity", "log_odds", "increment", "measured_sigma")
RELEASE_FINDINGS = ("test_accuracy", "epsilon_star")  # columns that every run has; those that nobody found are NaN


@dataclass(frozen=True)
class BatchResult:
    """Everything that is known after the last round of a batch."""

    batch: WorldBatch  # the worlds
    membership: Membership  # which targets were in
    rounds: int  # number of rounds
    evaluated: tuple[int, ...]  # numbers of the releases that were evaluated, 0 being the initial models
    columns: Columns  # what all who looked found
    final_models: Tensor  # models after the last round (worlds, parameters)
    kept: Mapping[str, Tensor]  # what clients saw of the kept worlds, by name; empty if the batch has none
    targets: tuple[int, ...] = ()  # numbers of the units that are targets, ascending
    # What the final models answer to the targets' records, by name; empty in the game of identifiability.
    outputs: Mapping[str, Tensor] = field(default_factory=dict)

    def frames(self, prior: float) -> dict[str, pd.DataFrame]:
        """Return the tables of the batch by name: those that every run has, and those that somebody filled.

        Parameters
        ----------
        prior
            The insider's prior belief in D. It names the data set it believes in rather, so the prior moves wins too.
        """
        found, rounds = self.columns, tuple(range(1, self.rounds + 1))
        frames = {
            "worlds": self._worlds_frame(prior),
            "rounds": self._long(self._filled(found.rounds, ROUND_FINDINGS, len(rounds)), rounds),
            "releases": self._long(self._filled(found.releases, RELEASE_FINDINGS, len(self.evaluated)), self.evaluated),
        }
        if found.clients:
            frames["clients"] = self._clients_frame()
        if found.insiders:
            frames["insiders"] = self._insiders_frame(prior)
        if found.residuals:
            frames["residuals"] = self._long(found.residuals, rounds)
        if found.targets:
            frames["targets"] = self._targets_frame()
        if found.canaries:
            frames["canaries"] = self._canaries_frame()
        return frames

    def _targets_frame(self) -> pd.DataFrame:
        """Return one row a world and target: whether it was in, and what was found of it."""
        index = {
            "world": np.repeat(np.array(self.batch.worlds), len(self.targets)),
            "target": np.tile(np.array(self.targets), self.batch.count),
            "is_in": self.membership.is_in.reshape(-1),
        }
        return pd.DataFrame(index | {name: value.reshape(-1) for name, value in self.columns.targets.items()})

    def _canaries_frame(self) -> pd.DataFrame:
        """Return one row a world, round and canary, decoys following the canaries: coin, part in the score, score."""
        worlds, rounds, directions = next(iter(self.columns.canaries.values())).shape
        index = {
            "world": np.repeat(np.array(self.batch.worlds), rounds * directions),
            "round": np.tile(np.repeat(np.arange(1, rounds + 1), directions), worlds),
            "canary": np.tile(np.arange(directions), worlds * rounds),
        }
        return pd.DataFrame(index | {name: value.reshape(-1) for name, value in self.columns.canaries.items()})

    def _filled(self, columns: Table, names: tuple[str, ...], width: int) -> Table:
        return {**nan_columns(names, (self.batch.count, width)), **columns}

    def _worlds_frame(self, prior: float) -> pd.DataFrame:
        bits = self.membership.is_in[:, 0]  # of many targets the first
        found = {**nan_columns(("log_odds", *WORLD_FINDINGS), (self.batch.count,)), **self.columns.worlds}
        final = np.asarray(found.pop("log_odds"), dtype=np.float64)
        belief = expit(np.where(bits, 1.0, -1.0) * (final + logit(prior)))
        known = bool(np.isfinite(final).all())
        index = {
            "world": np.array(self.batch.worlds),
            "bit": bits.astype(np.int8),
            "log_odds": final,
            "belief": belief,
            "won": _right(final, bits, prior) if known else np.full(self.batch.count, np.nan),
        }
        return pd.DataFrame(index | found)

    def _insiders_frame(self, prior: float) -> pd.DataFrame:
        """Return one row a world and insider: its log-odds, its belief in the truth, and whether it was right.

        Of insiders who have scores alone there are these.
        """
        clients = self.columns.insider_clients
        index = {
            "world": np.repeat(np.array(self.batch.worlds), len(clients)),
            "insider": np.tile(np.array(clients), self.batch.count),
        }
        if "log_odds" not in self.columns.insiders:
            return pd.DataFrame(index | {name: value.reshape(-1) for name, value in self.columns.insiders.items()})
        log_odds = self.columns.insiders["log_odds"]
        bits = self.membership.bits[:, None]
        belief = expit(np.where(bits, 1.0, -1.0) * (log_odds + logit(prior))).reshape(-1)
        won = _right(log_odds, bits, prior).reshape(-1)
        return pd.DataFrame(index | {"log_odds": log_odds.reshape(-1), "belief": belief, "won": won})

    def _clients_frame(self) -> pd.DataFrame:
        values: dict[str, Floats] = dict(self.columns.clients)
        worlds, evaluated, clients = next(iter(values.values())).shape
        index = {
            "world": np.repeat(np.array(self.batch.worlds), evaluated * clients),
            "round": np.tile(np.repeat(np.array(self.evaluated), clients), worlds),
            "client": np.tile(np.arange(clients), worlds * evaluated),
        }
        return pd.DataFrame(index | {name: value.reshape(-1) for name, value in values.items()})

    def _long(self, columns: Table, rounds: tuple[int, ...]) -> pd.DataFrame:
        """Return one row a world and round."""
        index = {
            "world": np.repeat(np.array(self.batch.worlds), len(rounds)),
            "round": np.tile(np.array(rounds), self.batch.count),
        }
        return pd.DataFrame(index | {name: values.reshape(-1) for name, values in columns.items()})


class ResultSink(Protocol):
    """Who takes finished batches."""

    def finish(self, result: BatchResult) -> None:
        """Store a batch for good."""


def _right(log_odds: Floats, bits: Flags, prior: float) -> Flags:
    """Return whether the insider names the data set that was used: D where it finds it likelier, and else D'.

    Who learns nothing, for the record took part in no round it saw, says D' and is right by chance, not never.
    """
    return (log_odds + logit(prior) > 0) == (bits != 0)
