"""The game with its data and its model: who holds what, and what each unit contributes."""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import isinf

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fl_audit.data.catalogue import load_source
from fl_audit.data.partition import partition_records
from fl_audit.data.split import FEWEST_POPULATION, Split, select_records
from fl_audit.device import require_device
from fl_audit.game.examples import Examples
from fl_audit.game.public import PublicGame
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.stacked import StackedModel
from fl_audit.mechanisms.contribution import RecordGradients
from fl_audit.mechanisms.weighing import Hypotheses
from fl_audit.randomness import Purpose, generator

_COORDINATES = 4096
"""Most coordinates that the public directions live on: directions over a large model would not stay in cache."""


def number_of_directions(parameters: int) -> int:
    """Return along how many public directions the noise of a model is looked at: at most half of its parameters."""
    return min(16, parameters // 2)


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
        """x, what D holds and D' does not."""
        return self.training.take(np.array([self.public.pair.index]))

    @cached_property
    def common(self) -> Examples:
        """What D and D' share."""
        return self.training.take(np.delete(np.arange(len(self.training.labels)), self.public.pair.index))

    @cached_property
    def directions(self) -> Tensor:
        """Orthonormal public directions (coordinates, at most 16), float32, along which noise is looked at.

        They live on evenly spread coordinates, see `fl_audit.adversaries.noise_meter.Meter`.
        """
        size = min(self.model.layout.size, _COORDINATES)
        draw = generator(self.public.data_seed, Purpose.PUBLIC_DIRECTIONS)
        drawn = draw.standard_normal((size, number_of_directions(self.model.layout.size)))
        return torch.from_numpy(np.linalg.qr(drawn)[0]).float().to(self.public.device)

    def targets_of(self, client: int) -> tuple[int, ...]:
        """Return the targets of the game that a client holds: what it is told the secret of."""
        return (0,) if client == self.victim else ()

    def honest_shard(self, client: int) -> Examples:
        """Return what a client holds in every world: its shard, without x if it is the victim; taken once."""
        if client not in self._held:
            self._held[client] = self.training.take(self.shards[client][~self.differs(client)])
        return self._held[client]

    def differs(self, client: int) -> NDArray[np.bool_]:
        """Return for each record of a client's shard whether it is x."""
        marks: NDArray[np.bool_] = self.shards[client] == self.public.pair.index
        return marks

    def contributions(
        self, models: Tensor, examples: Examples, batch_worlds: int | None = None, taking_part: Tensor | None = None
    ) -> Tensor:
        """Return the clipped contributions (worlds, parameters) of some examples, as the release law makes them.

        Parameters
        ----------
        models
            Float32 tensor (worlds, parameters).
        examples
            Whose contributions.
        batch_worlds
            World count of the original batch, where only its first worlds are worked out again; None where these are
            all of them. See `StackedModel.clipped_sum`.
        taking_part
            Which examples take part, bool (worlds, n); None is all of them.
        """
        law = self.public.law
        match law.contribution:
            case RecordGradients():
                norm = None if isinf(law.clipping_norm) else law.clipping_norm
                features, labels = examples.features, examples.labels
                return self.model.clipped_sum(models, features, labels, norm, batch_worlds, taking_part)

    def differing_contributions(self, models: Tensor, batch_worlds: int | None = None) -> tuple[Tensor, Tensor]:
        """Return what x contributes and what stands in its place under D', each (worlds, parameters).

        Victim and insider both call this, with the same shapes, so that they agree to the last bit.
        """
        present = self.contributions(models, self.differing, batch_worlds)
        if self.replacement is None:
            return present, torch.zeros_like(present)
        return present, self.contributions(models, self.replacement, batch_worlds)

    def hypotheses(self, models: Tensor, batch_worlds: int | None = None) -> Hypotheses:
        """Return the sums that a round has under D and under D', as the insider works them out."""
        shared = self.contributions(models, self.common, batch_worlds)
        return Hypotheses(shared, *self.differing_contributions(models, batch_worlds), self.public.law.sampling_rate)

    def losses(self, models: Tensor, examples: Examples | None) -> NDArray[np.float64]:
        """Return the cross-entropy losses (worlds, n) of examples under every model; of none, shape (worlds, 0)."""
        if examples is None or len(examples.labels) == 0:
            return np.empty((len(models), 0))
        losses: NDArray[np.float64] = (
            self.model.losses(models, examples.features, examples.labels).double().cpu().numpy()
        )
        return losses


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
        split.inside.labels,
        public.clients,
        public.partition,
        dict(public.partition_parameters),
        public.data_seed,
        split.inside.owner,
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
    if split.outside is None or len(split.outside) - (replacement is not None) < FEWEST_POPULATION:
        return Examples.of(split.test, public.device)
    others = np.arange(len(split.outside))
    if replacement is not None:
        others = np.delete(others, replacement)
    draw = generator(public.data_seed, Purpose.POPULATION_SAMPLE)
    chosen = draw.choice(others, size=min(public.population_records, len(others)), replace=False)
    return Examples.of(split.outside.take(np.sort(chosen)), public.device)
