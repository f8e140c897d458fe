"""Trainings of an app's strategy with fixed replies, whose releases are recorded.

Replies and clients' draws are the same in every training, so two trainings differ by the server's randomness alone.

A trial plays a few rounds of a training. Noise that ends in a later round would not be seen, so the strategy is played
twice over all of its rounds, with new random states and the same replies. Replies move the model by the same amount
whatever it is, so the two trainings differ in a round by the noise of this round alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from fl_audit.adjacency import Relation
from fl_audit.app_audits.black_box.audited_system import AuditedSystem, Mod, StrategyStartCall
from fl_audit.app_audits.black_box.black_box_trial import BlackBoxTrial
from fl_audit.app_audits.black_box.later_rounds import rounds_without_noise
from fl_audit.app_audits.black_box.scenarios import BY_NAME
from fl_audit.app_audits.black_box.trial_messages import arrays_of
from fl_audit.app_audits.black_box.working_copy import WorkingCopy, in_working_copy
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.review.virtual_clients import VirtualClientGrid
from fl_audit.array_types import Floats
from fl_audit.generator_states import GeneratorStates, seed_generators, spared_generators
from fl_audit.randomness import Purpose, generator

Release = Mapping[str, Any]
"""A released model: arrays by name."""


def recorded_training(
    start: StrategyStartCall,
    nodes: int,
    system: AuditedSystem,
    claim: StatedClaim,
    rounds: int,
    states: GeneratorStates | None = None,
) -> list[Release]:
    """Return the models that a strategy releases in a training: the initial one, then one for each round.

    The strategy sees `nodes` clients. It draws from generators with the given states. If these are None, all generators
    get new states, also those that the strategy keeps. Raises `RuntimeError` if the strategy refuses to train.
    """
    log = list[Release]()
    plain = "removed" if claim.neighbours.relation is Relation.ADD_REMOVE else "opposite"
    kind = BY_NAME[plain if system.model is None else f"{plain}, own model"]
    mods = tuple(_with_fixed_generators(mod) for mod in system.mods)

    def new_strategy() -> Strategy:
        copy = start.copied() if states is not None else start.copy_for_trial(0, np.random.default_rng())
        return _recorded_strategy(copy, nodes, system.clients, log)

    recorded = replace(system, strategy=new_strategy, mods=mods)
    with generators_with(states):
        trial = BlackBoxTrial(recorded, replace(claim, rounds=rounds), kind, True, generator(0, Purpose.BLACK_BOX))
        transcript = trial.play()
    if transcript.refusal is not None:
        raise RuntimeError(transcript.refusal)
    return log


@contextmanager
def generators_with(states: GeneratorStates | None) -> Iterator[None]:
    """Run a `with` block with given states of the global generators, or with new ones; then restore the own states."""
    with spared_generators():
        if states is None:
            seed_generators(np.random.default_rng())
        else:
            states.restore()
        yield


@contextmanager
def in_new_working_copy() -> Iterator[None]:
    """Run a `with` block in a new copy of the working directory, and remove the copy."""
    copy = WorkingCopy(Path.cwd())
    try:
        with in_working_copy(copy, thoroughly=False):
            yield
    finally:
        copy.remove()


def _with_fixed_generators(mod: Mod) -> Mod:
    """Return a mod that always draws the same, so that what the server draws can be compared.

    A client runs in another process than the server, whose seeds say nothing of its noise.
    """

    def fixed(message: Message, context: Context, call_next: Any) -> Message:
        with spared_generators():
            seed_generators(generator(0, Purpose.BLACK_BOX))
            return mod(message, context, call_next)

    return fixed


def _recorded_strategy(start: StrategyStartCall, nodes: int, seats: int, log: list[Release]) -> Strategy:
    """Return the strategy of a call of `start`, which adds each model that it releases to a log."""
    begin = start.strategy.start
    arguments = {k: v for k, v in start.arguments.items() if k != "num_rounds"}

    def begin_recorded(grid: Grid, arrays: ArrayRecord, num_rounds: int) -> Result:
        recording_grid = _RecordingGrid(grid, nodes, seats, log)
        result = begin(grid=recording_grid, initial_arrays=arrays, num_rounds=num_rounds, **arguments)
        if result.arrays is not None:
            log.append(result.arrays)
        return result

    start.strategy.start = begin_recorded  # type: ignore[method-assign, assignment]
    return start.strategy


class _RecordingGrid(VirtualClientGrid):
    """Grid that records the model of the first message to train in each round."""

    def __init__(self, room: Grid, nodes: int, seats: int, log: list[Release]) -> None:
        super().__init__(room, nodes, seats)
        self._log = log

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Record the model of the first message, and send all messages."""
        sent = list(messages)
        if sent and sent[0].metadata.message_type.startswith("train"):
            self._log += list(sent[0].content.array_records.values())
        return super().push_messages(sent)


MOST_ROUNDS = 1000  # largest number of rounds that are played
_MOST_VALUES = 50_000_000  # largest number of released values in them; a small model takes the place of a larger one


def noise_of_rounds(
    start: StrategyStartCall, nodes: int, system: AuditedSystem, claim: StatedClaim, rounds: int
) -> tuple[list[Floats], list[bool]]:
    """Return for each round the difference between two trainings with the same replies, shape (parameters,).

    The second list says whether the round released a new model in both. Raises `RuntimeError` if the strategy refuses
    to train.
    """
    first, second = (_released(start, nodes, system, claim, rounds) for _ in range(2))
    moves = [np.diff(np.stack(models), axis=0) for models in (first, second)]
    is_released = [bool(np.any(move) and np.any(second)) for move, second in zip(*moves, strict=True)]
    return list(moves[0] - moves[1]), is_released


def noise_doubt(
    start: StrategyStartCall, nodes: int, system: AuditedSystem, claim: StatedClaim, rounds: int, played: int
) -> tuple[str, ...]:
    """Return a phrase on later rounds without noise that trials of `played` rounds do not show; else ()."""
    if played >= rounds:
        return ()
    stepped = min(rounds, MOST_ROUNDS)
    if system.model is not None and stepped * sum(value.size for value in system.model.values()) > _MOST_VALUES:
        system = replace(system, model=None)
    try:
        with in_new_working_copy():
            bare = rounds_without_noise(*noise_of_rounds(start, nodes, system, claim, stepped))
    except Exception as error:  # other people's code may raise anything
        return (f"the noise of rounds {played + 1} to {rounds} was not seen ({error}), and trials play {played}",)
    late = [number for number in bare if number > played]
    if not late and stepped < rounds:
        return (f"the noise of rounds {stepped + 1} to {rounds} was not seen",)
    if not late:
        return ()
    which = f"round {late[0]}" if len(late) == 1 else f"{len(late)} rounds from round {late[0]} on"
    return (
        f"in {which} the strategy releases with less than a tenth of the noise of its first round, and a trial plays "
        f"{played} of {rounds} rounds: --rounds {late[0]} has trials play the first of them too",
    )


def _released(
    start: StrategyStartCall, nodes: int, system: AuditedSystem, claim: StatedClaim, rounds: int
) -> list[Floats]:
    """Return the models of a training of all rounds, each flattened: the initial one, then one a round."""
    log = recorded_training(start, nodes, system, claim, rounds)
    return [np.concatenate([_flat(value) for value in arrays_of(record).values()]) for record in log]


def _flat(value: Any) -> Floats:
    return np.asarray(value, dtype=np.float64).reshape(-1)
