"""The options of a review, in a module without Flower so that they are read before Flower is imported."""

from dataclasses import dataclass

from fl_audit.privacy.names import MultiplierReference


@dataclass(frozen=True)
class ReviewOptions:
    """The options that a reviewer sets for the review of an app."""

    epsilon: float | None = None  # epsilon of the claim; None reads it from the app
    delta: float = 1e-5  # delta of the claim
    noise_multiplier: float | None = None  # noise multiplier of the claim; None reads it from the app
    # Quantity by which the noise multiplier is multiplied to give the standard deviation of the noise.
    noise_over: MultiplierReference | str = MultiplierReference.SENSITIVITY
    adjacency: str | None = None  # relation between neighbours of the claim; None reads it from the app
    norm: float | None = None  # the clipping norm; None takes the app's, or 1 if it was not found
    # Whether the strategy or mods clip updates. If not, the clients' own code is trusted to clip.
    is_clipped: bool = True
    # Number of clients of the app. None takes the number in its pyproject.toml, the one that its wrapper is configured
    # for, or Flower's default of 10.
    nodes: int | None = None
    rounds: int | None = None  # rounds of a trial; None for those of the app, at most 3
    is_quick: bool = False  # whether fewer trials are run
    seconds: float = 300.0  # time limit of the trials
    processes: int = 2  # number of processes, as in `audit_system`
    seed: int = 0  # seed of the trials, as in `audit_system`
    # Function that loads data for the app's clients instead of the app's data, as `package.module:function`.
    client_data: str | None = None
