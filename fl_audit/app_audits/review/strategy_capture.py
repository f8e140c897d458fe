"""Capture of the strategy that a ServerApp would train with: the app runs until it starts its strategy."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn
from unittest.mock import patch

import flwr.clientapp.client_app as flower_client
import flwr.clientapp.mod as new_mods
import flwr.clientapp.typing
import flwr.common.typing
import flwr.serverapp.server_app as flower_server
from flwr.app import Context, Message, RecordDict, UserConfig
from flwr.clientapp import ClientApp
from flwr.server import ServerConfig
from flwr.server.strategy import Strategy as OldStrategy
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow, SecAggWorkflow
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from fl_audit.app_audits.black_box.audited_system import Mod, StrategyStartCall, start_of
from fl_audit.app_audits.black_box.legacy_adapter import adapted_strategy, by_position, manager_of
from fl_audit.app_audits.black_box.message_tensors import record_of
from fl_audit.app_audits.black_box.trials_after_training import TrialsAfterTrainingStrategy
from fl_audit.app_audits.review.app_loading import STRATEGY_ALONE, AppDescription, StubImportFinder, is_stand_in, loaded
from fl_audit.app_audits.review.secure_aggregation_compatibility import AGREEING, fault_outside, name_of
from fl_audit.errors import InputError, in_a_line
from fl_audit.generator_states import GeneratorStates, spared_generators
from fl_audit.strategies.simulated_grid import RUN_ID, InProcessGrid
from fl_audit.user_modules import collision_words

_ACCEPTED = "accepted is a ServerApp that starts a strategy (Strategy.start, DefaultWorkflow or server_fn)"
_AGREED = "secure aggregation is not played: trials have plain replies, of which the server would see the sum alone"
_ALONE = (
    "its clients have a modifier of secure aggregation, and its ServerApp starts no workflow of it: without one, that "
    "modifier fails at every message that asks to train"
)

_NotedMods = Mapping[int, Sequence[Mod]]  # mods, keyed by the `id` of the function after wrapping it in them


@dataclass(frozen=True)
class CapturedMod:
    """A client mod of an app, with the message types that it applies to, and the app's run configuration."""

    mod: Mod  # the mod itself
    types: frozenset[str] | None  # message types that the mod applies to; None for all types
    config: UserConfig  # run configuration of the app, which is put into the context of each trial

    def __call__(self, message: Message, context: Context, call_next: Callable[..., Message]) -> Message:
        """Return the client's reply, through the mod if it covers the message's type."""
        if self.types is not None and message.metadata.message_type not in self.types:
            return call_next(message, context)
        context.run_config = self.config
        try:
            # By position, as Flower does, because mods may name the third argument differently.
            return self.mod(message, context, call_next)
        except Exception as error:
            # Only the innermost mod adds the note; the exception then passes through the outer mods.
            if not hasattr(error, "__notes__"):
                error.add_note(f"raised inside of {name_of(self.mod)}")
            raise


@dataclass(frozen=True)
class CapturedStrategy:
    """The strategy with which an app would train, its arguments and number of rounds, and the app's client mods."""

    start: StrategyStartCall  # the strategy, adapted to Flower's new interface if needed, with the arguments of `start`
    rounds: int  # number of rounds of the training
    mods: tuple[CapturedMod, ...]  # mods of the client app, outermost first
    remarks: tuple[str, ...]  # remarks on parts that could not be used unchanged
    # Parts of the mechanism or claim that could not be loaded, with reasons; trials do not contain them.
    unseen: tuple[str, ...] = ()
    states: GeneratorStates | None = None  # states of the global generators when the app starts the strategy


class _StrategyStarted(BaseException):
    """Raised in place of training; a `BaseException`, so that code that catches `Exception` does not catch it."""

    def __init__(self, strategy: Any, args: tuple[Any, ...], kwargs: dict[str, Any], workflow: Any = None) -> None:
        super().__init__()
        self.strategy = strategy
        self.args = args
        self.kwargs = kwargs
        self.workflow = workflow


class _EarlyMessageError(BaseException):
    """Raised if an app sends messages to its clients before it starts a strategy."""


