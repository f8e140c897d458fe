"""Options of a reviewer besides the app, which are read before Flower is imported."""

from dataclasses import dataclass

from fl_audit.privacy.names import MultiplierReference


@dataclass(frozen=True)
class ReviewOptions:
    """The options of a reviewer besides the app."""

    epsilon: float | None = None  # epsilon of the claim; None reads it from the app
    delta: float = 1e-5  # delta of the claim
    noise_multiplier: float | None = None  # noise multiplier of the claim; None reads it from the app
    # Quantity by which the noise multiplier is multiplied.
    noise_over: MultiplierReference | str = MultiplierReference.SENSITIVITY
    adjacency: str | None = None  # relation between neighbours of the claim; None reads it from the app
    norm: float | None = None  # the clipping norm; None takes what was read, or 1
    is_clipped: bool = True  # whether anything but the clients' own code clips
    # Number of clients of the app; None takes its file, the number that its wrapper is made for, or Flower's usual 10.
    nodes: int | None = None
    rounds: int | None = None  # rounds of a trial; None for those of the app, at most 3
    is_quick: bool = False  # whether fewer trials are played
    seconds: float = 300.0  # time limit of the trials
    processes: int = 2  # as of `audit_system`
    seed: int = 0  # as of `audit_system`
    client_data: str | None = None  # data for its clients in the place of its own, as `package.module:function`
