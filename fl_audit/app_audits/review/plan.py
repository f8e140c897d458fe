"""The plan of a review: model, scenarios (conditions of trials), rounds and number of trials.

Single trials come before it: they find which metrics an app's strategy looks up, and how long a trial takes.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fl_audit.adjacency import Relation
from fl_audit.app_audits.black_box.asked_metrics import LookupTrial, find_asked_metrics, reporting
from fl_audit.app_audits.black_box.audited_system import AuditedSystem, StrategyStartCall
from fl_audit.app_audits.black_box.black_box_trial import BlackBoxTrial
from fl_audit.app_audits.black_box.metric_lookups import names_asked
from fl_audit.app_audits.black_box.recorder import errors_in
from fl_audit.app_audits.black_box.scenario import OF_FEW_TENSORS, ModelKind, Scenario
from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.black_box.trial_messages import Arrays, arrays_of
from fl_audit.app_audits.black_box.trial_models import is_moved_by
from fl_audit.app_audits.black_box.working_copy import WorkingCopy, in_working_copy
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.claim_audit_results import QUICK, TrialBudget
from fl_audit.app_audits.claim_audit.transcript import Transcript
from fl_audit.app_audits.review.scenario_groups import NUMBERS, SideChannel
from fl_audit.errors import InputError, require
from fl_audit.randomness import Purpose, generator
from fl_audit.statistics.lower_bounds import epsilon_lower_bound


@dataclass(frozen=True)
class ProbedSystem:
    """An audited system after a few single trials."""

    system: AuditedSystem  # the system, with the metrics that the app's strategy looks up in replies
    own_seconds: float  # duration of a trial on the app's own model
    seconds: float  # duration of a trial on a small model
    writes_files: bool  # whether the app writes files in a trial
    unoffered: tuple[str, ...]  # names of metrics that the strategy looks up, and with which it fails


class _TimedTrial(NamedTuple):
    """A single trial with the target."""

    transcript: Transcript
    seconds: float  # its duration
    blamed: str  # name of the app's mod that failed; empty if none did


def probed(system: AuditedSystem, claim: StatedClaim) -> ProbedSystem:
    """Run single trials to find out which metrics the app's strategy needs in replies, and how long a trial takes.

    Raises `InputError` if the app fails in a trial whose clients report these metrics.
    """
    plain = "removed" if claim.neighbours.relation is Relation.ADD_REMOVE else "opposite"
    scenario = BY_NAME[f"{plain}, own model"] if system.model is not None else BY_NAME[plain]
    copy = WorkingCopy(Path.cwd())

    def play(names: tuple[str, ...]) -> LookupTrial:
        with names_asked() as asked:
            trial = _timed(reporting(system, names), claim, scenario, copy)
        return LookupTrial(tuple(asked), trial.transcript.refusal)

    asked_metrics = find_asked_metrics(system.weight, play)
    system = replace(system, asked=asked_metrics.names)
    trial = _timed(system, claim, scenario, copy)
    longer = replace(scenario, present=replace(scenario.present, length=2.0))
    _require_scalable(system, _timed(system, claim, longer, copy).transcript)
    _require_played(trial)
    seconds = _timed(system, claim, BY_NAME[plain], copy).seconds
    copy.remove()
    return ProbedSystem(system, trial.seconds, seconds, copy.was_written, asked_metrics.unoffered)


def _require_played(trial: _TimedTrial) -> None:
    """Raise `InputError` if a trial failed, naming the strategy or a client mod as the cause."""
    transcript, blamed = trial.transcript, trial.blamed
    errors = errors_in(transcript)
    is_refused = transcript.refusal is not None
    if (blamed and is_refused) or (errors and (is_refused or not transcript.has_release)):
        error_text = f"{transcript.refusal}, {blamed}" if blamed else f"they replied with the error {errors[0]!r}"
        raise InputError(
            f"the modifiers of its clients cannot be played: {error_text}; accepted are modifiers that bear an "
            "ordinary "
            "message to train"
        )
    require(transcript.refusal is None, f"the strategy cannot be played: it raised {transcript.refusal}")


def _require_scalable(system: AuditedSystem, transcript: Transcript) -> None:
    """Raise `InputError` if a strategy fails when it has to clip an update, because the model has integer tensors.

    Flower's wrappers for differential privacy clip by scaling every tensor in place, which NumPy refuses for integers.
    `transcript` is a trial with an update of twice the clipping norm, which has to be clipped for certain.
    """
    whole = [name for name, array in (system.model or {}).items() if array.dtype.kind in "iub"]
    has_failed = "UFuncTypeError" in (transcript.refusal or "") and bool(whole)
    require(
        not has_failed,
        f"the strategy cannot be played: at an update longer than its clipping norm it raised {transcript.refusal}; it "
        f"cannot scale the model's arrays of whole numbers ({', '.join(whole)}): leave them out of the state that is "
        "sent, as with register_buffer(..., persistent=False)",
    )


def _timed(system: AuditedSystem, claim: StatedClaim, scenario: Scenario, copy: WorkingCopy) -> _TimedTrial:
    """Run one trial with the target."""
    began = time.monotonic()
    trial = BlackBoxTrial(system, claim, scenario, True, generator(0, Purpose.BLACK_BOX))
    with in_working_copy(copy, thoroughly=False):
        transcript = trial.play()
    return _TimedTrial(transcript, time.monotonic() - began, trial.blamed)


# A reviewer wants to know every scenario that breaks a claim, so the budgets cover all of them.
_USUAL = replace(TrialBudget(), scout=200, pilot=200, most_tests=12, plainest=True)
_FEWER = replace(QUICK, scout=120, pilot=120, most_tests=10, plainest=True)
_FEWEST = TrialBudget(pilot=60, stages=(400,), shares=(1.0,), fewest_tests=2, most_tests=4, deep=1, plainest=True)
"""Number of trials in each stage; it suffices to detect releases without any noise."""
_LEVEL = 0.05
_MOST_TRIED = 6400
_LEFT_OUT = ("large model", "own model, around a median")
"""Environments of scenarios that are left out if the app's own model is known."""
USUAL_ROUNDS = 3  # largest number of rounds of a trial unless the reviewer sets another number
_MOST_PARAMETERS = 5_000_000


