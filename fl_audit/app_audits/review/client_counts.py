"""The number of clients with which an app is reviewed, and how many of them its strategy selects in a round."""

from collections.abc import Iterable
from copy import deepcopy

from flwr.app import ArrayRecord, ConfigRecord
from flwr.server.strategy import Strategy as OldStrategy
from flwr.serverapp.strategy import Strategy

from fl_audit.app_audits.black_box.legacy_adapter import adapted_strategy, layers_of
from fl_audit.app_audits.console_output import no_news_from_flower
from fl_audit.errors import require
from fl_audit.generator_states import spared_generators
from fl_audit.strategies.simulated_grid import InProcessGrid

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

    `strategy`: If it wraps another strategy, only the innermost strategy is used, in a copy.
    """
    innermost = [layer for layer in layers_of(strategy) if isinstance(layer, (Strategy, OldStrategy))][-1]
    try:
        copy = adapted_strategy(deepcopy(innermost))
        with spared_generators(), no_news_from_flower():
            messages = copy.configure_train(
                1, ArrayRecord(), ConfigRecord(), _ClientShortageDetectingGrid(nodes, lambda _: None)
            )
            return len(list(messages))
    except Exception:  # a strategy may not work without its wrappers
        return 0


def nodes_of(strategy: Strategy, named_clients: int | None, made_for: int | None) -> tuple[int, list[str], str]:
    """Return the number of clients for a review, remarks on it, and a fault of it, which is empty without one.

    If neither reviewer nor app gives a number, it is the smallest one with which the strategy asks as many clients in a
    round as its DP wrapper is configured for. The fault is that the strategy asks another number of clients than that.
    """
    fewest = _least_of(strategy)
    nodes = max(named_clients or USUAL_NODES, fewest)
    if made_for is None:
        return nodes, [], ""
    sampled = count_asked_clients(strategy, nodes)
    if named_clients is None and sampled > 0:
        fitting = _least_nodes_that_ask(strategy, fewest, made_for)
        if count_asked_clients(strategy, fitting) == made_for:
            return fitting, [f"it names no number of clients: {fitting} are taken, of which it asks {made_for}"], ""
    if sampled in (0, made_for):
        return nodes, [] if sampled else [f"how many of {nodes} clients it asks in a round was not seen"], ""
    effect = (
        f"its noise is {made_for / sampled:.3g} times smaller than it claims, for it shrinks with that number"
        if sampled < made_for
        else f"its noise is {sampled / made_for:.3g} times larger than it claims"
    )
    return (
        nodes,
        [],
        f"its noise is made for {made_for} clients a round, and of {nodes} clients it asks {sampled}: {effect}",
    )


def _least_nodes_that_ask(strategy: Strategy, fewest: int, made_for: int) -> int:
    """Return the smallest number of clients from `fewest` with which a strategy asks at least `made_for` in a round."""
    if count_asked_clients(strategy, fewest) >= made_for:
        return fewest
    low, high = fewest, 2 * fewest
    while count_asked_clients(strategy, high) < made_for and high < 1000 * made_for:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if count_asked_clients(strategy, middle) >= made_for else (middle, high)
    return high


def too_few_clients(strategy: Strategy, made_for: int | None) -> tuple[int, int] | None:
    """Return two numbers of clients that show that a strategy may begin a round with too few clients.

    The noise of such a round is too small. The numbers are the clients for which the strategy waits, and the clients
    that it then asks to train. The result is None if no round can begin too early, or if the second number is unknown.
    """
    first = _least_of(strategy)
    sampled = 0 if made_for is None else count_asked_clients(strategy, first)
    return (first, sampled) if made_for is not None and 0 < sampled < made_for else None


def _least_of(strategy: Strategy) -> int:
    """Return how many clients a strategy waits for: its largest setting named `min_...`, at least 2."""
    entries = [entry for layer in layers_of(strategy) for entry in vars(layer).items()]
    return max([2, *(value for name, value in entries if name.startswith("min_") and isinstance(value, int))])
