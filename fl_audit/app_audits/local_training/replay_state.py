"""Recorded state of an earlier training, so that a replay repeats it: mini-batches, random states and weights."""

from dataclasses import dataclass, field

from torch import Tensor

from fl_audit.generator_states import GeneratorStates

NOT_REPEATABLE = (
    "replays without a record, and with other records: it takes other steps when it is called again with the "
    "same records and the same random numbers, since something is kept from call to call, or is drawn elsewhere; make "
    "model, optimizer, loader and engine in every call (what an accountant counted may be kept: "
    "accountant.state_dict()), and draw by the generators of torch, numpy and Python that every module shares"
)
"""Reason and remedy of a training that was not replayed."""


class NotRepeatableError(Exception):
    """Raised if a training, repeated from the same start with the same records, does not take the same steps."""


class StopReplay(BaseException):
    """Exception that ends a replay once its steps have been compared; `except Exception` does not catch it."""


@dataclass
class ReplayInputs:
    """Data of a training that a replay needs: mini-batches, and the random states and weights when each was drawn."""

    batches: list[list[int]] = field(default_factory=list)
    datasets: list[object] = field(default_factory=list)  # the data set of each mini-batch
    private: object = None  # the data set that the first engine was given; None without an engine
    norms: list[list[float]] = field(default_factory=list)  # adaptive clipping norms at each draw
    states: list[GeneratorStates] = field(default_factory=list)
    weights: list[dict[str, Tensor]] = field(default_factory=list)

    def is_private(self, number: int) -> bool:
        """Return True if mini-batch `number`, from 0, was drawn from the data set of the first Opacus engine.

        True for every mini-batch if there was no engine.
        """
        return self.private is None or self.datasets[number] is self.private


@dataclass(frozen=True)
class ReplayPlan:
    """Earlier training that a replay follows, and the record that the replay leaves out."""

    track: ReplayInputs
    without: int | None  # position of the record that the replay leaves out; None if none is left out

    def batch(self, number: int) -> list[int] | None:
        """Return the mini-batch of a step of the earlier training, as positions in the data set of the replay.

        `number` is the number of the step, from 0. If the replay leaves a record out, the mini-batch does not contain
        it. The result is None after the last step of the earlier training.
        """
        if number >= len(self.track.batches):
            return None
        gone = self.without
        if gone is None or not self.track.is_private(number):
            return list(self.track.batches[number])
        return [batch - (batch > gone) for batch in self.track.batches[number] if batch != gone]
