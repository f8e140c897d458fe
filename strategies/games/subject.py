"""What is on trial: a strategy as its users would build it, with what its clients do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature

import numpy as np
from flwr.app import Message
from flwr.server.strategy import Strategy as OldStrategy
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fl_audit.arrays import Floats
from fl_audit.errors import InputError, require
from fl_audit.user_modules import import_function
from strategies.games.bridge import as_strategy, initial_model
from strategies.games.notes import Observer as Observer

Mod = Callable[..., Message]  # a modifier of Flower's client app: of a message, a context and `call_next`


@dataclass(frozen=True)
class LocalReply:
    """What a client makes of its records in a round."""

    update: Floats  # what its model is ahead of the model that it was sent, shape (parameters,)
    examples: int  # the number of examples that it names
    metrics: Mapping[str, float] = field(default_factory=dict)  # other numbers that it sends


Local = Callable[[Floats, int, np.random.Generator], LocalReply]
"""From the gradients of a client's records (records, parameters), the round from 1, and a generator, to its reply."""


def clipped_sum(norm: float) -> Local:
    """Return local training that sums gradients clipped to a norm, and names the true number of its records."""

    def local(gradients: Floats, _round: int, _random: np.random.Generator) -> LocalReply:
        lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
        factors = np.minimum(1.0, norm / np.maximum(lengths, 1e-300))
        return LocalReply(np.asarray((gradients * factors).sum(axis=0)), len(gradients))

    return local


@dataclass(frozen=True)
class Subject:
    """A strategy on trial, and how its clients behave.

    Raises
    ------
    InputError
        If a number is out of its range.
    """

    # Makes a new strategy, of either of Flower's interfaces, as at the start of a run; it is called once a game. If it
    # takes an argument, that is the number of clients, and games with few and with many are played.
    strategy: Callable[..., Strategy | OldStrategy]
    # Modifiers of the client app that belong to the mechanism, in Flower's order: the first is the outermost.
    mods: tuple[Mod, ...] = ()
    # What clients do with their records, for claims about records; None for sums of clipped gradients.
    local: Local | None = None
    clients: int = 4  # how many take part, at least 2
    norm: float = 1.0  # the clipping norm that the claim refers to, above 0
    # Whether strategy or modifiers clip what clients send. If not, clients are trusted to keep the norm, and no game
    # sends more.
    is_clipped: bool = True
    observer: Observer = Observer.CLIENT  # who looks
    # The initial tensors of an app's own model, by name; None plays models that every strategy can bear.
    model: Mapping[str, NDArray[np.generic]] | None = None
    weight: str = "num-examples"  # the metric under which clients name their number of examples
    # Other metrics that the strategy asks for: clients report their loss under these names too.
    metrics: tuple[str, ...] = ()

    @property
    def has_any_size(self) -> bool:
        """Whether the strategy can be made for any number of clients."""
        return bool(signature(self.strategy).parameters)

    def made(self, clients: int) -> Strategy:
        """Return a new strategy for a number of clients."""
        return as_strategy(self.strategy(clients) if self.has_any_size else self.strategy())

    def __post_init__(self) -> None:
        require(self.clients >= 2, f"clients are {self.clients}: accepted are whole numbers from 2")
        require(0 < self.norm < 1e6, f"norm is {self.norm}: accepted are numbers above 0 and below 1000000")
        if self.observer not in list(Observer):
            raise InputError(f"observer is {self.observer!r}: accepted are {' and '.join(Observer)}")


def subject_of(
    factory: str, mods: Sequence[str], clients: int, norm: float | None, is_clipped: bool, observer: str
) -> Subject:
    """Return the subject that a factory makes, or that is made around its strategy.

    Parameters
    ----------
    factory
        `package.module:name` of a function that returns a strategy of either interface or a subject; if it takes an
        argument, that is the number of clients.
    mods
        `package.module:name` of modifiers of the client app, outermost first.
    clients, norm, is_clipped, observer
        As of `Subject`; a subject that the factory returns has its own. A norm of None is the strategy's, or 1.

    Raises
    ------
    InputError
        If a name cannot be imported, or the factory returns something else.
    """
    make = import_function(factory, "factory")
    made = make(clients) if signature(make).parameters else make()
    if isinstance(made, Subject):
        return made
    try:
        as_strategy(made)
    except InputError as error:
        raise InputError(f"factory {factory!r} returned {type(made).__name__}: {error}, or a Subject") from error
    own = getattr(made, "clipping_norm", 1.0)
    chosen = norm if norm is not None else float(own) if isinstance(own, (int, float)) else 1.0
    if observer not in list(Observer):
        raise InputError(f"--observer {observer!r}: accepted are {' and '.join(Observer)}")
    modifiers: tuple[Mod, ...] = tuple(import_function(mod, "modifier") for mod in mods)
    model = initial_model(made)
    return Subject(make, modifiers, None, clients, chosen, is_clipped, Observer(observer), model)
