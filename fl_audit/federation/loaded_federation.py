"""Load a federation's data and build its model.

A loaded federation has the shards (clients' parts of D), the targets (units whose membership is random), held-out
records, and the insider (the client that attacks).
"""

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import count, islice
from typing import NamedTuple, TypeVar, assert_never

import numpy as np
from torch import Tensor, nn

from fl_audit.adjacency import Unit
from fl_audit.array_types import Flags, Floats, Floats32, Integers
from fl_audit.data.attribute_to_infer import with_values
from fl_audit.data.catalogue import load_source
from fl_audit.data.partition import users_of
from fl_audit.data.records import Records, with_crafted
from fl_audit.federation.federation import Federation
from fl_audit.federation.federation_records import HeldOut, held_out_of, outside_of, shards_of, split_of, victim_of
from fl_audit.federation.record_tensors import Examples, model_for, probe_records
from fl_audit.federation.target_membership import TargetMembership
from fl_audit.learning.frozen_backbones import load_core
from fl_audit.learning.models import ModelSpec
from fl_audit.learning.named_inputs import NamedInput
from fl_audit.learning.stacked_model import StackedModel
from fl_audit.mechanisms.noise_draws import number_of_directions, orthonormal_directions
from fl_audit.randomness import Purpose, generator
from fl_audit.torch_device import settle_device

_COORDINATES = 4096
"""Most coordinates that the public directions live on: directions over a large model would not stay in cache."""
_SERIALS = count()

T = TypeVar("T")


class UnrandomisedRecords(NamedTuple):
    """Records as their owners hold them, before owners randomise them and before a frozen backbone transforms them."""

    inside: Records  # D
    replacement: Records | None  # replacement of the differing unit in D'; None without one


