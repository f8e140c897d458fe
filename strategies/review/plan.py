"""The plan of a review: clients, model, scenarios (conditions of trials) and number of trials; and its results.

The results are those on side channels, that is, on parts of clients' replies besides trained parameters: metrics,
example counts, buffers of the model, and evaluation replies.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from flwr.server.strategy import Strategy as OldStrategy
from flwr.serverapp.strategy import Strategy

from fl_audit.audits.black_box.claim import StatedClaim
from fl_audit.audits.black_box.claim_audit import QUICK, ClaimAudit, ScenarioTrials, TrialBudget
from fl_audit.audits.black_box.claim_audit_messages import TOO_FEW, not_tried
from fl_audit.errors import require
from fl_audit.statistics.lower_bounds import epsilon_lower_bound
from fl_audit.strategies.black_box.audited_strategy import no_news_from_flower
from fl_audit.strategies.black_box.audited_system import StrategyStartCall, spared_generators
from fl_audit.strategies.black_box.legacy_adapter import adapted_strategy, layers_of
from fl_audit.strategies.black_box.message_tensors import Arrays, arrays_of
from fl_audit.strategies.black_box.scenarios import BY_NAME, OF_FEW_TENSORS, ModelKind, Scenario
from fl_audit.strategies.black_box.trial_models import is_moved_by
from fl_audit.strategies.flower_grids import InProcessGrid

# A reviewer wants to know every scenario that breaks a claim, so the budgets cover all of them.
_USUAL = replace(TrialBudget(), scout=200, pilot=200, most=12, plainest=True)
_FEWER = replace(QUICK, scout=120, pilot=120, most=10, plainest=True)
_FEWEST = TrialBudget(pilot=60, stages=(400,), shares=(1.0,), tried=2, most=4, deep=1, plainest=True)
"""Number of trials in each stage; it suffices to detect releases without any noise."""
_LEVEL, _MOST_TRIED = 0.05, 6400
_MOST_LOOKS = 5  # number of times that a strategy may list the clients before it sends messages
_LEFT_OUT = ("large model", "own model, around a median")
"""Environments of scenarios that are left out if the app's own model is known."""
USUAL_NODES = 10  # Flower's default number of clients in a simulation
USUAL_ROUNDS = 3  # largest number of rounds of a trial unless the reviewer sets another number
_MOST_PARAMETERS = 5_000_000


class SideChannel(StrEnum):
    """A part of clients' replies, besides trained parameters, that may leak information.

    BUFFERS are untrained tensors of the model, such as counters and running statistics.
    """

    METRICS = "metrics"
    EXAMPLES = "example counts"
    BUFFERS = "buffers"
    EVALUATION = "evaluation replies"


NUMBERS = {
    SideChannel.METRICS: "metrics",
    SideChannel.EXAMPLES: "more examples than true",
    SideChannel.EVALUATION: "evaluation",
}
"""Name of the scenario that tests a side channel alone, keyed by side channel; it is run even without a claim."""


class ReviewPlan(NamedTuple):
    """Plan of a review: its scenarios (conditions of trials), and the number of rounds and trials."""

    kinds: tuple[Scenario, ...]  # scenarios, that is, conditions of trials
    rounds: int  # number of rounds of a trial
    budget: TrialBudget  # number of trials in each stage
    words: str  # description of the budget, such as "fewer trials"


class _ClientWaitLimitingGrid(InProcessGrid):
    """A grid that raises `InputError` if a strategy waits in vain for more clients than there are."""

    _looks = 0

    def get_node_ids(self) -> Iterable[int]:
        """Return the node IDs of all clients; raises `InputError` from the sixth call on."""
        self._looks += 1
        require(self._looks <= _MOST_LOOKS, "it waits for more clients")
        return super().get_node_ids()


