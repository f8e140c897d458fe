"""Reference to a paper, which what uses the paper names itself: a noise, an attack."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperReference:
    """A paper in the references of a report."""

    citation: str  # authors, year, title, and where it was published
    use: str  # what is taken from it
    identifier: str  # DOI