def capture_strategy(app: AppDescription, nodes: int, finder: StubImportFinder) -> CapturedStrategy:
    """Run a Flower app's ServerApp until it starts its strategy; return this strategy and the app's client mods."""
    # Some apps import these names from where earlier versions of Flower had them.
    sys.modules.setdefault("flwr.client.typing", flwr.clientapp.typing)
    vars(flwr.common.typing).setdefault("UserConfig", UserConfig)
    with _noted_mods() as noted:
        server = loaded(app, app.server, finder)
        if not isinstance(server, ServerApp):
            raise InputError(f"{app.server} is a {type(server).__name__}: accepted is a ServerApp")
        started = _until_start(server, app, nodes, finder)
        states = GeneratorStates.current()
        # Clients run in other processes: what they seed says nothing of the server's generators.
        with spared_generators():
            mods, remarks, unseen = _client_mods(app, finder, noted)
    strategy = adapted_strategy(
        started.strategy._inner if isinstance(started.strategy, TrialsAfterTrainingStrategy) else started.strategy
    )
    if isinstance(started.workflow, (SecAggPlusWorkflow, SecAggWorkflow)):
        remarks.append(_AGREED)
    elif _AGREED in remarks:
        remarks.append(_ALONE)
    try:
        start = start_of(strategy, started.args, started.kwargs)
        rounds = start.arguments.get("num_rounds", 3)
        remarks = list(dict.fromkeys(remarks))
        return CapturedStrategy(start.copied(), int(rounds), mods, tuple(remarks), tuple(unseen), states)
    except TypeError as error:
        raise InputError(f"the strategy cannot be started or copied ({in_a_line(error)}): {_ACCEPTED}") from error


def _until_start(server: ServerApp, app: AppDescription, nodes: int, finder: StubImportFinder) -> _StrategyStarted:
    state = RecordDict()
    config = UserConfig(app.config)
    context = Context(run_id=RUN_ID, node_id=1, node_config=UserConfig(), state=state, run_config=config)
    try:
        with _caught_starts():
            server(InProcessGrid(nodes, _refuse), context)
    except _StrategyStarted as started:
        return started
    except _EarlyMessageError:
        raise InputError(f"{app.name} speaks with its clients without a strategy: {_ACCEPTED}") from None
    except (Exception, SystemExit) as error:
        text = f"{in_a_line(error)}{collision_words(error, app.directory)}{finder.words}"
        remedy = f"accepted is a ServerApp that starts its strategy without data and network; {STRATEGY_ALONE}"
        raise InputError(f"the ServerApp of {app.name} raised {text}: {remedy}") from error
    raise InputError(f"the ServerApp of {app.name} ended and started nothing: {_ACCEPTED}")


def _refuse(_: object) -> NoReturn:
    raise _EarlyMessageError


@contextmanager
def _caught_starts() -> Iterator[None]:
    """Make every function of Flower that starts a strategy raise `_StrategyStarted` within a `with` block."""

    def start(strategy: Strategy, *args: Any, **kwargs: Any) -> NoReturn:
        raise _StrategyStarted(strategy, args, kwargs)

    def workflow(self: DefaultWorkflow, grid: Grid, context: Any) -> NoReturn:
        raise _old_start(context.strategy, context.config, grid, self.fit_workflow)

    def components(server: Any, config: Any, strategy: Any, client_manager: Any, grid: Grid) -> NoReturn:
        captured_strategy = strategy or getattr(server, "strategy", None)
        if captured_strategy is None:
            raise InputError(f"server_fn names no strategy: {_ACCEPTED}")
        raise _old_start(captured_strategy, config, grid)

    with ExitStack() as stack:
        for kind in _kinds(Strategy):
            if "start" in vars(kind):
                stack.enter_context(patch.object(kind, "start", start))
        stack.enter_context(patch.object(DefaultWorkflow, "__call__", workflow))
        stack.enter_context(patch.object(flower_server, "start_grid", components))
        yield


def _old_start(
    strategy: OldStrategy, config: ServerConfig | None, grid: Grid, workflow: Any = None
) -> _StrategyStarted:
    """Return the exception by which a captured app reports that it starts a strategy of Flower's old interface.

    It holds the strategy, the number of rounds and the initial model.
    """
    model = strategy.initialize_parameters(manager_of(grid))
    arrays = {} if model is None else {"initial_arrays": record_of(by_position(model))}
    rounds = (config or ServerConfig()).num_rounds
    return _StrategyStarted(strategy, (), {"grid": grid, "num_rounds": rounds, **arrays}, workflow)


def _kinds(kind: type) -> set[type]:
    below: list[type] = kind.__subclasses__()
    return {kind}.union(*map(_kinds, below))


