"""The clients of the laboratory: what each of them answers in a game, and a game of theirs against a strategy."""

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict, UserConfig
from flwr.serverapp.strategy import Result

from fl_audit.adjacency import Relation, Unit
from fl_audit.arrays import Floats
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.seen import Seen, Sketch, sketch
from strategies.games.arrays import record_of, records_of, shapes_of, with_names
from strategies.games.hearing import GameEars, Scene, played
from strategies.games.kinds import RECORDS_OF_OTHERS, Kind, Model, Others, Part, ReplyForm, Schedule
from strategies.games.models import Template, others_of, replied, template, template_of, update_of
from strategies.games.subject import Local, Mod, Observer, Subject, clipped_sum
from strategies.grids import FIRST_NODE, RUN_ID, Room

TargetAnswer = Callable[[Message, Context], Message]

_TARGET, _WATCHER = FIRST_NODE, FIRST_NODE + 1
"""Nodes of the client whose contribution differs, and of the one that looks."""
_LONG = 1000  # models with more parameters are sketched


def model_of(subject: Subject, kind: Kind) -> Template:
    """Return the model that a kind of game is played on with a subject.

    Parameters
    ----------
    subject, kind
        What is played, and in which kind of game.
    """
    if kind.model is Model.OWN and subject.model is not None:
        return template_of(subject.model)
    return template(kind.model)


def columns_of(model: Template) -> tuple[tuple[str, slice], ...]:
    """Return names and slices of what is seen of a model's parameters."""
    reduced = _sketch(model)
    return model.tensors if reduced is None else reduced.columns


def _sketch(model: Template) -> Sketch | None:
    """Return the sketch of a model's parameters; those of a small one are seen as they are."""
    return _sketched(tuple(shapes_of(model.arrays).items())) if model.size > _LONG else None


