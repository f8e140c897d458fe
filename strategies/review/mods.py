"""The modifiers of an app's clients, as games play them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import flwr.clientapp.client_app as flower_client
import flwr.clientapp.mod as new_mods
from flwr.app import Context, Message, UserConfig
from flwr.clientapp import ClientApp

from strategies.games.subject import Mod

AGREED = "secure aggregation is not played: games see the sum of plain replies, as the server would"
_AGREEING = ("secaggplus_mod", "secagg_mod")

NotedMods = Mapping[int, Sequence[Mod]]
"""Modifiers by the identity of the function that they were put around."""


@dataclass(frozen=True)
class PlayedMod:
    """A modifier in the place where an app has it."""

    mod: Mod  # the modifier itself
    types: frozenset[str] | None  # the message types that it is put around; None for all
    config: UserConfig  # the run configuration of the app, which the contexts of games lack

    def __call__(self, message: Message, context: Context, call_next: Callable[..., Message]) -> Message:
        """Answer a message, through the modifier if it is there for such messages."""
        if self.types is not None and message.metadata.message_type not in self.types:
            return call_next(message, context)
        context.run_config = self.config
        # By place, as Flower does: people call the third argument as they like.
        return self.mod(message, context, call_next)


@contextmanager
def noted_mods() -> Iterator[NotedMods]:
    """Note the modifiers that functions of client apps are given, while the code of an app is imported."""
    noted, kept, make = dict[int, Sequence[Mod]](), list[object](), vars(flower_client)["make_ffn"]

    def made(function: Callable[..., Message], mods: list[Mod]) -> Callable[..., Message]:
        found: Callable[..., Message] = make(function, mods)
        noted[id(found)] = tuple(mods)
        kept.append(found)
        return found

    with patch.dict(vars(flower_client), make_ffn=made):
        yield noted


def client_mods(
    client: ClientApp, noted: NotedMods, config: Mapping[str, Any]
) -> tuple[tuple[PlayedMod, ...], list[str]]:
    """Return the modifiers of an app's clients that can be played, and what is said of the others.

    Parameters
    ----------
    client
        The client app: its modifiers are for all messages, or for those of one of its functions.
    noted
        What was noted when it was imported.
    config
        The run configuration of the app.
    """
    placed: list[tuple[Mod, frozenset[str] | None]] = [(mod, None) for mod in client._mods]
    if client._registered_funcs:
        placed = [
            (mod, frozenset({name, name.removesuffix(".default")}))
            for name, function in client._registered_funcs.items()
            for mod in noted.get(id(function), client._mods)
        ]
    played = [
        PlayedMod(_in_new_form(mod), types, UserConfig(dict(config)))
        for mod, types in placed
        if _name(mod) not in _AGREEING
    ]
    return tuple(played), [AGREED] if len(played) < len(placed) else []


def _name(mod: Mod) -> str:
    return str(getattr(mod, "__name__", type(mod).__name__))


def _in_new_form(mod: Mod) -> Mod:
    """Return a modifier of Flower's for messages of the new interface: games have no others."""
    if getattr(mod, "__module__", "").startswith("flwr.client.mod"):
        found: Callable[..., Any] | None = getattr(new_mods, _name(mod), None)
        if isinstance(found, type):
            return found(mod.clipping_norm, mod.sensitivity, mod.epsilon, mod.delta)  # type: ignore[attr-defined]
        return found or mod
    return mod
