"""What a reviewer says besides the app: it is read before anything of Flower is."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReviewOptions:
    """What a reviewer says besides the app.

    Parameters
    ----------
    epsilon, delta, noise_multiplier, adjacency
        The claim; None reads it from the app.
    norm
        The clipping norm; None takes what was read, or 1.
    is_clipped
        Whether anything but the clients' own code clips.
    nodes
        How many clients the app has; None takes its file, what its wrapper is made for, or Flower's usual 10.
    rounds
        Rounds of a game; None for those of the app, at most 3.
    is_quick
        Whether fewer games are played.
    seconds
        How long the games may take.
    processes, seed
        As of `hold_to_claim`.
    """

    epsilon: float | None = None
    delta: float = 1e-5
    noise_multiplier: float | None = None
    adjacency: str | None = None
    norm: float | None = None
    is_clipped: bool = True
    nodes: int | None = None
    rounds: int | None = None
    is_quick: bool = False
    seconds: float = 300.0
    processes: int = 2
    seed: int = 0