@contextmanager
def _noted_mods() -> Iterator[_NotedMods]:
    """Record in a `with` block which mods Flower wraps around each function of an imported client app."""
    noted = dict[int, Sequence[Mod]]()
    kept_alive = list[object]()
    make = vars(flower_client)["make_ffn"]

    def made(function: Callable[..., Message], mods: list[Mod]) -> Callable[..., Message]:
        call: Callable[..., Message] = make(function, mods)
        noted[id(call)] = tuple(mods)
        kept_alive.append(call)
        return call

    with patch.dict(vars(flower_client), make_ffn=made):
        yield noted


def _client_mods(
    app: AppDescription, finder: StubImportFinder, noted: _NotedMods
) -> tuple[tuple[CapturedMod, ...], list[str], list[str]]:
    """Return the client mods that trials call, remarks on other mods, and a line if some mods could not be loaded.

    A mod applies to all messages, or only to the messages for one function of the client app. `noted` has the mods that
    the app gave to single functions.
    """
    if not app.client:
        return (), ["it names no ClientApp, so its clients have no modifiers"], []
    lost = "the clients' modifiers could not be loaded"
    try:
        client = loaded(app, app.client, finder)
    except InputError as error:
        return (), [], [f"{lost} ({error})"]
    if not isinstance(client, ClientApp):
        return (), [], [f"{lost} ({app.client} is a {type(client).__name__}, no ClientApp{finder.words})"]
    placed: list[tuple[Mod, frozenset[str] | None]] = [(mod, None) for mod in client._mods]
    if client._registered_funcs:
        placed = [
            (mod, frozenset({name, name.removesuffix(".default")}))
            for name, function in client._registered_funcs.items()
            for mod in noted.get(id(function), client._mods)
        ]
    there = [(mod, types) for mod, types in placed if not is_stand_in(mod)]
    unseen = [f"{lost} (of {len(placed)}, {len(placed) - len(there)} are missing{finder.words})"]
    config = UserConfig(app.config)
    remarks = list[str]()
    noted_mods = list[tuple[Mod, frozenset[str] | None]]()
    for types in dict.fromkeys(types for _, types in there):
        inner, remarks_inside = _within_masks(app, [mod for mod, of_types in there if of_types == types])
        noted_mods += [(mod, types) for mod in inner]
        remarks += remarks_inside
    played = tuple(CapturedMod(_in_new_form(mod), types, config) for mod, types in noted_mods)
    return played, list(dict.fromkeys(remarks)), unseen if len(there) < len(placed) else []


def client_mods_alone(app: AppDescription, finder: StubImportFinder) -> tuple[CapturedMod, ...]:
    """Load a Flower app's ClientApp without its ServerApp, and return its mods, outermost first."""
    with _noted_mods() as noted:
        return _client_mods(app, finder, noted)[0]


def _within_masks(app: AppDescription, mods: Sequence[Mod]) -> tuple[Sequence[Mod], list[str]]:
    """Return the mods that see an update before secure aggregation masks it, and remarks on all other mods."""
    positions = [index for index, mod in enumerate(mods) if name_of(mod) in AGREEING]
    if not positions:
        return mods, []
    outer = mods[: positions[0]]
    agreeing = mods[positions[0]]
    inner = mods[positions[-1] + 1 :]
    inside = name_of(agreeing)
    for mod in outer:
        fault = fault_outside([mod], agreeing)
        if fault:
            name = name_of(mod)
            raise InputError(
                f"{name} stands before {inside} in the modifiers of {app.client}, and so outside of it: Flower hands "
                f"it the messages of secure aggregation, it fails at the first ({fault}), and no round of {app.name} "
                f"ends; what it does never reaches a masked vector. Accepted is {inside} before it: "
                f"mods=[{inside}, {name}, ...]"
            )
    names = ", ".join(map(name_of, outer))
    remark = f"outside of {inside}, {names} would see masked vectors alone: trials are played without what stands there"
    return inner, [_AGREED, *([remark] if outer else [])]


def _in_new_form(mod: Mod) -> Mod:
    """Convert a mod of Flower's old client interface to its counterpart in the new one; return other mods unchanged."""
    if getattr(mod, "__module__", "").startswith("flwr.client.mod"):
        new_mod: Callable[..., Any] | None = getattr(new_mods, name_of(mod), None)
        if isinstance(new_mod, type):
            return new_mod(mod.clipping_norm, mod.sensitivity, mod.epsilon, mod.delta)  # type: ignore[attr-defined]
        return new_mod or mod
    return mod
