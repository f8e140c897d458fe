"""Thousands of black-box trials against a system, on several processes, and the audit of its claim.

A trial runs a strategy with clients in this process, each of which answers by its part in the trial.
"""

import math
import os
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict, UserConfig
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from numpy.typing import NDArray

from fl_audit.adjacency import Relation, Unit
from fl_audit.arrays import Floats
from fl_audit.audits.black_box.claim import StatedClaim
from fl_audit.audits.black_box.claim_audit import (
    CHUNK,
    FEWEST_OF_EACH,
    Budget,
    ClaimAudit,
    KindPlayed,
    OutOfTimeError,
    Tell,
    audit_claim,
)
from fl_audit.audits.black_box.transcript import Sketch, Transcript, Transcripts, sketch, stacked
from fl_audit.errors import require
from fl_audit.randomness import Purpose, generator
from fl_audit.strategies.black_box.arrays import record_of, records_of, shapes_of, with_names
from fl_audit.strategies.black_box.audited_strategy import no_news_from_flower, say
from fl_audit.strategies.black_box.audited_system import (
    AuditedSystem,
    Local,
    Observer,
    clipped_sum,
    modified,
    seed_generators,
)
from fl_audit.strategies.black_box.metrics import TracedRecord, plain_numbers
from fl_audit.strategies.black_box.recorder import RecordingSetup, TrialRecorder, errors_in, names_that_tell, played
from fl_audit.strategies.black_box.scenarios import (
    BY_NAME,
    FEW,
    MANY,
    RECORDS_OF_OTHERS,
    Model,
    Others,
    Part,
    ReplyForm,
    Scenario,
    Schedule,
)
from fl_audit.strategies.black_box.trial_models import Template, others_of, replied, template, template_of, update_of
from fl_audit.strategies.black_box.worker_pool import crew
from fl_audit.strategies.black_box.working_copy import WorkingCopy, apart, outside_words
from fl_audit.strategies.grids import FIRST_NODE, RUN_ID, InProcessGrid
from fl_audit.strategies.temporary_directories import new_temporary_directory

_NUMBERS = {name: number for number, name in enumerate(BY_NAME)}
_Chunk = tuple[list[Transcript], NDArray[np.bool_], list[str]]
"""Trials, whether D was played, and the places outside the copy to which they wrote."""
_TARGET, _WATCHER = FIRST_NODE, FIRST_NODE + 1
"""Nodes of the client whose contribution differs, and of the observing client."""
LOSS = "loss"  # the metric that clients report in trials beside those that a strategy looks for
_LONG = 1000  # models with more parameters are sketched


