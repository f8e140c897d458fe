"""`BlackBoxTrial`: one trial of a Flower strategy, run with simulated clients in this process."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NoReturn

import numpy as np
from flwr.app import Context, Message, RecordDict, UserConfig
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fl_audit.adjacency import Relation, Unit
from fl_audit.app_audits.black_box.audited_system import AuditedSystem, Local, clipped_sum, with_mods
from fl_audit.app_audits.black_box.metric_lookups import LookupRecordingMetricRecord, numbers_over_rounds
from fl_audit.app_audits.black_box.recorder import TrialRecorder, recorded_trial
from fl_audit.app_audits.black_box.scenario import (
    RECORDS_OF_OTHERS,
    ClientContribution,
    ModelKind,
    OtherContributions,
    ReplyFault,
    Scenario,
    UpdateSignSchedule,
)
from fl_audit.app_audits.black_box.trial_messages import Observer, record_of, records_of, shapes_of, with_names
from fl_audit.app_audits.black_box.trial_models import (
    ALMOST_NOTHING,
    ModelWithDirections,
    non_zero_model,
    others_of,
    reply_tensors,
    template,
    template_of,
    update_of,
)
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.claim_audit.transcript import LinearSketch, Transcript, linear_sketch_of
from fl_audit.array_types import Floats
from fl_audit.strategies.simulated_grid import FIRST_NODE, RUN_ID, InProcessGrid

LOSS = "loss"  # the metric that clients report in trials on metrics, besides those that a strategy looks up
_LONG = 1000  # models with more parameters are sketched


def model_of(system: AuditedSystem, scenario: Scenario) -> ModelWithDirections:
    """Return the model that a trial trains: the app's own model, or a small one.

    It is the app's own model if the scenario asks for this and the app has a model.
    """
    if scenario.model is ModelKind.OWN and system.model is not None:
        return template_of(system.model)
    if scenario.model is ModelKind.NON_ZERO:
        return non_zero_model(system.norm)
    return template(scenario.model)


def sketch_of(model: ModelWithDirections) -> LinearSketch | None:
    """Return a linear map that shortens a model's parameter vector for storage; None for at most 1000 parameters."""
    return _sketched(tuple(shapes_of(model.arrays).items())) if model.size > _LONG else None


