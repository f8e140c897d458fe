"""Clients of a round that are called one after the other in one process: those of one world train together.

An engine that has several messages at hand announces them in the thread that is going to answer them. What is announced
changes no answer: a client contributes to the last bit what it contributes when it is called alone.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from flwr.app import Message

from fl_audit.game.contributing import Contributed, Moment, contributed_together, trains_together
from fl_audit.game.game import Game


@dataclass
class _Cohort(threading.local):
    """Clients whose calls follow in this thread, by message, and what those that trained already contribute."""

    waiting: dict[str, int] = field(default_factory=dict)
    made: dict[str, Contributed] = field(default_factory=dict)


_COHORT = _Cohort()


def announce(clients: dict[str, int]) -> None:
    """Take note of the clients that are asked to train on one world next in this thread, by identity of the message.

    They are asked for the same round of the same game, with the same models. What was announced before is forgotten.
    """
    _COHORT.waiting, _COHORT.made = dict(clients), {}


def trained_together(
    game: Game, message: Message, models: torch.Tensor, moment: Moment, alone: Callable[[], Contributed]
) -> Contributed:
    """Return what the client of a message contributes: worked out with those that were announced, or `alone`.

    Parameters
    ----------
    game
        The game.
    message
        What the client was sent.
    models
        Its models, float32 (worlds, parameters).
    moment
        The round.
    alone
        Works out the same for this client by itself.
    """
    identity, cohort = message.metadata.message_id, _COHORT
    if identity in cohort.waiting:
        clients = {message: client for message, client in cohort.waiting.items() if client != game.victim}
        cohort.waiting = {}
        if len(clients) > 1 and len(models) == 1 and trains_together(game, tuple(clients.values())):
            found = contributed_together(game, tuple(clients.values()), models, moment)
            cohort.made = dict(zip(clients, found, strict=True))
    return cohort.made.pop(identity, None) or alone()
