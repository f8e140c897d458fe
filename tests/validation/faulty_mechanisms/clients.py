"""The clients in the catalogue: their work on records, and modifiers that clip and add noise on the client's side."""

import random
from collections.abc import Callable

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message

from fl_audit.app_audits.black_box.audited_system import Local, LocalReply, Mod
from fl_audit.array_packing import pack, unpack
from fl_audit.array_types import Flags, Floats
from fl_audit.randomness import Purpose, generator
from tests.validation.faulty_mechanisms.parts import RUNNING_MEAN, Arrays, on_grid, whole_update

EXPECTED_RECORDS = 4
"""Planned number of records in a shard: a public number, whatever the shard really has."""


def _clipped(gradients: Floats, norm: float) -> Floats:
    """Return gradients of records (records, parameters), each clipped to the norm."""
    lengths = np.linalg.norm(gradients, axis=-1, keepdims=True)
    return np.asarray(gradients * np.minimum(1.0, norm / np.maximum(lengths, 1e-300)))


def mean_of_expected(gradients: Floats, _round: int, _random: np.random.Generator) -> LocalReply:
    """Clip every record to 1, and divide the sum by a public number."""
    return LocalReply(_clipped(gradients, 1.0).sum(axis=0) / EXPECTED_RECORDS, EXPECTED_RECORDS)


def mean_of_those_there(gradients: Floats, _round: int, _random: np.random.Generator) -> LocalReply:
    """Clip every record to 1, and divide the sum by the real number of records."""
    return LocalReply(_clipped(gradients, 1.0).mean(axis=0), EXPECTED_RECORDS)


def clipped_batch(gradients: Floats, _round: int, _random: np.random.Generator) -> LocalReply:
    """Average the batch, and clip the average to 1."""
    return LocalReply(_clipped(gradients.mean(axis=0), 1.0), EXPECTED_RECORDS)


def with_running_mean(gradients: Floats, round: int, random: np.random.Generator) -> LocalReply:
    """Send the mean over records of a normalisation layer's inputs, here their gradients' entries, beside the rest."""
    reply = mean_of_expected(gradients, round, random)
    return LocalReply(reply.update, reply.examples, {RUNNING_MEAN: float(gradients.mean())})


def _on_batch(chosen: Callable[[int, int, np.random.Generator], Flags | slice]) -> Local:
    """Return training on a batch, chosen by the number of records, the round and coins; records are clipped to 1."""

    def local(gradients: Floats, round: int, random: np.random.Generator) -> LocalReply:
        batch = gradients[chosen(len(gradients), round, random)]
        return LocalReply(_clipped(batch, 1.0).sum(axis=0), EXPECTED_RECORDS)

    return local


def poisson_batches(rate: float) -> Local:
    """Return training on a batch that every record joins by a coin of its own; records are clipped to 1."""
    return _on_batch(lambda records, _, random: random.random(records) < rate)


def fixed_batches(batches: int) -> Local:
    """Return training that goes through its records in order, one batch a round; records are clipped to 1."""
    return _on_batch(lambda _, round, __: slice((round - 1) % batches, None, batches))


Source = Callable[[Message], np.random.Generator]
"""A function from the server's message to the generator of a client's noise."""


def own_noise(_message: Message) -> np.random.Generator:
    """Return a generator with a secret seed of the client's own."""
    return generator(random.getrandbits(63), Purpose.NOISE_SHARE)


def noise_of_everybody(message: Message) -> np.random.Generator:
    """Return a generator with the seed that the server sends to everybody."""
    seed = next(iter(message.content.config_records.values()))["noise-seed"]
    assert isinstance(seed, int)
    return generator(seed, Purpose.NOISE_SHARE)


def noising(norm: float, deviation: float, source: Source = own_noise) -> Mod:
    """Return a modifier that clips a client's update, adds Gaussian noise, rounds to the grid, and keeps its metrics.

    `source` is the function from which the noise comes.
    """

    def mod(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        sent = _arrays(message)
        reply = call_next(message, context)
        update = {name: values - sent[name] for name, values in _arrays(reply).items()}
        draws = source(message)
        record = {
            name: sent[name] + on_grid(values, draws.standard_normal(values.shape) * deviation)
            for name, values in whole_update(update, norm).items()
        }
        key, before = next(iter(reply.content.array_records.items()))
        reply.content[key] = ArrayRecord(
            {name: Array(*pack(_as_before(values, before[name]))) for name, values in record.items()}
        )
        for name in list(reply.content.metric_records):
            del reply.content[name]
        return reply

    return mod


def _arrays(message: Message) -> Arrays:
    record = next(iter(message.content.array_records.values()))
    return {name: unpack(array).astype(np.float64) for name, array in record.items()}


def _as_before(values: Floats, before: Array) -> np.ndarray:
    """Return values in the type of the array that they replace."""
    dtype = unpack(before).dtype
    return np.asarray(np.rint(values) if dtype.kind == "i" else values).astype(dtype)