@dataclass(frozen=True)
class LoadedFederation:
    """A federation with its records as tensors, its clients' shards, and its model."""

    public: Federation  # public description of the federation
    training: Examples  # D as tensors; empty in the process of a client, which has only its own shard
    # Replacement of the differing unit in D': a record x', the records of a user, or another shard; None if D' is D
    # without the unit.
    replacement: Examples | None
    shards: tuple[Integers, ...]  # positions in D of each client's records
    victim: int  # client that holds the differing unit
    held_out: HeldOut | None  # test records and population sample; None in the process of a client
    classes: int  # number of classes
    model: StackedModel  # the model, run in all trials at once
    core: nn.Module | None = None  # frozen backbone that all records pass through before the model; None without one
    user: Integers | None = None  # number of the user of each record of D, (n,); None if users are not the units
    inputs: tuple[NamedInput, ...] = ()  # named arrays of which a record consists; empty for a single array
    raw: UnrandomisedRecords | None = None  # the records before local randomization; None without it
    # Number of this object in the process, a key for caches of values that are derived from it.
    serial: int = field(default_factory=_SERIALS.__next__, init=False, repr=False, compare=False)
    _held: dict[tuple[int, bool], Examples] = field(default_factory=dict, init=False, repr=False, compare=False)
    _raw: dict[int, Floats32] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def spec(self) -> ModelSpec:
        """Specification of the trained model: name, feature shape, classes and named inputs."""
        return ModelSpec(self.public.model, self.model.record_shape, self.classes, self.inputs)

    @property
    def unit(self) -> Unit:
        """The kind of unit by which D and D' differ."""
        return self.public.mechanism.unit

    @property
    def units(self) -> int:
        """Number of units in D: records, users or clients."""
        return self.public.units

    def unit_of_records(self, client: int) -> Integers:
        """Return the number of the unit to which each record of a client's shard belongs, (records of the shard,)."""
        match self.unit:
            case Unit.RECORD:
                return self.shards[client]
            case Unit.USER:
                return _required(self.user)[self.shards[client]]
            case Unit.CLIENT:
                return np.full(len(self.shards[client]), client)
            case _:
                assert_never(self.unit)

    def units_of(self, client: int) -> Integers:
        """Return the numbers of the units whose records a client holds, ascending."""
        return np.array([client]) if self.unit is Unit.CLIENT else np.unique(self.unit_of_records(client))

    def by_record(self, client: int, of_units: Flags) -> Flags:
        """Repeat each unit's flag for all its records in a client's shard; return bool (trials, records).

        Shapes: `of_units` (trials, units of the client).
        """
        if self.unit is Unit.RECORD:
            return of_units
        return of_units[:, np.searchsorted(self.units_of(client), self.unit_of_records(client))]

    @property
    def target(self) -> int:
        """Index, from 0, of the differing unit: the unit that is in D and not in D'."""
        return self.public.pair.index

    @property
    def insider(self) -> int:
        """Number of the insider, the attacking client: the first client without the differing unit; 0 without other
        clients.
        """
        return next((client for client in range(len(self.shards)) if client != self.victim), 0)

    @property
    def colluders(self) -> tuple[int, ...]:
        """Numbers of the clients that tell the insider the seeds of their noise.

        These clients have the next numbers after the insider's; after the last number, 0 follows. The client that holds
        the differing unit is left out.
        """
        other_clients = ((self.insider + step) % len(self.shards) for step in range(1, len(self.shards)))
        return tuple(
            islice((client for client in other_clients if client != self.victim), self.public.threat_model.colluders)
        )

    @cached_property
    def targets(self) -> Integers:
        """Numbers of the targets, the units whose membership is random, ascending."""
        if self.public.candidate_column is not None:
            return np.append(self.target, np.arange(self.public.records, self.public.records_held))
        other_units = np.delete(np.arange(self.units), self.target)
        draw = generator(self.public.data_seed, Purpose.TARGET_CHOICE)
        return np.sort(np.append(draw.choice(other_units, self.public.targets - 1, replace=False), self.target))

    @cached_property
    def _records_of_targets(self) -> list[Integers]:
        """For each target, in the order of `targets`, the positions in D of its records."""
        match self.unit:
            case Unit.RECORD:
                return [np.array([target]) for target in self.targets]
            case Unit.USER:
                return [np.flatnonzero(_required(self.user) == target) for target in self.targets]
            case Unit.CLIENT:
                return [self.shards[client] for client in self.targets]
            case _:
                assert_never(self.unit)

    @cached_property
    def target_records(self) -> Integers:
        """Positions in D of the records of all targets, in the order of `targets`."""
        return np.concatenate(self._records_of_targets)

    @cached_property
    def target_of_records(self) -> Integers:
        """Index in `targets` of the target to which each record of `target_records` belongs."""
        return np.repeat(np.arange(len(self.targets)), [len(target) for target in self._records_of_targets])

    @property
    def test_records(self) -> Records:
        """Test records: records that no client holds, on which accuracy is measured."""
        return _required(self.held_out).test

    @property
    def population_records(self) -> Records:
        """Records from outside D and D' with which attacks compare members, or the test records if too few are left."""
        return _required(self.held_out).population

    @property
    def spare(self) -> Integers:
        """Positions, among the records outside D, of those that have no use in the run."""
        return _required(self.held_out).spare

    @cached_property
    def test(self) -> Examples:
        """Test records as tensors; `AssertionError` in a client's process, because clients get no test records."""
        return self.examples(self.test_records)

    @cached_property
    def population(self) -> Examples:
        """Population sample as tensors; `AssertionError` in a client's process, which has none."""
        return self.examples(self.population_records)

    def examples(self, records: Records) -> Examples:
        """Return records as tensors on the federation's device, passed through the frozen core if there is one."""
        return Examples.of(records, self.public.device, self.core)

    @cached_property
    def differing(self) -> Examples:
        """Records of D that belong to the targets: for each target one record, or all records of a user or client."""
        if len(self.training.labels) > 0:
            return self.training.take(self.target_records)
        # In the hands of the victim, who has its own shard alone.
        return self.shard(self.victim).take(np.flatnonzero(self.differs(self.victim)))

    @cached_property
    def common(self) -> Examples:
        """Records of D that are in every trial, because they belong to no target."""
        return self.training.take(self.common_records)

    @property
    def common_records(self) -> Integers:
        """Positions in D of the records that belong to no target; `common` holds these records."""
        return np.delete(np.arange(len(self.training.labels)), self.target_records)

    @cached_property
    def directions(self) -> Tensor:
        """Public orthonormal directions along which noise is measured, float32 (coordinates, directions); at most 16.

        The coordinates are an evenly spread subset of the model parameters, see `NoiseMeasurer`.
        """
        size = min(self.model.layout.size, _COORDINATES)
        tensor = orthonormal_directions(self.public.data_seed, size, number_of_directions(self.model.layout.size))
        return tensor.to(self.public.device)

    @cached_property
    def holders(self) -> dict[int, tuple[int, ...]]:
        """The targets that each client holds, as indices in `targets`, keyed by the client's number.

        Clients without targets are left out.
        """
        units = (self.units_of(client) for client in range(len(self.shards)))
        holdings = enumerate(np.flatnonzero(np.isin(self.targets, unit)).tolist() for unit in units)
        return {client: tuple(targets) for client, targets in holdings if targets}

    def targets_of(self, client: int) -> tuple[int, ...]:
        """Return the positions in `targets` of the targets that a client holds; empty if the client holds none."""
        return self.holders.get(client, ())

    def shard_without_targets(self, client: int) -> Examples:
        """Return the records of a client's shard that belong to no target, and so are in every trial; cached."""
        if (client, False) not in self._held:
            # Most clients hold no target. The whole shard is then returned, and not copied.
            whole = self.shard(client)
            stays = ~self.differs(client)
            self._held[client, False] = whole if stays.all() else whole.take(np.flatnonzero(stays))
        return self._held[client, False]

    def shard(self, client: int) -> Examples:
        """Return all records of a client's shard, with the records of targets; the result is cached."""
        if (client, True) not in self._held:
            self._held[client, True] = self.training.take(self.shards[client])
        return self._held[client, True]

    def raw_features(self, client: int) -> Floats32:
        """Return the features of a client's shard before local randomization, (records, *shape).

        For the client that holds the differing unit, the records that replace it in D' follow the shard. Only for a
        federation with a local randomizer.
        """
        if client in self._raw:
            return self._raw[client]
        assert self.raw is not None, "a federation with a randomizer keeps the records"
        shard = self.raw.inside.features[self.shards[client]]
        instead = self.raw.replacement
        is_alone = client != self.victim or instead is None
        return shard if is_alone else np.concatenate([shard, _required(instead).features])

    def receive(self, client: int, shard: Examples, raw: Floats32 | None) -> None:
        """Store a client's data in the federation of the client's process.

        A federation is sent to other processes without the clients' data.
        """
        self._held[client, True] = shard
        if raw is not None:
            self._raw[client] = raw

    def present(self, client: int, membership: TargetMembership) -> Flags:
        """Return whether each record of a client's shard is in the training set of each trial, bool (trials,
        records)."""
        is_held = np.ones((membership.trials, len(self.shards[client])), dtype=np.bool_)
        marks = self.differs(client)
        own_targets = self.targets[list(self.targets_of(client))]
        is_held[:, marks] = membership.is_in[:, np.searchsorted(own_targets, self.unit_of_records(client)[marks])]
        return is_held

    def differs(self, client: int) -> Flags:
        """Return whether each record of a client's shard belongs to a target, bool (records,)."""
        return np.isin(self.unit_of_records(client), self.targets)

    @property
    def offers_noise_measurement(self) -> bool:
        """Whether the noise can be measured in the directions orthogonal to the difference of D and D'.

        False if units are sampled in secret and the differing unit has a replacement: the mean of the release is then
        unknown in the plane of the two contributions, and not only along their difference.
        """
        return not (self.public.is_secretly_sampled and self.replacement is not None)

    def losses(self, models: Tensor, examples: Examples | None) -> Floats:
        """Return the cross-entropy loss of each of n examples under each trial's model, float64 (trials, n).

        Shapes: `models` (trials, parameters).
        """
        if examples is None or len(examples.labels) == 0:
            return np.empty((len(models), 0))
        return np.asarray(self.model.losses(models, examples.features, examples.labels).double().cpu().numpy())


