"""Strategy around that of a Flower app: it first trains as usual, and then runs trials in the same run of the app."""

import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_audit.adjacency import Relation
from fl_audit.app_audits.black_box.audited_system import StrategyStartCall, start_of
from fl_audit.app_audits.black_box.fingerprint import fingerprint, joined
from fl_audit.app_audits.black_box.in_app_verdict import finish
from fl_audit.app_audits.black_box.legacy_adapter import clips_and_adds_noise
from fl_audit.app_audits.black_box.metric_lookups import numbers_over_rounds
from fl_audit.app_audits.black_box.recorder import TrialRecorder, recorded_trial
from fl_audit.app_audits.black_box.transcript_store import TranscriptStore, open_transcript_store
from fl_audit.app_audits.black_box.trial_messages import (
    AbsentTargetMetrics,
    Arrays,
    Observer,
    TargetAction,
    TrialTag,
    UpdateFormat,
    arrays_of,
    base_of,
    crafted,
    flat,
    read_tag,
    records_of,
    shapes_of,
    taken_answer,
    whole_parts,
    with_names,
)
from fl_audit.app_audits.black_box.working_copy import WorkingCopy, in_working_copy
from fl_audit.app_audits.claim_audit.claim_audit_results import OthersNoiseShareReason
from fl_audit.app_audits.claim_audit.transcript import LinearSketch, Transcript, linear_sketch_of
from fl_audit.app_audits.console_output import no_news_from_flower, say
from fl_audit.array_types import Floats
from fl_audit.errors import InputError, in_a_line, require
from fl_audit.generator_states import seed_generators, spared_generators
from fl_audit.randomness import Purpose, generator
from fl_audit.strategies.flower_grids import MessageInterceptor, RecordedGrid

if TYPE_CHECKING:  # Clients import the module of `Audit`, which imports this one late.
    from fl_audit.app_audits.black_box.in_app_audit import Audit

_TOLD_EVERY = 5.0  # seconds between two messages on progress


@dataclass
class AppTrainingRecorder:
    """Recorder of the app's own training that stores each client's partition, first update, record count and code."""

    model: Arrays  # tensors of the app's initial model, keyed by name
    replies: UpdateFormat  # whether clients reply with models or with updates
    # The next four are keyed by the client's node ID.
    partitions: dict[int, int | None] = field(init=False, default_factory=dict)  # partition ID; None if there is none
    updates: dict[int, Floats] = field(init=False, default_factory=dict)  # the client's first update, (parameters,)
    records: dict[int, int] = field(init=False, default_factory=dict)  # number of records passed to `held`
    faults: dict[int, str] = field(init=False, default_factory=dict)  # reason why `held` was passed no data set
    codes: set[str] = field(init=False, default_factory=set)  # digests of the code of all clients
    _sent: dict[int, Arrays] = field(init=False, default_factory=dict)  # last model sent to each client, by node ID

    def record_sent(self, message: Message) -> None:
        """Store the model in a message to a client, and mark the message as part of the app's own training."""
        sent = with_names(records_of(message), set(self.model))
        if sent is not None:
            self._sent[message.metadata.dst_node_id] = sent
        message.metadata.group_id = TrialTag(0, group=message.metadata.group_id).written()

    def record_received(self, reply: Message) -> None:
        """Remove a client's answer to the audit from its reply, and store the answer and the client's first update."""
        read_tag(reply)
        answer = taken_answer(reply)
        node = reply.metadata.src_node_id
        if answer is None:
            return
        self.partitions[node] = answer.partition
        self.codes.add(answer.code)
        if answer.records is not None:
            self.records[node] = answer.records
        if answer.fault:
            self.faults[node] = answer.fault
        arrays = with_names(records_of(reply), set(self.model))
        if arrays is not None and node in self._sent and node not in self.updates:
            base = base_of(arrays, self._sent[node], self.replies)
            if shapes_of(base) == shapes_of(arrays):
                self.updates[node] = flat(arrays) - flat(base)


