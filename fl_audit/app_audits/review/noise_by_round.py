"""Noise of the rounds that trials do not play: two whole trainings of an app's strategy with the same replies.

A trial plays a few rounds of a training. Noise that ends in a later round would not be seen, so the strategy is played
twice over all of its rounds, with new random states and the same replies. Replies move the model by the same amount
whatever it is, so the two trainings differ in a round by the noise of this round alone.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from fl_audit.app_audits.black_box.audited_system import AuditedSystem, StrategyStartCall
from fl_audit.app_audits.black_box.later_rounds import rounds_without_noise
from fl_audit.app_audits.black_box.trial_messages import arrays_of
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.app_audits.review.recorded_training import in_new_working_copy, recorded_training
from fl_audit.array_types import Floats

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