class ReviewPlan(NamedTuple):
    """Plan of the black-box audit of an app's strategy: its scenarios, their trials, and the rounds of a trial."""

    kinds: tuple[Scenario, ...]  # scenarios, that is, conditions of trials
    rounds: int  # number of rounds of a trial
    budget: TrialBudget  # number of trials in each stage
    words: str  # description of the budget, such as "fewer trials"


def own_model(start: StrategyStartCall) -> tuple[Arrays | None, list[str]]:
    """Return the tensors of the app's initial model, keyed by name, and remarks on them.

    The tensors are None if the app gives no initial model, or if it is too large or too small for trials. `start` holds
    the arguments with which the app starts its strategy. Raises `InputError` if the model has no floating-point
    parameters in tensors.
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


def buffer_count(arrays: Mapping[str, np.ndarray]) -> int:
    """Return the number of a model's buffers: tensors of scalars, integers, booleans or running statistics."""
    return sum(
        any(is_moved_by(direction, name, value) for direction in OF_FEW_TENSORS) for name, value in arrays.items()
    )


def smallest_budget(claim: StatedClaim, tests: int = _FEWEST.most_tests) -> TrialBudget:
    """Return the smallest budget (trials per stage) that can refute a claim if all guesses are right.

    If even 6400 trials are too few to refute the claim, the smallest of all budgets is returned. `tests` is the largest
    number of distinguishers that are tested.
    """
    budget = fewest = replace(_FEWEST, most_tests=tests, fewest_tests=min(tests, _FEWEST.fewest_tests))
    while budget.stages[0] < _MOST_TRIED and not _can_refute(claim, budget):
        budget = replace(budget, stages=(2 * budget.stages[0],))
    return budget if _can_refute(claim, budget) else fewest


def _can_refute(claim: StatedClaim, budget: TrialBudget) -> bool:
    # A fair coin decides which trials use D; 45% is a cautious number of them.
    half = int(0.45 * budget.stages[-1])
    confidence = 1 - _LEVEL * budget.shares[-1] / budget.most_tests
    bounds = (epsilon_lower_bound(np.ones(half), np.zeros(half), limit.delta, confidence) for limit in claim.limits)
    return any(bound.epsilon > limit.epsilon for bound, limit in zip(bounds, claim.limits, strict=True))


