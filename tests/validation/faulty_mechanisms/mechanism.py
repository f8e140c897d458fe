"""An honest federated mechanism as a Flower strategy, made of parts; every faulty mechanism of the catalogue changes
one.

A round clips every client's update to the norm, adds them up with equal weights, divides by the number of clients that
were asked, adds Gaussian noise, and rounds to a fixed grid. What every step does is a value of `Mechanism`; nothing
here knows which values are honest.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fl_audit.array_packing import pack, unpack
from fl_audit.array_types import Floats
from tests.validation.faulty_mechanisms import parts
from tests.validation.faulty_mechanisms.parts import Arrays, Reply, Said, ServerRound


@dataclass(frozen=True)
class Mechanism:
    """A server's treatment of its clients' replies."""

    multiplier: float  # standard deviation of the noise on the sum, over the clipping norm
    norm: float = 1.0  # the clipping norm, or the first one where it moves
    clip: Callable[[Arrays, float], Arrays] = parts.whole_update  # from an update and a norm to what is added up
    # Clipping of a round's updates together, from this round and the last one, in place of `clip`; None for `clip`.
    clip_round: Callable[[ServerRound, ServerRound | None], Sequence[Arrays]] | None = None
    weights: Callable[[ServerRound], Floats] = parts.equal_weights  # of the replies, shape (replies,)
    # From the clipped updates, their weights and the norm to what is released but for the noise.
    combine: Callable[[Sequence[Arrays], Floats, float], Arrays] = parts.weighted_sum
    # Processing before noise is added; an honest mechanism has none.
    clip_mean: Callable[[Arrays, float], Arrays] = parts.untouched
    # Standard deviation of the noise on the mean: of multiplier, round and the norm of the next round.
    deviation: Callable[[float, ServerRound, float], float] = parts.of_the_sum
    # Whether a tensor of some name and number of axes gets noise.
    is_noised: Callable[[str, int], bool] = lambda name, axes: True
    # From the secret of a run and the round to the generator of the noise.
    source: Callable[[int, int], np.random.Generator] = parts.fresh
    add: Callable[[Floats, Floats], Floats] = parts.on_grid  # adds noise to the mean, in some arithmetic
    # The clipping norm of the next round: from this one and a source of noise.
    next_norm: Callable[[ServerRound, np.random.Generator], float] = lambda this, noise: this.norm
    metrics: Callable[[ServerRound], Mapping[str, float]] = lambda this: {}  # numbers released beside the model
    # Values in messages to clients beside the model: of the last round, if any, and the clipping norm.
    said: Callable[[ServerRound | None, float], Said] = lambda last, norm: {}
    buffers: Callable[[ServerRound], Arrays] = lambda this: {}  # arrays released beside the parameters

    def with_(self, **changed: object) -> "Mechanism":
        """Return the mechanism with some parts changed."""
        return replace(self, **changed)  # type: ignore[arg-type]

    def strategy(self, _clients: int) -> Strategy:
        """Return a new run of the mechanism, for any number of clients."""
        return MechanismStrategy(self)


class MechanismStrategy(Strategy):
    """A run of a mechanism.

    The secret of its noise comes from Python's global generator, which a black-box audit seeds. Trials can be repeated
    so; a mechanism in use takes its secret from the operating system.
    """

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism
        self._secret = random.getrandbits(63)
        self._norm = mechanism.norm
        self._asked = 0
        self._sent: dict[str, NDArray[np.generic]] = {}
        self._last: ServerRound | None = None

    def summary(self) -> None:
        """Do nothing."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every client."""
        self._sent = {name: unpack(array) for name, array in arrays.items()}
        client_config = {"server-round": server_round, **self._mechanism.said(self._last, self._norm)}
        nodes = sorted(grid.get_node_ids())
        self._asked = len(nodes)
        return [
            Message(RecordDict({"arrays": arrays, "config": ConfigRecord(dict(client_config))}), node, "train")
            for node in nodes
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Make the release of a round; a missing reply adds nothing, and a malformed one is refused."""
        mechanism = self._mechanism
        # Buffers come back from the server and are no part of an update.
        trained = {name: values for name, values in self._sent.items() if not name.startswith(parts.BUFFER)}
        read = tuple(_read(reply, trained) for reply in replies)
        sent = {name: values.astype(np.float64) for name, values in trained.items()}
        this = ServerRound(server_round, self._asked, self._norm, read, sent)
        noise = mechanism.source(self._secret, server_round)
        clipped = self._clipped(this)
        weights = mechanism.weights(this)
        nothing = {name: np.zeros(values.shape) for name, values in trained.items()}
        mean = mechanism.clip_mean(mechanism.combine(clipped, weights, this.norm) if clipped else nothing, this.norm)
        self._norm, self._last = mechanism.next_norm(this, noise), this
        deviation = mechanism.deviation(mechanism.multiplier, this, self._norm)
        released = {name: self._release(name, mean[name], deviation, noise) for name in sorted(mean)}
        beside = {name: np.asarray(values, np.float32) for name, values in mechanism.buffers(this).items()}
        record = ArrayRecord({name: Array(*pack(values)) for name, values in (released | beside).items()})
        return record, MetricRecord(dict(mechanism.metrics(this)))

    def _clipped(self, this: ServerRound) -> Sequence[Arrays]:
        if self._mechanism.clip_round is not None:
            return self._mechanism.clip_round(this, self._last)
        return [self._mechanism.clip(reply.update, this.norm) for reply in this.replies]

    def _release(self, name: str, mean: Floats, deviation: float, noise: np.random.Generator) -> NDArray[np.generic]:
        """Return a tensor of the next model, in the type in which it was sent."""
        noise_values = noise.standard_normal(mean.shape) * deviation
        if not self._mechanism.is_noised(name, mean.ndim):
            noise_values = np.zeros(mean.shape)
        sent = self._sent[name]
        moved = sent.astype(np.float64) + self._mechanism.add(mean, np.asarray(noise_values))
        match sent.dtype.kind:
            case "i":
                moved = np.rint(moved)
            case "b":
                moved = np.rint(np.clip(moved, 0.0, 1.0))
        return np.asarray(moved).astype(sent.dtype)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask nobody: evaluations by clients would be releases without noise."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return nothing."""
        return None


def _read(message: Message, trained: Mapping[str, NDArray[np.generic]]) -> Reply:
    """Return a client's update of the parameters that it received, or refuse the reply."""
    if message.has_error():
        raise ValueError("a client answered with an error: accepted are replies with arrays")
    arrays = {name: unpack(array) for name, array in message.content.array_records["arrays"].items()}
    if set(arrays) != set(trained):
        raise ValueError(f"a reply has the tensors {sorted(arrays)}: accepted are {sorted(trained)}")
    for name, values in arrays.items():
        if values.shape != trained[name].shape:
            raise ValueError(f"{name} of a reply has shape {values.shape}: accepted is {trained[name].shape}")
        if not np.isfinite(values).all():
            raise ValueError(f"{name} of a reply has a value that is no number: accepted are finite ones")
    update = {name: values.astype(np.float64) - trained[name].astype(np.float64) for name, values in arrays.items()}
    metrics = [entry for record in message.content.metric_records.values() for entry in record.items()]
    return Reply(update, {name: float(value) for name, value in metrics if isinstance(value, (int, float))})
