"""What a finished batch of worlds leaves behind."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

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

        The insider's prior belief in D moves wins too: it names the data set that it believes in rather.
        """
        found, rounds = self.columns, range(1, self.rounds + 1)
        in_rounds = {**nan_columns(ROUND_FINDINGS, (self.batch.count, self.rounds)), **found.rounds}
        of_releases = {**nan_columns(RELEASE_FINDINGS, (self.batch.count, len(self.evaluated))), **found.releases}
        frames = {
            "worlds": self._worlds_frame(prior),
            "rounds": self._frame(in_rounds, round=rounds),
            "releases": self._frame(of_releases, round=self.evaluated),
        }
        if found.clients:
            clients = next(iter(found.clients.values())).shape[2]
            frames["clients"] = self._frame(found.clients, round=self.evaluated, client=range(clients))
        if found.insiders:
            frames["insiders"] = self._frame(self._of_insiders(prior), insider=found.insider_clients)
        if found.residuals:
            frames["residuals"] = self._frame(found.residuals, round=rounds)
        if found.targets:
            frames["targets"] = self._frame({"is_in": self.membership.is_in, **found.targets}, target=self.targets)
        if found.canaries:  # decoys follow the canaries
            directions = next(iter(found.canaries.values())).shape[2]
            frames["canaries"] = self._frame(found.canaries, round=rounds, canary=range(directions))
        return frames

    def _frame(self, columns: Table, **axes: Iterable[int]) -> pd.DataFrame:
        """Return one row for every world and every place along the axes that columns have beside the worlds."""
        places = np.meshgrid(*(np.array(list(one)) for one in (self.batch.worlds, *axes.values())), indexing="ij")
        index = dict(zip(("world", *axes), places, strict=True))
        return pd.DataFrame({name: values.reshape(-1) for name, values in {**index, **columns}.items()})

    def _worlds_frame(self, prior: float) -> pd.DataFrame:
        bits = self.membership.is_in[:, 0]  # of many targets the first
        found = {**nan_columns(("log_odds", *WORLD_FINDINGS), (self.batch.count,)), **self.columns.worlds}
        final = np.asarray(found.pop("log_odds"), dtype=np.float64)
        index = {"bit": bits.astype(np.int8), "log_odds": final, **_believed(final, bits, prior)}
        if not np.isfinite(final).all():
            index["won"] = np.full(self.batch.count, np.nan)
        return self._frame(index | found)

    def _of_insiders(self, prior: float) -> Table:
        """Return the log-odds of each insider, its belief in the truth, and whether it was right; or its scores."""
        told = self.columns.insiders
        if "log_odds" not in told:
            return told
        return {"log_odds": told["log_odds"], **_believed(told["log_odds"], self.membership.bits[:, None], prior)}


ResultSink = Callable[[BatchResult], None]  # takes finished batches, and stores them for good


def _believed(log_odds: Floats, bits: Flags, prior: float) -> dict[str, Floats | Flags]:
    """Return the belief in the truth, and whether D is named where it is likelier, and else D', rightly.

    Who learns nothing, for the record took part in no round it saw, says D' and is right by chance, not never.
    """
    posterior = log_odds + logit(prior)
    return {"belief": expit(np.where(bits, 1.0, -1.0) * posterior), "won": (posterior > 0) == (bits != 0)}