@lru_cache(maxsize=8)
def _sketched(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> LinearSketch:
    return linear_sketch_of(dict(shapes))


@lru_cache(maxsize=8)
def _all_others(contributions: OtherContributions, model: ModelKind, count: int) -> Floats:
    return others_of(contributions, template(model), count)


class BlackBoxTrial:
    """One trial of a Flower strategy: a short training in this process, whose clients send what a scenario says.

    If `present` is True, the target takes part (D); otherwise it is absent or replaced (D'). Local training draws from
    `random`. If `bears_zero` is True, an absent target sends an update of exactly zero, otherwise a negligible one.
    `target` is the place of the target's client among all clients, from 0; the next client observes.
    """

    def __init__(
        self,
        system: AuditedSystem,
        claim: StatedClaim,
        scenario: Scenario,
        present: bool,
        random: np.random.Generator,
        bears_zero: bool = False,
        target: int = 0,
    ) -> None:
        self._absent_length = 0.0 if bears_zero else ALMOST_NOTHING
        self._system = system
        self._claim = claim
        self._kind = scenario
        self._random = random
        self._model, self._part = model_of(system, scenario), scenario.present if present else scenario.absent
        self._clients = scenario.stage.clients or system.clients
        # Node IDs of the target's client, whose contribution differs, and of the observing client.
        self._target = FIRST_NODE + target % self._clients
        self._watcher = FIRST_NODE + (target + 1) % self._clients
        self._contexts = [_context(client, self._clients) for client in range(self._clients)]
        self._calls = [0] * self._clients
        self._contributed = np.zeros(self._model.size)
        self.blamed = ""  # description of the client mod whose exception ended the trial; empty if none did

    def play(self) -> Transcript:
        """Run the trial to its end, or until the strategy raises an exception; return the recorded results."""
        system = self._system
        rounds = self._claim.rounds
        arrays = self._model.arrays

        def start(grid: Grid) -> Result:
            return system.new_strategy(self._clients).start(grid, record_of(arrays), num_rounds=rounds)

        return self._seen(start)

    def refused(self, message: str) -> Transcript:
        """Return the transcript of this trial as if the strategy had refused to complete it, because of `message`."""

        def start(_: Grid) -> NoReturn:
            raise OSError(message)

        return replace(self._seen(start), refusal=message)

    def _seen(self, start: Callable[[Grid], Result]) -> Transcript:
        system = self._system
        rounds = self._claim.rounds
        arrays = self._model.arrays
        is_of_client = system.observer is Observer.CLIENT
        recorder = TrialRecorder(
            model=arrays,
            rounds=rounds,
            target=self._target,
            watcher=self._watcher,
            observer=system.observer,
            difference=lambda number, _: self._difference(number + 1),
            sketch=sketch_of(self._model),
            # Needed because mods may add noise to the observing client's reply.
            contribution_before_mods=(lambda: self._contributed) if is_of_client and system.mods else None,
            released_numbers=_all_numbers if is_of_client else lambda _: {},
        )
        return recorded_trial(start, InProcessGrid(self._clients, self._reply), recorder)

    def _reply(self, message: Message) -> Message | None:
        """Return a client's reply to a message, after the client's mods; None if the client stays silent."""
        node = message.metadata.dst_node_id
        client = node - FIRST_NODE
        is_train = message.metadata.message_type.startswith("train")
        self._calls[client] += is_train
        contribution = self._part if node == self._target else self._kind.others
        if contribution.form is ReplyFault.MISSING:
            return None
        loss = contribution.loss if is_train else contribution.evaluation
        update, numbers = self._contribution(node, contribution, self._calls[client], loss)
        if node == self._watcher:
            self._contributed = update
        records = records_of(message)
        received = with_names(records, set(self._model.arrays)) or next(iter(records.values()), {})
        key = next((name for name, arrays in records.items() if arrays is received), "arrays")

        def answer(inner: Message, _context: Context) -> Message:
            record = LookupRecordingMetricRecord()
            for name, number in numbers.items():
                record[name] = int(number) if float(number).is_integer() else float(number)
            content = RecordDict({"metrics": record})
            arrays = reply_tensors(received, update, self._model, contribution.form) if is_train else None
            if arrays is not None:
                content[key] = record_of(arrays)
            return Message(content, reply_to=inner)

        if not self._system.mods:
            return answer(message, self._contexts[client])
        try:
            return with_mods(self._system.mods, answer)(message, self._contexts[client])
        except Exception as error:
            self.blamed = "; ".join(getattr(error, "__notes__", ("raised in a modifier of the clients",)))
            raise

    def _contribution(
        self, node: int, contribution: ClientContribution, round: int, loss: float
    ) -> tuple[Floats, dict[str, float]]:
        """Return the update of client `node` in a round, (parameters,), and the metrics that it reports.

        `contribution` says how the target's client or record contributes. If the claim is about clients, all metrics
        have the value `loss`. If it is about records, the metrics are those of the local training.

        A strategy may release whatever clients report, and then what nobody asks for tells something of the trials'
        clients, but not of the app's. So they report no such number, except where it is all that differs.
        """
        is_target = node == self._target
        if self._claim.neighbours.unit is Unit.CLIENT:
            update = self._vector(contribution, round, is_target) if is_target else self._other(node, round)
            unasked = (LOSS,) if self._kind.differs_in_metrics else ()
            names = (*unasked, *self._system.asked) if self._system.metrics is None else self._system.metrics
            metrics = dict.fromkeys(names, loss)
            return update, metrics | {self._system.weight: contribution.examples}
        other_contributions = [
            self._vector(self._kind.others, round, is_target=False) / RECORDS_OF_OTHERS
        ] * RECORDS_OF_OTHERS
        # The differing record is present, except under D' of the add-remove relation.
        is_there = contribution is self._kind.present or self._claim.neighbours.relation is Relation.REPLACE
        target_contributions = [self._vector(contribution, round, is_target=True)] if is_target and is_there else []
        local: Local = self._system.local or clipped_sum(self._system.norm)
        reply = local(np.stack([*target_contributions, *other_contributions]), round, self._random)
        return reply.update, {self._system.weight: reply.examples, **reply.metrics}

    def _other(self, node: int, round: int) -> Floats:
        """Return the update of a client other than the target's, (parameters,), equal under D and D'."""
        stage = self._kind.stage
        if stage.others is OtherContributions.IDENTICAL:
            return self._vector(self._kind.others, round, is_target=False)
        count = self._clients - 1
        position = node - FIRST_NODE - (node > self._target)
        if self._kind.model is ModelKind.OWN:
            return self._system.norm * others_of(stage.others, self._model, count)[position]
        return np.asarray(self._system.norm * _all_others(stage.others, self._kind.model, count)[position])

    def _vector(self, contribution: ClientContribution, round: int, is_target: bool) -> Floats:
        if not is_target:
            return update_of(contribution, self._model, self._system.norm, round, UpdateSignSchedule.STEADY)
        return update_of(contribution, self._model, self._system.norm, round, self._kind.schedule, self._absent_length)

    def _difference(self, round: int) -> Floats:
        """Return the target's update under D minus that under D' in a round, (parameters,).

        If both updates are equal, the update of the other clients is returned. The target can then only change how much
        weight the others have.
        """
        difference = self._vector(self._kind.present, round, is_target=True)
        if self._kind.absent.form is ReplyFault.PLAIN:
            difference = difference - self._vector(self._kind.absent, round, is_target=True)
        # If the updates are equal, the target can only change the weight of the others, so their direction is used.
        return difference if np.any(difference) else self._vector(self._kind.others, round, is_target=False)


def _all_numbers(result: Result) -> dict[str, list[float]]:
    return numbers_over_rounds("metrics", result.train_metrics_clientapp, mean="") | numbers_over_rounds(
        "evaluation", result.evaluate_metrics_clientapp, mean=""
    )


def _context(client: int, clients: int) -> Context:
    node = client + FIRST_NODE
    node_config = UserConfig({"partition-id": client, "num-partitions": clients})
    return Context(run_id=RUN_ID, node_id=node, node_config=node_config, state=RecordDict(), run_config=UserConfig())
