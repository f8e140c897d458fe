"""How an app is reviewed: with how many clients, on which model, in which kinds of games, and in how many."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from flwr.server.strategy import Strategy as OldStrategy
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray

from fl_audit.errors import require
from fl_audit.laboratory.trial import QUICK, Budget
from strategies.games.arrays import Arrays, arrays_of
from strategies.games.bridge import as_strategy
from strategies.games.grid import Room
from strategies.games.kinds import Kind, Model
from strategies.games.start import Start, spared_generators
from strategies.games.watched import no_news_from_flower
from strategies.review.claims import layers_of
from strategies.review.seats import USUAL_NODES

BESIDE = ("metrics", "evaluation")
"""Kinds of games about what is released beside the model."""
FEWEST = Budget(pilot=60, stages=(400,), shares=(1.0,), tried=2, most=4, deep=1)
"""Enough to show what carries no noise at all."""
_BUDGETS = {"the usual number of games": Budget(), "fewer games": QUICK, "the fewest games": FEWEST}
_LEFT_OUT = ("large model", "own model, around a median")
"""Stages that the app's own model takes the place of, or on which its size adds nothing but time."""
_USUAL_ROUNDS, _MOST_PARAMETERS = 3, 5_000_000


class Plan(NamedTuple):
    """Which games are played, and how many.

    Parameters
    ----------
    kinds
        Their kinds.
    rounds
        Rounds of a game.
    budget
        Games.
    words
        How many, in words.
    """

    kinds: tuple[Kind, ...]
    rounds: int
    budget: Budget
    words: str


def asked_of(strategy: Strategy, nodes: int) -> int:
    """Return how many of some clients a strategy asks to train in a round; 0 where that cannot be known beforehand.

    Parameters
    ----------
    strategy, nodes
        The strategy, and how many clients there are.
    """
    innermost = [one for one in layers_of(strategy) if isinstance(one, (Strategy, OldStrategy))][-1]
    try:
        copy = as_strategy(deepcopy(innermost))
        with spared_generators(), no_news_from_flower():
            asked = copy.configure_train(1, ArrayRecord(), ConfigRecord(), Room(nodes, lambda _: None))
            return len(list(asked))
    except Exception:  # it may need what its wrappers give it
        return 0


def nodes_of(strategy: Strategy, named: int | None, made_for: int | None) -> tuple[int, list[str]]:
    """Return how many clients the app sees, and what is said of it.

    Where nobody names a number, it is the smallest one of which as many are asked as the wrapper is made for.

    Parameters
    ----------
    strategy, named, made_for
        The strategy; the number that the user or the app names, and the one that its wrapper is made for, or None.
    """
    least = [
        value
        for layer in layers_of(strategy)
        for name, value in vars(layer).items()
        if name.startswith("min_") and isinstance(value, int)
    ]
    nodes = max(named or USUAL_NODES, *least, 2)
    asked = asked_of(strategy, nodes)
    if made_for is None or asked == made_for:
        return nodes, []
    if named is None and 0 < asked < made_for:
        low, high = nodes, nodes
        while asked_of(strategy, high) < made_for and high < 1000 * made_for:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if asked_of(strategy, middle) >= made_for else (middle, high)
        if asked_of(strategy, high) == made_for:
            return high, [f"it names no number of clients: {high} are taken, of which it asks {made_for} a round"]
    return nodes, [f"its noise is made for {made_for} clients a round, and of {nodes} clients it asks {asked}"]


def own_model(start: Start) -> tuple[Arrays | None, list[str]]:
    """Return the app's own model as far as games can be played on it, and what is said of it."""
    record = start.arguments.get("initial_arrays")
    if record is None:
        return None, ["it names no initial model: games are played on others"]
    arrays = arrays_of(record)
    size = sum(value.size for value in arrays.values())
    floats = sum(value.size for value in arrays.values() if value.dtype.kind == "f" and value.ndim)
    wrong = f"its initial model has {floats} floating-point parameters in tensors: games cannot be played on it"
    require(floats > 0, wrong)
    if not 2 <= floats <= size <= _MOST_PARAMETERS:
        return None, [f"its own model has {size:,} parameters: games are played on others"]
    return arrays, []


def telling_kinds(kinds: Sequence[Kind], own: Arrays | None, has_claim: bool) -> list[Kind]:
    """Return those kinds of games that say something about an app and what it releases of its model.

    Parameters
    ----------
    kinds
        All that say something about its claim.
    own
        Its own model.
    has_claim
        Whether it claims anything: if not, the plainest game shows it.
    """
    found = [kind for kind in kinds if kind.name not in BESIDE]
    if not has_claim:
        plain = [kind for kind in found if kind.plain_name in ("removed", "opposite")]
        return [kind for kind in plain if own is None or kind.stage.name == "own model"][:1]
    if own is None:
        return found
    there: Mapping[str, Callable[[str, NDArray[np.generic]], bool]] = {
        "parameter without axes": lambda name, value: value.ndim == 0 and value.dtype.kind == "f",
        "parameter of whole numbers": lambda name, value: value.dtype.kind in "iu",
        "switches": lambda name, value: value.dtype.kind == "b",
        "running statistics": lambda name, value: "running_" in name,
        "half precision": lambda name, value: value.dtype == np.float16,
    }
    # What the app's own model does not have cannot leak from it.
    absent = {kind for kind, is_so in there.items() if not any(is_so(name, value) for name, value in own.items())}
    return [kind for kind in found if kind.plain_name not in absent and kind.stage.name not in _LEFT_OUT]


def plan_of(
    kinds: Sequence[Kind], own_seconds: float, seconds: float, left: float, wanted: int, is_free: bool, is_quick: bool
) -> Plan:
    """Return the largest plan that the time is enough for; the smallest one if it is enough for none.

    Parameters
    ----------
    kinds
        The kinds of games.
    own_seconds, seconds
        How long a round takes on the app's own model, and on a small one.
    left
        Seconds that all processes have together.
    wanted
        Rounds of a game, at best.
    is_free
        Whether a game may have fewer rounds.
    is_quick
        Whether fewer games are wanted.
    """
    rounds = sorted({wanted, 1 if is_free else wanted}, reverse=True)
    plans = [
        Plan(tuple(kinds), count, budget, words)
        for count in rounds
        for words, budget in list(_BUDGETS.items())[is_quick:]
    ]
    # The last resort: the app's own model in one kind of game, and then in none.
    plainest = [kind for kind in kinds if kind.model is Model.OWN][:1]
    small = [kind for kind in kinds if kind.model is not Model.OWN]
    plans += [plans[-1]._replace(kinds=tuple(some)) for some in ([*plainest, *small], small) if some]
    # A machine that others use too takes longer, and learning rules takes its time as well.
    return next((plan for plan in plans if _seconds(plan, own_seconds, seconds) < 0.3 * left), plans[-1])


def _seconds(plan: Plan, own_seconds: float, seconds: float) -> float:
    """Return how long the games of a plan take, roughly."""
    of_kinds = [own_seconds if kind.model is Model.OWN else seconds for kind in plan.kinds]
    budget = plan.budget
    tried = budget.most * budget.stages[0] + budget.deep * sum(budget.stages[1:])
    return plan.rounds * (budget.pilot * sum(of_kinds) + tried * sum(of_kinds) / len(of_kinds))


def usual_rounds(rounds: int) -> int:
    """Return how many rounds of an app a game has unless a reviewer says it."""
    return min(rounds, _USUAL_ROUNDS)
