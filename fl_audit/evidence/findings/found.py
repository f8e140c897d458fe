"""The numbers of the findings about a run, by their type."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar


class Findable(Protocol):
    """The numbers of a finding: a frozen dataclass that can say itself in JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return the entries of `summary.json` by their names at its top level."""
        ...


Numbers = TypeVar("Numbers")


@dataclass(frozen=True)
class Findings:
    """The numbers of the findings about a run, by their type."""

    by_type: Mapping[type, object]

    def find(self, kind: type[Numbers]) -> Numbers | None:
        """Return the numbers of a finding, None where the run has none."""
        found = self.by_type.get(kind)
        assert found is None or isinstance(found, kind)
        return found


def finite(value: float | None) -> float | None:
    """Return a number as JSON can hold it: None for what is infinite or not a number."""
    return value if value is not None and math.isfinite(value) else None
