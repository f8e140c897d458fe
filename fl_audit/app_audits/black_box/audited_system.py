"""The system under audit: a Flower strategy with its arguments, and the mods and local training of its clients."""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import Array, Message
from flwr.server.strategy import Strategy as OldStrategy
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from fl_audit.app_audits.black_box.legacy_adapter import adapted_strategy, initial_model
from fl_audit.app_audits.black_box.trial_messages import Observer
from fl_audit.array_types import Floats
from fl_audit.errors import InputError, require
from fl_audit.user_modules import import_function
from fl_audit.value_checks import choice, on_the_cpu, require_number, require_switch

Mod = Callable[..., Message]  # a mod of a Flower ClientApp: a function of a message, a context and `call_next`


def with_mods(mods: Sequence[Mod], train: Mod) -> Mod:
    """Return a client's training function wrapped in Flower mods, as Flower itself wraps it."""
    if not mods:
        return train
    # By position, as Flower does, because mods may name the third argument differently.
    return lambda message, context: mods[0](message, context, with_mods(mods[1:], train))


@dataclass(frozen=True)
class LocalReply:
    """Reply of one client in one round: its update, number of examples and metrics."""

    update: Floats  # the client's model minus the received model, shape (parameters,)
    examples: int  # number of examples that the client reports
    metrics: Mapping[str, float] = field(default_factory=dict)  # other metrics that the client reports, by name


Local = Callable[[Floats, int, np.random.Generator], LocalReply]
"""Local training of a client: a function of its records' gradients (records, parameters), the round and a generator."""


def clipped_sum(norm: float) -> Local:
    """Return a function for local training that sums per-record gradients, each clipped to `norm`."""

    def local(gradients: Floats, _round: int, _random: np.random.Generator) -> LocalReply:
        lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
        factors = np.minimum(1.0, norm / np.maximum(lengths, 1e-300))
        return LocalReply(np.asarray((gradients * factors).sum(axis=0)), len(gradients))

    return local


@dataclass(frozen=True)
class AuditedSystem:
    """A Flower strategy under audit, with the mods and local training of its clients and the adversary's position.

    Raises
    ------
    InputError
        If a number is out of its range, or a string is given where a tuple or a bool is expected.
    """

    # Factory that returns a new strategy of either Flower interface; it is called once per trial. If it has a
    # parameter, this is the number of clients, and trials with few and with many clients are run too.
    strategy: Callable[..., Strategy | OldStrategy]
    mods: tuple[Mod, ...] = ()  # mods of the client app that belong to the mechanism, the outermost first
    local: Local | None = None  # local training of clients, used for claims about records; None sums clipped gradients
    clients: int = 4  # number of clients, at least 2
    norm: float = 1.0  # clipping norm (L2) that the claim refers to, above 0
    # Whether strategy or mods clip updates. If not, clients are trusted to clip, and no trial sends longer updates.
    is_clipped: bool = True
    observer: Observer = Observer.CLIENT  # the adversary: another client or the server
    # The initial tensors of an app's own model, by name: arrays of numpy, tensors of torch, or an `ArrayRecord` of
    # Flower. None runs trials only on small built-in models.
    model: Mapping[str, NDArray[np.generic]] | None = None
    weight: str = "num-examples"  # name of the metric in which clients report their number of examples
    # Names of all other metrics that the app's clients report. None if this is not known: clients of trials then report
    # what the strategy looks up, and in some scenarios a loss.
    metrics: tuple[str, ...] | None = None
    # Names of the metrics that the strategy looks up in replies, `weight` among them; trials find them out.
    asked: tuple[str, ...] = ()

    def is_known_to_report(self, name: str) -> bool:
        """Return whether the app's clients report a metric, because the strategy looks it up or the user says so."""
        is_stated = self.metrics is not None and name in (self.weight, *self.metrics)
        return is_stated or name in self.asked

    @property
    def takes_client_count(self) -> bool:
        """Whether the strategy's factory takes the number of clients; if False, the factory takes no argument."""
        return bool(signature(self.strategy).parameters)

    def new_strategy(self, clients: int) -> Strategy:
        """Return a new strategy in Flower's new interface, for the given number of clients if the factory takes one."""
        return adapted_strategy(self.strategy(clients) if self.takes_client_count else self.strategy())

    def __post_init__(self) -> None:
        require(
            callable(self.strategy),
            f"strategy is a {type(self.strategy).__name__}: accepted is a function or class that makes a new one for "
            "each trial",
        )
        require_number("clients are", self.clients, "whole numbers from 2")
        require_number("norm is", self.norm, "numbers above 0 and below 1000000")
        require_switch("is_clipped", self.is_clipped)
        for name, values in (("metrics", self.metrics or ()), ("mods", self.mods)):
            require(
                isinstance(values, (tuple, list)), f"{name} is {values!r}: accepted are tuples, such as ({values!r},)"
            )
        if self.model is not None:
            object.__setattr__(self, "model", _numpy_arrays(self.model))
        # Accepts the string "server" for Observer.SERVER.
        object.__setattr__(self, "observer", choice(Observer, "observer", self.observer))


