"""What an audit in place is agreed to be: the claim, and how its games are played."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Strategy,
)

from fl_audit.adjacency import Relation, Unit
from fl_audit.errors import InputError, require
from fl_audit.laboratory.claim import StatedClaim
from fl_audit.laboratory.guesses import LESSONS
from strategies.games.notes import Deed, Numbers, Replies
from strategies.games.subject import Observer


class Contribution(StrEnum):
    """What the target's client sends where it takes part.

    OWN is what it has learned. CRAFTED is an update along a public direction that is far longer than any clipping norm:
    the strongest one where the mechanism clips what leaves the client, and unfair where clients clip by themselves.
    """

    OWN = "own"
    CRAFTED = "crafted"


@dataclass(frozen=True)
class Agreement:
    """What an audit of a Flower app in place is agreed to be.

    Parameters
    ----------
    claim
        What the app claims; its rounds are those of a game, whatever the app's own training has.
    games
        How many games are played.
    directory
        Where they are kept: a run that finds some there plays the others.
    contribution
        What the target's client sends where it takes part. None is OWN; under Flower's wrappers that clip on the
        server, the first games try OWN and CRAFTED in turn, and all others play the one that told more.
    numbers
        Whether the claim covers the numbers that clients report.
    replies
        What the arrays in replies are.
    observer
        Who looks: another client, who sees releases, or the server, who sees what the target's client sends.
    target
        The partition of the target's client.
    length
        Length of a crafted update, above 0.
    games_per_run
        Most games that one run of the app plays; None for all.
    confidence
        Probability with which a claim that holds is not called violated, above 0.5 and below 1.
    seed
        Of the games; None draws a secret one.

    Raises
    ------
    InputError
        If a number is out of its range, or an update is crafted where the claim is about records.
    """

    claim: StatedClaim
    games: int = 220
    directory: Path = Path("fl-audit-games")
    contribution: Contribution | None = None
    numbers: Numbers = Numbers.KEPT
    replies: Replies = Replies.MODELS
    observer: Observer = Observer.CLIENT
    target: int = 0
    length: float = 1000.0
    games_per_run: int | None = None
    confidence: float = 0.95
    seed: int | None = None

    def __post_init__(self) -> None:
        require(self.games > LESSONS, f"games are {self.games}: accepted are whole numbers from {LESSONS + 1}")
        require(0.5 < self.confidence < 1, f"confidence is {self.confidence}: accepted are numbers above 0.5, below 1")
        require(0 < self.length < 1e9, f"length is {self.length}: accepted are numbers above 0 and below 1000000000")
        few = f"games_per_run is {self.games_per_run}: accepted are whole numbers from 1, or None"
        require(self.games_per_run is None or self.games_per_run >= 1, few)
        require(self.target >= 0, f"target is {self.target}: accepted are whole numbers from 0")
        for name, kinds in (("numbers", Numbers), ("replies", Replies), ("observer", Observer)):
            object.__setattr__(self, name, _chosen(name, getattr(self, name), kinds))
        if self.contribution is not None:
            object.__setattr__(self, "contribution", _chosen("contribution", self.contribution, Contribution))
        object.__setattr__(self, "directory", Path(self.directory))
        crafted = self.is_about_records and self.contribution is Contribution.CRAFTED
        require(not crafted, "contribution is crafted, and the claim is about records: accepted is own")

    @property
    def is_about_records(self) -> bool:
        """Whether the claim is about records, not clients."""
        return self.claim.neighbours.unit is Unit.RECORD

    @property
    def has_probe(self) -> bool:
        """Whether an update of exactly zero is tried once: an ordinary client may well learn nothing."""
        return not self.is_about_records and self.claim.neighbours.relation is Relation.ADD_REMOVE

    def contributions(self, strategy: Strategy) -> tuple[Contribution, ...]:
        """Return what the target's client may send under the app's strategy; the first games try each in turn."""
        if self.contribution is not None:
            return (self.contribution,)
        clips = (DifferentialPrivacyServerSideFixedClipping, DifferentialPrivacyServerSideAdaptiveClipping)
        is_clipped = isinstance(strategy, clips) and not self.is_about_records
        # The app's clients may clip by themselves: a crafted update would be no fair one then.
        return (Contribution.CRAFTED, Contribution.OWN) if is_clipped else (Contribution.OWN,)

    def deed(self, present: bool, contribution: Contribution) -> Deed:
        """Return what the target's client does under D or D'.

        Parameters
        ----------
        present, contribution
            Whether the game is one of D, and what the client contributes there.
        """
        is_crafted = contribution is Contribution.CRAFTED
        if present:
            return Deed.CRAFTED if is_crafted else Deed.OWN
        match self.claim.neighbours.unit, self.claim.neighbours.relation:
            case Unit.CLIENT, Relation.ADD_REMOVE:
                return Deed.ALMOST_NOTHING
            case Unit.CLIENT, Relation.REPLACE:
                return Deed.CRAFTED_OPPOSITE if is_crafted else Deed.OWN_OPPOSITE
            case Unit.RECORD, Relation.ADD_REMOVE:
                return Deed.WITHOUT_RECORD
            case _:
                return Deed.OTHER_RECORD


def _chosen(name: str, value: object, kinds: type[StrEnum]) -> StrEnum:
    """Return the choice of a name, or refuse it."""
    if value not in list(kinds):
        raise InputError(f"{name} is {value!r}: accepted are {', '.join(kinds)}")
    return kinds(str(value))
