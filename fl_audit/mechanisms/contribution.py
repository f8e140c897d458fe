"""What one unit adds to a release, before the noise."""

from dataclasses import dataclass
from typing import Literal

from fl_audit.adjacency import Unit


@dataclass(frozen=True)
class RecordGradients:
    """Clipped gradients of records: each record adds its own, and a client sends the sum over its records."""

    kind: Literal["record-gradients"] = "record-gradients"

    @property
    def unit(self) -> Unit:
        """The unit whose contribution is clipped, and so can be promised something."""
        return Unit.RECORD


Contribution = RecordGradients
"""The kinds of contribution."""
