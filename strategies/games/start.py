"""What an app hands to its strategy, kept as it was, so that it can be played again and again."""

import inspect
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy


@dataclass(frozen=True)
class Start:
    """One call of `Strategy.start`."""

    strategy: Strategy  # the app's strategy
    arguments: dict[str, Any]  # what `start` is called with, by name

    def copied(self) -> "Start":
        """Return a copy that shares nothing with this one that a strategy may change; the grid is left out."""
        # What the server evaluates follows from the releases: it tells nothing more, and may have effects elsewhere.
        rest = {name: value for name, value in self.arguments.items() if name not in ("grid", "evaluate_fn")}
        return Start(*deepcopy((self.strategy, rest)))

    def again(self, rounds: int, draws: np.random.Generator, moved: Callable[[str], str] = str) -> "Start":
        """Return a short game of the same app.

        Random generators of its own that the strategy holds go on differently in every game: where their seed came
        from the operating system, the noise of a new run would be new.

        Parameters
        ----------
        rounds, draws
            How many rounds, and where the new states of generators come from.
        moved
            From where something is to where it is in a game: paths that the strategy holds are changed so.
        """
        copies: dict[int, Any] = {}
        strategy, rest = deepcopy((self.strategy, self.arguments), copies)
        for found in list(copies.values()):
            _renew(found, draws)
            _move(found, moved)
        return Start(strategy, rest | {"num_rounds": rounds})

    def played(self, grid: Grid) -> Result:
        """Have the strategy play on a grid."""
        return self.strategy.start(**(self.arguments | {"grid": grid}))


def start_of(strategy: Strategy, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Start:
    """Return a call of `start` with its arguments by name; a `TypeError` as without an audit if it takes others.

    Parameters
    ----------
    strategy, args, kwargs
        Whose `start` was called, with its arguments by position and by name.
    """
    bound = inspect.signature(strategy.start).bind(*args, **kwargs)
    found = dict(bound.arguments)
    # What `start` of a strategy takes beyond names is handed on as it came.
    found |= found.pop("kwargs", {})
    return Start(strategy, found)


def _renew(found: object, draws: np.random.Generator) -> None:
    """Give a random generator a new state."""
    match found:
        case np.random.Generator():
            found.bit_generator.state = type(found.bit_generator)(int(draws.integers(2**32))).state
        case np.random.RandomState() | random.Random():
            found.seed(int(draws.integers(2**32)))
        case torch.Generator():
            found.manual_seed(int(draws.integers(2**32)))
        case _:
            pass


def _move(found: object, moved: Callable[[str], str]) -> None:
    """Change the paths among the attributes of an object, or the values of a dictionary."""
    holder = found if isinstance(found, dict) else getattr(found, "__dict__", None)
    if not isinstance(holder, dict):
        return
    for name, value in list(holder.items()):
        if isinstance(value, (str, Path)) and moved(str(value)) != str(value):
            holder[name] = type(value)(moved(str(value)))


@contextmanager
def spared_generators() -> Iterator[None]:
    """Leave the global random generators behind as they were: what the app draws afterwards is as without games."""
    # Apps of other people draw from numpy's old global generator, as Flower's own wrappers do.
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])


def seed_generators(draws: np.random.Generator) -> None:
    """Seed the global random generators, where most strategies draw their noise, for one game."""
    for seeded in (random.seed, np.random.seed, torch.manual_seed):
        seeded(int(draws.integers(2**32)))