def asked_of(strategy: Strategy, nodes: int) -> int:
    """Return the number of clients that a strategy asks to train in a round.

    Return 0 if the number cannot be found out.

    Parameters
    ----------
    strategy
        The app's strategy; only the innermost strategy, without its wrappers, is asked.
    nodes
        Number of clients that are connected to the server.
    """
    innermost = [one for one in layers_of(strategy) if isinstance(one, (Strategy, OldStrategy))][-1]
    try:
        copy = adapted_strategy(deepcopy(innermost))
        with spared_generators(), no_news_from_flower():
            asked = copy.configure_train(
                1, ArrayRecord(), ConfigRecord(), _ClientWaitLimitingGrid(nodes, lambda _: None)
            )
            return len(list(asked))
    except Exception:  # a strategy may not work without its wrappers
        return 0


def nodes_of(strategy: Strategy, named: int | None, made_for: int | None) -> tuple[int, list[str]]:
    """Return the number of clients for a review, and remarks on this number.

    If neither reviewer nor app gives a number, the smallest number is chosen with which the strategy asks as many
    clients per round as its DP wrapper expects.

    Parameters
    ----------
    strategy
        The app's strategy with its wrappers.
    named
        Number of clients given by the reviewer or the app; None if neither gives one.
    made_for
        Number of clients per round for which the strategy's DP wrapper is configured; None without such a wrapper.
    """
    nodes = max(named or USUAL_NODES, _least_of(strategy))
    asked = asked_of(strategy, nodes)
    if made_for is None:
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
    said = f"its noise is made for {made_for} clients a round, and of {nodes} clients it asks {asked}"
    return nodes, [said] if asked != made_for else []


def early_of(strategy: Strategy, made_for: int | None) -> tuple[int, int] | None:
    """Return the two numbers of clients with which a strategy may start too early, so that its noise is too small.

    The first is the number of clients for which the strategy waits, the second the number of them that it then asks to
    train. None if there is no DP wrapper, if this wrapper expects no more clients than are asked, or if the number of
    asked clients is unknown.

    Parameters
    ----------
    strategy
        The app's strategy with its wrappers.
    made_for
        Number of clients per round for which the strategy's DP wrapper is configured; None without such a wrapper.
    """
    first = _least_of(strategy)
    asked = 0 if made_for is None else asked_of(strategy, first)
    return (first, asked) if made_for is not None and 0 < asked < made_for else None


def _least_of(strategy: Strategy) -> int:
    """Return the number of clients that a strategy waits for: its largest setting named `min_...`, at least 2."""
    held = [entry for layer in layers_of(strategy) for entry in vars(layer).items()]
    return max([2, *(value for name, value in held if name.startswith("min_") and isinstance(value, int))])


def own_model(start: StrategyStartCall) -> tuple[Arrays | None, list[str]]:
    """Return the app's initial tensors, keyed by name, and remarks on them.

    The tensors are None if the app passes no initial model, or if the model has too few or too many parameters for
    trials. `start` holds the arguments with which the app starts its strategy. Raises `InputError` if the model has no
    floating-point parameters in tensors.
    """
    record = start.arguments.get("initial_arrays")
    if record is None:
        return None, ["it names no initial model: trials are played on others"]
    arrays = arrays_of(record)
    size = sum(value.size for value in arrays.values())
    floats = sum(value.size for value in arrays.values() if value.dtype.kind == "f" and value.ndim)
    wrong = f"its initial model has {floats} floating-point parameters in tensors: trials cannot be played on it"
    require(floats > 0, wrong)
    if not 2 <= floats <= size <= _MOST_PARAMETERS:
        return None, [f"its own model has {size:,} parameters: trials are played on others"]
    return arrays, []


def buffers_of(own: Arrays) -> int:
    """Return how many of a model's tensors are scalars, integers, booleans or running statistics."""
    return sum(any(is_moved_by(direction, name, value) for direction in OF_FEW_TENSORS) for name, value in own.items())


def fewest(claim: StatedClaim) -> TrialBudget:
    """Return the smallest budget (trials per stage) that can refute a claim if every trial is guessed rightly.

    A claim with a larger epsilon needs more trials. If even 6400 trials are too few, the smallest of all budgets is
    returned.
    """
    budget = _FEWEST
    while budget.stages[0] < _MOST_TRIED and not _can_refute(claim, budget):
        budget = replace(budget, stages=(2 * budget.stages[0],))
    return budget if _can_refute(claim, budget) else _FEWEST