def relevant_scenarios(
    kinds: Sequence[Scenario], arrays: Mapping[str, np.ndarray] | None, has_claim: bool
) -> list[Scenario]:
    """Return the scenarios in which an app with a given model can show a leak.

    A scenario is left out if it concerns metrics, evaluation, or a kind of tensor that the model lacks.
    """
    other_kinds = [
        kind for kind in kinds if kind.name not in (NUMBERS[SideChannel.METRICS], NUMBERS[SideChannel.EVALUATION])
    ]
    if not has_claim:
        plain = [kind for kind in other_kinds if kind.plain_name in ("removed", "opposite")]
        return [kind for kind in plain if arrays is None or kind.stage.name == "own model"][:1]
    if arrays is None:
        return [kind for kind in other_kinds if kind.model is not ModelKind.OWN]

    def is_there(scenario: Scenario) -> bool:
        if scenario.present.direction in OF_FEW_TENSORS:
            of_own = (is_moved_by(scenario.present.direction, name, value) for name, value in arrays.items())
            return scenario.model is ModelKind.OWN and any(of_own)
        return scenario.model is not ModelKind.HALF or any(value.dtype == np.float16 for value in arrays.values())

    # Sorts of tensors that the app's own model lacks cannot leak; scenarios on other sorts are run on this model.
    return [kind for kind in other_kinds if kind.stage.name not in _LEFT_OUT and is_there(kind)]


def plan_of(
    kinds: Sequence[Scenario],
    claim: StatedClaim,
    own_seconds: float,
    seconds: float,
    seconds_left: float,
    wanted_trials: int,
    is_free: bool,
    is_quick: bool,
) -> ReviewPlan:
    """Return the first plan, from most to fewest trials, that fits into the remaining time; the smallest if none fits.

    `seconds_left`: A plan fits if it needs less than half of it.
    """
    rounds = sorted({wanted_trials, 1 if is_free else wanted_trials}, reverse=True)
    budgets = {
        "the usual number of trials": _USUAL,
        "fewer trials": _FEWER,
        "the fewest trials": smallest_budget(claim),
    }
    # Budgets that cannot refute the claim are left out, unless none can.
    budgets = {words: budget for words, budget in budgets.items() if _can_refute(claim, budget)} or budgets
    plans = [
        ReviewPlan(tuple(kinds), count, budget, words)
        for count in rounds
        for words, budget in list(budgets.items())[is_quick and len(budgets) > 1 :]
    ]
    # The last resort: the app's own model only in its first scenario and those about buffers, and then in none.
    on_own = [kind for kind in kinds if kind.model is ModelKind.OWN]
    plainest = [kind for kind in on_own if kind is on_own[0] or kind.present.direction in OF_FEW_TENSORS]
    small = [kind for kind in kinds if kind.model is not ModelKind.OWN]
    plans += [plans[-1]._replace(kinds=tuple(scenarios)) for scenarios in ([*plainest, *small], small) if scenarios]
    # Half of the time is left for busy machines, and for learning the distinguishers.
    return next((plan for plan in plans if _seconds(plan, own_seconds, seconds) < 0.5 * seconds_left), plans[-1])


def _seconds(plan: ReviewPlan, own_seconds: float, seconds: float) -> float:
    """Return the approximate computing time of a plan's trials in seconds.

    `own_seconds` is the time of a trial's round on the app's own model, and `seconds` that on a small model.
    """
    of_kinds = [own_seconds if kind.model is ModelKind.OWN else seconds for kind in plan.kinds]
    budget = plan.budget
    mean = sum(of_kinds) / len(of_kinds)
    trials = min(budget.scout, budget.pilot) * len(of_kinds) + budget.most_tests * budget.stages[0]
    if budget.scout < budget.pilot:
        trials += budget.pilot * min(budget.passing_scenarios, len(of_kinds))
    trials += sum(max(1, budget.deep >> index) * stage for index, stage in enumerate(budget.stages[1:]))
    return plan.rounds * mean * trials
