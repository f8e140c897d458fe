"""What an animal of the zoo is: a claim, what really runs, and the honest mechanism for which the claim holds."""

from dataclasses import dataclass, replace

from fl_audit.errors import require
from fl_audit.laboratory.claim import StatedClaim
from strategies.games.campaign import kinds_of
from strategies.games.subject import Subject

NO_INCIDENT = "no published incident known to us"


@dataclass(frozen=True)
class Honest:
    """A mechanism that keeps its claim."""

    name: str  # by which it is called
    claim: StatedClaim  # what it claims
    subject: Subject  # what runs
    # The kinds of games that the claim is about, on every stage; None for all of them.
    covered: tuple[str, ...] | None = None

    @property
    def games(self) -> tuple[str, ...]:
        """Names of the kinds of games that are played."""
        kinds = kinds_of(self.subject, self.claim)
        return tuple(kind.name for kind in kinds if self.covered is None or kind.plain_name in self.covered)


@dataclass(frozen=True)
class Animal:
    """A mechanism that breaks its claim.

    Raises
    ------
    InputError
        If a sentence is empty.
    """

    name: str  # by which it is called
    twin: Honest  # the honest mechanism that it takes itself for; both have one claim
    subject: Subject  # what really runs
    wrong: str  # what is wrong, in a sentence
    source: str  # the published incident, or the publication that describes the mistake
    mend: str  # what its author has to do
    # Whether low bits alone tell: it is caught where they do, and its claim about real numbers may hold.
    is_rounding: bool = False

    def __post_init__(self) -> None:
        for what in ("wrong", "source", "mend"):
            require(bool(getattr(self, what).strip()), f"{what} of {self.name} is empty: accepted is a sentence")

    @property
    def claim(self) -> StatedClaim:
        """What it claims."""
        return self.twin.claim

    @property
    def games(self) -> tuple[str, ...]:
        """Names of the kinds of games that are played."""
        return replace(self.twin, subject=self.subject).games