def _can_refute(claim: StatedClaim, budget: TrialBudget) -> bool:
    # A fair coin decides which trials use D; 45% is a cautious number of them.
    half = int(0.45 * budget.stages[-1])
    confidence = 1 - _LEVEL * budget.shares[-1] / budget.most
    bounds = (epsilon_lower_bound(np.ones(half), np.zeros(half), limit.delta, confidence) for limit in claim.limits)
    return any(bound.epsilon > limit.epsilon for bound, limit in zip(bounds, claim.limits, strict=True))


def telling_kinds(kinds: Sequence[Scenario], own: Arrays | None, has_claim: bool) -> list[Scenario]:
    """Return the scenarios (conditions of trials) that can show a leak of an app with a given model.

    Left out are scenarios on sorts of tensors that the model lacks, and those on metrics and evaluation.

    Parameters
    ----------
    kinds
        All scenarios that can test the app's claim.
    own
        Tensors of the app's own model, keyed by name; None if the model is unknown.
    has_claim
        Whether the app makes a privacy claim. If not, only the simplest scenario is returned.
    """
    found = [kind for kind in kinds if kind.name not in (NUMBERS[SideChannel.METRICS], NUMBERS[SideChannel.EVALUATION])]
    if not has_claim:
        plain = [kind for kind in found if kind.plain_name in ("removed", "opposite")]
        return [kind for kind in plain if own is None or kind.stage.name == "own model"][:1]
    if own is None:
        return [kind for kind in found if kind.model is not ModelKind.OWN]

    def is_there(kind: Scenario) -> bool:
        if kind.present.direction in OF_FEW_TENSORS:
            of_own = (is_moved_by(kind.present.direction, name, value) for name, value in own.items())
            return kind.model is ModelKind.OWN and any(of_own)
        return kind.model is not ModelKind.HALF or any(value.dtype == np.float16 for value in own.values())

    # Sorts of tensors that the app's own model lacks cannot leak; scenarios on other sorts are run on this model.
    return [kind for kind in found if kind.stage.name not in _LEFT_OUT and is_there(kind)]


def plan_of(
    kinds: Sequence[Scenario],
    claim: StatedClaim,
    own_seconds: float,
    seconds: float,
    left: float,
    wanted: int,
    is_free: bool,
    is_quick: bool,
) -> ReviewPlan:
    """Return the first plan, from most to fewest trials, that fits into the remaining time; the smallest if none fits.

    Parameters
    ----------
    kinds
        Scenarios (conditions of trials) to run.
    claim
        Claim that the scenarios test.
    own_seconds
        Seconds per round of a trial on the app's own model.
    seconds
        Seconds per round of a trial on a small model.
    left
        Remaining computing time in seconds, summed over all processes.
    wanted
        Number of rounds of a trial, if there is enough time.
    is_free
        Whether a trial may have one round instead of `wanted` rounds.
    is_quick
        Whether the reviewer wants fewer trials.
    """
    rounds = sorted({wanted, 1 if is_free else wanted}, reverse=True)
    budgets = {"the usual number of trials": _USUAL, "fewer trials": _FEWER, "the fewest trials": fewest(claim)}
    # Budgets that cannot refute the claim are left out, unless none can.
    budgets = {words: one for words, one in budgets.items() if _can_refute(claim, one)} or budgets
    plans = [
        ReviewPlan(tuple(kinds), count, budget, words)
        for count in rounds
        for words, budget in list(budgets.items())[is_quick and len(budgets) > 1 :]
    ]
    # The last resort: the app's own model only in its first scenario and those about buffers, and then in none.
    on_own = [kind for kind in kinds if kind.model is ModelKind.OWN]
    plainest = [kind for kind in on_own if kind is on_own[0] or kind.present.direction in OF_FEW_TENSORS]
    small = [kind for kind in kinds if kind.model is not ModelKind.OWN]
    plans += [plans[-1]._replace(kinds=tuple(some)) for some in ([*plainest, *small], small) if some]
    # Half of the time is left for busy machines, and for learning the distinguishers.
    return next((plan for plan in plans if _seconds(plan, own_seconds, seconds) < 0.5 * left), plans[-1])


