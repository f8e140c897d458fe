"""Flower client mods for canaries in a running federation: one mod sends canaries, another scores received models.

A canary is an update in a known random direction, which a client sends or leaves out by a secret coin.

    app = ClientApp(mods=[canary_mod(Canary(0, directions=11, coins=secret, clipping_norm=1.0))])

The app trains as usual, and then its update is replaced by the canary. With client-side clipping, list the clipping mod
before this one, so that the canary is clipped as well. This module needs numpy, but not torch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable, Mod
from numpy.typing import NDArray

from fl_audit.app_audits.live.observer_store import TrainingObserver, printing_errors, seed_in
from fl_audit.app_audits.live.reported_canary_properties import NOTE, ReportedCanaryProperties, fingerprint
from fl_audit.array_types import Floats
from fl_audit.audits.canaries.canary_draws import canary_coin, canary_direction, canary_update
from fl_audit.errors import InputError, require
from fl_audit.randomness import require_seed
from fl_audit.value_checks import require_number
from fl_audit.words import name_list

_OLD_METRICS = "fitres.metrics"
_ANNOUNCED = "clipping_norm"
"""Configuration key under which Flower's strategies for client-side clipping send the clipping norm of a round."""
_ROUND_NAMES = ("server-round", "server_round", "current_round")
_NOTHING = 1e-3
"""Norm of the update that is sent instead of zero, as a multiple of the clipping norm.

Flower's clipping divides by the norm of an update, so that zero would fail.
"""
_BESIDE = 10**6  # offset of the number of the direction of this update, so that it is no direction of a canary
_LAST = "fl-audit-last-model"
_LAST_ROUND = "fl-audit-last-round"


@dataclass(frozen=True)
class Canary:
    """Settings of a client's canary.

    A secret coin decides in each round whether the client sends the canary or leaves it out.
    """

    number: int  # number of the canary, from 0
    directions: int  # seed of the directions, which the observer knows too
    coins: int  # random seed of the coins, known only to the clients that send canaries and to the later analysis
    # C, above 0. A norm that the server sends in a round is used instead. If the server clips at its own norm, any
    # larger number may be given here.
    clipping_norm: float
    # Whether the adjacency of the guarantee is replacement instead of add-remove. The opposite of a canary is then sent
    # if the canary is out.
    is_replaced: bool = False

    def __post_init__(self) -> None:
        require_number("number is", self.number, "whole numbers from 0")
        _require_shared(self.directions, self.clipping_norm)
        require_seed("coins", self.coins, is_secret=True)
        apart = self.directions != self.coins
        require(apart, "coins and directions have one seed: accepted are two, since who sees releases knows the latter")

    def update(self, server_round: int, dimension: int, clipping_norm: float) -> Floats:
        """Return the update that a client sends in a round instead of its own, shape (dimension,).

        If the secret coin says "in", the update is the canary, a vector of norm `clipping_norm`. Otherwise it is the
        negative of the canary under replacement (`is_replaced`), and an update of nearly zero under add-remove
        adjacency.
        """
        is_in = canary_coin(self.coins, server_round, self.number)
        if is_in or self.is_replaced:
            direction = canary_direction(self.directions, server_round, self.number, dimension)
            return canary_update(direction if is_in else -direction, clipping_norm).astype(np.float64)
        beside = canary_direction(self.directions, server_round, _BESIDE + self.number, dimension)
        return _NOTHING * clipping_norm * beside

    def note(self, dimension: int, clipping_norm: float) -> str:
        """Return text that the client adds to its reply: it gives the observer the canary's settings, but not its
        coin.
        """
        seeds = fingerprint(self.coins), fingerprint(self.directions)
        return str(ReportedCanaryProperties(self.number, self.is_replaced, *seeds, dimension, clipping_norm))


def _require_shared(directions: int, clipping_norm: float) -> None:
    require_seed("directions", directions)
    require_number("clipping_norm is", clipping_norm, "positive finite numbers")


