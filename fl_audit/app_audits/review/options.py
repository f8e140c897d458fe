"""The options of a review, in a module without Flower so that they can be read before Flower is imported."""

from dataclasses import dataclass

from fl_audit.privacy.accounting_enums import MultiplierReference


@dataclass(frozen=True)
class ReviewOptions:
    """Options that a reviewer sets for the review of a Flower app, such as the claim, clients and time limit."""

    epsilon: float | None = None  # epsilon of the claim; None reads it from the app
    delta: float = 1e-5  # delta of the claim, above 0 and below 1
    noise_multiplier: float | None = None  # noise multiplier of the claim; None reads it from the app
    # Quantity that the noise multiplier is relative to: the noise's standard deviation is their product.
    noise_over: MultiplierReference | str = MultiplierReference.SENSITIVITY
    adjacency: str | None = None  # adjacency relation of the claim; None reads it from the app
    norm: float | None = None  # clipping norm (L2); None takes the app's, or 1 if none is found
    # Whether the strategy or mods clip updates. If not, the clients' own code is trusted to clip.
    is_clipped: bool = True
    # Number of clients of the app. None takes the number in its pyproject.toml, the one that its DP wrapper is
    # configured for, or Flower's default of 10.
    clients: int | None = None
    rounds: int | None = None  # number of rounds of a trial; None for the app's own number, but at most 3
    is_quick: bool = False  # whether fewer trials are run
    seconds: float = 300.0  # time limit for all trials, in seconds
    processes: int = 2  # number of processes that run trials at the same time
    seed: int = 0  # seed of the trials
    # Function that loads data for the app's clients instead of the app's data, as `package.module:function`.
    client_data: str | None = None