@dataclass
class AppTrialRunner:
    """Runs the trials of a Flower app after the app's training, within the same run of the app.

    A trial is a short run of the same app with the target (D) or without it (D').
    """

    audit: "Audit"  # the audit, with its settings
    contributions: tuple[TargetAction, ...]  # kinds of update of the target's client that the first trials try
    app: str  # the name of the app
    code: str  # digest of the code and settings of the app's strategy
    pristine: StrategyStartCall  # copy of the strategy and its arguments, made before the training
    grid: Grid  # the app's connection to its clients
    sketch: LinearSketch  # linear map that shortens the parameter vectors of the app's model for storage

    def __post_init__(self) -> None:
        self._model = arrays_of(self.pristine.arguments["initial_arrays"])
        self._outside = set[str]()
        # Recorder of the clients that take part in the app's own training.
        self.training_recorder = AppTrainingRecorder(self._model, self.audit.replies)
        # Copied before the training, so that a trial starts with the same files as a run of the app.
        self._copy = WorkingCopy(Path.cwd(), self.audit.directory)

    def close(self) -> None:
        """Delete the copy of the app's working directory in which trials run."""
        self._copy.remove()

    def play(self) -> None:
        """Run the trials that are not stored yet, store each of them, and print the report."""
        audit = self.audit
        codes = joined(self.code, *self.training_recorder.codes)
        shapes = shapes_of(self._model)
        self._target, self._watcher = self._target_and_observer()
        self._store = store = open_transcript_store(audit, shapes, self.contributions, self.app, codes, say)
        if store.is_new:
            # Under a claim about records, clients may add noise themselves.
            is_alone = audit.observer is Observer.CLIENT and not audit.is_about_records
            is_alone = is_alone and clips_and_adds_noise(self.pristine.strategy)
            store.begin_trials(None if is_alone else OthersNoiseShareReason.SHARES)
        if not self._play_missing(store):
            store.begin_trials(OthersNoiseShareReason.SHARES_OUTSIDE)
            self._play_missing(store)
        outside = sorted({*self._outside, *self._copy.outside})
        rounds = self.pristine.arguments.get("num_rounds")
        say(finish(store, self.sketch.columns, outside, rounds if isinstance(rounds, int) else None))

    def _play_missing(self, store: TranscriptStore) -> bool:
        """Play and store the trials that are missing, and return whether they could be played as they were begun.

        They could not if clients that should repeat an earlier reply send other values, because their mods add noise.
        """
        audit = self.audit
        # One probe sends an update of exactly zero, which an ordinary client that learns nothing would send.
        is_removed = audit.claim.neighbours.relation is Relation.ADD_REMOVE and not audit.is_about_records
        if is_removed and store.zero_update_error is None:
            transcript, recorder = self._trial(audit.trials + 1, TargetAction.NOTHING, TargetAction.OWN, 1)
            store.keep_probe(transcript.refusal or "; ".join(recorder.errors[:1]) or _values_error(transcript))
        start_time = time.monotonic()
        arrived = dict[tuple[TargetAction, int], str]()
        is_still = store.not_covered is None
        for trial in store.missing[: audit.trials_per_run]:
            store.choose_update(self.sketch.columns)
            contribution = store.contribution(trial)
            action = audit.action(store.is_present(trial), contribution, not store.zero_update_error)
            transcript, recorder = self._trial(trial, action, contribution, audit.claim.rounds, is_still)
            # Replies of the others are compared between trials with the same contribution of the target's client.
            if any(
                arrived.setdefault((contribution, node), digest) != digest for node, digest in recorder.arrived.items()
            ):
                return False
            store.add(trial, transcript)
            if time.monotonic() - start_time > _TOLD_EVERY:
                start_time = time.monotonic()
                say(f"trial {trial} of {audit.trials}")
        return True

    def _target_and_observer(self) -> tuple[int, int | None]:
        """Return the node IDs of the target's client and of the observing client.

        The second is None if the target's client is the only one.
        """
        audit = self.audit
        partitions = self.training_recorder.partitions
        accepted = "accepted is a client app with this modifier: ClientApp(mods=[audit.insider()])"
        require(len(partitions) > 0, f"no client answered as an insider: {accepted}")
        # Real devices may have no partition IDs; the order of node IDs replaces them.
        ranks = {node: index for index, node in enumerate(sorted(partitions))}
        numbers = {ranks[node] if number is None else number: node for node, number in partitions.items()}
        text = f"clients {', '.join(map(str, sorted(numbers)))} took part"
        require(audit.target in numbers, f"target is {audit.target}, and {text}: accepted is one of them")
        node = numbers[audit.target]
        if audit.is_about_records:
            audit.require_records(self.training_recorder.records.get(node), self.training_recorder.faults.get(node, ""))
        return node, next((numbers[number] for number in sorted(numbers) if number != audit.target), None)

    def _actions_of_others(self) -> dict[int, TargetAction]:
        """Return crafted updates for the clients other than the target's, keyed by node ID.

        Half of these clients send the crafted update and half its negative; of an odd number, the last client has no
        entry. In a mean both halves cancel. In a median they leave the decision to the target's client.
        """
        other_nodes = sorted(node for node in self.training_recorder.partitions if node != self._target)
        ways = (TargetAction.CRAFTED, TargetAction.CRAFTED_OPPOSITE)
        return {node: ways[index % 2] for index, node in enumerate(other_nodes[: len(other_nodes) // 2 * 2])}

    def _trial(
        self, trial: int, action: TargetAction, update_kind: TargetAction, rounds: int, is_still: bool = False
    ) -> tuple[Transcript, TrialRecorder]:
        """Run one trial; return its transcript and its recorder.

        `update_kind` says which update of the target counts as the difference between D and D', also in trials with
        D'. With `is_still`, the clients without the target do not train, but repeat stored replies.
        """
        audit = self.audit
        target = self._target
        nothing = np.zeros(sum(value.size for value in self._model.values()))
        known_update: Floats | None = self.training_recorder.updates.get(target) if audit.is_about_records else None
        sent = crafted(self._model, audit.length)
        whole = nothing
        if update_kind is TargetAction.CRAFTED:
            known_update = flat(sent, self._model)
        if update_kind is TargetAction.OWN_WHOLE:
            whole = np.nan_to_num(flat(whole_parts(sent, self._model), self._model))

        def difference(_round: int, learned: Floats | None) -> Floats:
            update = known_update if known_update is not None else learned
            # Crafted values of integer tensors are public, also under D', and replace the learned ones.
            there = update if update is not None and update.shape == nothing.shape else nothing
            return np.where(whole != 0, whole, there)

        recorder = TrialRecorder(
            model=self._model,
            rounds=rounds,
            target=target,
            watcher=self._watcher,
            observer=audit.observer,
            difference=difference,
            sketch=self.sketch,
            tag=replace(
                TrialTag(trial, "", action, audit.replies, audit.numbers, audit.length, is_still),
                is_about_records=audit.is_about_records,
            ),
            pulls=self._actions_of_others() if is_still and update_kind is TargetAction.CRAFTED else {},
            knows_others=True,
            released_numbers=_train_metrics if audit.numbers is AbsentTargetMetrics.WITHHELD else lambda _: {},
        )
        draws = generator(self._store.seed, Purpose.BLACK_BOX, trial=trial)
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


def _train_metrics(result: Result) -> dict[str, list[float]]:
    return numbers_over_rounds("metrics", result.train_metrics_clientapp)


class TrialsAfterTrainingStrategy(Strategy):
    """A Flower strategy whose `start` trains with the app's own strategy, and then runs trials of the app.

    All other attributes and methods are those of the app's strategy.
    """

    def __init__(self, strategy: Strategy, audit: "Audit") -> None:
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
            runner = self._prepared(start, grid)
        except Exception as error:  # a failure of the audit must not stop the training
            why = str(error) if isinstance(error, InputError) else in_a_line(error)
            say(f"no trials are played, the app trains as ever: {why}")
            return start.call_start(grid)
        recorder = SafeRecorder(runner.training_recorder)
        with closing(runner):
            result = start.call_start(RecordedGrid(grid, recorder))
            with spared_generators(), no_news_from_flower():
                try:
                    unheard = "no trials were played, the app's own training cannot be heard"
                    require(recorder.fault is None, f"{unheard}: {recorder.fault}")
                    runner.play()
                except (InputError, OSError) as error:
                    say(str(error))
                except Exception as error:  # the training has ended, so its result is returned in any case
                    say(f"the trials ended early: {in_a_line(error)}")
        return result

    def _prepared(self, start: StrategyStartCall, grid: Grid) -> AppTrialRunner:
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
        return AppTrialRunner(audit, tried, _app_of(grid), code, start.copied(), grid, sketched)

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


def _app_of(grid: Grid) -> str:
    """Return a name for the running app: its Flower App Bundle ID, or else its script's folder and name, or "app"."""
    with suppress(Exception):  # custom grids have no run
        if grid.run.fab_id:
            return str(grid.run.fab_id)
    script = getattr(sys.modules["__main__"], "__file__", None)
    return "/".join(Path(script).resolve().with_suffix("").parts[-2:]) if script else "app"
