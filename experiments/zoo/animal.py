"""What an animal of the zoo is: a claim, what really runs, and the honest mechanism for which the claim holds."""

from dataclasses import dataclass

from fl_audit.errors import require
from fl_audit.laboratory.claim import StatedClaim
from strategies.laboratory.subject import Subject

NO_INCIDENT = "no published incident known to us"


@dataclass(frozen=True)
class Honest:
    """A mechanism that keeps its claim.

    Parameters
    ----------
    name
        By which it is called.
    claim
        What it claims.
    subject
        What runs.
    """

    name: str
    claim: StatedClaim
    subject: Subject


@dataclass(frozen=True)
class Animal:
    """A mechanism that breaks its claim.

    Parameters
    ----------
    name
        By which it is called.
    twin
        The honest mechanism that it takes itself for; both have one claim.
    subject
        What really runs.
    wrong
        What is wrong, in a sentence.
    source
        The published incident, or the publication that describes the mistake.
    mend
        What its author has to do.

    Raises
    ------
    InputError
        If a sentence is empty.
    """

    name: str
    twin: Honest
    subject: Subject
    wrong: str
    source: str
    mend: str

    def __post_init__(self) -> None:
        for what in ("wrong", "source", "mend"):
            require(bool(getattr(self, what).strip()), f"{what} of {self.name} is empty: accepted is a sentence")

    @property
    def claim(self) -> StatedClaim:
        """What it claims."""
        return self.twin.claim