def canary_mod(canary: Canary) -> Mod:
    """Return a Flower mod that sends a canary instead of the app's trained model.

    The mod raises `InputError` in a round whose message has no floating-point model or no round number.
    """

    def send(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if not message.metadata.message_type.startswith("train"):
            return call_next(message, context)
        model = _model(message)
        server_round = _round(message)
        before = {name: array.numpy() for name, array in model.items()}
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        sizes = [value.size if value.dtype.kind == "f" else 0 for value in before.values()]
        norm = float(cast(float, _numbers(message).get(_ANNOUNCED, canary.clipping_norm)))
        update = canary.update(server_round, sum(sizes), norm)
        segments = np.split(update, np.cumsum(sizes)[:-1])
        sent = {
            name: Array(np.asarray(value + segment.reshape(value.shape).astype(value.dtype)) if segment.size else value)
            for (name, value), segment in zip(before.items(), segments, strict=True)
        }
        name, trained = next(iter(reply.content.array_records.items()))
        # A reply of the old interface may rename the tensors, but keeps their order.
        reply.content[name] = ArrayRecord(dict(zip(trained, sent.values(), strict=True)))
        note = reply.content.config_records.get(_OLD_METRICS)
        if note is None:
            note = reply.content[NOTE] = ConfigRecord()
        note[NOTE] = canary.note(sum(sizes), norm)
        return reply

    return send


def canary_of_node(directions: int, clipping_norm: float, is_replaced: bool = False) -> Mod:
    """Return a Flower mod for all clients of an app, which sends a canary if the node's configuration names a canary.

    A SuperNode sends canary 2 if it is started with `--node-config 'canary=2 canary-coins="/path"'`. The file has the
    seed of the coins, which never leaves the node. Other clients train as usual.
    """
    _require_shared(directions, clipping_norm)

    def choose(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        number = context.node_config.get("canary")
        if number is None:
            return call_next(message, context)
        coins = seed_in(Path(str(context.node_config.get("canary-coins", ""))))
        number_text = str(number)
        is_number = number_text.isascii() and number_text.isdecimal()
        require(is_number, f"canary = {number_text!r} in the node's configuration: accepted are whole numbers from 0")
        canary = Canary(int(number_text), directions, coins, clipping_norm, is_replaced)
        return canary_mod(canary)(message, context, call_next)

    return choose


def watching_mod(observer: TrainingObserver) -> Mod:
    """Return a Flower mod that scores the canaries of every round from the global models that a client receives.

    If the server only averages, the difference between the models of rounds t and t + 1 is the release of round t. If
    the two models are equal, the round released nothing. The release of the last round is missing. The mod assumes that
    all canaries replied.

    `observer`: Clients of one run may share its directory.
    """

    def look(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if message.metadata.message_type.startswith("train"):
            with printing_errors("what the last round released"):
                see(message, context)
        return call_next(message, context)

    def see(message: Message, context: Context) -> None:
        now = _model(message)
        number = _round(message)
        records = context.state
        last = records.array_records.get(_LAST)
        config = records.config_records.get(_LAST_ROUND)
        if last is not None and config is not None and config["round"] == number - 1:
            properties = map(ReportedCanaryProperties, range(observer.canaries))
            before, after = _tensors(last), _tensors(now)
            observer.store_scores(number - 1, before, after, properties, run=message.metadata.run_id, models_only=True)
        records[_LAST], records[_LAST_ROUND] = ArrayRecord(dict(now)), ConfigRecord({"round": number})

    return look


def _tensors(model: ArrayRecord) -> list[NDArray[Any]]:
    return [array.numpy() for array in model.values()]


def _model(message: Message) -> ArrayRecord:
    arrays = next(iter(message.content.array_records.values()), None)
    if arrays is None or not any(tensor.dtype.kind == "f" for tensor in _tensors(arrays)):
        raise InputError("a message to train holds no model of floating-point numbers: accepted is one")
    return arrays


def _numbers(message: Message) -> dict[str, object]:
    return {name: value for record in message.content.config_records.values() for name, value in record.items()}


def _round(message: Message) -> int:
    numbers = _numbers(message)
    round_number = next((numbers[name] for name in _ROUND_NAMES if name in numbers), message.metadata.group_id)
    try:
        return int(str(round_number))
    except ValueError:
        accepted = f"accepted is one of {name_list(_ROUND_NAMES, 'or')} in its configuration"
        raise InputError(f"a message to train names no round: {accepted}") from None