_BROUGHT: dict[Federation, LoadedFederation] = {}
"""Federations that were brought to this process, which has no data of them."""


def register_federation(federation: LoadedFederation) -> None:
    """Make `load_federation` return this federation in this process without reading the data files."""
    _BROUGHT[federation.public] = federation
    load_federation.cache_clear()


@lru_cache(maxsize=4)
def load_federation(federation: Federation) -> LoadedFederation:
    """Load the data of a federation and build its model, or return the federation registered by `register_federation`.

    Raises `InputError` if the data or the model cannot be used.
    """
    settle_device(federation.device)
    if federation in _BROUGHT:
        return _BROUGHT[federation]
    source = load_source(federation.data)
    split = split_of(federation)
    shards = shards_of(federation, split.inside)
    user = users_of(split.inside) if federation.mechanism.unit is Unit.USER else None
    victim = victim_of(federation, split.inside, shards)
    replacement, indices_left = outside_of(federation, split, shards[victim])
    inside = with_crafted(split.inside, federation.pair.index, federation.pair.crafted)
    if federation.candidate_column is not None:
        inside = with_values(inside, federation.pair.index, source, federation.candidate_column)
        further = np.arange(federation.records, federation.records_held)
        shards = tuple(np.append(shard, further) if client == victim else shard for client, shard in enumerate(shards))
    spec = model_for(federation.model, split.inside)
    model = StackedModel.of(spec, probe_records(source)).sized_for_device(federation.device)
    model = model.clipping_in(federation.mechanism.clipping.measured_in).trained_with(federation.mechanism.loss)
    core = model.frozen_module if federation.weights is None else load_core(federation.weights)
    return LoadedFederation(
        public=federation,
        training=_examples(inside, user, federation, core),
        replacement=None if replacement is None else _examples(replacement, user, federation, core),
        shards=shards,
        victim=victim,
        held_out=held_out_of(federation, split, indices_left),
        classes=split.inside.classes,
        model=model,
        core=core,
        user=user,
        inputs=split.inside.inputs,
        raw=None if federation.local_randomizer is None else UnrandomisedRecords(inside, replacement),
    )


def _examples(records: Records, user: Integers | None, federation: Federation, core: nn.Module | None) -> Examples:
    """Return records as tensors, passed through the frozen core, with their users only if users are the units."""
    examples = Examples.of(records, federation.device, core)
    return examples if user is not None else replace(examples, user=None)


def _required(value: T | None) -> T:
    assert value is not None, "nobody asks for what this party does not have"
    return value
