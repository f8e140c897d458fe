"""Wrapper around a Flower app's strategy that first trains as usual, and then runs trials of the app."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_audit.adjacency import Relation
from fl_audit.app_audits.black_box.audited_system import StrategyStartCall, start_of
from fl_audit.app_audits.black_box.fingerprint import fingerprint, joined
from fl_audit.app_audits.black_box.in_app_audit import Audit, TargetUpdateKind
from fl_audit.app_audits.black_box.in_app_verdict import finish
from fl_audit.app_audits.black_box.legacy_adapter import clips_and_adds_noise
from fl_audit.app_audits.black_box.message_tags import AbsentTargetMetrics, Observer, TargetAction, TrialTag
from fl_audit.app_audits.black_box.message_tensors import arrays_of, crafted, flat, shapes_of, whole_parts
from fl_audit.app_audits.black_box.metric_lookups import numbers_over_rounds
from fl_audit.app_audits.black_box.recorder import (
    AppTrainingRecorder,
    TrialRecorder,
    TrialRecorderSettings,
    recorded_trial,
)
from fl_audit.app_audits.black_box.trial_store import StoredTrials, open_trial_store
from fl_audit.app_audits.black_box.working_copy import WorkingCopy, in_working_copy
from fl_audit.app_audits.claim_audit.claim_audit_results import OthersNoiseShareReason
from fl_audit.app_audits.claim_audit.transcript import LinearSketch, Transcript, linear_sketch_of
from fl_audit.array_types import Floats
from fl_audit.errors import InputError, in_a_line, require
from fl_audit.generator_states import seed_generators, spared_generators
from fl_audit.randomness import Purpose, generator
from fl_audit.strategies.flower_grids import MessageInterceptor, RecordedGrid

_TOLD_EVERY = 5.0  # seconds between two messages on progress


class TrialsAfterTrainingStrategy(Strategy):
    """A Flower strategy whose `start` trains with the app's own strategy, and then runs trials of the app.

    All other attributes and methods are those of the app's strategy.
    """

    def __init__(self, strategy: Strategy, audit: Audit) -> None:
        self._inner = strategy
        self._audit = audit

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_inner", "_audit"):
            raise AttributeError(name)
        return getattr(self._inner, name)

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """Train with the app's strategy, then run trials with it; return the training's result.

        An error of the audit is printed and changes neither the training nor its result.
        """
        start = start_of(self._inner, args, kwargs)
        grid: Grid = start.arguments["grid"]
        try:
            table = self._prepared(start, grid)
        except Exception as error:  # a failure of the audit must not stop the training
            why = str(error) if isinstance(error, InputError) else in_a_line(error)
            say(f"no trials are played, the app trains as ever: {why}")
            return start.call_start(grid)
        recorder = SafeRecorder(table.roll)
        with closing(table):
            result = start.call_start(RecordedGrid(grid, recorder))
            with spared_generators(), no_news_from_flower():
                try:
                    unheard = "no trials were played, the app's own training cannot be heard"
                    require(recorder.fault is None, f"{unheard}: {recorder.fault}")
                    table.play()
                except (InputError, OSError) as error:
                    say(str(error))
                except Exception as error:  # the training has ended, so its result is returned in any case
                    say(f"the trials ended early: {in_a_line(error)}")
        return result

    def _prepared(self, start: StrategyStartCall, grid: Grid) -> "AppTrialRunner":
        """Return the runner of the trials, with copies of the strategy and its arguments from before the training."""
        model = start.arguments.get("initial_arrays")
        accepted = "accepted is an ArrayRecord with at least one parameter"
        if not isinstance(model, ArrayRecord):
            raise InputError(f"initial_arrays is {type(model).__name__}, which cannot be watched: {accepted}")
        arrays = arrays_of(model)
        for name, value in arrays.items():
            wrong = f"{name} has values of type {value.dtype}: accepted are numbers and switches"
            require(value.dtype.kind in "fiub", wrong)
        audit = replace(self._audit, directory=self._audit.directory.absolute())
        tried = audit.contributions(self._inner, arrays)
        code = fingerprint(self._inner, start.arguments)
        sketched = linear_sketch_of(shapes_of(arrays))
        roll = AppTrainingRecorder(arrays, audit.replies)
        return AppTrialRunner(audit, tried, _app_of(grid), code, start.copied(), grid, roll, sketched)

    # For apps that call these methods themselves instead of `start`.
    summary = property(lambda self: self._inner.summary)
    configure_train = property(lambda self: self._inner.configure_train)
    aggregate_train = property(lambda self: self._inner.aggregate_train)
    configure_evaluate = property(lambda self: self._inner.configure_evaluate)
    aggregate_evaluate = property(lambda self: self._inner.aggregate_evaluate)


class SafeRecorder:
    """Wrapper around a message recorder that stores its first exception in `fault` instead of raising it."""

    def __init__(self, interceptor: MessageInterceptor) -> None:
        self._recorder = interceptor
        self.fault: str | None = None

    def record_sent(self, message: Message) -> None:
        self._safely(self._recorder.record_sent, message)

    def record_received(self, reply: Message) -> None:
        self._safely(self._recorder.record_received, reply)

    def _safely(self, hook: Callable[[Message], None], message: Message) -> None:
        try:
            hook(message)
        except Exception as error:  # an error of the audit must not stop the app's own training
            self.fault = self.fault or in_a_line(error)


class _NoisyClientsError(Exception):
    """Raised if clients that should repeat an earlier reply send other values, because their mods add noise."""


@dataclass
class AppTrialRunner:
    """Runs the trials of a Flower app after the app's training, within the same run of the app.

    A trial is a short run of the same app with the target (D) or without it (D').
    """

    audit: Audit  # the configuration
    contributions: tuple[TargetUpdateKind, ...]  # kinds of update of the target's client that the first trials try
    app: str  # the name of the app
    code: str  # digest of the code and settings of the app's strategy
    pristine: StrategyStartCall  # copy of the strategy and its arguments, made before the training
    grid: Grid  # the app's connection to its clients
    roll: AppTrainingRecorder  # recorder of the clients that took part in the app's own training
    sketch: LinearSketch  # linear map that shortens the parameter vectors of the app's model for storage

    def __post_init__(self) -> None:
        self._model, self._outside = arrays_of(self.pristine.arguments["initial_arrays"]), set[str]()
        # Copied before the training, so that a trial starts with the same files as a run of the app.
        self._copy = WorkingCopy(Path.cwd(), self.audit.directory)

    def close(self) -> None:
        """Delete the copy of the app's working directory in which trials run."""
        self._copy.remove()

    def play(self) -> None:
        """Run the trials that are not stored yet, store each of them, and print the report."""
        audit = self.audit
        codes = joined(self.code, *self.roll.codes)
        shapes = shapes_of(self._model)
        self._target, self._watcher = self._target_and_observer()
        self._campaign = campaign = open_trial_store(audit, shapes, self.contributions, self.app, codes, say)
        if campaign.is_new:
            # Under a claim about records, clients may add noise themselves.
            is_alone = audit.observer is Observer.CLIENT and not audit.is_about_records
            is_alone = is_alone and clips_and_adds_noise(self.pristine.strategy)
            campaign.begin_trials(None if is_alone else OthersNoiseShareReason.SHARES)
        try:
            self._play_missing(campaign)
        except _NoisyClientsError:
            campaign.begin_trials(OthersNoiseShareReason.SHARES_OUTSIDE)
            self._play_missing(campaign)
        outside = sorted({*self._outside, *self._copy.outside})
        rounds = self.pristine.arguments.get("num_rounds")
        say(finish(campaign, self.sketch.columns, outside, rounds if isinstance(rounds, int) else None))

    def _play_missing(self, stored_trials: StoredTrials) -> None:
        audit = self.audit
        # One probe sends an update of exactly zero, which an ordinary client that learns nothing would send.
        is_removed = audit.claim.neighbours.relation is Relation.ADD_REMOVE and not audit.is_about_records
        if is_removed and stored_trials.zero_update_error is None:
            transcript, recorder = self._trial(audit.trials + 1, TargetAction.NOTHING, TargetUpdateKind.OWN, 1)
            stored_trials.keep_probe(transcript.refusal or "; ".join(recorder.errors[:1]) or _values_error(transcript))
        start_time = time.monotonic()
        arrived = dict[tuple[TargetUpdateKind, int], str]()
        is_still = stored_trials.not_covered is None
        for trial in stored_trials.missing[: audit.trials_per_run]:
            stored_trials.choose_update(self.sketch.columns)
            contribution = TargetUpdateKind(stored_trials.contribution(trial))
            action = audit.action(stored_trials.is_present(trial), contribution, not stored_trials.zero_update_error)
            transcript, recorder = self._trial(trial, action, contribution, audit.claim.rounds, is_still)
            # Replies of the others are compared between trials with the same contribution of the target's client.
            if any(
                arrived.setdefault((contribution, node), digest) != digest for node, digest in recorder.arrived.items()
            ):
                raise _NoisyClientsError
            stored_trials.add(trial, transcript)
            if time.monotonic() - start_time > _TOLD_EVERY:
                start_time = time.monotonic()
                say(f"trial {trial} of {audit.trials}")

    def _target_and_observer(self) -> tuple[int, int | None]:
        """Return the node IDs of the target's client and of the observing client.

        The second is None if the target's client is the only one.
        """
        audit = self.audit
        partitions = self.roll.partitions
        accepted = "accepted is a client app with this modifier: ClientApp(mods=[audit.insider()])"
        require(len(partitions) > 0, f"no client answered as an insider: {accepted}")
        # Real devices may have no partition IDs; the order of node IDs replaces them.
        ranks = {node: index for index, node in enumerate(sorted(partitions))}
        numbers = {ranks[node] if number is None else number: node for node, number in partitions.items()}
        text = f"clients {', '.join(map(str, sorted(numbers)))} took part"
        require(audit.target in numbers, f"target is {audit.target}, and {text}: accepted is one of them")
        node = numbers[audit.target]
        if audit.is_about_records:
            audit.require_records(self.roll.records.get(node), self.roll.faults.get(node, ""))
        return node, next((numbers[number] for number in sorted(numbers) if number != audit.target), None)

    def _actions_of_others(self) -> dict[int, TargetAction]:
        """Return crafted updates for the clients other than the target's, keyed by node ID.

        Half of these clients send the crafted update and half its negative; of an odd number, the last client has no
        entry. In a mean both halves cancel. In a median they leave the decision to the target's client.
        """
        other_nodes = sorted(node for node in self.roll.partitions if node != self._target)
        ways = (TargetAction.CRAFTED, TargetAction.CRAFTED_OPPOSITE)
        return {node: ways[index % 2] for index, node in enumerate(other_nodes[: len(other_nodes) // 2 * 2])}

    def _trial(
        self, trial: int, action: TargetAction, update_kind: TargetUpdateKind, rounds: int, is_still: bool = False
    ) -> tuple[Transcript, TrialRecorder]:
        """Run one trial; return its transcript and its recorder.

        `update_kind` says which update of the target counts as the difference between D and D', also in trials with
        D'. With `is_still`, the clients without the target do not train, but repeat stored replies.
        """
        audit = self.audit
        target = self._target
        nothing = np.zeros(sum(value.size for value in self._model.values()))
        known_update: Floats | None = self.roll.updates.get(target) if audit.is_about_records else None
        sent = crafted(self._model, audit.length)
        whole = nothing
        if update_kind is TargetUpdateKind.CRAFTED:
            known_update = flat(sent, self._model)
        if update_kind is TargetUpdateKind.WHOLE:
            whole = np.nan_to_num(flat(whole_parts(sent, self._model), self._model))

        def difference(_round: int, learned: Floats | None) -> Floats:
            update = known_update if known_update is not None else learned
            # Crafted values of integer tensors are public, also under D', and replace the learned ones.
            there = update if update is not None and update.shape == nothing.shape else nothing
            return np.where(whole != 0, whole, there)

        scene = TrialRecorderSettings(
            model=self._model,
            rounds=rounds,
            target=target,
            watcher=self._watcher,
            observer=audit.observer,
            difference=difference,
            sketch=self.sketch,
            note=replace(
                TrialTag(trial, "", action, audit.replies, audit.numbers, audit.length, is_still),
                is_about_records=audit.is_about_records,
            ),
            pulls=self._actions_of_others() if is_still and update_kind is TargetUpdateKind.CRAFTED else {},
            knows_others=True,
            released_numbers=_train_metrics if audit.numbers is AbsentTargetMetrics.WITHHELD else lambda _: {},
        )
        recorder = TrialRecorder(scene)
        draws = generator(self._campaign.seed, Purpose.BLACK_BOX, trial=trial)
        seed_generators(draws)
        with in_working_copy(self._copy):
            again = self.pristine.copy_for_trial(rounds, draws, self._copy.path_in_copy)
            transcript = recorded_trial(again.call_start, self.grid, recorder)
        self._outside |= recorder.outside
        return transcript, recorder


def _values_error(transcript: Transcript) -> str:
    """Return what is wrong with the values that a trial released; empty if nothing is."""
    is_wrong = transcript.has_release and not np.all(np.isfinite(transcript.steps))
    return "values that are not finite were released" if is_wrong else ""


def _app_of(grid: Grid) -> str:
    """Return a name for the running app: its Flower App Bundle ID, or else its script's folder and name, or "app"."""
    with suppress(Exception):  # custom grids have no run
        if grid.run.fab_id:
            return str(grid.run.fab_id)
    script = getattr(sys.modules["__main__"], "__file__", None)
    return "/".join(Path(script).resolve().with_suffix("").parts[-2:]) if script else "app"


def _train_metrics(result: Result) -> dict[str, list[float]]:
    return numbers_over_rounds("metrics", result.train_metrics_clientapp)


def say(line: str) -> None:
    """Print a line on standard error. The prefix `fl_audit: ` distinguishes it from the app's own output."""
    sys.stderr.write(f"fl_audit: {line}\n")
    sys.stderr.flush()


@contextmanager
def no_news_from_flower() -> Iterator[None]:
    """Switch off Flower's log within a `with` block; afterwards restore its level."""
    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)