def audit_system(
    system: AuditedSystem,
    claim: StatedClaim,
    *,
    budget: Budget | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    processes: int = 1,
    exclude: Sequence[str] = (),
    include: Sequence[str] | None = None,
    seconds: float = math.inf,
    tell: Tell = lambda _: None,
    keep: Callable[[ClaimAudit], None] = lambda _: None,
) -> ClaimAudit:
    """Audit a strategy's claim by thousands of short trials; a number out of its range is refused.

    Trials that end their process count as refused, if there are several processes.

    Parameters
    ----------
    system
        The strategy, with the mods and settings of its clients.
    claim
        Claim of the strategy.
    budget
        Number of trials; None for the usual number.
    confidence
        Probability with which a claim that holds is not called violated, above 0.5 and below 1.
    seed
        Seed of the trials. The global generators of Python, numpy and torch are seeded from it too, since an app's code
        draws its noise from them.
    processes
        Number of processes that play trials at the same time, at least 1.
    exclude
        Names of scenarios that are left out because the claim does not cover them.
    include
        Names of the scenarios that are played; None for all that say something about the claim.
    seconds
        Largest time of the trials, above 0. The trials that look for distinguishers may take half of it.
    tell
        Function that receives messages on progress.
    keep
        Function that receives the result so far after every distinguisher that was tried, for the case that the trials
        cannot go on.
    """
    kinds = [kind for kind in kinds_of(system, claim) if not {kind.name, kind.plain_name} & set(exclude)]
    kinds = [kind for kind in kinds if include is None or kind.name in include]
    require(len(kinds) > 0, "no scenario is left that says something about this claim")
    names, malformed = [kind.name for kind in kinds], frozenset(kind.name for kind in kinds if kind.is_malformed)
    last_words, outside, began = dict[str, str](), set[str](), time.monotonic()
    asked, failed = dict[str, KindPlayed](), Counter[str]()
    player = _Player(system, claim, seed)
    with no_news_from_flower(), player, crew(player.play, player.lost, processes, say) as players:

        def play(name: str, first: int, count: int) -> tuple[Transcripts, NDArray[np.bool_]]:
            # Trials from the first one on look for distinguishers; fresh ones, which try them, have other numbers.
            until = began + (seconds if first else seconds / 2)
            if time.monotonic() > until:
                raise OutOfTimeError
            came = players.done([(name, chunk) for chunk in range(first // CHUNK, (first + count) // CHUNK)], until)
            seen = [one for trials, _, _ in came.values() for one in trials]
            present = np.concatenate([np.zeros(0, dtype=bool), *(bits for _, bits, _ in came.values())])
            # Missing trials depend only on the clock that ended them, not on the content of the others.
            if len(seen) < count and min(np.sum(present), np.sum(~present)) < FEWEST_OF_EACH:
                raise OutOfTimeError
            known = asked.get(name, KindPlayed())
            numbers = names_that_tell(seen)
            asked[name] = KindPlayed(
                max(known.trials, first + len(seen)), tuple(dict.fromkeys((*known.names, *numbers)))
            )
            failed.update(error for one in seen for error in errors_in(one)[:1])
            outside.update(path for _, _, paths in came.values() for path in paths)
            last_words.update((name, one.refusal) for one in seen if one.refusal is not None)
            model = _model_of(system, BY_NAME[name])
            reduced = _sketch(model)
            return stacked(seen, model.tensors if reduced is None else reduced.columns, numbers), present

        result = audit_claim(claim, names, play, malformed, last_words.__getitem__, budget, confidence, tell, keep)
    if outside:
        say(outside_words(sorted(outside)))
    return replace(result, asked=asked, hindrance=_hindrance(failed))


def _hindrance(failed: Counter[str]) -> str:
    """Return the most frequent error of clients, as a sentence; empty if there is none."""
    if not failed:
        return ""
    return (
        f"Clients replied with errors, which are no evidence; the most frequent one was: {failed.most_common(1)[0][0]}."
    )


def kinds_of(system: AuditedSystem, claim: StatedClaim) -> tuple[Scenario, ...]:
    """Return the scenarios that are relevant to a claim, in their order.

    Parameters
    ----------
    system
        The audited system.
    claim
        The claim about this system.
    """
    # The usual number, and the others that the strategy can be made for.
    sizes = {None, *({FEW, MANY} - {system.clients} if system.has_any_size else ())}
    neighbours = claim.neighbours
    return tuple(
        kind
        for kind in BY_NAME.values()
        if kind.relation in (None, neighbours.relation)
        and neighbours.unit in kind.units
        and claim.rounds >= kind.least_rounds
        and (system.is_clipped or not kind.is_beyond)
        and kind.stage.clients in sizes
        and (system.model is not None or kind.model is not Model.OWN)
        # Contributions of other clients are no part of a claim about records.
        and (neighbours.unit is Unit.CLIENT or kind.stage.others is Others.IDENTICAL)
    )


class _Player:
    """A player of the trials of a chunk, given by a scenario and a number, here or in a copy of this process."""

    def __init__(self, system: AuditedSystem, claim: StatedClaim, seed: int) -> None:
        self._system, self._claim, self._seed = system, claim, seed
        self._owner, self._room, self._copies = (
            os.getpid(),
            new_temporary_directory(os.getpid()),
            dict[int, WorkingCopy](),
        )

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._room, ignore_errors=True)

    def play(self, wanted: tuple[str, int], until: float) -> _Chunk:
        """Play the trials of a chunk until the time on the monotonic clock is over."""
        copy = self._copy_here()
        draws, present = self._drawn(wanted)
        seed_generators(draws)
        trials = list[Transcript]()
        with apart(copy):
            for bit in present:
                trials.append(self._trial(wanted, bit, draws).play())
                copy.tidied(thoroughly=False)
                if time.monotonic() > until:
                    break
        return trials, present[: len(trials)], copy.outside

    def lost(self, wanted: tuple[str, int], how: str) -> _Chunk:
        """Return the trials that ended their process: each of them counts as refused."""
        draws, present = self._drawn(wanted)
        said = f"it ended its process {how}"
        return [self._trial(wanted, bit, draws).refused(said) for bit in present], present, []

    def _drawn(self, wanted: tuple[str, int]) -> tuple[np.random.Generator, NDArray[np.bool_]]:
        name, chunk = wanted
        draws = generator(self._seed, Purpose.BLACK_BOX, trial=chunk, client=_NUMBERS[name])
        return draws, draws.random(CHUNK) < 0.5

    def _trial(self, wanted: tuple[str, int], bit: np.bool_, draws: np.random.Generator) -> "BlackBoxTrial":
        return BlackBoxTrial(self._system, self._claim, BY_NAME[wanted[0]], bool(bit), draws)

    def _copy_here(self) -> WorkingCopy:
        """Return the working copy of this process, which is made at the first trial."""
        here = os.getpid()
        if here not in self._copies:
            if here != self._owner:
                torch.set_num_threads(1)
            self._copies[here] = WorkingCopy(Path.cwd(), room=self._room)
        return self._copies[here]


def _model_of(system: AuditedSystem, kind: Scenario) -> Template:
    """Return the model on which a scenario is played with a system."""
    if kind.model is Model.OWN and system.model is not None:
        return template_of(system.model)
    return template(kind.model)


def _sketch(model: Template) -> Sketch | None:
    """Return the sketch of a model's parameters; None for a small model, which is used in full."""
    return _sketched(tuple(shapes_of(model.arrays).items())) if model.size > _LONG else None


@lru_cache(maxsize=8)
def _sketched(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Sketch:
    return sketch(dict(shapes))


@lru_cache(maxsize=8)
def _all_others(others: Others, model: Model, count: int) -> Floats:
    return others_of(others, template(model), count)


class BlackBoxTrial:
    """One black-box trial, under D or not; clients with random local work draw from `random`."""

    def __init__(
        self, system: AuditedSystem, claim: StatedClaim, kind: Scenario, present: bool, random: np.random.Generator
    ) -> None:
        self._system, self._claim, self._kind, self._random = system, claim, kind, random
        self._model, self._part = _model_of(system, kind), kind.present if present else kind.absent
        self._clients = kind.stage.clients or system.clients
        self._contexts = [_context(client, self._clients) for client in range(self._clients)]
        self._calls = [0] * self._clients
        self._contributed = np.zeros(self._model.size)
        self.blamed = ""  # the clients' modifier that ended the trial with an exception; empty if none did

    def play(self) -> Transcript:
        """Play to the end, or until the mechanism refuses to go on."""
        system, rounds, arrays = self._system, self._claim.rounds, self._model.arrays

        def start(grid: Grid) -> Result:
            return system.made(self._clients).start(grid, record_of(arrays), num_rounds=rounds)

        return self._seen(start)

    def refused(self, said: str) -> Transcript:
        """Return the trial as one that the mechanism refused to complete, with its message.

        Parameters
        ----------
        said
            The reason, in one line.
        """

        def start(_: Grid) -> NoReturn:
            raise OSError(said)

        return replace(self._seen(start), refusal=said)

    def _seen(self, start: Callable[[Grid], Result]) -> Transcript:
        system, rounds, arrays = self._system, self._claim.rounds, self._model.arrays
        is_of_client = system.observer is Observer.CLIENT
        scene = RecordingSetup(
            model=arrays,
            rounds=rounds,
            target=_TARGET,
            watcher=_WATCHER,
            observer=system.observer,
            difference=lambda place, _: self._difference(place + 1),
            sketch=_sketch(self._model),
            # Modifiers may add noise of their own.
            own=(lambda: self._contributed) if is_of_client and system.mods else None,
            released_numbers=_all_numbers if is_of_client else lambda _: {},
        )

        return played(start, InProcessGrid(self._clients, self._reply), TrialRecorder(scene))

    def _reply(self, message: Message) -> Message | None:
        """Return a client's reply, after its mods; None if it sends none."""
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
            named = TracedRecord()
            for name, number in numbers.items():
                named[name] = int(number) if float(number).is_integer() else float(number)
            content = RecordDict({"metrics": named})
            arrays = replied(received, update, self._model, part.form) if is_train else None
            if arrays is not None:
                content[key] = record_of(arrays)
            return Message(content, reply_to=inner)

        if not self._system.mods:
            return answer(message, self._contexts[client])
        try:
            return modified(self._system.mods, answer)(message, self._contexts[client])
        except Exception as error:
            self.blamed = "; ".join(getattr(error, "__notes__", ("raised in a modifier of the clients",)))
            raise

    def _contribution(self, node: int, part: Part, round: int, loss: float) -> tuple[Floats, dict[str, float]]:
        """Return a client's addition to the model, and the numbers that it reports."""
        is_target = node == _TARGET
        if self._claim.neighbours.unit is Unit.CLIENT:
            update = self._vector(part, round, is_target) if is_target else self._other(node, round)
            named = dict.fromkeys((LOSS, *self._system.metrics), loss)
            return update, named | {self._system.weight: part.examples}
        rest = [self._vector(self._kind.others, round, is_target=False) / RECORDS_OF_OTHERS] * RECORDS_OF_OTHERS
        # The differing record is there, but under D' where it is added or removed.
        is_there = part is self._kind.present or self._claim.neighbours.relation is Relation.REPLACE
        own = [self._vector(part, round, is_target=True)] if is_target and is_there else []
        local: Local = self._system.local or clipped_sum(self._system.norm)
        reply = local(np.stack([*own, *rest]), round, self._random)
        return reply.update, {self._system.weight: reply.examples, **reply.metrics}

    def _other(self, node: int, round: int) -> Floats:
        """Return the contribution of another client: the same in every round, whatever the target does."""
        stage = self._kind.stage
        if stage.others is Others.IDENTICAL:
            return self._vector(self._kind.others, round, is_target=False)
        count, place = self._clients - 1, node - _WATCHER
        if self._kind.model is Model.OWN:
            return self._system.norm * others_of(stage.others, self._model, count)[place]
        return np.asarray(self._system.norm * _all_others(stage.others, self._kind.model, count)[place])

    def _vector(self, part: Part, round: int, is_target: bool) -> Floats:
        schedule = self._kind.schedule if is_target else Schedule.STEADY
        return update_of(part, self._model, self._system.norm, round, schedule)

    def _difference(self, round: int) -> Floats:
        """Return the direction in which D and D' differ, as the observer knows it."""
        difference = self._vector(self._kind.present, round, is_target=True)
        if self._kind.absent.form is ReplyForm.PLAIN:
            difference = difference - self._vector(self._kind.absent, round, is_target=True)
        # If the updates are equal, only their effect on the others' share can be seen.
        return difference if np.any(difference) else self._vector(self._kind.others, round, is_target=False)


def _all_numbers(result: Result) -> Mapping[str, list[float]]:
    """Return every number that a strategy returned beside the model, by name."""
    found = defaultdict[str, list[float]](list)
    rounds = {"metrics": result.train_metrics_clientapp, "evaluation": result.evaluate_metrics_clientapp}
    for what, records in rounds.items():
        for name, value in (pair for record in records.values() for pair in record.items()):
            for label, number in plain_numbers(name, value, mean=""):
                found[f"{what}: {label}"].append(number)
    return found


def _context(client: int, clients: int) -> Context:
    node, place = client + FIRST_NODE, UserConfig({"partition-id": client, "num-partitions": clients})
    return Context(run_id=RUN_ID, node_id=node, node_config=place, state=RecordDict(), run_config=UserConfig())
