"""Local randomization: every owner randomises its own records once, before any training on them.

An owner draws from its secret seed, keyed by trial and client. So the randomised records of a trial are the same in
every round, on every engine, and however many trials are trained together. A process caches up to 512 MiB of randomised
records between rounds: bits as bytes, other values as 32-bit numbers. Further records are drawn again in every round.
During a call, the records of its trials take additional memory.

Training uses randomised records; queries use the original records. Accuracy is measured on original test records, and
members' losses and attacks concern the original records. Bernau et al. 2019 (section 3.3) do the same: shadow models
learn from perturbed records, and the attack model learns from the shadow models' outputs on unperturbed records, so
that it does not learn to recognise perturbed records.

The module also defines the pair of records whose randomised versions an adversary has to distinguish (`record_pair`).
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fl_audit.array_types import Floats32
from fl_audit.data.randomizers import LaplacePixelation, Lean, LocalRandomizer, RandomisedEdges
from fl_audit.federation.loaded_federation import LoadedFederation, UnrandomisedRecords
from fl_audit.federation.local_dpsgd import ClientRandomness
from fl_audit.federation.record_tensors import Examples
from fl_audit.learning.frozen_backbones import passed_through
from fl_audit.privacy.events import ReleaseEvent
from fl_audit.randomness import Purpose, generator

_BYTES_HELD = 2**29
"""Bytes that a process holds at most: 512 MiB, such as 600 bits, a byte each, of 1,000 records in 894 trials."""

_STEPS = 64
"""Different releases that tell two images apart, at most: with 250 their composition takes a quarter of a minute."""


class _TensorCache:
    """Thread-safe cache of tensors that is bounded in bytes and drops the least recently used tensor first."""

    def __init__(self, most_bytes: int = _BYTES_HELD) -> None:
        self._most = most_bytes
        self.bytes = 0  # memory of the tensors, at most the memory that they may take
        self._held: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: tuple[int, ...]) -> Tensor | None:
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
            return self._held.get(key)

    def hold(self, key: tuple[int, ...], tensor: Tensor) -> None:
        """Cache a tensor without copying it; a tensor larger than the bound is not cached."""
        with self._lock:
            if key in self._held or tensor.nbytes > self._most:
                return
            self._held[key] = tensor
            self.bytes += tensor.nbytes
            while self.bytes > self._most:
                self.bytes -= self._held.popitem(last=False)[1].nbytes


_HELD = _TensorCache()


@dataclass(frozen=True)
class LocallyRandomisedRecords:
    """Randomised records on which a client trains instead of its own, in each trial of a batch of trials."""

    shard: Examples  # the client's randomised shard, different in every trial
    # Randomised replacement of the client's differing unit in D'; None if there is no replacement.
    replacement: Examples | None


def randomised_shard(
    federation: LoadedFederation, client: int, randomness: ClientRandomness
) -> LocallyRandomisedRecords:
    """Return a client's locally randomized records in each trial.

    If the federation has a frozen core (a network that is not trained), the result holds the core's outputs for these
    records.
    """
    tensors = list[Tensor]()
    device = federation.public.device
    for trial in randomness.trials:
        key = (federation.serial, client, randomness.seed, trial)
        tensor = _HELD.find(key)
        if tensor is None:
            tensor = torch.from_numpy(randomised_records(federation, client, randomness.seed, trial))
            if federation.core is not None:
                tensor = passed_through(federation.core.to(device), tensor.float().to(device)).cpu()
            _HELD.hold(key, tensor)
        tensors.append(tensor)
    records = len(federation.shards[client])
    features = torch.stack(tensors).to(device)
    shard = Examples(features[:, :records], federation.shard(client).labels.expand(len(tensors), -1))
    if client != federation.victim or federation.replacement is None:
        return LocallyRandomisedRecords(shard, None)
    return LocallyRandomisedRecords(
        shard, Examples(features[:, records:], federation.replacement.labels.expand(len(tensors), -1))
    )


def randomised_records(
    federation: LoadedFederation, client: int, seed: int, trial: int, first: int | None = None
) -> Lean:
    """Return the features of a client's records after local randomization in one trial, (records, *shape).

    If the model has frozen pretrained layers, the features have not passed through them yet.

    `first`: Records that replace the differing unit in D' follow the shard.
    """
    assert federation.public.local_randomizer is not None, "asked only where records are randomised"
    source = generator(seed, Purpose.LOCAL_RANDOMIZER, trial=trial, client=client)
    return federation.public.local_randomizer.perturb(federation.raw_features(client)[:first], source)


@dataclass(frozen=True, eq=False)
class PlacedRecord:
    """A record of D or D', with the client that owns it and its position among the owner's records."""

    client: int  # number of the client that owns the record
    # Position among the records that the owner randomises: first the records of its shard, then the records that
    # replace its differing unit in D'.
    place: int
    features: Floats32  # shape (*shape), as the owner holds them


class RecordsToDistinguish(NamedTuple):
    """Two records of the same shape that an adversary has to distinguish after local randomization."""

    first: PlacedRecord  # the first record of the first target
    # Its replacement in D', or else the record of D that is farthest from it; the first one if there are several.
    second: PlacedRecord
    differing: int  # number of features in which they differ: bits, pairs of nodes, or pixels


@dataclass(frozen=True)
class LocalRandomizerGuarantee:
    """Guarantee of local randomization for a single record, as release events that an accountant composes."""

    local_randomizer: LocalRandomizer  # mechanism by which owners randomise their records
    shape: tuple[int, ...]  # shape of a record: of its features, (nodes, nodes) for a graph, or of an image
    # Releases that bound how well the two records of `record_pair` can be told apart; None if there is no such pair.
    pair: tuple[ReleaseEvent, ...] | None
    differing: int | None  # number of features in which they differ


def record_claim(federation: LoadedFederation) -> LocalRandomizerGuarantee | None:
    """Return the guarantee that the local randomizer claims for a single record; None without local randomization."""
    local_randomizer = federation.public.local_randomizer
    if local_randomizer is None or federation.raw is None:
        return None
    records = federation.raw.inside
    pair = record_pair(federation)
    shape = (records.shape[0], records.shape[0]) if records.graphs else records.shape
    if pair is None:
        return LocalRandomizerGuarantee(local_randomizer, shape, None, None)
    first = pair.first.features
    second = pair.second.features
    if isinstance(local_randomizer, LaplacePixelation):
        events = local_randomizer.pair_events(first, second, _STEPS)
    else:
        events = local_randomizer.pair_events(first, second)
    return LocalRandomizerGuarantee(local_randomizer, shape, events, pair.differing)


def record_pair(federation: LoadedFederation) -> RecordsToDistinguish | None:
    """Return the public pair of records that an adversary has to distinguish after local randomization.

    The first record belongs to the first target. The second is the replacement of this record in D'. If there is no
    comparable replacement, it is the comparable record of D that is farthest from the first record. Graphs are
    comparable only if they have equally many nodes, because randomization keeps this number. The result is None if no
    record is comparable.
    """
    instead = _raw(federation).replacement
    number = int(federation.target_records[0])
    first = _placed(federation, number)
    seconds = []
    if instead is not None:
        seconds.append(PlacedRecord(federation.victim, len(federation.shards[federation.victim]), instead.features[0]))
    if (farthest := _farthest(federation, number)) is not None:
        seconds.append(_placed(federation, farthest))
    for second in seconds:
        differing_record = _differing(federation, first.features, second.features)
        if differing_record is not None:
            return RecordsToDistinguish(first, second, differing_record)
    return None


def _placed(federation: LoadedFederation, number: int) -> PlacedRecord:
    client = next(owner for owner, shard in enumerate(federation.shards) if number in shard)
    position = int(np.flatnonzero(federation.shards[client] == number)[0])
    return PlacedRecord(client, position, _raw(federation).inside.features[number])


def _farthest(federation: LoadedFederation, number: int) -> int | None:
    """Return the position in D of the record farthest from the record at `number`; None if no record is comparable."""
    records = _raw(federation).inside
    record_features = records.features[number]
    if records.graphs:
        counts = (_differing(federation, record_features, feature) for feature in records.features)
        distances = np.array([-1.0 if count is None else float(count) for count in counts])
    else:
        distances = np.array([float(np.square(feature - record_features).sum()) for feature in records.features])
    distances[number] = -1.0
    farthest = int(distances.argmax())
    return farthest if distances[farthest] >= 0 else None


def _differing(federation: LoadedFederation, first: Floats32, second: Floats32) -> int | None:
    assert federation.public.local_randomizer is not None, "asked only where records are randomised"
    if isinstance(federation.public.local_randomizer, RandomisedEdges):
        return federation.public.local_randomizer.differing(first, second)
    return int(np.count_nonzero(first != second))


def _raw(federation: LoadedFederation) -> UnrandomisedRecords:
    assert federation.raw is not None, "a federation with a randomizer keeps the records"
    return federation.raw
