"""The options of audits by trials, in a module without Flower so that they can be read before Flower is imported."""

from dataclasses import dataclass

from fl_audit.adjacency import Adjacency
from fl_audit.app_audits.claim_audit.claim import StatedClaim
from fl_audit.privacy.accounting_enums import MultiplierReference
from fl_audit.value_checks import choice, require_number


@dataclass(frozen=True, kw_only=True)
class TrialOptions:
    """Options of every audit by trials: the claim, what is played, and by how many processes."""

    epsilon: float | None = None  # epsilon of the claim; None for one by noise multiplier, or that of the code itself
    delta: float = 1e-5  # delta of the claim, above 0 and below 1
    noise_multiplier: float | None = None  # noise multiplier of the claim, in place of epsilon
    # Quantity that the noise multiplier is relative to: the noise's standard deviation is their product.
    noise_over: str = MultiplierReference.SENSITIVITY
    # Clipping norm (L2). None for that of the strategy or app, or 1 if none is found.
    clipping_norm: float | None = None
    # Whether the clients' own code is trusted to clip, because neither the strategy nor mods clip updates.
    trust_client_clipping: bool = False
    # Number of clients. None for the number that the strategy's noise is made for, or else 4, and in a review for that
    # of the app's pyproject.toml or of its DP wrapper, or else Flower's default of 10.
    clients: int | None = None
    # Number of rounds. None for one, with a look at later rounds, and in a review for the app's own, but at most 3.
    rounds: int | None = None
    is_quick: bool = False  # whether fewer trials are run
    processes: int = 2  # number of processes that run trials at the same time
    seed: int = 0  # seed of the trials

    def __post_init__(self) -> None:
        require_number("processes are", self.processes, "whole numbers from 1")
        if self.clients is not None:
            require_number("clients are", self.clients, "whole numbers from 2")


@dataclass(frozen=True)
class StrategyOptions(TrialOptions):
    """Options of the audit of a strategy."""

    factory: str  # makes the strategy or system, as `package.module:name`
    adjacency: str  # between which neighbours the claim holds
    observer: str = "client"  # position of the adversary
    exclude: tuple[str, ...] = ()  # scenarios that are left out
    include: tuple[str, ...] | None = None  # scenarios that are played; None for all
    confidence: float = 0.95  # as of `audit_system`
    seconds: float | None = None  # time for the trials; None for as long as they take

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seconds is not None:
            require_number("seconds are", self.seconds, "numbers above 0")

    def claim(self) -> StatedClaim | None:
        """Return the claim that the options state; None if it is left to the strategy.

        Raises `InputError` if the options state no valid claim.
        """
        adjacency = choice(Adjacency, "--adjacency", self.adjacency)
        reference = choice(MultiplierReference, "noise-over", self.noise_over)
        require_number("rounds are", self.claimed_rounds, "whole numbers from 1")
        if self.epsilon is None and self.noise_multiplier is None:
            return None
        return StatedClaim(adjacency, self.epsilon, self.delta, self.noise_multiplier, self.claimed_rounds, reference)

    @property
    def claimed_rounds(self) -> int:
        """Number of rounds that the claim is for."""
        return 1 if self.rounds is None else self.rounds


@dataclass(frozen=True)
class ReviewOptions(TrialOptions):
    """Options that a reviewer sets for the review of a Flower app."""

    adjacency: str | None = None  # adjacency relation of the claim; None reads it from the app
    seconds: float = 300.0  # time limit for all trials, in seconds
    # Function that loads data for the app's clients instead of the app's data, as `package.module:function`.
    client_data: str | None = None
