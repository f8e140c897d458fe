"""Audit of a training function without a federation: it is called as its users would, and recorded."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

from torch import Tensor, nn

from fl_audit.errors import InputError, in_a_line, require, require_number
from fl_audit.local_training.assessment import Assessment, assess
from fl_audit.local_training.evidence import Evidence
from fl_audit.local_training.leave_one_out_replay import Edit, replays
from fl_audit.local_training.neighbours import is_sized, length_of, with_other_labels
from fl_audit.local_training.patches import recorded
from fl_audit.local_training.recorder import Recorder
from fl_audit.local_training.replay import ReplayEnd, random_states, set_random_states
from fl_audit.local_training.training_facts import RecordedTraining


@dataclass(frozen=True)
class TrainingOptions:
    """The user's claims and settings for the audit of a training function."""

    rounds: int = 1  # rounds of the whole training, in each of which the function is called
    calls: int = 2  # in how many of them it is called here
    epsilon: float | None = None  # epsilon that is claimed over all rounds; None takes what its accountant names
    delta: float | None = None  # delta of that claim; None takes what its accountant is asked for
    records_per_user: int = 1  # most records of one person


def audit_training(
    function: Callable[..., Any], name: str, model: Any, dataset: Any, options: TrainingOptions
) -> Assessment:
    """Call a training function, record its steps, and compare them with its claim.

    Parameters
    ----------
    function
        The training function: `train(model, dataset)`, `train(dataset)` or `train()`.
    name
        Name of the function.
    model
        Model that is passed to the function; None if it takes none.
    dataset
        Data set that is passed to the function; None if it takes none.
    options
        The user's claims and settings.

    Raises
    ------
    InputError
        If the function takes other arguments, or raises an exception.
    """
    require_number("rounds are", options.rounds, "whole numbers from 1")
    require_number("calls are", options.calls, "whole numbers from 1")
    places = arguments_of(function, name)
    given = {"model": model, "dataset": dataset}
    for what in places:
        require(given[what] is not None, f"{name} takes a {what}, and none is named: accepted is --{_FLAG[what]}")
    runner = _Runner(function, name, model, dataset, places)
    start = random_states()
    calls = max(1, min(options.calls, max(options.rounds, 2)))
    # A function that is called once is called again all the same: only so is seen whether it repeats its noise.
    recorders = [Recorder() for _ in range(calls)]
    called = [runner.run(recorder, lambda data: data, number) for number, recorder in enumerate(recorders, 1)]
    trainings, repeated = tuple(called[: options.rounds]), tuple(called)
    found: Evidence = Evidence(
        trainings, options.rounds, repeated, delta=options.delta, epsilon=options.epsilon,
        records_per_user=options.records_per_user,
    )  # fmt: skip
    if not found.is_private:
        return assess(name, found)
    if "dataset" not in places or not is_sized(dataset):
        why = "it takes no data set" if "dataset" not in places else "records of its data set cannot be taken out"
        return assess(name, found, [f"replays without a record, since {why}"])
    inner, unseen = recorders[0].dataset, list[str]()
    if inner is not None and length_of(inner) != length_of(dataset):
        # The choice of records for the engine may depend on their number: leaving one out then shows nothing.
        again = replays(runner.run_at_engine, None)
        unseen.append("which records the function chooses for its engine, since replays leave one out behind that")
    else:
        again = replays(runner.run, dataset)
    values = runner.with_labels(start)
    return assess(
        name,
        Evidence(
            trainings, options.rounds, repeated, again, values, options.delta, options.epsilon,
            options.records_per_user,
        ),
        unseen,
    )  # fmt: skip


_FLAG = {"model": "model", "dataset": "data"}


def arguments_of(function: Callable[..., Any], name: str) -> tuple[str, ...]:
    """Return which arguments a training function takes, "model" and "dataset" or some of them, in their order.

    Parameters
    ----------
    function
        The training function.
    name
        Name of the function.

    Raises
    ------
    InputError
        If the function takes further arguments without a default.
    """
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    places = [
        one for one in signature(function).parameters.values() if one.kind in kinds and one.default is Parameter.empty
    ]
    accepted = "accepted are train(model, dataset), train(dataset) and train(), and more arguments with defaults"
    require(len(places) < 3, f"{name} takes {len(places)} arguments: {accepted}")
    return (("model", "dataset")[-len(places) :]) if places else ()


@dataclass(frozen=True)
class _Runner:
    """Calls a training function with copies of its arguments."""

    function: Callable[..., Any]
    name: str
    model: Any
    dataset: Any
    places: tuple[str, ...]

    def run(self, recorder: Recorder, edit: Edit, number: int = 1) -> RecordedTraining:
        """Run the function on a modified data set, and return the recorded training."""
        given = {"model": copy.deepcopy(self.model), "dataset": edit(self.dataset)}
        try:
            with recorded(recorder):
                made = self.function(*(given[what] for what in self.places))
        except ReplayEnd:
            made = None
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(f"{self.name} raised {in_a_line(error)}") from error
        arrays = _weights_in(made if made is not None else given["model"])
        return recorder.training(recorder.left_of(arrays, {}, {}), 0, number)

    def run_at_engine(self, recorder: Recorder, edit: Edit) -> RecordedTraining:
        """Run the function, modify the data set where an engine receives it, and return the recorded training."""
        recorder.edit = edit
        return self.run(recorder, lambda data: data)

    def with_labels(self, start: Mapping[str, Any]) -> tuple[RecordedTraining, ...]:
        """Return a training and two repetitions with other labels; empty if the function fails on one of them."""
        found = []
        for edit in (lambda data: data, with_other_labels, lambda data: with_other_labels(data, is_one=True)):
            set_random_states(start)
            try:
                found.append(self.run(Recorder(), edit))
            except (InputError, IndexError, TypeError, KeyError):
                return ()
        return tuple(found)


def _weights_in(made: Any) -> dict[str, Tensor]:
    """Return the weights in a training function's result: those of the first module or state dict in it."""
    match made:
        case nn.Module():
            return {name: value for name, value in made.state_dict().items() if isinstance(value, Tensor)}
        case Mapping() if made and all(isinstance(value, Tensor) for value in made.values()):
            return {str(name): value for name, value in made.items()}
        case tuple() | list():
            return next((found for one in made if (found := _weights_in(one))), {})
        case _:
            return {}
