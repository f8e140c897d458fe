"""The number of clients with which an app is reviewed, and how many of them its strategy selects in a round."""

from collections.abc import Iterable
from copy import deepcopy

from flwr.app import ArrayRecord, ConfigRecord
from flwr.server.strategy import Strategy as OldStrategy
from flwr.serverapp.strategy import Strategy

from fl_audit.app_audits.black_box.audited_system import spared_generators
from fl_audit.app_audits.black_box.legacy_adapter import adapted_strategy, layers_of
from fl_audit.app_audits.black_box.trials_after_training import no_news_from_flower
from fl_audit.errors import require
from fl_audit.strategies.flower_grids import InProcessGrid

_MOST_LOOKS = 5  # number of times that a strategy may list the clients before it sends messages


USUAL_NODES = 10  # Flower's default number of clients in a simulation


class _ClientShortageDetectingGrid(InProcessGrid):
    """A grid that raises `InputError` if a strategy waits for more clients than there are."""

    _looks = 0

    def get_node_ids(self) -> Iterable[int]:
        self._looks += 1
        require(self._looks <= _MOST_LOOKS, "it waits for more clients")
        return super().get_node_ids()


def count_asked_clients(strategy: Strategy, nodes: int) -> int:
    """Return the number of clients that a strategy asks to train in a round; 0 if it cannot be found out.

    Parameters
    ----------
    strategy
        The app's strategy. If it wraps another strategy, only the innermost strategy is used, in a copy.
    nodes
        Number of clients that are connected to the server.
    """
    innermost = [one for one in layers_of(strategy) if isinstance(one, (Strategy, OldStrategy))][-1]
    try:
        copy = adapted_strategy(deepcopy(innermost))
        with spared_generators(), no_news_from_flower():
            asked = copy.configure_train(
                1, ArrayRecord(), ConfigRecord(), _ClientShortageDetectingGrid(nodes, lambda _: None)
            )
            return len(list(asked))
    except Exception:  # a strategy may not work without its wrappers
        return 0


def nodes_of(strategy: Strategy, named: int | None, made_for: int | None) -> tuple[int, list[str]]:
    """Return the number of clients for a review, and remarks on it.

    If neither reviewer nor app gives a number, and the strategy would ask fewer clients per round than the DP wrapper
    expects, the number is raised: to the smallest one with which the strategy asks as many as expected.

    Parameters
    ----------
    strategy
        The app's strategy with its wrappers.
    named
        Number of clients given by the reviewer or the app; None if neither gives one.
    made_for
        Number of clients per round for which the DP wrapper is configured; None without such a wrapper.
    """
    nodes = max(named or USUAL_NODES, _least_of(strategy))
    asked = count_asked_clients(strategy, nodes)
    if made_for is None:
        return nodes, []
    if named is None and 0 < asked < made_for:
        low, high = nodes, nodes
        while count_asked_clients(strategy, high) < made_for and high < 1000 * made_for:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if count_asked_clients(strategy, middle) >= made_for else (middle, high)
        if count_asked_clients(strategy, high) == made_for:
            return high, [f"it names no number of clients: {high} are taken, of which it asks {made_for} a round"]
    said = f"its noise is made for {made_for} clients a round, and of {nodes} clients it asks {asked}"
    return nodes, [said] if asked != made_for else []


def too_few_clients(strategy: Strategy, made_for: int | None) -> tuple[int, int] | None:
    """Return two numbers of clients that show that a strategy may begin a round with too few clients.

    The noise of such a round is too small. The numbers are the clients for which the strategy waits, and the clients
    that it then asks to train. The result is None if no round can begin too early, or if the second number is unknown.

    Parameters
    ----------
    strategy
        The app's strategy with its wrappers.
    made_for
        Number of clients per round for which the DP wrapper is configured; None without such a wrapper.
    """
    first = _least_of(strategy)
    asked = 0 if made_for is None else count_asked_clients(strategy, first)
    return (first, asked) if made_for is not None and 0 < asked < made_for else None


def _least_of(strategy: Strategy) -> int:
    """Return how many clients a strategy waits for: its largest setting named `min_...`, at least 2."""
    held = [entry for layer in layers_of(strategy) for entry in vars(layer).items()]
    return max([2, *(value for name, value in held if name.startswith("min_") and isinstance(value, int))])
