"""The game of one audit: what every party knows, and the data and models that follow from it.

The public game is a small value that travels in messages and stands in every run directory. Whoever holds it and the
data files derives the same records, neighbours, shards and model. It holds no secret: bits, noise and initial weights
come from the seed of the run, which only the challenger has.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from torch import Tensor

from fl_audit.adjacency import NeighbourPair
from fl_audit.data.catalogue import DataSpec, load_source
from fl_audit.data.partition import PartitionScheme, partition_records
from fl_audit.data.records import Records
from fl_audit.data.split import Split, select_records
from fl_audit.device import Device, require_device
from fl_audit.errors import require
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.portions import cached_rows
from fl_audit.learning.stacked import StackedModel
from fl_audit.privacy.release import NoiseScaling, ReleaseLaw, require_weighable
from fl_audit.randomness import Purpose, generator


class View(StrEnum):
    """What clients see of a round: the noised sum, or only the model that follows from it."""

    UPDATE = "update"
    MODEL = "model"


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
        Largest number of held-out records on which accuracy is measured.
    population_records
        Largest number of records outside D that serve Epsilon* as the population sample.
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
        Whether the insider is asked about the releases. Without it a law may sample records, or make no promise.
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

    def __post_init__(self) -> None:
        require(self.clients >= 2, f"clients is {self.clients}: accepted are 2 and more (a victim and an insider)")
        require(self.rounds >= 1, f"rounds is {self.rounds}: accepted are 1 and more")
        if self.view is View.MODEL:
            _ = self.law.optimizer.models_to_invert  # refuses Adam, which cannot be inverted
        if self.with_insider:
            require_weighable(self.law.has_noise, self.law.sampling_rate)
        else:
            is_global = self.law.scaling is NoiseScaling.GLOBAL
            require(is_global, "sensitivity is 'local' without the insider, whose device it is: accepted is 'global'")

    def to_json(self) -> str:
        """Return the game as JSON."""
        return _ADAPTER.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> "PublicGame":
        """Return the game that `to_json` wrote."""
        return _ADAPTER.validate_json(text)


_ADAPTER = TypeAdapter(PublicGame)


@dataclass(frozen=True)
class Examples:
    """Records as tensors: features (n, *shape) in float32, labels (n,) in int64."""

    features: Tensor
    labels: Tensor

    @classmethod
    def of(cls, records: Records, device: Device = Device.CPU) -> "Examples":
        """Return records as tensors on a device."""
        features, labels = torch.from_numpy(records.features).clone(), torch.from_numpy(records.labels).clone()
        return cls(features.to(device), labels.to(device))

    def take(self, indices: NDArray[np.int64]) -> "Examples":
        """Return the examples at `indices`."""
        chosen = torch.from_numpy(indices)
        return Examples(self.features[chosen], self.labels[chosen])


@dataclass(frozen=True)
class Game:
    """The game with its data and its model.

    Parameters
    ----------
    public
        What it follows from.
    training
        D as tensors.
    replacement
        x', the one record of D' that is not in D; None when D' is D without x.
    shards
        Indices of D per client; a client reads its own only.
    victim, insider
        Client that holds x, and client that attacks: the first that is not the victim.
    test, population
        Held-out examples, and examples outside D and D'.
    classes
        Number of classes.
    model
        The model, run in all worlds at once.
    """

    public: PublicGame
    training: Examples
    replacement: Examples | None
    shards: tuple[NDArray[np.int64], ...]
    victim: int
    insider: int
    test: Examples
    population: Examples
    classes: int
    model: StackedModel
    _held: dict[int, Examples] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def differing(self) -> Examples:
        """x, the record of D that is not in D'."""
        return self.training.take(np.array([self.public.pair.index]))

    @cached_property
    def common(self) -> Examples:
        """The records that D and D' share."""
        return self.training.take(np.delete(np.arange(len(self.training.labels)), self.public.pair.index))

    def honest_shard(self, client: int) -> Examples:
        """Return what a client holds in every world: its shard, without x if it is the victim; taken once."""
        if client not in self._held:
            self._held[client] = self.training.take(self.shards[client][~self.differs(client)])
        return self._held[client]

    def differs(self, client: int) -> NDArray[np.bool_]:
        """Return for each record of a client's shard whether it is x."""
        marks: NDArray[np.bool_] = self.shards[client] == self.public.pair.index
        return marks

    def clipped_sum(
        self, models: Tensor, examples: Examples, batch_worlds: int | None = None, taking_part: Tensor | None = None
    ) -> Tensor:
        """Return the clipped gradient sums (worlds, parameters) over examples; see `StackedModel.clipped_sum`."""
        norm = self.public.law.clipping_norm
        return self.model.clipped_sum(models, examples.features, examples.labels, norm, batch_worlds, taking_part)

    def losses(self, models: Tensor, examples: Examples | None) -> NDArray[np.float64]:
        """Return the cross-entropy losses (worlds, n) of examples under every model; of none, shape (worlds, 0)."""
        if examples is None or len(examples.labels) == 0:
            return np.empty((len(models), 0))
        losses: NDArray[np.float64] = (
            self.model.losses(models, examples.features, examples.labels).double().cpu().numpy()
        )
        return losses

    def differing_gradients(self, models: Tensor, batch_worlds: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the clipped gradients of x and of what D' has in its place, each (worlds, parameters).

        Victim and insider both call this, with the same shapes, so that they agree to the last bit.
        """
        present = self.clipped_sum(models, self.differing, batch_worlds)
        if self.replacement is None:
            return present, torch.zeros_like(present)
        return present, self.clipped_sum(models, self.replacement, batch_worlds)


def local_sensitivity(present: Tensor, absent: Tensor) -> NDArray[np.float64]:
    """Return ||f(D) - f(D')|| per world from the two gradients in which the sums differ."""
    portions = cached_rows(len(present), present.shape[1])
    norms = [(present[rows].double() - absent[rows].double()).norm(dim=1) for rows in portions]
    found: NDArray[np.float64] = torch.cat(norms).cpu().numpy()
    return found


@lru_cache(maxsize=4)
def load_game(public: PublicGame) -> Game:
    """Load the data of a game and build its model.

    Parameters
    ----------
    public
        The game; equal games are loaded once per process.

    Raises
    ------
    InputError
        If data or model cannot be used.
    """
    require_device(public.device)
    source = load_source(public.data)
    split = select_records(source, public.records, public.test_records, public.data_seed)
    shards = partition_records(
        split.inside.labels, public.clients, public.partition, dict(public.partition_parameters), public.data_seed
    )
    victim = next(client for client, shard in enumerate(shards) if public.pair.index in shard)
    return Game(
        public=public,
        training=Examples.of(split.inside, public.device),
        replacement=_replacement(public, split),
        shards=shards,
        victim=victim,
        insider=0 if victim != 0 else 1,
        test=Examples.of(split.test, public.device),
        population=_population(public, split),
        classes=split.inside.classes,
        model=StackedModel.of(ModelSpec(public.model, source.feature_shape, split.inside.classes)),
    )


def _replacement(public: PublicGame, split: Split) -> Examples | None:
    if public.pair.replacement is None:
        return None
    assert split.outside is not None
    return Examples.of(split.outside.take(np.array([public.pair.replacement])), public.device)


def _population(public: PublicGame, split: Split) -> Examples:
    """Sample the population from records outside D and D'; where D takes the whole pool, use the test records."""
    replacement = public.pair.replacement
    if split.outside is None or len(split.outside) - (replacement is not None) < 2:
        return Examples.of(split.test, public.device)
    others = np.arange(len(split.outside))
    if replacement is not None:
        others = np.delete(others, replacement)
    draw = generator(public.data_seed, Purpose.POPULATION_SAMPLE)
    chosen = draw.choice(others, size=min(public.population_records, len(others)), replace=False)
    return Examples.of(split.outside.take(np.sort(chosen)), public.device)