@lru_cache(maxsize=8)
def _sketched(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Sketch:
    return sketch(dict(shapes))


@lru_cache(maxsize=8)
def _all_others(others: Others, model: Model, count: int) -> Floats:
    return others_of(others, template(model), count)


class LaboratoryGame:
    """One game of the laboratory, under D or not; clients whose local work is random draw from `random`."""

    def __init__(
        self, subject: Subject, claim: StatedClaim, kind: Kind, present: bool, random: np.random.Generator
    ) -> None:
        self._subject, self._claim, self._kind, self._random = subject, claim, kind, random
        self._model, self._part = model_of(subject, kind), kind.present if present else kind.absent
        self._clients = kind.stage.clients or subject.clients
        self._contexts = [_context(client, self._clients) for client in range(self._clients)]
        self._calls = [0] * self._clients
        self._contributed = np.zeros(self._model.size)

    def play(self) -> Seen:
        """Play to the end, or until the mechanism refuses to go on."""
        has_noise_of_its_own = bool(self._subject.mods) and self._subject.observer is Observer.CLIENT
        scene = Scene(
            model=self._model.arrays,
            rounds=self._claim.rounds,
            target=_TARGET,
            watcher=_WATCHER,
            observer=self._subject.observer,
            difference=lambda place, _: self._difference(place + 1),
            sketch=_sketch(self._model),
            own=(lambda: self._contributed) if has_noise_of_its_own else None,
            released_numbers=_all_numbers if self._subject.observer is Observer.CLIENT else lambda _: {},
        )
        return played(self._start, Room(self._clients, self._reply), GameEars(scene))

    def _start(self, grid: object) -> Result:
        strategy = self._subject.made(self._clients)
        arrays = record_of(self._model.arrays)
        return strategy.start(grid, arrays, num_rounds=self._claim.rounds)  # type: ignore[arg-type]

    def _reply(self, message: Message) -> Message | None:
        """Return what a client answers, after its modifiers."""
        node = message.metadata.dst_node_id
        client = node - FIRST_NODE
        is_train = message.metadata.message_type.startswith("train")
        self._calls[client] += is_train
        part = self._part if node == _TARGET else self._kind.others
        if part.form is ReplyForm.MISSING:
            return None
        loss = part.loss if is_train else part.evaluation
        update, numbers = self._contribution(node, part, self._calls[client], loss)
        if node == _WATCHER:
            self._contributed = update
        records = records_of(message)
        received = with_names(records, set(self._model.arrays)) or next(iter(records.values()), {})
        key = next((name for name, arrays in records.items() if arrays is received), "arrays")

        def answer(inner: Message, _context: Context) -> Message:
            named = MetricRecord()
            for name, number in numbers.items():
                named[name] = int(number) if float(number).is_integer() else float(number)
            content = RecordDict({"metrics": named})
            arrays = replied(received, update, self._model, part.form) if is_train else None
            if arrays is not None:
                content[key] = record_of(arrays)
            return Message(content, reply_to=inner)

        return _modified(self._subject.mods, answer)(message, self._contexts[client])

    def _contribution(self, node: int, part: Part, round: int, loss: float) -> tuple[Floats, dict[str, float]]:
        """Return what a client adds to the model, and the numbers that it names."""
        is_target = node == _TARGET
        if self._claim.neighbours.unit is Unit.CLIENT:
            update = self._vector(part, round, is_target) if is_target else self._other(node, round)
            named = dict.fromkeys(("loss", *self._subject.metrics), loss)
            return update, named | {self._subject.weight: part.examples}
        rest = [self._vector(self._kind.others, round, is_target=False) / RECORDS_OF_OTHERS] * RECORDS_OF_OTHERS
        own = [self._vector(part, round, is_target=True)] if is_target and self._has_record(part) else []
        local: Local = self._subject.local or clipped_sum(self._subject.norm)
        reply = local(np.stack([*own, *rest]), round, self._random)
        return reply.update, {self._subject.weight: reply.examples, **reply.metrics}

    def _has_record(self, part: Part) -> bool:
        """Return whether the differing record is there: it is, but under D' where it is added or removed."""
        return part is self._kind.present or self._claim.neighbours.relation is Relation.REPLACE

    def _other(self, node: int, round: int) -> Floats:
        """Return what somebody else contributes: the same in every round, whatever the target does."""
        stage = self._kind.stage
        if stage.others is Others.IDENTICAL:
            return self._vector(self._kind.others, round, is_target=False)
        count, place = self._clients - 1, node - _WATCHER
        if self._kind.model is Model.OWN:
            return self._subject.norm * others_of(stage.others, self._model, count)[place]
        return np.asarray(self._subject.norm * _all_others(stage.others, self._kind.model, count)[place])

    def _vector(self, part: Part, round: int, is_target: bool) -> Floats:
        schedule = self._kind.schedule if is_target else Schedule.STEADY
        return update_of(part, self._model, self._subject.norm, round, schedule)

    def _difference(self, round: int) -> Floats:
        """Return the direction in which D and D' differ, as the observer knows it."""
        present = self._vector(self._kind.present, round, is_target=True)
        absent = np.zeros_like(present)
        if self._kind.absent.form is ReplyForm.PLAIN:
            absent = self._vector(self._kind.absent, round, is_target=True)
        difference = present - absent
        # Where the updates are equal, what they do to the others' share is what can be seen.
        return difference if np.any(difference) else self._vector(self._kind.others, round, is_target=False)


def _all_numbers(result: Result) -> Mapping[str, list[float]]:
    """Return every number that a strategy returned beside the model, by name."""
    found = dict[str, list[float]]()
    for what, rounds in (
        ("metrics", result.train_metrics_clientapp),
        ("evaluation", result.evaluate_metrics_clientapp),
    ):
        for record in rounds.values():
            for name, value in record.items():
                values = value if isinstance(value, list) else [value]
                found.setdefault(f"{what}: {name}", []).append(float(np.mean(values)))
                if isinstance(value, list):
                    found.setdefault(f"{what}: length of {name}", []).append(float(len(value)))
    return found


def _modified(mods: tuple[Mod, ...], train: TargetAnswer) -> TargetAnswer:
    """Return training inside its modifiers, the first of which is the outermost."""
    if not mods:
        return train
    # By place, as Flower does: people call the third argument as they like.
    return lambda message, context: mods[0](message, context, _modified(mods[1:], train))


def _context(client: int, clients: int) -> Context:
    return Context(
        run_id=RUN_ID,
        node_id=client + FIRST_NODE,
        node_config=UserConfig({"partition-id": client, "num-partitions": clients}),
        state=RecordDict(),
        run_config=UserConfig(),
    )
