"""Capture of the strategy that a ServerApp would train with: the app runs until it starts its strategy."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn
from unittest.mock import patch

import flwr.clientapp.typing
import flwr.common.typing
import flwr.serverapp.server_app as flower_server
from flwr.app import Context, RecordDict, UserConfig
from flwr.server import ServerConfig
from flwr.server.strategy import Strategy as OldStrategy
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow, SecAggWorkflow
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from fl_audit.app_audits.black_box.audited_system import StrategyStartCall, start_of
from fl_audit.app_audits.black_box.legacy_adapter import adapted_strategy, by_position, manager_of
from fl_audit.app_audits.black_box.trial_messages import record_of
from fl_audit.app_audits.black_box.trials_after_training import TrialsAfterTrainingStrategy
from fl_audit.app_audits.review.app_loading import STRATEGY_ALONE, AppDescription, StubImportFinder, loaded
from fl_audit.app_audits.review.client_mods import MASKED, CapturedMod, client_mods, noted_mods
from fl_audit.errors import InputError, in_a_line
from fl_audit.generator_states import GeneratorStates, spared_generators
from fl_audit.strategies.simulated_grid import RUN_ID, InProcessGrid
from fl_audit.user_modules import collision_words

_ACCEPTED = "accepted is a ServerApp that starts a strategy (Strategy.start, DefaultWorkflow or server_fn)"
_ALONE = (
    "its clients have a modifier of secure aggregation, and its ServerApp starts no workflow of it: without one, that "
    "modifier fails at every message that asks to train"
)


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
    with noted_mods() as noted:
        server = loaded(app, app.server, finder)
        if not isinstance(server, ServerApp):
            raise InputError(f"{app.server} is a {type(server).__name__}: accepted is a ServerApp")
        started = _until_start(server, app, nodes, finder)
        states = GeneratorStates.current()
        # Clients run in other processes: what they seed says nothing of the server's generators.
        with spared_generators():
            mods, remarks, unseen = client_mods(app, finder, noted)
    strategy = adapted_strategy(
        started.strategy._inner if isinstance(started.strategy, TrialsAfterTrainingStrategy) else started.strategy
    )
    if isinstance(started.workflow, (SecAggPlusWorkflow, SecAggWorkflow)):
        remarks.append(MASKED)
    elif MASKED in remarks:
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