def _numpy_arrays(model: object) -> dict[str, NDArray[np.generic]]:
    """Return the tensors of a model as arrays of numpy; raises `InputError` if it is no mapping of names to tensors."""
    accepted = "accepted are a mapping from names to arrays of numpy or tensors of torch, and an ArrayRecord"
    require(
        isinstance(model, Mapping) and len(model) > 0, f"model is a {type(model).__name__} without tensors: {accepted}"
    )
    arrays = dict[str, NDArray[np.generic]]()
    for name, value in cast(Mapping[str, Any], model).items():
        arrays[name] = value.numpy() if isinstance(value, Array) else np.asarray(on_the_cpu(value))
        kind = arrays[name].dtype
        require(kind.kind in "fiub", f"model has {name!r} of type {kind}: {accepted}")
    require(
        any(array.dtype.kind == "f" and array.size > 0 for array in arrays.values()),
        "model has no tensor of floats, and trials need one that updates change: accepted are models with one",
    )
    return arrays


def made_by(factory: str, clients: int) -> tuple[Callable[..., Any], Any]:
    """Return a factory by its name, as `package.module:name`, and what it makes.

    `clients`: It is passed to a factory that takes an argument.
    """
    make = import_function(factory, "factory")
    return make, make(clients) if signature(make).parameters else make()


def system_of(factory: str, clients: int, norm: float | None, is_clipped: bool, observer: str) -> AuditedSystem:
    """Call a strategy's factory by name, and return the system to audit.

    If the factory returns an `AuditedSystem`, it is returned as it is, and the other arguments are not used.

    `factory`: If the function has a parameter, it is called with the number of clients.
    """
    make, strategy = made_by(factory, clients)
    if isinstance(strategy, AuditedSystem):
        return strategy
    try:
        adapted_strategy(strategy)
    except InputError as error:
        raise InputError(
            f"factory {factory!r} returned {type(strategy).__name__}: {error}, or an AuditedSystem"
        ) from error
    named_norm = getattr(strategy, "clipping_norm", 1.0)
    chosen = norm if norm is not None else float(named_norm) if isinstance(named_norm, (int, float)) else 1.0
    position = choice(Observer, "observer", observer)
    return AuditedSystem(make, (), None, clients, chosen, is_clipped, position, initial_model(strategy))


@dataclass(frozen=True)
class StrategyStartCall:
    """A call of a strategy's `start`: the strategy and the arguments that the app passes."""

    strategy: Strategy  # the app's strategy
    arguments: dict[str, Any]  # arguments of `start`, keyed by parameter name

    def copied(self) -> "StrategyStartCall":
        """Return a deep copy of the strategy and its arguments, without the arguments `grid` and `evaluate_fn`."""
        # Server-side evaluation is post-processing of the releases, and may have side effects.
        other_arguments = {name: value for name, value in self.arguments.items() if name not in ("grid", "evaluate_fn")}
        return StrategyStartCall(*deepcopy((self.strategy, other_arguments)))

    def copy_for_trial(
        self, rounds: int, draws: np.random.Generator, moved: Callable[[str], str] = str
    ) -> "StrategyStartCall":
        """Return a deep copy for a trial of the same app, with new states of all random generators that it holds."""
        copies: dict[int, Any] = {}
        strategy, other_arguments = deepcopy((self.strategy, self.arguments), copies)
        for copy in list(copies.values()):
            _renew(copy, draws)
            _move(copy, moved)
        return StrategyStartCall(strategy, other_arguments | {"num_rounds": rounds})

    def call_start(self, grid: Grid) -> Result:
        """Call the strategy's `start` on a grid; return its result."""
        return self.strategy.start(**(self.arguments | {"grid": grid}))


def start_of(strategy: Strategy, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StrategyStartCall:
    """Return a strategy together with all arguments of a call of its `start`, keyed by parameter name.

    Raises `TypeError` if the arguments do not fit `start`.
    """
    arguments = dict(signature(strategy.start).bind(*args, **kwargs).arguments)
    # Arguments that `start` collects in `**kwargs`.
    arguments |= arguments.pop("kwargs", {})
    return StrategyStartCall(strategy, arguments)


def _renew(value: object, draws: np.random.Generator) -> None:
    """Give a random generator of numpy, Python or torch a new state drawn from `draws`; ignore other objects."""
    match value:
        case np.random.Generator():
            value.bit_generator.state = type(value.bit_generator)(int(draws.integers(2**32))).state
        case np.random.RandomState() | random.Random():
            value.seed(int(draws.integers(2**32)))
        case _ if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Generator):
            # Not imported, because clients need this module without torch: without it nobody has such a generator.
            value.manual_seed(int(draws.integers(2**32)))
        case _:
            pass


def _move(value_found: object, moved: Callable[[str], str]) -> None:
    """Replace every path `p` among an object's attributes, or a dictionary's values, by `moved(p)`, in place."""
    holder = value_found if isinstance(value_found, dict) else getattr(value_found, "__dict__", None)
    if not isinstance(holder, dict):
        return
    for name, value in list(holder.items()):
        if isinstance(value, (str, Path)) and moved(str(value)) != str(value):
            holder[name] = type(value)(moved(str(value)))