def _seconds(plan: ReviewPlan, own_seconds: float, seconds: float) -> float:
    """Return the approximate computing time of a plan's trials, in seconds.

    `own_seconds` is the time for one round of a trial on the app's own model, and `seconds` that on a small model.
    """
    of_kinds = [own_seconds if kind.model is ModelKind.OWN else seconds for kind in plan.kinds]
    budget, mean = plan.budget, sum(of_kinds) / len(of_kinds)
    trials = min(budget.scout, budget.pilot) * len(of_kinds) + budget.most * budget.stages[0]
    if budget.scout < budget.pilot:
        trials += budget.pilot * min(budget.kept, len(of_kinds))
    trials += sum(max(1, budget.deep >> place) * stage for place, stage in enumerate(budget.stages[1:]))
    return plan.rounds * mean * trials


@dataclass(frozen=True)
class SideChannelResult:
    """Result of the trials on one side channel, a part of clients' replies besides trained parameters.

    The result says whether the trials told D from D', and which scenarios (conditions of trials) gave no result.
    """

    aside: SideChannel  # the side channel
    is_played: bool  # whether trials on the side channel were run
    trials: int = 0  # number of trials on the side channel, over all scenarios
    # Largest share of right guesses among the distinguishers (rules that tell D from D') that refuted the claim; None
    # if none did.
    share: float | None = None
    by: str | None = None  # features that the distinguisher with this share uses; None if there is none
    # Names of scenarios on the side channel without a result, keyed by the reason.
    untried: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: tuple[str, ...] = ()  # names of the metrics that occurred in these trials


_BESIDE = {SideChannel.METRICS: "metrics: ", SideChannel.EVALUATION: "evaluation: "}
"""Prefix of the names of a side channel's numbers in transcripts, keyed by side channel."""


def _unknown(result: ClaimAudit) -> dict[str, tuple[str, ...]]:
    """Return the names of scenarios (conditions of trials) without a result or with too few trials, by the reason."""
    weak = tuple(one.distinguisher.kind for one in result.attempts if one.ceiling <= one.distinguisher.limit.epsilon)
    return {why: kinds for why, kinds in not_tried(result).items() if why != TOO_FEW} | (
        {TOO_FEW: weak} if weak else {}
    )


def leaks(results: Sequence[ClaimAudit], kinds: Sequence[str]) -> tuple[SideChannelResult, ...]:
    """Return a result for each side channel: whether the trials told D from D' by it, and scenarios without result.

    The side channels are metrics, example counts, buffers and replies to evaluation.

    Parameters
    ----------
    results
        Results of two kinds of audits: one attacks the released model, the other the numbers released beside it.
    kinds
        Names of the planned scenarios.
    """

    def is_about(aside: SideChannel, kind: Scenario) -> bool:
        if aside is SideChannel.BUFFERS:
            return kind.present.direction in OF_FEW_TENSORS
        return kind.plain_name == NUMBERS[aside] or (
            aside is SideChannel.EXAMPLES and kind.plain_name == "many examples"
        )

    found = []
    attempts = [attempt for result in results for attempt in result.attempts if attempt.is_broken]
    broken = {attempt.distinguisher.kind for attempt in attempts}
    asked = {name: one for result in results for name, one in result.asked.items()}
    for aside in SideChannel:
        told = [one for one in attempts if is_about(aside, BY_NAME[one.distinguisher.kind])]
        worst = max(told, key=lambda one: one.right / one.trials, default=None)
        share, by = (None, None) if worst is None else (worst.right / worst.trials, worst.distinguisher.group)
        about = [name for name in kinds if is_about(aside, BY_NAME[name])]
        untried = {
            why: some
            for result in results
            for why, names in _unknown(result).items()
            if (some := tuple(name for name in names if name in about and name not in broken))
        }
        left = {name for names in untried.values() for name in names}
        tried = [asked.get(name, ScenarioTrials()) for name in about if name not in left]
        start = _BESIDE.get(aside, "")
        seen = dict.fromkeys(name.removeprefix(start) for one in tried for name in one.names if name.startswith(start))
        trials, names = sum(one.trials for one in tried), tuple(seen) if start else ()
        found.append(SideChannelResult(aside, bool(tried), trials, share, by, untried, names))
    return tuple(found)
