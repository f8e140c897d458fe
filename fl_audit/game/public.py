"""The public game: what every party of a federation knows, as one small value.

It travels in messages and stands in every run directory. Whoever holds it and the data files derives the same records,
neighbours, shards and model. It holds no secret: bits and noise come from the challenger's seed.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from fl_audit.adjacency import NeighbourPair
from fl_audit.data.catalogue import DataSpec
from fl_audit.data.partition import PartitionScheme
from fl_audit.device import Device
from fl_audit.errors import require
from fl_audit.game.seen import View, require_view
from fl_audit.mechanisms.law import ReleaseLaw, require_weighable
from fl_audit.mechanisms.noise import CorrelatedGaussian, InsideTraining, NoiseScaling
from fl_audit.mechanisms.participation import FixedCohort
from fl_audit.mechanisms.standpoint import CLIENT_ALONE, Place, Standpoint


@dataclass(frozen=True)
class PublicGame:
    """What every party of a federation knows.

    Parameters
    ----------
    data
        The source of records.
    data_seed
        Public seed that selects records, neighbours and shards; it has nothing to do with the seed of the run.
    records
        n, size of the training set D.
    test_records
        Number of held-out records on which accuracy is measured.
    population_records
        Number of records outside D and D' that serve Epsilon* as the population sample; where fewer than 2 are left,
        the test records do.
    clients
        Number of data owners, at least 2 (a victim and an insider).
    partition, partition_parameters
        How D is divided among the clients.
    pair
        Where D and D' differ: chosen once, so that no party has to search again.
    model
        Name of the model.
    law
        What a round releases.
    rounds
        k, number of rounds.
    view
        What clients see of a round.
    threads
        Threads each party computes with; sums differ in their last bits between thread counts.
    device
        What clients and the evaluator compute on; sums differ in their last bits between devices.
    with_insider
        Whether the insider is asked about the releases. Without it a law may make no promise.
    standpoint
        From where the insider looks.
    insiders
        How many clients attack, each by itself; 1 and more, and fewer than there are clients.
    """

    data: DataSpec
    data_seed: int
    records: int
    test_records: int
    population_records: int
    clients: int
    partition: PartitionScheme
    partition_parameters: tuple[tuple[str, bool | int | float | str], ...]
    pair: NeighbourPair
    model: str
    law: ReleaseLaw
    rounds: int
    view: View
    threads: int = 1
    device: Device = Device.CPU
    with_insider: bool = True
    standpoint: Standpoint = CLIENT_ALONE
    insiders: int = 1

    def __post_init__(self) -> None:
        require(self.clients >= 2, f"clients is {self.clients}: accepted are 2 and more (a victim and an insider)")
        require(self.rounds >= 1, f"rounds is {self.rounds}: accepted are 1 and more")
        accepted = 1 <= self.insiders < self.clients
        require(
            accepted, f"insiders is {self.insiders}: accepted are 1 to {self.clients - 1}, all clients but the victim"
        )
        require_view(self.view, self.law)
        noise = self.law.noise
        if isinstance(noise, CorrelatedGaussian):
            require(
                noise.rounds == self.rounds,
                f"the noise is correlated over {noise.rounds} rounds and rounds is {self.rounds}: accepted is the same",
            )
        if isinstance(noise, InsideTraining) and self.standpoint.place is Place.CLIENT:
            colluders = self.standpoint.colluders
            require(
                colluders <= self.clients - 2,
                f"colluders is {colluders} and there are {self.clients} clients: accepted are 0 to {self.clients - 2}, "
                "all but the insider and the victim",
            )
        if self.with_insider:
            require_weighable(self.law, self.standpoint)
        else:
            is_global = self.law.scaling is NoiseScaling.GLOBAL
            require(is_global, "sensitivity is 'local' without the insider, whose device it is: accepted is 'global'")

    def cohort(self, server_round: int) -> NDArray[np.int64] | None:
        """Return the clients of a round, in ascending order, where cohorts take part; None where there are none."""
        match self.law.participation:
            case FixedCohort() as cohorts:
                return cohorts.members(self.data_seed, server_round)
            case _:
                return None

    def to_json(self) -> str:
        """Return the game as JSON."""
        return _ADAPTER.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "PublicGame":
        """Return the game that `to_json` wrote."""
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(PublicGame)
