"""What an app gives away beside its model: metrics, numbers of examples, buffers and replies to evaluations."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from fl_audit.laboratory.trial import Trial
from strategies.games.kinds import BY_NAME, OF_FEW_TENSORS, Kind


class Aside(StrEnum):
    """What may leak beside the model."""

    METRICS = "metrics"
    EXAMPLES = "example counts"
    BUFFERS = "buffers"
    EVALUATION = "evaluation replies"


NUMBERS = {Aside.METRICS: "metrics", Aside.EXAMPLES: "more examples than true", Aside.EVALUATION: "evaluation"}
"""The kind of game that is played for the sake of one of these alone, whatever is claimed."""


@dataclass(frozen=True)
class Leak:
    """What games said of one thing beside the model."""

    aside: Aside  # the thing
    is_played: bool  # whether there were games about it
    # The largest share of games that was guessed right, of those that told more than is allowed; None if none did.
    share: float | None = None
    by: str | None = None  # what told


def leaks(trials: Sequence[Trial], kinds: Sequence[str]) -> tuple[Leak, ...]:
    """Return what is given away beside the model, for each thing that may be.

    Parameters
    ----------
    trials
        Trials of the model, and of the numbers beside it.
    kinds
        The kinds of games that were played, by name.
    """
    found = []
    attempts = [attempt for trial in trials for attempt in trial.attempts if attempt.is_broken]
    for aside in Aside:
        told = [one for one in attempts if _is_about(aside, BY_NAME[one.lead.kind])]
        worst = max(told, key=lambda one: one.right / one.games, default=None)
        is_played = any(_is_about(aside, BY_NAME[name]) for name in kinds)
        said = (None, None) if worst is None else (worst.right / worst.games, worst.lead.group)
        found.append(Leak(aside, is_played, *said))
    return tuple(found)


def _is_about(aside: Aside, kind: Kind) -> bool:
    if aside is Aside.BUFFERS:
        return kind.present.direction in OF_FEW_TENSORS
    return kind.plain_name == NUMBERS[aside] or (aside is Aside.EXAMPLES and kind.plain_name == "many examples")
